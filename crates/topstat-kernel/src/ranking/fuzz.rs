// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads bytes in place of pinned memory, for tests/fuzz: a process that may write to the pins may write anything. The result is
//! a snapshot that adds up, or an error.

use std::mem::{MaybeUninit, size_of};
use std::sync::Mutex;
use std::time::SystemTime;

use topstat_model::{Lost, Snapshot};

use topstat_engine::abi::{TS_BANK_TABLES, ts_section, ts_shape, ts_tick};

use super::RankedFamily;
use super::assemble::{Read, Section, Table, assemble, sum};
use super::banks::{Banks, bank_size};
use super::rows::Rows;
use super::settings::SharedSettings;
use crate::bpf::{Pod, Shared};
use crate::cgroup::Paths;
use crate::{Catalogue, Error, maps};

/// CPUs of the machine that the memory belongs to.
const CPUS: u32 = 2;
/// Rows that its tables keep: few, so that few bytes fill them.
const TOP: u32 = 2;

/// Reads all tables of a family of the catalogue (by its number) from bytes in place of its banks, of its settings, and of the sections that the
/// kernel's program writes for each CPU. Returns the result of each table.
pub fn read(
    catalogue: &Catalogue,
    family: u8,
    banks: &[u8],
    settings: &[u8],
    sections: &[u8],
) -> Vec<Result<Snapshot, Error>> {
    static PATHS: Mutex<Option<Paths>> = Mutex::new(None);
    let mut paths = PATHS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let paths = paths.get_or_insert_with(|| Paths::new(None));
    let families: Vec<_> = catalogue.families().iter().filter_map(RankedFamily::of).collect();
    family_of(&families[usize::from(family) % families.len()], banks, settings, sections, paths)
}

/// The number of rows in a family's constants, if it can be used.
pub fn top_of(constants: &[u8]) -> Option<u32> {
    let shape: ts_shape = plain(constants, 0);
    maps::rows_of(&shape).ok()
}

/// Bytes as a value, padded with zeroes.
fn plain<T: Pod>(bytes: &[u8], at: usize) -> T {
    let mut value = MaybeUninit::<T>::zeroed();
    let bytes = bytes.get(at..).unwrap_or_default();
    // SAFETY: no more bytes are written than the value has, and any bytes are a value of a plain type.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.as_mut_ptr().cast(), bytes.len().min(size_of::<T>()));
        value.assume_init()
    }
}

fn family_of(
    of: &RankedFamily,
    banks: &[u8],
    settings: &[u8],
    sections: &[u8],
    paths: &mut Paths,
) -> Vec<Result<Snapshot, Error>> {
    let entries = topstat_engine::entries_for(TOP).expect("few rows");
    let per_cpu = u32::try_from(of.banks()).expect("few banks");
    let memory = Shared::of_bytes(bank_size(entries), (CPUS * per_cpu) as usize, banks);
    let banks = Banks::of(memory, per_cpu, entries);
    let memory = Shared::of_bytes(SharedSettings::size(per_cpu as usize), 1, settings);
    let settings = SharedSettings::new(memory, of.numbers(), None);
    let mut read = Vec::new();
    for info in &of.family.tables() {
        let place = of.place(info).expect("a table of the family");
        assert!(place.bank.0 < per_cpu && place.table < TS_BANK_TABLES);
        let table =
            Table { info, of: of.sample(info).expect("its sample").clone(), place, settings: settings.get(place) };
        let taken: Vec<_> = (0..CPUS).map(|cpu| section(of.ranked.row, cpu, sections, entries)).collect();
        let tick: ts_tick = taken[0].head.tick;
        banks.pushed(place);
        // Where a total can't be summed, the reader tries again, and then gives up.
        let total = |cpu: u32| banks.total(cpu, place, info.kind, &tick);
        let used: Vec<u64> = (0..CPUS).filter(|cpu| banks.used(*cpu, place)).filter_map(total).collect();
        let totals = if used.len() == CPUS as usize { used } else { vec![sum(used.iter().copied()), 0] };
        let what = Read {
            table: &table,
            time: SystemTime::UNIX_EPOCH,
            sections: &taken,
            totals,
            missing_at: of.ranked.doubt.map(|doubt| doubt.missing),
            refused: sum((0..CPUS).filter_map(|cpu| banks.refused(cpu, place, info.kind, &tick))),
            settled: false,
            unranked: Rows::new(taken[1].rows.iter().next_back().map_or(vec![], |r| r.bytes.to_vec()), of.ranked.row),
            parts: &of.ranked.parts,
            top: TOP,
            objects: 0,
            lost: Lost::default(),
            lost_now: Default::default(),
            cpu_rows: true,
        };
        read.push(assemble(what, paths).map(|(snapshot, _)| snapshot));
        // The settings in the memory are set anew, or refused.
        let locked = settings.lock().expect("nobody else's");
        if let Some(refilling) = settings.refilling(&locked) {
            banks.distrust(refilling);
        }
        let found = table.settings;
        if settings.set(&locked, place, info.kind, &found).is_ok() {
            assert_eq!(settings.get(place), found, "what was set");
        }
    }
    settings.announce().expect("nobody else's");
    read
}

/// A section as the kernel's program may have written it from memory with any content.
fn section(size: usize, cpu: u32, bytes: &[u8], entries: u32) -> Section {
    let at = cpu as usize * bytes.len() / CPUS as usize;
    let head: ts_section = plain(bytes, at);
    let length = head.rows.min(entries) as usize * size;
    let rows = bytes.iter().skip(at + size_of::<ts_section>() / 4).copied().chain(std::iter::repeat(0));
    Section { cpu, head, rows: Rows::new(rows.take(length).collect(), size), stale: cpu == 1, again: false }
}
