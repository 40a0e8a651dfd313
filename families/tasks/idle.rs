// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The idle time of all CPUs. It belongs to no task, and is not ranked in the kernel.

use std::mem::{offset_of, size_of};

use topstat_engine::{abi::ts_row, ts_tick, ts_window, window_value};
use topstat_model::TableType;

use super::abi::{TASKS_CPU, TASKS_CPU_TOTAL, TASKS_SAMPLES, TASKS_TASKS, tasks_row, tasks_runner};
use topstat_kernel::bpf::{self, Shared};
use topstat_kernel::family::{BankId, TablePlace};
use topstat_kernel::maps::Maps;
use topstat_kernel::ranking::window;

/// The id of the idle row: no task has it.
const ID: u64 = u64::MAX;

/// The idle row of a table.
pub fn row(maps: &Maps, place: TablePlace, tick: &ts_tick) -> Option<Vec<u8>> {
    // Each sample has one bank.
    let TablePlace { bank: BankId(sample), table } = place;
    if (table != TASKS_CPU && table != TASKS_CPU_TOTAL) || sample >= TASKS_SAMPLES {
        return None;
    }
    let runners = Shared::new(maps.get("runners")?).ok()?;
    let cpus = 0..runners.entries();
    let value = cpus.map(|cpu| of_cpu(&runners, cpu, sample, table, tick)).fold(0, u64::saturating_add);
    let mut row =
        tasks_row { row: ts_row { id: ID, value, part: [value, 0], ..ts_row::default() }, ..Default::default() };
    let name = if sample == TASKS_TASKS { "idle" } else { "" };
    for (to, from) in row.who.comm.iter_mut().zip(name.bytes()) {
        *to = core::ffi::c_char::from_ne_bytes([from]);
    }
    Some(bpf::as_bytes(&row).to_vec())
}

fn of_cpu(runners: &Shared, cpu: usize, sample: u32, table: u32, tick: &ts_tick) -> u64 {
    if table == TASKS_CPU_TOTAL {
        return runners.read(cpu, offset_of!(tasks_runner, idle_total));
    }
    let at = offset_of!(tasks_runner, idle) + sample as usize * size_of::<ts_window>();
    window(runners, cpu, at, TableType::Dynamic, |window| window_value(window, tick).map(|v| v.value)).unwrap_or(0)
}
