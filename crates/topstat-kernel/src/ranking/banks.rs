// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The banks of a family: its tables on each CPU, in memory shared with the kernel.

use std::mem::{offset_of, size_of};

use libbpf_rs::MapHandle;
use topstat_engine::{window_is_done, window_most, window_value};
use topstat_model::TableType;

use crate::Error;
use crate::bpf::Shared;
use crate::family::{BankId, TablePlace};
use topstat_engine::abi::{TS_BANK_TABLES, TS_MARKS, ts_bank, ts_entry, ts_table, ts_tick, ts_window, ts_window_head};

/// The most reads of a total that is being written.
const BUSY_TRIES: u32 = 200;

/// See the module.
pub struct Banks {
    memory: Shared,
    /// Banks of a CPU: mostly one for each sample.
    per_cpu: u32,
    entries: u32,
}

/// Bytes of one bank on one CPU, for tables of `entries` entries.
pub fn bank_size(entries: u32) -> usize {
    table_offset(entries, TS_BANK_TABLES)
}

/// The offset of a table in its bank.
fn table_offset(entries: u32, table: u32) -> usize {
    size_of::<ts_bank>() + table as usize * topstat_engine::table_size(entries)
}

impl Banks {
    /// The banks in this map: `per_cpu` of them for each CPU, with tables of `entries` entries.
    pub fn new(map: &MapHandle, per_cpu: usize, entries: u32) -> Result<Self, Error> {
        let per_cpu = u32::try_from(per_cpu).unwrap_or(u32::MAX);
        Ok(Self { memory: Shared::new(map)?, per_cpu, entries })
    }

    /// The banks in this memory.
    #[cfg(any(test, feature = "fuzz"))]
    pub fn of(memory: Shared, per_cpu: u32, entries: u32) -> Self {
        Self { memory, per_cpu, entries }
    }

    /// Frees every slot, and writes each table's place: `ts_table_init()`, through shared memory. To be called before any push.
    pub fn init(&self) {
        for bank in 0..self.cpus() * self.per_cpu {
            for table in 0..TS_BANK_TABLES {
                let base = table_offset(self.entries, table);
                self.memory.write::<u32>(bank as usize, base + offset_of!(ts_table, place), bank << 8 | table);
                for i in 0..self.entries {
                    let entry = base + size_of::<ts_table>() + i as usize * size_of::<ts_entry>();
                    let order = u16::try_from(i).unwrap_or(0);
                    self.memory.write::<u16>(bank as usize, entry + offset_of!(ts_entry, order), order);
                }
            }
        }
    }

    /// The number of CPUs that have banks.
    pub fn cpus(&self) -> u32 {
        u32::try_from(self.memory.entries()).unwrap_or(u32::MAX) / self.per_cpu
    }

