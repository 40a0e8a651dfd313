// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of tasks and cgroups.

use std::mem::offset_of;

use topstat_model::Unit::{Count, Nanoseconds};

use super::abi::{TASKS_CPU, TASKS_CPU_TOTAL, TASKS_SWITCHES, TASKS_WAITS, tasks_row};
use topstat_kernel::family::{Objects, columns};
use topstat_kernel::{SampleInfo, TableInfo};

/// In the order of `enum tasks_sample`.
pub fn samples() -> Vec<SampleInfo> {
    let ns = |number, name, about| TableInfo::dynamic(number, name, Nanoseconds, "ns", about);
    let who = offset_of!(tasks_row, who);
    let cpu = "time on a CPU per period; total is time × CPUs, idle is a row of its own (pid 0)";
    let of_tasks = [
        ns(TASKS_CPU, "cpu", cpu),
        TableInfo::running_total(TASKS_CPU_TOTAL, "cpu_total", Nanoseconds, "ns", "time on a CPU, running total"),
        TableInfo::dynamic(TASKS_SWITCHES, "switches", Count, "switches", "how often it left a CPU, per period"),
        ns(TASKS_WAITS, "waits", "time it was runnable but waited for a CPU, per period"),
    ];
    let cpu = "time on a CPU per period of the tasks that are in it (not below it); total is time × CPUs";
    let of_groups = [ns(TASKS_CPU, "cpu", cpu)];
    let about = ["processes, by CPU time", "control groups (containers), by the CPU time of their tasks"];
    vec![
        SampleInfo::new("tasks", about[0], Objects::Task, columns::process(who), of_tasks),
        SampleInfo::new("cgroups", about[1], Objects::Cgroup, columns::group(who).to_vec(), of_groups),
    ]
}
