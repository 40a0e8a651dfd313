// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory that maps and local storage provide in the kernel.

use crate::abi::{self, TS_BANK_TABLES, ts_bank, ts_count, ts_ended, ts_entry, ts_kept, ts_table, ts_tick, ts_window};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Tables in a bank.
pub const TABLES: usize = TS_BANK_TABLES as usize;
/// Banks, tables and windows begin cache lines.
const LINE: usize = 64;

/// An object, as an observer lays it out.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Object {
    /// 0: dead, or never alive.
    pub id: u64,
    /// The time (jiffies) until which pushes only sum …
    pub quiet: u64,
    /// … as long as the settings do not change.
    pub generation: u32,
    /// The object's windows in dynamic tables.
    pub windows: [ts_window; TABLES],
    /// The object's sums in static tables.
    pub counts: [ts_count; TABLES],
}

/// Memory that is zeroed and stays in place. C writes to it through addresses that it has kept.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is owned, and written only through &mut.
unsafe impl Send for Memory {}

impl Memory {
    fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes.max(LINE), LINE).expect("a size that fits in memory");
        // SAFETY: the layout's size is not 0.
        let start = unsafe { alloc_zeroed(layout) };
        Self { start: NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout)), layout }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in new() with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Memory for objects.
#[derive(Debug)]
pub(super) struct Objects {
    memory: Memory,
    len: usize,
}

impl Objects {
    pub(super) fn new(len: usize) -> Self {
        Self { memory: Memory::new(len * size_of::<Object>()), len }
    }

    fn pointer(&self, object: usize) -> *mut Object {
        assert!(object < self.len, "there is memory for {} objects, not for number {object}", self.len);
        // SAFETY: inside the allocation.
        unsafe { self.memory.start.as_ptr().cast::<Object>().add(object) }
    }

    /// The object's address, as the engine knows it.
    pub(super) fn address(&self, object: usize) -> u64 {
        self.pointer(object).expose_provenance() as u64
    }

    pub(super) fn get(&self, object: usize) -> &Object {
        // SAFETY: in bounds, and both all zeroes and the written bytes are an object.
        unsafe { &*self.pointer(object) }
    }

    pub(super) fn get_mut(&mut self, object: usize) -> &mut Object {
        // SAFETY: as in get(), and mutably borrowed.
        unsafe { &mut *self.pointer(object) }
    }
}

/// The copies of ended objects that the tables of all CPUs keep.
#[derive(Debug)]
pub(super) struct Kept {
    ended: Memory,
    kept: Memory,
    entries: u32,
}

impl Kept {
    pub(super) fn new(cpus: usize, entries: u32) -> Self {
        let tables = cpus * TABLES;
        let kept = tables * entries as usize * size_of::<ts_kept>();
        Self { ended: Memory::new(tables * size_of::<ts_ended>()), kept: Memory::new(kept), entries }
    }

    /// From this call on, the engine finds these copies on this thread.
    pub(super) fn enter(&self) {
        let (ended, kept) = (self.ended.start.as_ptr().cast(), self.kept.start.as_ptr().cast());
        // SAFETY: both are as large as the tables and their entries take.
        unsafe { abi::topstat_set_keeps(ended, kept, self.entries) };
    }

    pub(super) fn ended(&self, cpu: usize, table: usize) -> &ts_ended {
        // SAFETY: there is one for each table; no other code writes while this is borrowed.
        unsafe { &*self.ended.start.as_ptr().cast::<ts_ended>().add(cpu * TABLES + table) }
    }

    pub(super) fn id(&self, cpu: usize, table: usize, slot: u32) -> u64 {
        let at = (cpu * TABLES + table) * self.entries as usize + slot as usize;
        // SAFETY: there is one for each slot of each table; no other code writes while this is borrowed.
        unsafe { (*self.kept.start.as_ptr().cast::<ts_kept>().add(at)).id }
    }
}

/// One CPU's tables.
#[derive(Debug)]
pub(super) struct Bank {
    memory: Memory,
    stride: u64,
    mask: u32,
}

impl Bank {
    pub(super) fn new(cpu: usize, entries: u32) -> Self {
        let table = crate::config::table_size(entries);
        let bytes = size_of::<ts_bank>() + TABLES * table;
        let mut bank = Self { memory: Memory::new(bytes), stride: table as u64, mask: entries - 1 };
        for number in 0..TABLES {
            let place = u32::try_from(cpu << 8 | number).expect("few CPUs");
            // SAFETY: the table is all zeroes, and has this number of entries.
            unsafe { abi::topstat_table_init(bank.table_mut(number), entries, place) };
        }
        bank
    }

    pub(super) fn stride(&self) -> u64 {
        self.stride
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut ts_bank {
        self.memory.start.as_ptr().cast()
    }

    fn table_ptr(&self, table: usize) -> *mut ts_table {
        assert!(table < TABLES);
        let bank = self.memory.start.as_ptr().cast();
        // SAFETY: computes an address inside the allocation.
        unsafe { abi::topstat_bank_table(bank, u32::try_from(table).expect("few tables"), self.stride) }
    }

    pub(super) fn table_mut(&mut self, table: usize) -> *mut ts_table {
        self.table_ptr(table)
    }

    pub(super) fn table(&self, table: usize) -> &ts_table {
        // SAFETY: valid and initialised; no other code writes while the bank is borrowed.
        unsafe { &*self.table_ptr(table) }
    }

    pub(super) fn tick(&self, table: usize) -> ts_tick {
        let bank = self.memory.start.as_ptr().cast::<ts_bank>();
        // SAFETY: as in table(); the engine writes ticks only when it brings the bank to another time.
        unsafe { (*bank).tick[table] }
    }

    /// Entry `i`: heap node i, slot i, and the buckets 4i … 4i + 3.
    pub(super) fn entry(&self, table: usize, i: u32) -> &ts_entry {
        assert!(i <= self.mask);
        // SAFETY: the entry is in the table; no other code writes while the bank is borrowed.
        unsafe { &*abi::topstat_entry(self.table_ptr(table), i, self.mask) }
    }
}
