// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sample `delays`: what processes wait for, by the kernel's delay accounting.
//!
//! See `README.md` in this folder for what is counted, and where.

abi!("delays");
mod accounting;

use std::mem::{offset_of, size_of};

use topstat_model::Unit;

use topstat_kernel::family::{Build, Builds, Constant, Constants, Family, Objects, OwnLost, Ranked, Refill, columns};
use topstat_kernel::hooks::Hook;
use topstat_kernel::{SampleInfo, TableInfo, process};

/// The map that counts waits for block I/O that were longer than the time there was for them.
const IMPOSSIBLE: &str = ".data.impossible";

const _: () = assert!(
    abi::DELAYS_TABLES <= abi::DELAYS_BANKS * abi::TS_BANK_TABLES && abi::DELAYS_BANKS.is_power_of_two(),
    "the tables fit the banks"
);

/// The family of the sample of delays.
pub fn family() -> Family {
    let family = Family::ranked("delays", abi::DELAYS_ABI, (6, 1), [sample()], ranked());
    Family { ready: accounting::ready, check: accounting::check, ..family }
}

fn ranked() -> Ranked {
    let build = Build {
        adopt: |object| process::adopt(object, "delays_adopt"),
        adopt_before: Some("delays_switch"),
        maps: vec!["threads", IMPOSSIBLE],
        ..Build::new(
            object!("delays/delays.bpf.o"),
            object!("delays/snapshot.bpf.o"),
            // Births before switches, so that no task runs without its object.
            vec![
                Hook::tracepoint("delays_new", "task_newtask"),
                Hook::tracepoint("delays_exec", "sched_process_exec"),
                Hook::tracepoint("delays_exit", "sched_process_exit"),
                Hook::tracepoint("delays_free", "sched_process_free"),
                Hook::tracepoint("delays_switch", "sched_switch"),
            ],
            |object, _, _| Refill::over_tasks(object, "delays_refill"),
        )
    };
    let fields = [
        (offset_of!(abi::delays_constants, by_thread), Constant::ByThread),
        (offset_of!(abi::delays_constants, v1_controller), Constant::V1Controller),
        (offset_of!(abi::delays_constants, jiffy_ns), Constant::JiffyNs),
    ];
    let constants = Constants::new(size_of::<abi::delays_constants>(), fields);
    let impossible =
        OwnLost { table: "delays/blkio".to_owned(), name: "impossible".to_owned(), map: IMPOSSIBLE.to_owned() };
    Ranked {
        sample_banks: abi::DELAYS_BANKS,
        lost: vec![impossible],
        ..Ranked::new::<abi::delays_section, abi::delays_row>(Builds::one(build), constants)
    }
}

/// The sample. Its tables are in the order of `enum delays_table`.
fn sample() -> SampleInfo {
    let table = |number, name, about| TableInfo::dynamic(number, name, Unit::Nanoseconds, "ns", about);
    let about = "processes, by the time they wait for devices and memory (needs kernel.task_delayacct=1)";
    let tables = [
        table(abi::DELAYS_BLKIO, "blkio", "time it waited for block I/O, per period"),
        table(abi::DELAYS_SWAPIN, "swapin", "time it waited for memory to be swapped in, per period"),
        table(abi::DELAYS_RECLAIM, "reclaim", "time it had to free memory itself before it got some, per period"),
        table(
            abi::DELAYS_THRASHING,
            "thrashing",
            "time it waited for pages to come back that were thrown out too early, per period",
        ),
        table(abi::DELAYS_COMPACT, "compact", "time it had to move memory together before it got some, per period"),
        table(abi::DELAYS_WPCOPY, "wpcopy", "time it took to copy shared pages on writing, per period"),
    ];
    SampleInfo::new("delays", about, Objects::Task, columns::process(offset_of!(abi::delays_row, who)), tables)
}