    /// The number of entries of a table.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    fn bank(&self, cpu: u32, bank: BankId) -> usize {
        (cpu * self.per_cpu + bank.0) as usize
    }

    /// The entry of the map and the offset in it at which a table begins.
    fn at(&self, cpu: u32, place: TablePlace) -> (usize, usize) {
        (self.bank(cpu, place.bank), table_offset(self.entries, place.table))
    }

    /// Whether anything was ever counted on the CPU, or is in its table. Other CPUs are not read, so idle CPUs cost nothing. A
    /// reader orders objects on its own CPU that were counted on other CPUs. The bound of the objects that it could not order
    /// counts against rows (T5).
    pub fn used(&self, cpu: u32, place: TablePlace) -> bool {
        let (bank, table) = self.at(cpu, place);
        let some = |at: usize| self.memory.read::<u64>(bank, table + at) != 0;
        let window = |at: usize| {
            let sum = at + offset_of!(ts_window, sum);
            some(sum) || some(sum + size_of::<u64>())
        };
        window(offset_of!(ts_table, total))
            || window(offset_of!(ts_table, refused))
            || some(offset_of!(ts_table, contended))
            || self.memory.read::<u32>(bank, table + offset_of!(ts_table, n)) != 0
    }

    /// The sum of all pushes ever, over all CPUs and both parts.
    pub fn pushed(&self, place: TablePlace) -> u64 {
        let of = |cpu| {
            let (bank, table) = self.at(cpu, place);
            let sum = table + offset_of!(ts_table, total) + offset_of!(ts_window, sum);
            let part = |part: usize| self.memory.read::<u64>(bank, sum + part * size_of::<u64>());
            part(0).wrapping_add(part(1))
        };
        (0..self.cpus()).map(of).fold(0, u64::wrapping_add)
    }

    /// The amount pushed on a CPU, at the snapshot's instant. It is read after the rows, so that it is never less than they are.
    /// `None`: the table has advanced too far, and the snapshot has to begin anew.
    pub fn total(&self, cpu: u32, place: TablePlace, kind: TableType, tick: &ts_tick) -> Option<u64> {
        let (bank, table) = self.at(cpu, place);
        window(&self.memory, bank, table + offset_of!(ts_table, total), kind, |window| {
            window_value(window, tick).map(|v| v.value)
        })
    }

    /// The most that is unknown of any object because it was refused on this CPU (T6). It is read after the rows. `None` as for
    /// [`Banks::total`].
    pub fn refused(&self, cpu: u32, place: TablePlace, kind: TableType, tick: &ts_tick) -> Option<u64> {
        let (bank, table) = self.at(cpu, place);
        window(&self.memory, bank, table + offset_of!(ts_table, refused), kind, |window| window_most(window, tick))
    }

    /// Objects that were turned away before count against the rows no more (T5): all objects are about to be ordered again.
    pub fn forgive(&self, place: TablePlace) {
        self.set_missed(place, 0);
    }

    /// Leaves no row proven (T5) until a period has passed, or all objects were ordered again: with a delay, objects have grown
    /// without being looked at.
    pub fn distrust(&self, place: TablePlace) {
        self.set_missed(place, u64::MAX);
    }

    fn set_missed(&self, place: TablePlace, value: u64) {
        for cpu in 0..self.cpus() {
            let (bank, table) = self.at(cpu, place);
            for marks in [offset_of!(ts_table, missed), offset_of!(ts_table, missed_nested)] {
                for mark in 0..TS_MARKS as usize {
                    self.memory.write::<u64>(bank, table + marks + mark * size_of::<u64>(), value);
                }
            }
        }
    }
}

/// The value of a window in memory that is shared with the programs that write it; in a static table its running total. `None`:
/// the window has advanced too far, and the caller has to begin anew.
pub fn window(
    memory: &Shared,
    entry: usize,
    offset: usize,
    kind: TableType,
    value: impl Fn(&ts_window) -> Option<u64>,
) -> Option<u64> {
    for _ in 0..BUSY_TRIES {
        // The head is read before and after the marks, and the sums last: W6 and W9 in the engine's window.h.
        let head = || memory.read::<ts_window_head>(entry, offset + offset_of!(ts_window, sum));
        let before = head();
        let mut window: ts_window = memory.read(entry, offset);
        let after = head();
        window.sum = after.sum;
        if kind == TableType::Static {
            return Some(window.sum[0].wrapping_add(window.sum[1]));
        }
        if (before.slide, before.done, before.base) != (after.slide, after.done, after.base) {
            continue;
        }
        if let Some(value) = value(&window) {
            return Some(value);
        }
        if window_is_done(&window) {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A CPU's section is read wherever it may have a row, or a bound of objects without a row. That includes a CPU on which
    /// nothing was ever counted, but readers have ordered objects that were pushed to on other CPUs.
    #[test]
    fn a_cpu_is_used_where_anything_was_counted_or_ordered() {
        const ENTRIES: u32 = 4;
        const TABLE: u32 = 2;
        let sum = offset_of!(ts_window, sum);
        let total = offset_of!(ts_table, total) + sum;
        let refused = offset_of!(ts_table, refused) + sum;
        let fields = [total, total + 8, refused, offset_of!(ts_table, contended), offset_of!(ts_table, n)];
        for field in fields {
            let banks = Banks::of(Shared::of_bytes(bank_size(ENTRIES), 6, &[0]), 2, ENTRIES);
            let all = || (0..3).flat_map(|cpu| (0..2).map(move |bank| (cpu, BankId(bank))));
            let is_used = |cpu, bank, table| banks.used(cpu, TablePlace { bank, table });
            let used = |table| all().filter(|(cpu, bank)| is_used(*cpu, *bank, table)).collect::<Vec<_>>();
            assert_eq!(used(TABLE), []);
            banks.memory.write::<u32>(banks.bank(1, BankId(1)), table_offset(ENTRIES, TABLE) + field, 1);
            assert_eq!((used(TABLE), used(TABLE - 1)), (vec![(1, BankId(1))], vec![]));
        }
    }
}
