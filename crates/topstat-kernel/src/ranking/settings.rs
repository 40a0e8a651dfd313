// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The settings that users give tables, in memory shared with the programs, which read it on every push.
//!
//! A caller that changes settings holds a lock from the reading of the old ones to the writing of the new ones. Within a process
//! that lock is a mutex. Between processes it is flock(2) on the family's directory of pins, which all processes that use the
//! pinned state have open. The kernel releases that lock when its holder is killed, which a lock word in the shared memory could
//! not promise. A compare-and-swap of the generation could not replace it either: it would decide which caller is first only
//! after both have written their words.

use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use rustix::fs::FlockOperation;
use topstat_model::TableType;

use crate::bpf::Shared;
use crate::bpffs::{lock_file, replace};
use crate::clock;
use crate::family::{BankId, TablePlace};
use crate::{Error, TableSettings};
use topstat_engine::abi::{
    TS_BANK_TABLES, TS_DYNAMIC, TS_STATIC, TS_SWITCH_ALL, TS_SWITCH_ROOT, TS_SWITCH_SAMPLE, TS_SWITCH_SYNC,
    TS_SWITCH_TABLE, ts_config, ts_settings,
};

/// The longest wait for others that set or refill: a refill of a million objects takes a good part of a second.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// The settings of a family.
pub struct SharedSettings {
    memory: Shared,
    /// The numbers of the tables in each bank.
    banks: Vec<Vec<u32>>,
    /// Held by the only thread of this process that changes settings.
    setting: Mutex<()>,
    /// The directory of pins, where the state is pinned. The process that holds its lock is the only one that changes settings.
    shared: Option<OwnedFd>,
    hz: u32,
}

impl SharedSettings {
    /// The settings in this memory.
    pub fn new(memory: Shared, banks: Vec<Vec<u32>>, shared: Option<OwnedFd>) -> Self {
        Self { memory, banks, setting: Mutex::new(()), shared, hz: clock::hz() }
    }

    /// Bytes of the settings of `banks` banks.
    pub fn size(banks: usize) -> usize {
        size_of::<ts_settings>() + banks * TS_BANK_TABLES as usize * size_of::<ts_config>()
    }

