// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes in place of what is pinned, for tests/fuzz: whoever may write to the pins may write anything. What is read of
//! it is a snapshot that adds up, or an error.

use std::mem::{MaybeUninit, size_of};
use std::sync::Mutex;
use std::time::SystemTime;

use topstat_model::{Lost, Snapshot};

use super::abi::{TS_BANK_TABLES, ts_section, ts_shape, ts_tick};
use super::assemble::{Read, Section, Table, assemble, sum};
use super::{Banks, Ranked, Ranking, Settings, bank_size};
use crate::Error;
use crate::bpf::{Plain, Shared};
use crate::cgroup::Paths;
use crate::families::{delays::Delays, inet::Inet, tasks::Tasks};

/// CPUs of the machine whose memory it is.
const CPUS: u32 = 2;
/// Rows that its tables keep: few, so that few bytes fill them.
const TOP: u32 = 2;

/// Reads all tables of a family (by its number) from such memory: of its banks, its settings, and what the kernel's
/// program writes for each CPU. Gives what each table is read as.
pub fn read(family: u8, banks: &[u8], settings: &[u8], sections: &[u8]) -> Vec<Result<Snapshot, Error>> {
    static PATHS: Mutex<Option<Paths>> = Mutex::new(None);
    let mut paths = PATHS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let paths = paths.get_or_insert_with(Paths::new);
    match family % 3 {
        0 => family_of::<Inet>(banks, settings, sections, paths),
        1 => family_of::<Tasks>(banks, settings, sections, paths),
        _ => family_of::<Delays>(banks, settings, sections, paths),
    }
}

/// The rows that constants say a family has, where they can be used.
pub fn top_of(constants: &[u8]) -> Option<u32> {
    let shape: ts_shape = plain(constants, 0);
    super::rows_of(&shape).ok()
}

/// Bytes as a value, with zeroes behind them.
fn plain<T: Plain>(bytes: &[u8], at: usize) -> T {
    let mut value = MaybeUninit::<T>::zeroed();
    let bytes = bytes.get(at..).unwrap_or_default();
    // SAFETY: no more than its size is written to it, and any bytes are a value of a plain type.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.as_mut_ptr().cast(), bytes.len().min(size_of::<T>()));
        value.assume_init()
    }
}

fn family_of<F: Ranked<Describer = Paths>>(
    banks: &[u8],
    settings: &[u8],
    sections: &[u8],
    paths: &mut Paths,
) -> Vec<Result<Snapshot, Error>> {
    let entries = topstat_engine::entries_for(TOP).expect("few rows");
    let per_cpu = u32::try_from(super::banks::<F>()).expect("few banks");
    let memory = Shared::of_bytes(bank_size(entries), (CPUS * per_cpu) as usize, banks);
    let banks = Banks::of(memory, per_cpu, entries);
    let memory = Shared::of_bytes(Settings::size(per_cpu as usize), 1, settings);
    let settings = Settings::new(memory, F::samples(), F::SAMPLE_BANKS, None);
    let mut read = Vec::new();
    for info in F::samples().iter().flat_map(|sample| &sample.tables) {
        let (sample, number) = Ranking::<F>::place(info).expect("a table of the family");
        assert!(sample < per_cpu && number < TS_BANK_TABLES);
        let table = Table { info, sample, number, settings: settings.get(sample, number) };
        let taken: Vec<_> = (0..CPUS).map(|cpu| section::<F>(cpu, sections, entries)).collect();
        let tick: ts_tick = taken[0].head.tick;
        banks.pushed(sample, number);
        // Where nothing can be summed the reader tries again, and then gives up.
        let total = |cpu: u32| banks.total(cpu, sample, number, info.kind, &tick);
        let used: Vec<u64> = (0..CPUS).filter(|cpu| banks.used(*cpu, sample, number)).filter_map(total).collect();
        let totals = if used.len() == CPUS as usize { used } else { vec![sum(used.iter().copied()), 0] };
        let what = Read {
            table: &table,
            time: SystemTime::UNIX_EPOCH,
            sections: &taken,
            totals,
            refused: sum((0..CPUS).filter_map(|cpu| banks.refused(cpu, sample, number, info.kind, &tick))),
            unranked: taken[1].rows.last().copied(),
            top: TOP,
            objects: 0,
            lost: Lost::default(),
            lost_now: Default::default(),
            cpu_rows: true,
        };
        read.push(assemble::<F>(what, paths).map(|(snapshot, _)| snapshot));
        // What is found there is set anew, or refused.
        let refilling = settings.lock().map(|locked| settings.refilling(&locked)).expect("nobody else's");
        if let Some((sample, number)) = refilling {
            banks.distrust(sample, number);
        }
        let found = table.settings;
        if settings.set(sample, number, info.kind, &found).is_ok() {
            assert_eq!(settings.get(sample, number), found, "what was set");
        }
    }
    settings.announce().expect("nobody else's");
    read
}

/// What the kernel's program may have written, where the memory that it reads is anything.
fn section<F: Ranked>(cpu: u32, bytes: &[u8], entries: u32) -> Section<F::Row> {
    let at = cpu as usize * bytes.len() / CPUS as usize;
    let head: ts_section = plain(bytes, at);
    let row = |index: usize| plain(bytes, at + size_of::<ts_section>() / 4 + index * size_of::<F::Row>());
    Section { cpu, head, rows: (0..head.rows.min(entries) as usize).map(row).collect(), stale: cpu == 1 }
}
