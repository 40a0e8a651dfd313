// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of counters that the kernel keeps anyway. No program is attached, and nothing is pushed. A snapshot reads all counters
//! of a sample and ranks them; a rate is the difference of two readings ([`tally`]).
//!
//! All readers share the state, and with it the readings that rates are computed from.

mod refresh;
mod tally;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use topstat_engine::abi::{TS_DYNAMIC, TS_SLIDES, TS_STATIC};
use topstat_model::{Dump, Field, Lost, Settings, Snapshot, TableType};

pub use refresh::Refresh;
pub use tally::{Key, Tallied, Tally};

use crate::clock::hz;
use crate::family::{Family, Kind};
use crate::{Error, Options, Program, SampleInfo, Setter, Source, State, TableInfo, TableSettings};

/// How counters are read.
#[derive(Clone, Copy)]
pub struct Counting {
    /// Loads the reading programs, as for all counters.
    ///
    /// # Errors
    /// This kernel or this user does not allow it.
    pub try_load: fn() -> Result<(), Error>,
    /// The names of the samples that this kernel counts.
    pub available: fn() -> Vec<String>,
    /// Opens the reader of the tables.
    ///
    /// # Errors
    /// An object that the options name does not exist.
    pub open: fn(&Options, &Whose) -> Result<Tallier, Error>,
    /// The names of the parts of a table's values.
    pub parts: fn(&TableInfo) -> &'static [&'static str],
    /// The names of a table's lost counts.
    pub lost: fn(&TableInfo) -> &'static [&'static str],
}

/// Reads the counters of a family.
pub trait Tallies: Send {
    /// Reads all objects of a sample, with the values that the table ranks by.
    ///
    /// # Errors
    /// They can't be read.
    fn tally(&mut self, table: &TableInfo) -> Result<Tally, Error>;

    /// Describes an object that [`tally`](Self::tally) has left without a description, for a row. So objects without a row cost
    /// none.
    fn describe(&mut self, _: Key) -> Vec<Field> {
        Vec::new()
    }
}

/// As [`Tallies`].
pub type Tallier = Box<dyn Tallies>;

/// The tables of a family of counters, and their readings.
pub struct Tables {
    samples: Vec<Arc<SampleInfo>>,
    parts: fn(&TableInfo) -> &'static [&'static str],
    top: u32,
    settings: Mutex<HashMap<String, TableSettings>>,
    /// Held by the thread that changes settings.
    setting: Mutex<()>,
    read: Mutex<Readings>,
}

/// The function that reads, and its readings.
struct Readings {
    tallier: Tallier,
    of: HashMap<String, Kept>,
}

/// The readings that are kept of a table.
#[derive(Default)]
struct Kept {
    /// The two readings that rates are computed from. When the newer one is a period old, less a slide, it becomes the older one,
    /// and a new reading replaces it. So there is always a reading of that age; the older one precedes the newer one by at most a
    /// period and the time between two readings.
    older: Option<Arc<Tally>>,
    newer: Option<Arc<Tally>>,
    /// The latest reading.
    last: Option<Arc<Tally>>,
}

impl Kept {
    /// Keeps a reading, and returns the one to compare it with: the newest that is a period old, or else the oldest. A reader
    /// that reads once in a period reads a little too early now and then, so a slide is allowed for: a tenth of the period, the
    /// grain of all tables.
    fn take(&mut self, now: &Arc<Tally>, period: Duration) -> Option<Arc<Tally>> {
        let period = period.saturating_sub(period / TS_SLIDES);
        let is_due =
            self.newer.as_ref().is_none_or(|newer| now.instant.saturating_duration_since(newer.instant) >= period);
        if is_due {
            self.older = self.newer.replace(Arc::clone(now));
            return self.older.clone();
        }
        self.older.clone().or_else(|| self.newer.clone())
    }

    /// Drops all readings.
    fn forget(&mut self) {
        (self.older, self.newer, self.last) = (None, None, None);
    }
}

/// The namespace of tables that belong to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The caller's namespace.
    Own,
    /// The host's namespace, wherever the daemon runs.
    Host,
    /// The namespace of this name.
    Of(String),
}