    /// Waits until no other caller changes settings or has a table ordered again. All other callers wait until the result is
    /// dropped.
    pub fn lock(&self) -> Result<Locked<'_>, Error> {
        let alone = self.setting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = &self.shared {
            lock_file(shared, LOCK_PATIENCE)
                .map_err(|e| Error::Kernel { what: "lock the settings".to_owned(), why: e.to_string() })?;
        }
        Ok(Locked { _alone: alone, shared: self.shared.as_ref() })
    }

    /// As [`SharedSettings::lock`]; `None` if another caller holds the lock.
    pub fn try_lock(&self) -> Option<Locked<'_>> {
        let alone = match self.setting.try_lock() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(alone)) => alone.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if let Some(shared) = &self.shared {
            rustix::fs::flock(shared, FlockOperation::NonBlockingLockExclusive).ok()?;
        }
        Some(Locked { _alone: alone, shared: self.shared.as_ref() })
    }

    /// Makes another directory the lock between processes.
    pub fn lock_by(&self, _: &Locked<'_>, dir: &impl AsFd) -> Result<(), Error> {
        let replaced = self.shared.as_ref().map_or(Ok(()), |shared| replace(shared, dir));
        replaced.map_err(|e| Error::Kernel { what: "lock the settings".to_owned(), why: e.to_string() })
    }

    /// The number of times that a refill, the ordering of a table's objects again, began or ended: odd during a refill.
    pub fn refills(&self) -> u32 {
        self.memory.read(0, offset_of!(ts_settings, refills))
    }

    /// The table that is being refilled. The caller holds the lock.
    pub fn refilling(&self, _: &Locked<'_>) -> Option<TablePlace> {
        let place = TablePlace::at(self.memory.read(0, offset_of!(ts_settings, refilling)));
        (self.refills() % 2 == 1 && (place.bank.0 as usize) < self.banks.len()).then_some(place)
    }

    /// Announces that a table is being refilled. The caller holds the lock, so there is no other refill.
    pub fn begin_refill(&self, _: &Locked<'_>, place: TablePlace) {
        self.memory.write::<u32>(0, offset_of!(ts_settings, refilling), place.index());
        self.memory.write::<u32>(0, offset_of!(ts_settings, refills), self.refills().wrapping_add(1) | 1);
    }

    /// Announces that no table is being refilled any more. The caller holds the lock.
    pub fn end_refill(&self, _: &Locked<'_>) {
        let refills = self.refills();
        self.memory.write::<u32>(0, offset_of!(ts_settings, refills), refills.wrapping_add(refills % 2));
    }

    /// Has the programs read all settings: a process that set them may have been killed before it announced them.
    pub fn announce(&self) -> Result<(), Error> {
        let locked = self.lock()?;
        (0..).take(self.banks.len()).for_each(|bank| self.set_quiet(BankId(bank)));
        self.tell(&locked);
        Ok(())
    }

    /// Announces changed settings: the programs read them when the generation differs.
    fn tell(&self, _: &Locked<'_>) {
        let generation = self.memory.read::<u32>(0, offset_of!(ts_settings, generation)).wrapping_add(1);
        self.memory.write::<u32>(0, offset_of!(ts_settings, generation), generation);
    }

    fn offset(place: TablePlace) -> usize {
        size_of::<ts_settings>() + place.index() as usize * size_of::<ts_config>()
    }

    fn config(&self, place: TablePlace) -> ts_config {
        self.memory.read(0, Self::offset(place))
    }

    /// The settings of a table.
    pub fn get(&self, place: TablePlace) -> TableSettings {
        let config = self.config(place);
        let on = |switch: u32| config.switches & switch != 0;
        TableSettings {
            enabled: on(TS_SWITCH_TABLE),
            sample_enabled: on(TS_SWITCH_SAMPLE),
            root_enabled: on(TS_SWITCH_ROOT),
            sync: on(TS_SWITCH_SYNC),
            period_ms: config.period_ms,
            delay_ms: config.delay_ms,
            raised_ms: config.raised_ms,
        }
    }

    /// Sets a table, from the next push on. Windows of another period start afresh. The generation, which is written last,
    /// announces the change to the programs. Returns the previous settings of the table.
    pub fn set(
        &self,
        locked: &Locked<'_>,
        place: TablePlace,
        kind: TableType,
        to: &TableSettings,
    ) -> Result<TableSettings, Error> {
        let before = self.get(place);
        let old = self.config(place);
        let config = self.configured(&old, kind, to)?;
        // The epoch is written last: a reader that reads it first sees its slide and clock, or later ones. Slides of another
        // length have numbers far from the numbers to come.
        self.memory.write(0, Self::offset(place), ts_config { epoch: old.epoch, ..config });
        self.memory.write(0, Self::offset(place) + offset_of!(ts_config, epoch), config.epoch);
        self.set_quiet(place.bank);
        self.tell(locked);
        Ok(before)
    }

    /// The configuration of a table that has these settings. `old`: its present one.
    fn configured(&self, old: &ts_config, kind: TableType, to: &TableSettings) -> Result<ts_config, Error> {
        let epoch = if to.period_ms == old.period_ms && old.epoch != 0 { old.epoch } else { next_epoch(old.epoch) };
        let switches = [
            (to.enabled, TS_SWITCH_TABLE),
            (to.sample_enabled, TS_SWITCH_SAMPLE),
            (to.root_enabled, TS_SWITCH_ROOT),
            (to.sync, TS_SWITCH_SYNC),
        ];
        let switches = switches.into_iter().filter(|(on, _)| *on).fold(0, |all, (_, switch)| all | switch);
        let enabled = switches & TS_SWITCH_ALL == TS_SWITCH_ALL;
        let config = topstat_engine::config(to.period_ms, to.order_ms(), number_of(kind), enabled, epoch, self.hz)
            .map_err(|e| Error::Option(e.to_string()))?;
        Ok(ts_config { switches, delay_ms: to.delay_ms, raised_ms: to.raised_ms, ..config })
    }

    /// The configurations of all dynamic tables, once this table has these settings.
    pub fn dynamic_with(
        &self,
        place: TablePlace,
        kind: TableType,
        to: &TableSettings,
    ) -> Result<Vec<ts_config>, Error> {
        let of = |other: TablePlace| {
            let config = self.config(other);
            if other == place { self.configured(&config, kind, to) } else { Ok(config) }
        };
        let configs = self.places().map(of).collect::<Result<Vec<_>, _>>()?;
        Ok(configs.into_iter().filter(|config| config.type_ == TS_DYNAMIC).collect())
    }

    /// The configurations of all dynamic tables.
    pub fn dynamic(&self) -> Vec<ts_config> {
        self.places().map(|place| self.config(place)).filter(|config| config.type_ == TS_DYNAMIC).collect()
    }

    fn places(&self) -> impl Iterator<Item = TablePlace> {
        (0..)
            .zip(&self.banks)
            .flat_map(|(bank, tables)| tables.iter().map(move |table| TablePlace { bank: BankId(bank), table: *table }))
    }

    /// Whether a table with these settings uses the clock of nanoseconds.
    pub fn is_precise(&self, to: &TableSettings) -> Result<bool, Error> {
        let config = topstat_engine::config(to.period_ms, to.order_ms(), TS_DYNAMIC, true, 1, self.hz);
        Ok(config.map_err(|e| Error::Option(e.to_string()))?.precise != 0)
    }

    /// Pushes may be summed without ordering where every table that is on has a delay.
    fn set_quiet(&self, bank: BankId) {
        let places = || self.banks[bank.0 as usize].iter().map(|table| TablePlace { bank, table: *table });
        let quiet = places().map(|place| self.config(place)).all(|c| c.enabled == 0 || c.delay > 0);
        for place in places() {
            let offset = Self::offset(place) + offset_of!(ts_config, quiet);
            self.memory.write::<u32>(0, offset, quiet.into());
        }
    }
}

