// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pushes that order an object only where that is little work, and leave other orderings to a reader.

use super::{Amounts, Engine, TABLES};
use crate::abi;

impl Engine {
    /// Push to an object on a CPU. In tables in which the object is already `left` (a bit for each table), nothing is ordered.
    /// Returns the tables in which the object is left now: a reader must order it there before the tables are read.
    pub fn push_known(&mut self, cpu: usize, object: usize, part: u32, amounts: &Amounts, left: u32) -> u32 {
        self.bank_to(cpu);
        assert_ne!(self.objects.get(object).id, 0, "the object at {object} is dead");
        let mut now_left = left;
        let claimed = self.enter(cpu);
        for (table, &amount) in amounts.iter().enumerate() {
            if amount == 0 || self.configs[table].enabled == 0 {
                continue;
            }
            let orders = claimed != 0 && left & 1 << table == 0;
            if !self.push_table_known(cpu, table, orders, object, part, amount) {
                now_left |= 1 << table;
            }
        }
        self.leave(cpu, claimed);
        now_left
    }

    fn push_table_known(
        &mut self,
        cpu: usize,
        table: usize,
        orders: bool,
        object: usize,
        part: u32,
        amount: u64,
    ) -> bool {
        let (view, table_type) = (self.view(table), self.configs[table].type_);
        let [amount0, amount1] = if part == 0 { [amount, 0] } else { [0, amount] };
        let obj = self.objects.address(object);
        let tick = self.banks[cpu].tick(table);
        let t = self.banks[cpu].table_mut(table);
        let o = self.objects.get_mut(object);
        // SAFETY: table and tick are in one bank, which is up to date and whose claim is held where `orders` is set; `obj` is the
        // object's address, at which `view` finds the window.
        let ordered = unsafe {
            if table_type == abi::TS_STATIC {
                let count = &mut o.counts[table];
                abi::topstat_push_static_known(t, &tick, view, orders.into(), obj, o.id, count, amount0, amount1)
            } else {
                let window = &mut o.windows[table];
                abi::topstat_push_known(t, &tick, view, orders.into(), obj, o.id, window, amount0, amount1)
            }
        };
        ordered != 0
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
