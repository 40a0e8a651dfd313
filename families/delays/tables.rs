// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of what processes wait for.

use topstat_model::Unit;

use super::abi;
use crate::{SampleInfo, TableInfo};

/// The one sample, its tables in the order of `enum delays_table`.
pub fn samples() -> Vec<SampleInfo> {
    let table = |number, name, about| TableInfo::dynamic(number, name, Unit::Nanoseconds, "ns", about);
    let about = "processes, by what they wait for: devices and memory (needs kernel.task_delayacct=1)";
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
    vec![SampleInfo { threads: true, ..SampleInfo::new("delays", about, tables) }]
}