/// Opens the tables of a family of counters, with the given tables on and all others off. Takes the first readings, to compare
/// later ones with.
///
/// # Errors
/// This kernel lacks a sample of the given tables, or nothing can be read.
fn load(
    family: &Family,
    counting: &Counting,
    tables: &[Arc<TableInfo>],
    options: &Options,
    whose: &Whose,
) -> Result<Tables, Error> {
    let samples = counting.available_samples(family);
    if let Some(absent) = tables.iter().find(|table| !samples.iter().any(|sample| sample.name == table.sample)) {
        let known = family.samples.iter().find(|sample| sample.name == absent.sample);
        // The daemon asks for all tables, present or not; any other caller asks for particular ones.
        if matches!(whose, Whose::Own | Whose::Of(_)) {
            return Err(Error::Unsupported {
                sample: absent.sample.clone(),
                reason: format!("this kernel does not count it ({})", known.map_or("", |sample| &sample.about)),
                advice: "a kernel that was built with it does; 'topstat snmp' shows what there is".to_owned(),
            });
        }
    }
    let set = |table: &Arc<TableInfo>| {
        let enabled = tables.iter().any(|on| on.path() == table.path());
        let (period_ms, delay_ms) = (options.period_ms, options.delay_ms);
        (table.path(), TableSettings { enabled, period_ms, delay_ms, ..TableSettings::default() })
    };
    let settings = samples.iter().flat_map(|sample| &sample.tables).map(set).collect();
    let tallier = (counting.open)(options, whose)?;
    let all = Tables {
        samples,
        parts: counting.parts,
        top: options.top,
        settings: Mutex::new(settings),
        setting: Mutex::default(),
        read: Mutex::new(Readings { tallier, of: HashMap::new() }),
    };
    for table in tables.iter().filter(|table| table.kind == TableType::Dynamic && all.settings(table).is_ok()) {
        all.snapshot(table, false)?;
    }
    Ok(all)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No change is left half done under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tables {
    fn sample(&self, table: &TableInfo) -> Result<&Arc<SampleInfo>, Error> {
        let found = self.samples.iter().find(|sample| sample.name == table.sample);
        found.ok_or_else(|| Error::NotLoaded(table.path()))
    }

    /// Reads a table. Uses the last reading again if it is younger than the table's delay.
    fn snapshot(&self, table: &TableInfo, cpu_rows: bool) -> Result<Snapshot, Error> {
        let (sample, settings) = (self.sample(table)?, State::settings(self, table)?);
        let mut readings = lock(&self.read);
        let Readings { tallier, of } = &mut *readings;
        let kept = of.entry(table.path()).or_default();
        if !(settings.enabled && settings.sample_enabled && settings.root_enabled) {
            kept.forget();
            return Ok(self.empty(sample, table, &settings));
        }
        let period = Duration::from_millis(settings.period_ms.into());
        let delay = Duration::from_millis(settings.order_ms().into());
        let tally = match &kept.last {
            Some(last) if Instant::now().saturating_duration_since(last.instant) < delay => Arc::clone(last),
            _ => Arc::new(tallier.tally(table)?),
        };
        kept.last = Some(Arc::clone(&tally));
        let mut snapshot = self.empty(sample, table, &settings);
        let too_much = |_| Error::Kernel {
            what: format!("take a snapshot of {}", table.path()),
            why: "its counters add up to more than a number holds".to_owned(),
        };
        let top = self.top as usize;
        let ranked = match table.kind {
            TableType::Static => tally.standing(top, cpu_rows).map_err(too_much)?,
            TableType::Dynamic => match kept.take(&tally, period) {
                Some(before) => {
                    snapshot.elapsed = Some(tally.instant.saturating_duration_since(before.instant));
                    tally.since(&before, period, top, cpu_rows).map_err(too_much)?
                }
                None => tally::Ranked::default(),
            },
        };
        // The losses belong to this reading alone, so `lost_now` is `lost`.
        snapshot.lost = Lost { further: tally.lost.clone(), ..Lost::default() };
        snapshot.lost_now = snapshot.lost.clone();
        snapshot.time = tally.time;
        snapshot.objects = tally.objects.len() as u64;
        snapshot.value_name = tally.value_name.clone().unwrap_or(snapshot.value_name);
        (snapshot.total, snapshot.shared) = (ranked.total, ranked.shared);
        snapshot.proven = u32::try_from(ranked.rows.len()).unwrap_or(u32::MAX);
        (snapshot.rows, snapshot.cpus) = (ranked.rows, ranked.cpus);
        for row in snapshot.rows.iter_mut().filter(|row| row.object.is_empty()) {
            row.object = tallier.describe(row.id);
        }
        snapshot.settle().map_err(|fault| Error::Kernel {
            what: format!("take a snapshot of {}", table.path()),
            why: format!("it does not add up ({fault})"),
        })?;
        Ok(snapshot)
    }

    /// A snapshot of a table without any reading.
    fn empty(&self, sample: &SampleInfo, table: &TableInfo, set: &TableSettings) -> Snapshot {
        Snapshot {
            time: SystemTime::now(),
            sample: table.sample.clone(),
            table: table.name.clone(),
            kind: table.kind,
            unit: table.unit,
            value_name: table.value_name.clone(),
            period_ms: set.period_ms,
            delay_ms: set.order_ms(),
            elapsed: None,
            top: self.top,
            objects: 0,
            total: 0,
            shared: 0,
            other: 0,
            proven: 0,
            filter: None,
            lost: Lost::default(),
            lost_now: Lost::default(),
            settings: header(table, set),
            columns: sample.columns(),
            parts: (self.parts)(table).iter().map(|part| (*part).into()).collect(),
            rows: Vec::new(),
            cpus: Vec::new(),
        }
    }
}

fn header(table: &TableInfo, set: &TableSettings) -> Settings {
    Settings {
        enabled: set.enabled,
        owner: table.sample.clone(),
        owner_enabled: set.sample_enabled,
        topstat_enabled: set.root_enabled,
    }
}

impl State for Tables {
    fn samples(&self) -> &[Arc<SampleInfo>] {
        &self.samples
    }

    fn top(&self) -> u32 {
        self.top
    }

    fn threads(&self) -> bool {
        false
    }

    fn settings(&self, table: &TableInfo) -> Result<TableSettings, Error> {
        lock(&self.settings).get(&table.path()).copied().ok_or_else(|| Error::NotLoaded(table.path()))
    }

    fn lock(&self) -> Result<Box<dyn Setter + '_>, Error> {
        Ok(Box::new(Setting { tables: self, _alone: lock(&self.setting) }))
    }

    fn reader(self: Arc<Self>) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(Reader { tables: self, cpu_rows: true }))
    }

    fn way(&self, _sample: &SampleInfo) -> Option<&'static str> {
        None
    }

    fn pushed(&self, table: &TableInfo) -> Result<u64, Error> {
        // The kernel counts by itself.
        Err(Error::Option(format!("nothing is pushed to {}", table.path())))
    }

    fn objects(&self, sample: &SampleInfo) -> u64 {
        let readings = lock(&self.read);
        let of = sample.tables.iter().filter_map(|table| readings.of.get(&table.path())?.last.as_ref());
        of.max_by_key(|tally| tally.instant).map_or(0, |tally| tally.objects.len() as u64)
    }

    fn programs(&self) -> Vec<Program> {
        Vec::new()
    }
}

