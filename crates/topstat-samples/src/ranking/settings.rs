// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What users set of the tables: in memory shared with the programs, which read it on every push.

use std::mem::{offset_of, size_of};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::FlockOperation;
use topstat_model::TableType;

use super::abi::{
    TS_BANK_TABLES, TS_DYNAMIC, TS_STATIC, TS_SWITCH_ALL, TS_SWITCH_ROOT, TS_SWITCH_SAMPLE, TS_SWITCH_SYNC,
    TS_SWITCH_TABLE, ts_config, ts_settings,
};
use crate::bpf::Shared;
use crate::pinned::lock_file;
use crate::{Error, SampleInfo, TableSettings};

/// The longest to wait for others to have set: that takes microseconds, so something has stopped them.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// The settings of a family.
pub struct Settings {
    memory: Shared,
    samples: &'static [SampleInfo],
    /// Two that set at once would overwrite each other's.
    setting: Mutex<()>,
    /// Where settings are pinned: what other processes that set lock, too.
    shared: Option<OwnedFd>,
    hz: u32,
}

impl Settings {
    /// Those in this memory.
    pub fn new(memory: Shared, samples: &'static [SampleInfo], shared: Option<OwnedFd>) -> Self {
        Self { memory, samples, setting: Mutex::new(()), shared, hz: hz() }
    }

    /// Bytes of the settings of so many samples.
    pub fn size(samples: usize) -> usize {
        size_of::<ts_settings>() + samples * TS_BANK_TABLES as usize * size_of::<ts_config>()
    }

    /// Locks other processes out until it is dropped.
    fn lock(&self) -> Result<Option<impl Drop + '_>, Error> {
        let Some(shared) = &self.shared else { return Ok(None) };
        lock_file(shared, LOCK_PATIENCE)
            .map_err(|e| Error::Kernel { what: "lock the settings".to_owned(), why: e.to_string() })?;
        Ok(Some(Locked(shared)))
    }

    fn offset(sample: u32, table: u32) -> usize {
        size_of::<ts_settings>() + (sample * TS_BANK_TABLES + table) as usize * size_of::<ts_config>()
    }

    fn config(&self, sample: u32, table: u32) -> ts_config {
        self.memory.read(0, Self::offset(sample, table))
    }

    /// What a table is set to.
    pub fn get(&self, sample: u32, table: u32) -> TableSettings {
        let config = self.config(sample, table);
        let on = |switch: u32| config.switches & switch != 0;
        TableSettings {
            enabled: on(TS_SWITCH_TABLE),
            sample_enabled: on(TS_SWITCH_SAMPLE),
            root_enabled: on(TS_SWITCH_ROOT),
            sync: on(TS_SWITCH_SYNC),
            period_ms: config.period_ms,
            delay_ms: config.delay_ms,
        }
    }

    /// Sets a table, from the next push on, and returns what it was set to before. Windows of another period start
    /// afresh; the generation, written last, tells the programs.
    pub fn set(&self, sample: u32, table: u32, kind: TableType, to: &TableSettings) -> Result<TableSettings, Error> {
        let _alone = self.setting.lock().unwrap_or_else(PoisonError::into_inner);
        let _locked = self.lock()?;
        let before = self.get(sample, table);
        let old = self.config(sample, table);
        let epoch = if to.period_ms == old.period_ms && old.epoch != 0 { old.epoch } else { next_epoch(old.epoch) };
        let kind = match kind {
            TableType::Dynamic => TS_DYNAMIC,
            TableType::Static => TS_STATIC,
        };
        let switches = [
            (to.enabled, TS_SWITCH_TABLE),
            (to.sample_enabled, TS_SWITCH_SAMPLE),
            (to.root_enabled, TS_SWITCH_ROOT),
            (to.sync, TS_SWITCH_SYNC),
        ];
        let switches = switches.into_iter().filter(|(on, _)| *on).fold(0, |all, (_, switch)| all | switch);
        let enabled = switches & TS_SWITCH_ALL == TS_SWITCH_ALL;
        let config = topstat_engine::config(to.period_ms, to.delay_ms, kind, enabled, epoch, self.hz)
            .map_err(|e| Error::Option(e.to_string()))?;
        self.memory.write(0, Self::offset(sample, table), ts_config { switches, ..config });
        self.set_quiet(sample);
        let generation = self.memory.read::<u32>(0, offset_of!(ts_settings, generation)).wrapping_add(1);
        self.memory.write::<u32>(0, offset_of!(ts_settings, generation), generation);
        Ok(before)
    }

    /// Pushes may be summed alone where every table that is on has a delay.
    fn set_quiet(&self, sample: u32) {
        let numbers = || self.samples[sample as usize].tables.iter().map(|t| t.number);
        let quiet = numbers().map(|t| self.config(sample, t)).all(|c| c.enabled == 0 || c.delay > 0);
        for table in numbers() {
            let offset = Self::offset(sample, table) + offset_of!(ts_config, quiet);
            self.memory.write::<u32>(0, offset, quiet.into());
        }
    }
}

/// Holds a lock.
struct Locked<'a>(&'a OwnedFd);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // It can't fail for a descriptor that holds the lock.
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}

/// 1 to 65535: 0 stands for no table.
fn next_epoch(epoch: u32) -> u32 {
    epoch % u32::from(u16::MAX) + 1
}

/// Jiffies in a second: the grain of the coarse clock is one jiffy.
fn hz() -> u32 {
    let grain = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    let ns = u64::try_from(grain.tv_nsec).unwrap_or(0) + u64::try_from(grain.tv_sec).unwrap_or(0) * 1_000_000_000;
    u32::try_from((1_000_000_000 + ns / 2) / ns.max(1)).unwrap_or(250)
}

#[cfg(test)]
mod tests {
    use super::next_epoch;

    #[test]
    fn epochs_go_round_and_are_never_zero() {
        assert_eq!((next_epoch(0), next_epoch(1), next_epoch(65_534), next_epoch(65_535)), (1, 2, 65_535, 1));
    }
}
