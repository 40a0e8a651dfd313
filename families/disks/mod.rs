// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples `disk_procs` and `disk_cgroups`: the use of disks by process and control group. `README.md` describes what is counted,
//! and where.

abi!("disks");

use std::mem::{offset_of, size_of};

use topstat_model::Reach::{Local, Spanning};
use topstat_model::{ColumnKind, Unit};

use topstat_kernel::family::{
    Build, Builds, Constant, Constants, Family, FieldAt, FilterBy, Objects, Probes, Ranked, Refill, RowColumn, columns,
};
use topstat_kernel::hooks::Hook;
use topstat_kernel::{SampleInfo, TableInfo};

/// The program of `probe.bpf.c` that needs `block_io_start`, which came with Linux 6.5 together with `block_io_done`.
const START: &str = "probe_start";

/// `probe.bpf.c`.
static PROBES: Probes = Probes::new(object!("disks/probe.bpf.o"));

/// The family of the samples of disks.
pub fn family() -> Family {
    let build = Build {
        maps: vec!["buckets", "pending", "devices", ".data.unkept"],
        ..Build::new(
            object!("disks/disks.bpf.o"),
            object!("disks/snapshot.bpf.o"),
            // Ends before beginnings: a request that holds an object always has a hook that sees its end.
            [
                Hook::tracepoint("disks_end", "block_io_done").with(START),
                Hook::tracepoint("disks_complete", "block_rq_complete").losing(),
                Hook::tracepoint("disks_merge", "block_rq_merge"),
                Hook::tracepoint("disks_start", "block_io_start").with(START),
                Hook::tracepoint("disks_bio", "block_getrq").without(START),
                Hook::tracepoint("disks_insert", "block_rq_insert").without(START),
                Hook::tracepoint("disks_issue", "block_rq_issue").without(START),
            ]
            .into_iter()
            .chain(Hook::of_owners("disks"))
            .collect(),
            |object, maps, _| Refill::over_places(object, &maps.objects, "disks_refill"),
        )
    };
    let fields = [
        (offset_of!(abi::disks_constants, jiffy_ns), Constant::JiffyNs),
        (offset_of!(abi::disks_constants, v1_controller), Constant::V1Controller),
    ];
    let constants = Constants::new(size_of::<abi::disks_constants>(), fields);
    let ranked = Ranked {
        sample_banks: abi::DISKS_SAMPLE_BANKS,
        full: true,
        unmatched: true,
        parts: ["read", "write"].map(str::to_owned).to_vec(),
        ..Ranked::new::<abi::disks_section, abi::disks_row>(Builds::one(build).probed(&PROBES), constants)
    };
    Family::ranked("disks", abi::DISKS_ABI, (6, 1), samples(), ranked)
}

/// In the order of `enum disks_sample`; tables in the order of `enum disks_table`.
fn samples() -> [SampleInfo; 2] {
    const ROW: usize = offset_of!(abi::disks_row, who);
    const CLOSED: usize = offset_of!(abi::disks_row, closed);
    const PROCESS: usize = ROW + offset_of!(abi::disks_who, process);
    let device = FieldAt::Name(ROW + offset_of!(abi::disks_who, device), abi::DISKS_NAME as usize);
    let about = "Only on this disk, exactly: nvme0n1";
    let device = RowColumn::new("device", ColumnKind::Text, device).by("device", "DISK", about, FilterBy::Text);
    let in_flight = FieldAt::U64(offset_of!(abi::disks_row, in_flight));
    let in_flight = RowColumn::new("in_flight", ColumnKind::Id, in_flight);
    let tables = || {
        let table = TableInfo::dynamic;
        [
            table(abi::DISKS_BYTES, "bytes", Unit::Bytes, "bytes", "bytes read and written, per period"),
            table(abi::DISKS_OPS, "ops", Unit::Count, "ops", "reads and writes done, per period"),
            table(
                abi::DISKS_WAIT,
                "wait",
                Unit::Nanoseconds,
                "ns",
                "time that reads, writes and flushes took, per period",
            ),
            table(abi::DISKS_FLUSHES, "flushes", Unit::Count, "flushes", "flushes of the disk's cache, per period"),
            table(abi::DISKS_DISCARDS, "discards", Unit::Bytes, "bytes", "bytes discarded, per period"),
        ]
    };
    let sample = |name, whom: &str, whose: Vec<RowColumn>| {
        let columns = [vec![device.clone()], whose, vec![in_flight.clone(), columns::closed(CLOSED)]].concat();
        SampleInfo::new(name, &format!("{whom} on disks, by reads and writes"), Objects::Keyed, columns, tables())
    };
    let group = columns::group(PROCESS).to_vec();
    let processes = sample("disk_procs", "processes", columns::process(PROCESS));
    [
        processes.keyed(Local, &["device", "pid", "tid", "comm", "cgroup", "container"]),
        sample("disk_cgroups", "control groups", group).keyed(Spanning, &["device", "cgroup"]),
    ]
}