/// The lock on the settings of tables.
struct Setting<'a> {
    tables: &'a Tables,
    _alone: MutexGuard<'a, ()>,
}

impl Setter for Setting<'_> {
    fn set(&self, table: &TableInfo, to: &TableSettings) -> Result<(), Error> {
        let kind = if table.kind == TableType::Dynamic { TS_DYNAMIC } else { TS_STATIC };
        for delay_ms in [to.delay_ms, to.raised_ms] {
            topstat_engine::config(to.period_ms, delay_ms, kind, true, 1, hz())
                .map_err(|e| Error::Option(e.to_string()))?;
        }
        let mut settings = lock(&self.tables.settings);
        *settings.get_mut(&table.path()).ok_or_else(|| Error::NotLoaded(table.path()))? = *to;
        Ok(())
    }
}

/// A reader of the tables.
struct Reader {
    tables: Arc<Tables>,
    cpu_rows: bool,
}

/// Reads tables that are loaded, with or without the rows of every CPU.
fn read(tables: Tables, cpu_rows: bool) -> Box<dyn Source> {
    Box::new(Reader { tables: Arc::new(tables), cpu_rows })
}

impl Source for Reader {
    fn snapshot(&mut self, table: &TableInfo) -> Result<Snapshot, Error> {
        self.tables.snapshot(table, self.cpu_rows)
    }

