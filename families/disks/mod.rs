// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples `disk_procs` and `disk_cgroups`: who uses which disk. `README.md` says what is counted, and where.

abi!("disks");

use std::mem::{offset_of, size_of};

use topstat_model::{ColumnKind, Unit};

use crate::family::{
    Build, Builds, Constant, Constants, Family, FieldAt, FilterBy, Objects, Ranked, Refill, RowColumn, columns,
};
use crate::hooks::Hook;
use crate::{SampleInfo, TableInfo};

/// The family of the samples of disks.
pub fn family() -> Family {
    let build = Build {
        maps: vec!["buckets", "pending"],
        ..Build::new(
            object!("disks/disks.bpf.o"),
            object!("disks/snapshot.bpf.o"),
            // Ends before beginnings: no object is held by a request that nobody sees the end of.
            vec![
                Hook::tracepoint("disks_complete", "block_rq_complete").losing(),
                Hook::tracepoint("disks_insert", "block_rq_insert"),
                Hook::tracepoint("disks_issue", "block_rq_issue"),
            ],
            |object, maps, _| Refill::over_map(object, &maps.objects, "disks_refill"),
        )
    };
    let fields = [
        (offset_of!(abi::disks_constants, jiffy_ns), Constant::JiffyNs),
        (offset_of!(abi::disks_constants, v1_controller), Constant::V1Controller),
    ];
    let constants = Constants::new(size_of::<abi::disks_constants>(), fields);
    let ranked = Ranked {
        full: true,
        parts: ["read", "write"].map(str::to_owned).to_vec(),
        ..Ranked::new::<abi::disks_section, abi::disks_row>(Builds::one(build), constants)
    };
    Family::ranked("disks", abi::DISKS_ABI, (6, 1), samples(), ranked)
}

/// In the order of `enum disks_sample`, with tables in that of `enum disks_table`.
fn samples() -> [SampleInfo; 2] {
    const ROW: usize = offset_of!(abi::disks_row, who);
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
            table(abi::DISKS_OPS, "ops", Unit::Count, "ops", "requests done, per period"),
            table(abi::DISKS_WAIT, "wait", Unit::Nanoseconds, "ns", "time that requests took, per period"),
        ]
    };
    let sample = |name, whom: &str, whose: Vec<RowColumn>| {
        let columns = [vec![device.clone()], whose, vec![in_flight.clone()]].concat();
        SampleInfo::new(
            name,
            &format!("{whom} on disks, by what they read and write"),
            Objects::Keyed,
            columns,
            tables(),
        )
    };
    let group = columns::group(PROCESS).to_vec();
    [sample("disk_procs", "processes", columns::process(PROCESS)), sample("disk_cgroups", "control groups", group)]
}
