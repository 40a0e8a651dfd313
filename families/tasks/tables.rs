// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of tasks and cgroups.

use topstat_model::{TableType, Unit};

use super::abi;
use crate::{SampleInfo, TableInfo};

/// In the order of `enum tasks_sample`.
pub static SAMPLES: &[SampleInfo] = &[
    SampleInfo {
        name: "tasks",
        about: "processes, by what they use of the CPUs",
        tables: &[
            TableInfo {
                sample: "tasks",
                name: "cpu",
                number: abi::TASKS_CPU,
                kind: TableType::Dynamic,
                unit: Unit::Nanoseconds,
                value_name: "ns",
                about: "time on a CPU per period; total is time × CPUs, idle is a row of its own (pid 0)",
            },
            TableInfo {
                sample: "tasks",
                name: "cpu_total",
                number: abi::TASKS_CPU_TOTAL,
                kind: TableType::Static,
                unit: Unit::Nanoseconds,
                value_name: "ns",
                about: "time on a CPU, running total",
            },
            TableInfo {
                sample: "tasks",
                name: "switches",
                number: abi::TASKS_SWITCHES,
                kind: TableType::Dynamic,
                unit: Unit::Count,
                value_name: "switches",
                about: "how often it left a CPU, per period",
            },
            TableInfo {
                sample: "tasks",
                name: "waits",
                number: abi::TASKS_WAITS,
                kind: TableType::Dynamic,
                unit: Unit::Nanoseconds,
                value_name: "ns",
                about: "time it was runnable but waited for a CPU, per period",
            },
        ],
        threads: true,
    },
    SampleInfo {
        name: "cgroups",
        about: "control groups (containers), by what their tasks use of the CPUs",
        tables: &[TableInfo {
            sample: "cgroups",
            name: "cpu",
            number: abi::TASKS_CPU,
            kind: TableType::Dynamic,
            unit: Unit::Nanoseconds,
            value_name: "ns",
            about: "time on a CPU per period of the tasks that are in it (not below it); total is time × CPUs",
        }],
        threads: false,
    },
];
