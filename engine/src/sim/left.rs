// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pushes that only sum, and leave the ordering to a reader.

use super::{Amounts, Engine, TABLES};
use crate::abi;

impl Engine {
    /// Push to an object on a CPU. Returns the tables (a bit for each) in which a reader must order the object before they are read.
    pub fn push_left(&mut self, cpu: usize, object: usize, part: u32, amounts: &Amounts) -> u32 {
        self.bank_to(cpu);
        assert_ne!(self.objects.get(object).id, 0, "the object at {object} is dead");
        let mut left = 0;
        for (table, &amount) in amounts.iter().enumerate() {
            if amount == 0 || self.configs[table].enabled == 0 {
                continue;
            }
            left |= 1 << table;
            let tick = self.banks[cpu].tick(table);
            let t = self.banks[cpu].table_mut(table);
            let o = self.objects.get_mut(object);
            // SAFETY: table and tick are in one bank, which is up to date.
            unsafe {
                if self.configs[table].type_ == abi::TS_STATIC {
                    abi::topstat_push_static_quiet(t, &mut o.counts[table], part, amount);
                } else {
                    abi::topstat_push_quiet(t, &tick, &mut o.windows[table], part, amount);
                }
            }
        }
        left
    }

    /// Order an object in the tables in which it is `left`, on the CPU of a reader.
    pub fn order_left(&mut self, cpu: usize, object: usize, left: u32) {
        self.bank_to(cpu);
        let claimed = self.enter(cpu);
        assert_ne!(claimed, 0, "a reader doesn't interrupt pushes");
        for table in (0..TABLES).filter(|table| left & 1 << table != 0) {
            let (view, obj) = (self.view(table), self.objects.address(object));
            let tick = self.banks[cpu].tick(table);
            let t = self.banks[cpu].table_mut(table);
            let o = self.objects.get_mut(object);
            // SAFETY: as for pushes; the claim is held.
            unsafe {
                if self.configs[table].type_ == abi::TS_STATIC {
                    abi::topstat_order_static_pushed(t, &tick, view, claimed, obj, o.id, &mut o.counts[table]);
                } else {
                    abi::topstat_order_pushed(t, &tick, view, claimed, obj, o.id, &mut o.windows[table]);
                }
            }
        }
        self.leave(cpu, claimed);
    }

    /// Whether the CPU's bank may be ordered. The caller passes the result to `leave`.
    fn enter(&mut self, cpu: usize) -> i32 {
        // SAFETY: the bank is this CPU's, valid and initialised.
        unsafe { abi::topstat_bank_enter(self.banks[cpu].as_mut_ptr()) }
    }

    fn leave(&mut self, cpu: usize, claimed: i32) {
        // SAFETY: the bank is this CPU's, valid and initialised; `claimed` is the result of `enter`.
        unsafe { abi::topstat_bank_leave(self.banks[cpu].as_mut_ptr(), claimed) };
    }
}
