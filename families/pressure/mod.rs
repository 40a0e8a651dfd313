// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples `cgroup_limits`, `cgroup_pressure` and `cgroup_memory`: the kernel's counters of every control group. `README.md` explains
//! the rows and totals.

abi!("pressure");
mod reader;
mod rolled;
mod tables;

use std::sync::Arc;

use topstat_model::{Reach, Unit};

use topstat_kernel::Counting;
use topstat_kernel::family::{Family, Objects, RowColumn, columns};
use topstat_kernel::report::{Check, Outcome};
use topstat_kernel::{SampleInfo, TableInfo};

const LIMITS: &str = "cgroup_limits";
const PRESSURE: &str = "cgroup_pressure";
const MEMORY: &str = "cgroup_memory";

/// The family of the kernel's counters of control groups.
pub fn family() -> Family {
    let counting =
        Counting { try_load: reader::try_load, available, open: tables::open, parts: |_| &[], lost: |_| &tables::LOST };
    Family {
        name: "pressure".to_owned(),
        abi: 0, // the family pins nothing
        samples: samples().into_iter().map(Arc::new).collect(),
        kind: Arc::new(counting),
        since: (6, 1),
        ready: || Ok(()),
        check: || vec![check()],
    }
}

/// The tables of limits, in the order of their numbers: throttling, then events of memory in the order of `enum pressure_event`.
fn limits() -> SampleInfo {
    let table = TableInfo::dynamic;
    let tables = [
        table(
            0,
            "throttled",
            Unit::Nanoseconds,
            "ns",
            "time that CPUs were kept from the group, at cpu.max, per period",
        ),
        table(1, "throttled_periods", Unit::Count, "periods", "periods in which the group reached cpu.max, per period"),
        table(2, "high", Unit::Count, "events", "times that the group was over memory.high, per period"),
        table(3, "max", Unit::Count, "events", "times that the group was about to be over memory.max, per period"),
        table(4, "oom", Unit::Count, "events", "times that memory.max left no memory for the group, per period"),
        table(5, "oom_kill", Unit::Count, "processes", "processes of the group killed for lack of memory, per period"),
    ];
    SampleInfo::new(LIMITS, "control groups that reach their limits", Objects::Counter, group_columns(), tables)
}

/// In the order of `enum pressure_kind`.
fn pressure() -> SampleInfo {
    let table = |number, name, about: &str| {
        TableInfo::dynamic(number, name, Unit::Nanoseconds, "ns", &format!("time in which {about}, per period"))
    };
    let tables = [
        table(abi::PRESSURE_CPU_SOME, "cpu_some", "some task waited for a CPU"),
        table(abi::PRESSURE_CPU_FULL, "cpu_full", "tasks waited for a CPU, and none ran"),
        table(abi::PRESSURE_MEM_SOME, "mem_some", "some task waited for memory"),
        table(abi::PRESSURE_MEM_FULL, "mem_full", "tasks waited for memory, and none ran"),
        table(abi::PRESSURE_IO_SOME, "io_some", "some task waited for I/O"),
        table(abi::PRESSURE_IO_FULL, "io_full", "tasks waited for I/O, and none ran"),
    ];
    SampleInfo::new(PRESSURE, "control groups that wait (PSI)", Objects::Counter, group_columns(), tables)
}

fn memory() -> SampleInfo {
    let about = "memory of the group itself, now";
    let tables = [TableInfo::running_total(0, "bytes", Unit::Bytes, "bytes", about)];
    SampleInfo::new(MEMORY, "control groups by memory", Objects::Counter, group_columns(), tables)
}

fn samples() -> [SampleInfo; 3] {
    [limits(), pressure(), memory()].map(|sample| sample.keyed(Reach::Spanning, &["cgroup"]))
}

fn group_columns() -> Vec<RowColumn> {
    columns::group(0).to_vec()
}

/// The samples for which this kernel keeps anything.
fn available() -> Vec<String> {
    // Reading fails with EOPNOTSUPP where pressure is switched off (psi=0).
    let stalls = std::fs::read("/proc/pressure/cpu").is_ok();
    let controllers = topstat_kernel::cgroup::controllers();
    let has = |name: &str| controllers.iter().any(|controller| controller == name);
    let samples = [(LIMITS, has("cpu") || has("memory")), (PRESSURE, stalls), (MEMORY, has("memory"))];
    samples.iter().filter(|(_, available)| *available).map(|(name, _)| (*name).to_owned()).collect()
}

/// The line of `topstat check`.
fn check() -> Check {
    let available = available();
    let absent: Vec<_> =
        samples().into_iter().map(|sample| sample.name).filter(|name| !available.contains(name)).collect();
    let (name, advice) = ("control groups".to_owned(), "psi=1 on the kernel's command line switches pressure on");
    let (outcome, found) = match reader::try_load() {
        Ok(()) if absent.is_empty() => (Outcome::Ok, "limits, pressure and memory".to_owned()),
        Ok(()) => (Outcome::Degraded, format!("this kernel does not count {}", absent.join(", "))),
        Err(why) => (Outcome::Missing, topstat_kernel::report::explain(why, "pressure").to_string()),
    };
    let advice = if absent.contains(&PRESSURE.to_owned()) { advice.to_owned() } else { String::new() };
    Check { name, outcome, found, advice }
}

#[cfg(test)]
mod tests {
    use topstat_model::ColumnKind;

    use super::*;

    #[test]
    fn tables_are_numbered_in_their_order() {
        for sample in samples() {
            let numbers: Vec<_> = sample.tables.iter().map(|table| table.number).collect();
            assert_eq!(numbers, (0..numbers.len() as u32).collect::<Vec<_>>(), "{}", sample.name);
            assert!(sample.columns.iter().any(|column| column.column.kind == ColumnKind::Path));
        }
        assert_eq!(pressure().tables.len(), abi::PRESSURE_KINDS as usize);
        assert_eq!(limits().tables.len(), tables::EVENTS_FROM as usize + abi::PRESSURE_EVENTS as usize);
    }
}
