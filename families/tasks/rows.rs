// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What describes a task, or a cgroup.

use std::mem::{offset_of, size_of};

use libbpf_rs::{MapCore as _, MapFlags};
use topstat_engine::window_value;
use topstat_model::{Column, Field};

use super::abi;
use crate::cgroup::Paths;
use crate::process;
use crate::ranking::{Head, Maps, ts_tick};

/// How often an idle window is read again that is being written.
const BUSY_TRIES: u32 = 100;
/// The id of the row that is all CPUs' idle time: no task has it.
const IDLE_ID: u64 = u64::MAX;

/// The columns of a sample.
pub fn columns(sample: u32) -> Vec<Column> {
    if sample == abi::TASKS_TASKS { process::columns() } else { process::cgroup_columns().to_vec() }
}

/// The fields of a row, in the order of [`columns`].
pub fn describe(sample: u32, row: &abi::tasks_row, paths: &mut Paths) -> Vec<Field> {
    if sample == abi::TASKS_TASKS {
        process::describe(&row.who, paths)
    } else {
        process::describe_cgroup(&row.who, paths).to_vec()
    }
}

/// The idle time of all CPUs: no task's, and ranked by none of them.
pub fn idle(maps: &Maps, sample: u32, table: u32, tick: &ts_tick) -> Option<abi::tasks_row> {
    if table != abi::TASKS_CPU && table != abi::TASKS_CPU_TOTAL {
        return None;
    }
    let each = (0..).map_while(|cpu| runner(maps, cpu)).map(|runner| idle_of(maps, runner, sample, table, tick));
    let value = each.fold(0, u64::saturating_add);
    let head = Head { id: IDLE_ID, value, part: [value, 0], ..Head::default() };
    let mut row = abi::tasks_row { row: head, ..Default::default() };
    let name = if sample == abi::TASKS_TASKS { "idle" } else { "" };
    for (to, from) in row.who.comm.iter_mut().zip(name.bytes()) {
        *to = core::ffi::c_char::from_ne_bytes([from]);
    }
    Some(row)
}

/// A CPU's slot and its number; `None`: there is no such CPU.
fn runner(maps: &Maps, cpu: u32) -> Option<(u32, Vec<u8>)> {
    let (_, runners) = maps.further.iter().find(|(name, _)| *name == "runners")?;
    if cpu >= runners.max_entries() {
        return None;
    }
    let bytes = runners.lookup(&cpu.to_ne_bytes(), MapFlags::ANY).ok().flatten()?;
    (bytes.len() >= size_of::<abi::tasks_runner>()).then_some((cpu, bytes))
}

fn idle_of(maps: &Maps, (cpu, bytes): (u32, Vec<u8>), sample: u32, table: u32, tick: &ts_tick) -> u64 {
    let mut bytes = bytes;
    for _ in 0..BUSY_TRIES {
        if table == abi::TASKS_CPU_TOTAL {
            let at = offset_of!(abi::tasks_runner, idle_total);
            return u64::from_ne_bytes(bytes[at..at + size_of::<u64>()].try_into().unwrap_or_default());
        }
        let at = offset_of!(abi::tasks_runner, idle) + sample as usize * size_of::<abi::ts_window>();
        // SAFETY: the slot is whole and holds a window for each sample, and any bytes are a window.
        let window: abi::ts_window = unsafe { bytes.as_ptr().add(at).cast::<abi::ts_window>().read_unaligned() };
        if let Some(value) = window_value(&window, tick) {
            return value.value;
        }
        let Some((_, again)) = runner(maps, cpu) else { break };
        bytes = again;
    }
    0
}
