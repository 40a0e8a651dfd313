// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples `disk_procs` and `disk_cgroups`: who uses which disk. `README.md` says what is counted, and where.

abi!("disks");

use std::mem::{offset_of, size_of};
use std::sync::Arc;

use topstat_model::{ColumnKind, Unit};

use crate::family::{
    Build, Builds, Constant, Constants, Family, FieldAt, FilterBy, Kind, Objects, Ranked, Refill, RowColumn, columns,
};
use crate::hooks::Hook;
use crate::{SampleInfo, TableInfo};

/// The family of the samples of disks.
pub fn family() -> Family {
    Family {
        name: "disks".to_owned(),
        abi: abi::DISKS_ABI,
        samples: samples().map(Arc::new).to_vec(),
        kind: Kind::Ranked(Arc::new(ranked())),
        since: (6, 1),
        ready: || Ok(()),
        check: Vec::new,
    }
}

fn ranked() -> Ranked {
    Ranked {
        sample_banks: 1,
        builds: Builds::one(Build {
            observer: object!("disks/disks.bpf.o"),
            snapshot: object!("disks/snapshot.bpf.o"),
            // Ends before beginnings: no object is held by a request that nobody sees the end of.
            hooks: vec![
                Hook::tracepoint("disks_complete", "block_rq_complete"),
                Hook::tracepoint("disks_insert", "block_rq_insert"),
                Hook::tracepoint("disks_issue", "block_rq_issue"),
            ],
            adopt: |_| Ok(()),
            adopt_before: None,
            refill: |object, maps, _| Refill::over_map(object, &maps.objects, "disks_refill"),
            maps: vec!["buckets", "pending"],
            sizes: Vec::new(),
            less: || None,
        }),
        constants: Constants::new(
            size_of::<abi::disks_constants>(),
            [
                (offset_of!(abi::disks_constants, jiffy_ns), Constant::JiffyNs),
                (offset_of!(abi::disks_constants, v1_controller), Constant::V1Controller),
            ],
        ),
        section_head: size_of::<abi::disks_section>(),
        row: size_of::<abi::disks_row>(),
        opaque: false,
        parts: ["read", "write"].map(str::to_owned).to_vec(),
        lost: Vec::new(),
        unranked: None,
    }
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
