// SPDX-License-Identifier: Apache-2.0 OR MIT
//! For tests: the engine as it runs in the kernel, with any number of CPUs, one after the other and at the times that the test
//! sets.
//!
//! It owns the memory that maps and local storage provide in the kernel: a bank of tables for each CPU, and memory for objects,
//! which may die and be followed by other objects at the same address. The engine's own code counts and orders; this module only
//! does the work of an observer around it.

mod check;
mod interleave;
mod left;
mod memory;
mod snapshot;

pub use interleave::{Work, interleave};
pub use memory::{Object, TABLES};
pub use snapshot::{Row, Snapshot};

use crate::abi::{self, ts_config, ts_count, ts_table, ts_tick, ts_value, ts_window};
use crate::config::{Error, entries_for};
use memory::{Bank, Kept, Objects};
use std::mem::offset_of;

const NS_PER_S: u128 = 1_000_000_000;
/// Jiffies when the simulation begins: as in Linux, their lower 32 bits soon wrap.
const JIFFIES_BEGIN: u64 = (1 << 32) - 3000;

/// Amounts of one push, one for each table of a bank. An amount of 0 is not pushed to the table.
pub type Amounts = [u64; TABLES];

/// The engine with `cpus` CPUs.
#[derive(Debug)]
pub struct Engine {
    banks: Vec<Bank>,
    configs: [ts_config; TABLES],
    generation: u32,
    objects: Objects,
    entries: u32,
    hz: u32,
    now_ns: u64,
    next_id: u64,
    kept: Option<Kept>,
    /// Whether pushes go by the quiet path where they may (see `ts_quiet_until()`).
    pub quiet: bool,
}

impl Engine {
    /// `cpus` CPUs with tables of `top` rows, none of them set up yet, and memory for `objects` objects, none of them alive, in a
    /// kernel of `hz` jiffies a second.
    pub fn new(cpus: usize, top: u32, objects: usize, hz: u32) -> Result<Self, Error> {
        Ok(Self::with_entries(cpus, entries_for(top)?, objects, hz))
    }

    fn with_entries(cpus: usize, entries: u32, objects: usize, hz: u32) -> Self {
        Self {
            banks: (0..cpus).map(|cpu| Bank::new(cpu, entries)).collect(),
            configs: [ts_config::default(); TABLES],
            generation: 1,
            objects: Objects::new(objects),
            entries,
            hz,
            now_ns: 0,
            next_id: 1,
            kept: None,
            quiet: false,
        }
    }

    /// From this call on, dynamic tables keep ended objects until they have aged out.
    pub fn keep(&mut self) {
        self.kept = Some(Kept::new(self.cpus(), self.entries));
    }

    /// The engine finds the kept copies by the thread: from this call on, it finds the copies of this simulation.
    fn find_kept(&self) {
        match &self.kept {
            Some(kept) => kept.enter(),
            // SAFETY: null pointers mean that there are no copies.
            None => unsafe { abi::topstat_set_keeps(std::ptr::null_mut(), std::ptr::null_mut(), 0) },
        }
    }

    /// The number of objects that have ended on a CPU, and the number of them that were turned away before they had aged out.
    pub fn ended(&self, cpu: usize, table: usize) -> (u64, u64) {
        self.kept.as_ref().map_or((0, 0), |kept| {
            let ended = kept.ended(cpu, table);
            (ended.ends, ended.unkept)
        })
    }

    /// The number of CPUs.
    pub fn cpus(&self) -> usize {
        self.banks.len()
    }

    /// The entries of each table.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Change the settings of a table, as a user does while the kernel runs.
    pub fn set_config(&mut self, table: usize, config: ts_config) {
        self.configs[table] = config;
        self.generation += 1;
    }

    /// The settings of a table.
    pub fn config(&self, table: usize) -> &ts_config {
        &self.configs[table]
    }

    /// Set the time, in nanoseconds since the simulation began.
    pub fn set_time(&mut self, ns: u64) {
        self.now_ns = ns;
    }

    /// The time.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The time in ticks of a table's clock.
    pub fn ticks(&self, table: usize) -> u64 {
        self.ticks_at(table, self.now_ns)
    }

    /// A moment in ticks of a table's clock.
    pub fn ticks_at(&self, table: usize, ns: u64) -> u64 {
        if self.configs[table].precise != 0 { ns } else { self.jiffies_at(ns) }
    }

    fn jiffies_at(&self, ns: u64) -> u64 {
        let jiffies = u128::from(ns) * u128::from(self.hz) / NS_PER_S;
        JIFFIES_BEGIN + u64::try_from(jiffies).expect("fewer jiffies than nanoseconds")
    }

    /// Make a new object in this memory, whose former object is dead. Returns the new object's id.
    pub fn birth(&mut self, object: usize) -> u64 {
        let id = self.next_id;
        let o = self.objects.get_mut(object);
        assert_eq!(o.id, 0, "the object at {object} is alive");
        *o = Object { id, ..Object::default() };
        self.next_id += 1;
        id
    }