/// The lock on the settings. Of all threads of all processes, only its holder changes them.
pub struct Locked<'a> {
    _alone: MutexGuard<'a, ()>,
    shared: Option<&'a OwnedFd>,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Unlocking can't fail for a descriptor that holds the lock.
        let _ = self.shared.map(|shared| rustix::fs::flock(shared, FlockOperation::Unlock));
    }
}

/// The engine's number of a type.
fn number_of(kind: TableType) -> u32 {
    match kind {
        TableType::Dynamic => TS_DYNAMIC,
        TableType::Static => TS_STATIC,
    }
}

/// The next epoch, 1 to 65535: 0 stands for no table.
fn next_epoch(epoch: u32) -> u32 {
    epoch % u32::from(u16::MAX) + 1
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    const FIRST_TABLE: TablePlace = TablePlace { bank: BankId(0), table: 0 };

    /// The settings of a family, in a process that has opened their memory and its directory of pins.
    fn opened(memory: &File, pins: &std::path::Path) -> SharedSettings {
        let banks = vec![vec![0, 1, 2, 3]];
        let pins = File::open(pins).unwrap().into();
        SharedSettings::new(Shared::of_file(memory, SharedSettings::size(banks.len()), 1), banks, Some(pins))
    }

    /// Two processes change different settings of one table. Each reads all settings, changes one and writes all. Both pause in
    /// between, as the scheduler may make them.
    #[test]
    fn of_two_processes_that_change_a_table_neither_undoes_what_the_other_has_changed() {
        const CHANGES: u32 = 40;
        const FIRST: u32 = 1000;
        let pause = || std::thread::sleep(Duration::from_micros(300));
        let memory: File = rustix::fs::memfd_create("settings", rustix::fs::MemfdFlags::CLOEXEC).unwrap().into();
        let pins = std::env::temp_dir().join(format!("topstat-settings-{}", std::process::id()));
        std::fs::create_dir_all(&pins).unwrap();
        let first = TableSettings { period_ms: FIRST, delay_ms: FIRST, ..TableSettings::default() };
        let settings = opened(&memory, &pins);
        settings.set(&settings.lock().unwrap(), FIRST_TABLE, TableType::Dynamic, &first).unwrap();
        let start = std::sync::Barrier::new(2);
        let change_often = |of: fn(&mut TableSettings) -> &mut u32| {
            let settings = opened(&memory, &pins);
            start.wait();
            for number in 1..=CHANGES {
                let locked = settings.lock().unwrap();
                let mut to = settings.get(FIRST_TABLE);
                assert_eq!(*of(&mut to), FIRST + number - 1, "what this one has set is undone");
                *of(&mut to) = FIRST + number;
                pause();
                settings.set(&locked, FIRST_TABLE, TableType::Dynamic, &to).unwrap();
                drop(locked);
                pause();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| change_often(|settings| &mut settings.period_ms));
            scope.spawn(|| change_often(|settings| &mut settings.delay_ms));
        });
        std::fs::remove_dir(&pins).unwrap();
        let last = settings.get(FIRST_TABLE);
        assert_eq!((last.period_ms, last.delay_ms), (FIRST + CHANGES, FIRST + CHANGES));
    }

    /// Reads settings as programs do while another thread sets them.
    #[test]
    fn who_sees_an_epoch_sees_the_slide_of_it() {
        const CHANGES: u32 = 20_000;
        let memory: File = rustix::fs::memfd_create("settings", rustix::fs::MemfdFlags::CLOEXEC).unwrap().into();
        let mapped = || Shared::of_file(&memory, SharedSettings::size(1), 1);
        let settings = SharedSettings::new(mapped(), vec![vec![0]], None);
        // The period of epoch n is n ms.
        let set = |n: u32| {
            let to = TableSettings { period_ms: n, ..TableSettings::default() };
            settings.set(&settings.lock().unwrap(), FIRST_TABLE, TableType::Dynamic, &to).unwrap();
        };
        set(1);
        std::thread::scope(|scope| {
            scope.spawn(|| (2..=CHANGES).for_each(set));
            let programs = mapped();
            let (epoch_at, at) = (size_of::<ts_settings>() + offset_of!(ts_config, epoch), size_of::<ts_settings>());
            loop {
                let epoch: u32 = programs.read(0, epoch_at);
                let config: ts_config = programs.read(0, at);
                assert!(config.period_ms >= epoch, "epoch {epoch} with the slide of {}", config.period_ms);
                if epoch == CHANGES {
                    break;
                }
            }
        });
    }

    #[test]
    fn epochs_go_round_and_are_never_zero() {
        assert_eq!((next_epoch(0), next_epoch(1), next_epoch(65_534), next_epoch(65_535)), (1, 2, 65_535, 1));
    }
}
