// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a table: the section of every CPU, and their merge.

use super::Engine;
use crate::abi::{self, TS_PARTS, ts_tick};
use crate::value::{Value, count_value, proof, tick_at, window_most, window_value};
use std::collections::HashMap;

/// One object of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The object's id.
    pub id: u64,
    /// Its value, over all CPUs, at the snapshot's moment.
    pub value: Value,
    /// The CPUs whose tables contain it.
    pub cpus: Vec<usize>,
    /// No object without a row is larger.
    pub proven: bool,
    /// The object has ended.
    pub ended: bool,
}

/// A table at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Highest first; all objects of the CPUs' tables, each once.
    pub rows: Vec<Row>,
    /// All pushes: the sum that the CPUs have counted, or the sum of the rows where that is larger.
    pub total: u64,
    /// The sum that the CPUs have counted. In a dynamic table it may be less than the rows, because each window fades in its own
    /// way.
    pub counted: Value,
    /// No object without a row is larger than this (T5), if every push was ordered.
    pub missed: u64,
    /// The unknown part of any object is at most this (T6).
    pub refused: u64,
    /// Pushes that were not ordered, because they interrupted the holder of the claim.
    pub contended: u64,
    /// Pushes that were not ordered, because a hash chain was full.
    pub crowded: u64,
}

impl Engine {
    /// Take a snapshot of a table at the present time: age the table, evaluate it again, and merge the CPUs.
    pub fn snapshot(&mut self, table: usize) -> Snapshot {
        let tick = tick_at(&self.configs[table], self.ticks(table));
        let mut snapshot = Snapshot::default();
        let mut rows = HashMap::new();
        for cpu in 0..self.cpus() {
            self.section(cpu, table, &tick, &mut rows);
            let t = self.banks[cpu].table(table);
            snapshot.missed = snapshot.missed.max(self.missed(cpu, table)).max(self.missed_ended(cpu, table));
            snapshot.contended += t.contended;
            snapshot.crowded += t.crowded;
        }
        // Totals after rows: P1.
        for cpu in 0..self.cpus() {
            let counted = self.cpu_total(cpu, table, &tick);
            snapshot.counted.value += counted.value;
            for part in 0..TS_PARTS as usize {
                snapshot.counted.parts[part] += counted.parts[part];
            }
            snapshot.refused += self.cpu_refused(cpu, table, &tick);
        }
        snapshot.rows = rows.into_values().collect();
        let shown: u64 = snapshot.rows.iter().map(|row| row.value.value).sum();
        let missed = if self.configs[table].delay == 0 { snapshot.missed } else { u64::MAX };
        let is_static = self.configs[table].type_ == abi::TS_STATIC;
        let absent = if is_static { snapshot.counted.value - shown } else { u64::MAX };
        let least = proof(missed, absent, 0, snapshot.refused);
        for row in &mut snapshot.rows {
            row.proven = row.value.value >= least;
        }
        snapshot.rows.sort_by_key(|row| (std::cmp::Reverse(row.value.value), row.id));
        snapshot.total = snapshot.counted.value.max(shown);
        snapshot
    }

    fn section(&mut self, cpu: usize, table: usize, tick: &ts_tick, rows: &mut HashMap<u64, Row>) {
        let bank = self.banks[cpu].as_mut_ptr();
        // SAFETY: the bank is this CPU's, whole and initialised.
        assert_ne!(unsafe { abi::topstat_bank_enter(bank) }, 0, "a snapshot doesn't interrupt pushes");
        self.find_kept();
        if self.configs[table].type_ != abi::TS_STATIC {
            // SAFETY: under the claim.
            unsafe { abi::topstat_miss_begin(self.banks[cpu].table_mut(table), tick) };
        }
        for slot in 0..self.entries {
            let ended = self.banks[cpu].entry(table, slot).obj & 1 != 0;
            let Some((id, value)) = self.refresh(cpu, table, slot, tick) else { continue };
            let value = Value::from(value);
            let row = rows.entry(id).or_insert(Row { id, value, cpus: vec![], proven: false, ended });
            assert_eq!(row.value, value, "object {id} on CPUs {:?} and {cpu}", row.cpus);
            assert!(!row.cpus.contains(&cpu), "object {id} is twice in the table of CPU {cpu}");
            row.cpus.push(cpu);
        }
        // SAFETY: the claim was taken above.
        unsafe { abi::topstat_bank_leave(bank, 1) };
    }

    fn cpu_total(&self, cpu: usize, table: usize, tick: &ts_tick) -> Value {
        let total = &self.banks[cpu].table(table).total;
        if self.configs[table].type_ == abi::TS_STATIC {
            return count_value(&abi::ts_count { sum: total.sum, ..Default::default() });
        }
        window_value(total, tick).expect("nobody writes to the total")
    }

    fn cpu_refused(&self, cpu: usize, table: usize, tick: &ts_tick) -> u64 {
        let refused = &self.banks[cpu].table(table).refused;
        if self.configs[table].type_ == abi::TS_STATIC {
            return refused.sum.iter().sum();
        }
        window_most(refused, tick).expect("nobody writes to it")
    }
}