    fn list_cpu_rows(&mut self, wanted: bool) {
        self.cpu_rows = wanted;
    }

    fn peek(&mut self, table: &TableInfo) -> Result<Snapshot, Error> {
        self.snapshot(table)
    }

    /// Each snapshot reads all objects anew: there is nothing to order again.
    fn refill(&mut self, table: &TableInfo) -> Result<u64, Error> {
        self.tables.sample(table).map(|_| 0)
    }

    /// There are no slots, since no order is kept.
    fn dump(&mut self, table: &TableInfo) -> Result<Dump, Error> {
        let (sample, set) = (self.tables.sample(table)?, State::settings(&*self.tables, table)?);
        let last = lock(&self.tables.read).of.get(&table.path()).and_then(|kept| kept.last.clone());
        Ok(Dump {
            table: table.name.clone(),
            kind: table.kind,
            value_name: table.value_name.clone(),
            period_ms: set.period_ms,
            delay_ms: set.order_ms(),
            settings: header(table, &set),
            ticks_per_slide: 0,
            now: 0,
            objects: last.as_ref().map_or(0, |tally| tally.objects.len() as u64),
            entries: 0,
            unkept: None,
            lost: Lost { further: last.map(|tally| tally.lost.clone()).unwrap_or_default(), ..Lost::default() },
            columns: sample.columns(),
            cpus: Vec::new(),
        })
    }
}

impl Kind for Counting {
    fn available_samples(&self, family: &Family) -> Vec<Arc<SampleInfo>> {
        let names = (self.available)();
        family.samples.iter().filter(|sample| names.contains(&sample.name)).cloned().collect()
    }

    fn parts(&self, table: &TableInfo) -> Vec<String> {
        (self.parts)(table).iter().map(|part| (*part).to_owned()).collect()
    }

    fn lost(&self, table: &TableInfo) -> Vec<String> {
        (self.lost)(table).iter().map(|&name| name.to_owned()).collect()
    }

    fn load(
        &self,
        family: &Arc<Family>,
        tables: &[Arc<TableInfo>],
        options: &Options,
    ) -> Result<Box<dyn Source>, Error> {
        let whose = options.netns.clone().map_or(Whose::Own, Whose::Of);
        Ok(read(load(family, self, tables, options, &whose)?, options.cpu_rows))
    }

    fn load_state(
        &self,
        family: &Arc<Family>,
        tables: &[Arc<TableInfo>],
        options: &Options,
    ) -> Result<Arc<dyn State>, Error> {
        Ok(Arc::new(load(family, self, tables, options, &Whose::Host)?))
    }

    fn try_load(&self, _family: &Arc<Family>) -> Result<(), Error> {
        (self.try_load)()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_one_period_at_least_and_of_two_at_most() {
        let began = Instant::now();
        let period = Duration::from_secs(1);
        let mut kept = Kept::default();
        let mut windows = Vec::new();
        for at_ms in (0..5000).step_by(300).chain([10_000]) {
            let instant = began + Duration::from_millis(at_ms);
            let (time, cpus, objects) = (SystemTime::UNIX_EPOCH, Vec::new(), Vec::new());
            let now = Arc::new(Tally { time, instant, cpus, objects, value_name: None, lost: Vec::new() });
            let before = kept.take(&now, period);
            windows.push(before.map(|before| (now.instant - before.instant).as_millis()));
        }
        // Until a reading is a period old, the oldest one is used.
        assert_eq!(windows[..5], [None, Some(300), Some(600), Some(900), Some(1200)]);
        assert!(windows[5..17].iter().all(|window| window.is_some_and(|ms| (900..1900).contains(&ms))), "{windows:?}");
        assert_eq!(windows[17], Some(10_000 - 4500), "after a pause, all of it");
    }
}
