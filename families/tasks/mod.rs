// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples `tasks` and `cgroups`: the use of the CPUs by process and control group.
//!
//! `README.md` in this folder describes what is counted, and where.

abi!("tasks");
#[cfg(feature = "bench")]
pub mod bench;
mod fallbacks;
mod groups;
mod idle;
mod tables;

use std::mem::{offset_of, size_of};

use topstat_kernel::family::{Constant, Constants, Family, Ranked};

const _: () = assert!(abi::TASKS_TABLES == abi::TS_BANK_TABLES, "a bank for each sample");
const _: () =
    assert!(abi::TASKS_GROUPS == topstat_kernel::MAX_GROUPS, "the array holds as many groups as users may ask for");

/// The constants of the programs.
fn constants() -> Constants {
    let fields = [
        (offset_of!(abi::tasks_constants, by_thread), Constant::ByThread),
        (offset_of!(abi::tasks_constants, v1_controller), Constant::V1Controller),
        (offset_of!(abi::tasks_constants, groups), Constant::Groups),
    ];
    Constants::new(size_of::<abi::tasks_constants>(), fields)
}

/// The family of the samples of tasks.
pub fn family() -> Family {
    let ranked = Ranked {
        full: true, // where the kernel has no storage for control groups
        unranked: Some(idle::row),
        ..Ranked::new::<abi::tasks_section, abi::tasks_row>(fallbacks::builds(), constants())
    };
    Family::ranked("tasks", abi::TASKS_ABI, (6, 1), tables::samples(), ranked)
}
