// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The invariants of a table (see table.h).

use super::Engine;
use crate::abi::{self, TS_CHAIN};

/// Hash buckets to an entry.
const BUCKETS: u32 = 4;

impl Engine {
    /// Check T1, T2 and T3 of a CPU's table. The error says which invariant is broken, and how.
    pub fn check(&self, cpu: usize, table: usize) -> Result<(), String> {
        let (t, bank, entries) = (self.table(cpu, table), &self.banks[cpu], self.entries);
        let entry = |i: u32| bank.entry(table, i);
        if t.n > entries {
            return Err(format!("{} of {entries} entries are in use", t.n));
        }
        let mut node_of = vec![None; entries as usize];
        for node in 0..entries {
            let slot = u32::from(entry(node).order);
            let Some(seen) = node_of.get_mut(slot as usize) else {
                return Err(format!("T1: node {node} has slot {slot} of {entries}"));
            };
            if let Some(other) = seen.replace(node) {
                return Err(format!("T1: nodes {other} and {node} have slot {slot}"));
            }
            if (node < t.n) != (entry(slot).obj != 0) {
                return Err(format!("T1: node {node} of {}, object {:#x}", t.n, entry(slot).obj));
            }
            if node < t.n && u32::from(entry(slot).pos) != node {
                return Err(format!("T1: slot {slot} of node {node} says {}", entry(slot).pos));
            }
            let parent = node.saturating_sub(1) / 2;
            if node < t.n && entry(parent).key > entry(node).key {
                return Err(format!("T2: key of node {parent} is above that of node {node}"));
            }
        }
        self.check_chains(cpu, table)
    }

    fn check_chains(&self, cpu: usize, table: usize) -> Result<(), String> {
        let (t, bank, mask) = (self.table(cpu, table), &self.banks[cpu], self.entries - 1);
        let mut linked = vec![false; self.entries as usize];
        for bucket in 0..BUCKETS * self.entries {
            let mut link = bank.entry(table, bucket / BUCKETS).head[(bucket % BUCKETS) as usize];
            let mut steps = 0;
            while link != 0 {
                let slot = u32::from(link) - 1;
                if slot > mask {
                    return Err(format!("T3: bucket {bucket} leads to slot {slot}"));
                }
                let e = bank.entry(table, slot);
                // SAFETY: computes with its arguments alone.
                let right = unsafe { abi::topstat_bucket(e.obj, mask) };
                if e.obj == 0 || right != bucket {
                    return Err(format!("T3: slot {slot} of {:#x} is in the chain of bucket {bucket}", e.obj));
                }
                if std::mem::replace(&mut linked[slot as usize], true) {
                    return Err(format!("T3: slot {slot} is linked twice"));
                }
                steps += 1;
                if steps > TS_CHAIN {
                    return Err(format!("T3: the chain of bucket {bucket} is too long"));
                }
                link = e.next;
            }
        }
        let mut objects = vec![];
        for slot in 0..self.entries {
            let obj = bank.entry(table, slot).obj;
            let has_ended = obj & 1 != 0;
            let id = bank.entry(table, slot).id;
            if has_ended && self.kept.as_ref().is_none_or(|kept| kept.id(cpu, table, slot) != id) {
                return Err(format!("T7: slot {slot} has object {id}, which has ended, and keeps another one"));
            }
            if (obj != 0 && !has_ended) != linked[slot as usize] {
                return Err(format!("T3: slot {slot} has object {obj:#x} and is not in its chain"));
            }
            objects.extend((obj != 0).then_some(obj));
        }
        objects.sort_unstable();
        match objects.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("T3: object {:#x} is in two slots", pair[0])),
            None if objects.len() != t.n as usize => Err(format!("{} objects, n is {}", objects.len(), t.n)),
            None => Ok(()),
        }
    }

    /// The bound of the objects that were last pushed on this CPU and are not in its table (T5).
    pub fn missed(&self, cpu: usize, table: usize) -> u64 {
        // SAFETY: only reads the table.
        unsafe { abi::topstat_missed(self.table(cpu, table)) }
    }

    /// The bound of the objects that have ended on this CPU and are not in its table (T8).
    pub fn missed_ended(&self, cpu: usize, table: usize) -> u64 {
        self.find_kept();
        // SAFETY: only reads the table, and the copies that belong to it.
        unsafe { abi::topstat_missed_ended(self.table(cpu, table)) }
    }

    /// The key, in a CPU's table, of the copy of the ended object that had this id.
    pub fn kept_key(&self, cpu: usize, table: usize, id: u64) -> Option<u64> {
        let (obj, bank) = (id << 1 | 1, &self.banks[cpu]);
        let slot = (0..self.entries).find(|&slot| bank.entry(table, slot).obj == obj)?;
        Some(bank.entry(table, u32::from(bank.entry(table, slot).pos)).key)
    }

    /// The hash bucket of the object in this memory: for tests of full buckets.
    pub fn bucket(&self, object: usize) -> u32 {
        // SAFETY: computes with its arguments alone.
        unsafe { abi::topstat_bucket(self.objects.address(object), self.entries - 1) }
    }

    /// The number of times that the object in this memory was ordered since it is in a CPU's table.
    pub fn ordered(&self, cpu: usize, table: usize, object: usize) -> u32 {
        let (obj, bank) = (self.objects.address(object), &self.banks[cpu]);
        let entry = |slot| bank.entry(table, slot);
        (0..self.entries).map(entry).find(|e| e.obj == obj).map_or(0, |e| e.count)
    }

    /// The key of the object in this memory in a CPU's table; `None`: it is not in the table.
    pub fn key(&self, cpu: usize, table: usize, object: usize) -> Option<u64> {
        let (obj, bank) = (self.objects.address(object), &self.banks[cpu]);
        let slot = (0..self.entries).find(|&slot| bank.entry(table, slot).obj == obj)?;
        Some(bank.entry(table, u32::from(bank.entry(table, slot).pos)).key)
    }
}