    /// The object dies on this CPU. In other CPUs' tables, and in this CPU's where the claim is taken, its entry stays until it
    /// is evaluated. If tables keep ended objects, the object still has a row on this CPU.
    pub fn kill(&mut self, cpu: usize, object: usize) {
        if self.kept.is_some() {
            self.end(cpu, object);
            return;
        }
        let obj = self.objects.address(object);
        self.objects.get_mut(object).id = 0;
        let bank = self.banks[cpu].as_mut_ptr();
        // SAFETY: the bank is this CPU's, valid and initialised; the claim is released.
        unsafe {
            if abi::topstat_bank_enter(bank) == 0 {
                return;
            }
            for table in 0..TABLES {
                abi::topstat_forget(self.banks[cpu].table_mut(table), obj, self.entries - 1);
            }
            abi::topstat_bank_leave(bank, 1);
        }
    }

    fn end(&mut self, cpu: usize, object: usize) {
        self.bank_to(cpu);
        let (obj, id) = (self.objects.address(object), self.objects.get(object).id);
        // SAFETY: the bank is this CPU's, valid and initialised; the claim is released.
        unsafe {
            let claimed = abi::topstat_bank_enter(self.banks[cpu].as_mut_ptr());
            for table in (0..TABLES).filter(|table| self.configs[*table].epoch != 0) {
                let (view, tick) = (self.view(table), self.banks[cpu].tick(table));
                let t = self.banks[cpu].table_mut(table);
                if self.configs[table].type_ != abi::TS_STATIC {
                    abi::topstat_keep(t, &tick, obj, id, view, claimed);
                } else if claimed != 0 {
                    abi::topstat_forget(t, obj, self.entries - 1);
                }
            }
            abi::topstat_bank_leave(self.banks[cpu].as_mut_ptr(), claimed);
        }
        self.objects.get_mut(object).id = 0;
    }

    /// The object in this memory, dead (id 0) or alive.
    pub fn object(&self, object: usize) -> &Object {
        self.objects.get(object)
    }

    /// The table of a CPU, without its entries.
    pub fn table(&self, cpu: usize, table: usize) -> &ts_table {
        self.banks[cpu].table(table)
    }

    /// Run `pushes` as interrupts of a push on this CPU that holds the claim.
    pub fn interrupted(&mut self, cpu: usize, pushes: impl FnOnce(&mut Self)) {
        let bank = self.banks[cpu].as_mut_ptr();
        // SAFETY: the bank is this CPU's, valid and initialised.
        let claimed = unsafe { abi::topstat_bank_enter(bank) };
        pushes(self);
        // SAFETY: as before; `claimed` is the result of topstat_bank_enter().
        unsafe { abi::topstat_bank_leave(bank, claimed) };
    }

    /// Count amounts that belong to no object to the totals alone.
    pub fn push_total(&mut self, cpu: usize, part: u32, amounts: &Amounts) {
        self.push_without_object(cpu, part, amounts, false);
    }

    /// Count amounts that should have an object and lack it to the totals alone (P5).
    pub fn push_refused(&mut self, cpu: usize, part: u32, amounts: &Amounts) {
        self.push_without_object(cpu, part, amounts, true);
    }

    fn push_without_object(&mut self, cpu: usize, part: u32, amounts: &Amounts, refused: bool) {
        self.bank_to(cpu);
        for (table, &amount) in amounts.iter().enumerate() {
            if amount == 0 || self.configs[table].enabled == 0 {
                continue;
            }
            let tick = self.banks[cpu].tick(table);
            // SAFETY: table and tick are in the same bank and up to date.
            unsafe {
                abi::topstat_push_total(self.banks[cpu].table_mut(table), &tick, part, amount);
                if refused {
                    abi::topstat_refuse(self.banks[cpu].table_mut(table), &tick, amount);
                }
            }
        }
    }

    /// Push to an object on a CPU, as observers do (see push.h). Returns the object's values; 0 for a table that gets nothing of
    /// the push, and for a quiet push.
    pub fn push(&mut self, cpu: usize, object: usize, part: u32, amounts: &Amounts) -> Amounts {
        let now = self.bank_to(cpu);
        let o = self.objects.get(object);
        assert_ne!(o.id, 0, "the object at {object} is dead");
        if self.quiet && now < o.quiet && o.generation == self.generation {
            self.push_quiet(cpu, object, part, amounts);
            return [0; TABLES];
        }
        let bank = self.banks[cpu].as_mut_ptr();
        // SAFETY: the bank is this CPU's, valid and initialised.
        let claimed = unsafe { abi::topstat_bank_enter(bank) };
        let mut values = [0; TABLES];
        for (table, &amount) in amounts.iter().enumerate() {
            if amount != 0 && self.configs[table].enabled != 0 {
                values[table] = self.push_table(cpu, table, claimed, object, part, amount);
            }
        }
        // SAFETY: as before; `claimed` is the result of topstat_bank_enter().
        unsafe { abi::topstat_bank_leave(bank, claimed) };
        self.set_quiet(cpu, object);
        values
    }

    fn push_table(&mut self, cpu: usize, table: usize, claimed: i32, object: usize, part: u32, amount: u64) -> u64 {
        let (view, config) = (self.view(table), self.configs[table]);
        let obj = self.objects.address(object);
        let tick = self.banks[cpu].tick(table);
        let t = self.banks[cpu].table_mut(table);
        let o = self.objects.get_mut(object);
        // SAFETY: table and tick are in one bank, which is up to date; `claimed` says whether its claim is held; `obj` is the
        // object's address, at which `view` finds the window.
        unsafe {
            if self.configs[table].type_ == abi::TS_STATIC {
                let count = &mut o.counts[table];
                abi::topstat_push_static(t, &tick, &config, view, claimed, obj, o.id, count, part, amount)
            } else {
                let window = &mut o.windows[table];
                abi::topstat_push(t, &tick, &config, view, claimed, obj, o.id, window, part, amount)
            }
        }
    }

    fn push_quiet(&mut self, cpu: usize, object: usize, part: u32, amounts: &Amounts) {
        for (table, &amount) in amounts.iter().enumerate() {
            let config = self.configs[table];
            if amount == 0 || config.enabled == 0 {
                continue;
            }
            let tick = self.banks[cpu].tick(table);
            let t = self.banks[cpu].table_mut(table);
            let o = self.objects.get_mut(object);
            // SAFETY: table and tick are in one bank, which is up to date.
            unsafe {
                if config.type_ == abi::TS_STATIC {
                    abi::topstat_push_static_quiet(t, &mut o.counts[table], part, amount);
                } else {
                    abi::topstat_push_quiet(t, &tick, &mut o.windows[table], part, amount);
                }
            }
        }
    }

    fn set_quiet(&mut self, cpu: usize, object: usize) {
        let mut quiet = u64::MAX;
        for (table, config) in self.configs.iter().enumerate().filter(|(_, config)| config.epoch != 0) {
            let o = self.objects.get(object);
            let ordered =
                if config.type_ == abi::TS_STATIC { o.counts[table].ordered } else { o.windows[table].ordered };
            // SAFETY: only reads its arguments, which are valid.
            quiet = unsafe { abi::topstat_quiet_until(quiet, &self.banks[cpu].tick(table), config, ordered) };
        }
        let o = self.objects.get_mut(object);
        o.quiet = quiet;
        o.generation = self.generation;
    }

    /// Bring the CPU's bank to the present time. Returns that time in jiffies.
    fn bank_to(&mut self, cpu: usize) -> u64 {
        self.find_kept();
        let (now, stride) = (self.jiffies_at(self.now_ns), self.banks[cpu].stride());
        // SAFETY: the bank is valid and initialised, its tables are `stride` bytes apart, and there is a configuration for each.
        unsafe {
            abi::topstat_set_precise(self.now_ns);
            let configs = self.configs.as_mut_ptr();
            abi::topstat_bank_to(self.banks[cpu].as_mut_ptr(), stride, configs, self.generation, now);
        }
        now
    }

    fn view(&self, table: usize) -> u64 {
        let window = if self.configs[table].type_ == abi::TS_STATIC {
            offset_of!(Object, counts) + table * size_of::<ts_count>()
        } else {
            offset_of!(Object, windows) + table * size_of::<ts_window>()
        };
        let offset = |bytes: usize| u32::try_from(bytes).expect("objects are small");
        // SAFETY: computes with its arguments alone.
        unsafe {
            let id = offset(offset_of!(Object, id));
            abi::topstat_view_of(self.entries - 1, self.configs[table].type_, offset(window), id)
        }
    }

    /// Evaluate a slot again, as a snapshot does. Returns the object's id and value, or `None` if the slot has no object or the
    /// object has left the table.
    fn refresh(&mut self, cpu: usize, table: usize, slot: u32, tick: &ts_tick) -> Option<(u64, ts_value)> {
        self.find_kept();
        let entry = *self.banks[cpu].entry(table, slot);
        if entry.obj == 0 {
            return None;
        }
        let (view, mut value) = (self.view(table), ts_value::default());
        // SAFETY: the caller has the bank's claim; the slot has an object, whose memory stays mapped although it may be dead.
        let look = unsafe { abi::topstat_refresh(self.banks[cpu].table_mut(table), tick, slot, view, &mut value) };
        match look.cast_unsigned() {
            abi::TS_LOOK_OK => Some((entry.id, value)),
            abi::TS_LOOK_GONE => None,
            _ => panic!("an object was being written, and nobody writes"),
        }
    }
}
