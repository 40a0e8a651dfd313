// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The content of the tree's files: the states of all families, and their readers.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use topstat_kernel::{Error, SampleInfo, Source, State, TableInfo, TableSettings, update_all};
use topstat_model::text::TextOptions;
use topstat_model::{Format, Reading, Sink, Space, dump, stat};

use super::logging;
use super::own::Own;
use super::tree::fuse::{Failure, Store};
use super::tree::value::Setting;
use super::tree::{File, Kind, Place};

use crate::lock::lock;

/// The states of all loaded families.
pub struct Statistics {
    families: Vec<Serving>,
    /// The index of each sample's family.
    family_of: HashMap<String, usize>,
    /// Makes the report of `self`. Only a daemon has it.
    own: Option<OwnReport>,
}

/// A family: its state and its readers.
struct Serving {
    state: Arc<dyn State>,
    readers: Readers,
}

impl Statistics {
    /// The statistics of these states. At most `readers` threads read each state at once.
    pub fn new(states: Vec<Arc<dyn State>>, readers: usize, own: Option<OwnReport>) -> Self {
        let serving = |state| Serving { state, readers: Readers::new(readers) };
        let families: Vec<_> = states.into_iter().map(serving).collect();
        let named = |(index, serving): (usize, &Serving)| {
            serving.state.samples().iter().map(move |s| (s.name.clone(), index)).collect::<Vec<_>>()
        };
        let family_of = families.iter().enumerate().flat_map(named).collect();
        Self { families, family_of, own }
    }

    /// The samples, in the order of the catalogue.
    pub fn samples(&self) -> Vec<Arc<SampleInfo>> {
        self.families.iter().flat_map(|serving| serving.state.samples()).cloned().collect()
    }

    /// Makes a reader for each family now, so that the first request does not wait for the verifier.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the programs that read.
    pub fn warm_up(&self) -> Result<(), Error> {
        for serving in &self.families {
            serving.with_reader(|_| Ok(()))?;
        }
        Ok(())
    }

    /// The settings of a table.
    ///
    /// # Errors
    ///
    /// When the table is not loaded.
    pub fn settings(&self, table: &TableInfo) -> Result<TableSettings, Error> {
        self.serving(table)?.state.settings(table)
    }

    fn serving(&self, table: &TableInfo) -> Result<&Serving, Error> {
        self.serving_of(&table.sample).ok_or_else(|| Error::NotLoaded(table.path()))
    }

    fn serving_of(&self, sample: &str) -> Option<&Serving> {
        self.family_of.get(sample).map(|index| &self.families[*index])
    }

    /// Whether the sample of this directory is loaded. This is always true for the root.
    pub fn has(&self, place: &Place) -> bool {
        match place {
            Place::Root => true,
            Place::Sample(sample) => self.family_of.contains_key(&sample.name),
            Place::Table(table) => self.family_of.contains_key(&table.sample),
        }
    }

    /// The tables that a setting of this directory concerns.
    fn tables(&self, place: &Place) -> Vec<Arc<TableInfo>> {
        match place {
            Place::Table(table) => vec![Arc::clone(table)],
            Place::Sample(sample) => sample.tables.clone(),
            Place::Root => self.samples().iter().flat_map(|sample| &sample.tables).cloned().collect(),
        }
    }

    /// The states of the tables that a setting of this directory concerns.
    fn states(&self, place: &Place) -> Result<Vec<Arc<dyn State>>, Error> {
        let sample = match place {
            Place::Table(table) => &table.sample,
            Place::Sample(sample) => &sample.name,
            Place::Root => return Ok(self.families.iter().map(|serving| Arc::clone(&serving.state)).collect()),
        };
        let index = self.family_of.get(sample).ok_or_else(|| Error::NotLoaded(place.path()))?;
        Ok(vec![Arc::clone(&self.families[*index].state)])
    }

    /// The value of this setting. A switch of a sample or of the root counts as off if its tables differ. They can differ only if
    /// another program has written to the maps.
    fn get(&self, place: &Place, setting: Setting) -> Result<u32, Error> {
        let mut all = None;
        for table in self.tables(place) {
            let settings = self.settings(&table)?;
            let value = match (setting, place) {
                (Setting::Enabled, Place::Root) => settings.root_enabled.into(),
                (Setting::Enabled, Place::Sample(_)) => settings.sample_enabled.into(),
                (Setting::Enabled, Place::Table(_)) => settings.enabled.into(),
                (Setting::Sync, _) => settings.sync.into(),
                (Setting::Period, _) => settings.period_ms,
                (Setting::Delay, _) => settings.delay_ms,
            };
            all = Some(all.map_or(value, |least: u32| least.min(value)));
        }
        Ok(all.unwrap_or(0))
    }

    /// Changes this setting in all tables that it concerns, or in no table. The new value holds from the next push on.
    ///
    /// # Errors
    ///
    /// When the value is out of range.
    pub fn set(&self, place: &Place, setting: Setting, value: u32) -> Result<(), Error> {
        let concerned = self.tables(place);
        update_all(&self.states(place)?, |table, settings| {
            if !concerned.iter().any(|one| **one == *table) {
                return;
            }
            match (setting, place) {
                (Setting::Enabled, Place::Root) => settings.root_enabled = value != 0,
                (Setting::Enabled, Place::Sample(_)) => settings.sample_enabled = value != 0,
                (Setting::Enabled, Place::Table(_)) => settings.enabled = value != 0,
                (Setting::Sync, _) => settings.sync = value != 0,
                (Setting::Period, _) => settings.period_ms = value,
                (Setting::Delay, _) => settings.delay_ms = value,
            }
        })?;
        Ok(())
    }

    fn own(&self, file: &File) -> Result<Own, Error> {
        self.own.as_ref().map(|own| own()).ok_or_else(|| Error::NotLoaded(file.path()))
    }

    /// The present text of a file.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to read the table.
    pub fn text(&self, file: &File) -> Result<Vec<u8>, Error> {
        let line = |value: u32| Ok(format!("{value}\n").into_bytes());
        let written = |write: &mut dyn FnMut(&mut Vec<u8>) -> std::io::Result<()>| {
            let mut text = Vec::new();
            write(&mut text).expect("a Vec takes all");
            text
        };
        match (file.kind, &file.place) {
            (Kind::Setting(setting), place) => line(self.get(place, setting)?),
            (Kind::Type, Place::Table(table)) => line(table.kind.number().into()),
            (Kind::Stat, Place::Table(table)) => {
                let snapshot = self.serving(table)?.with_reader(|source| {
                    source.list_cpu_rows(true);
                    source.snapshot(table)
                })?;
                Ok(written(&mut |text| stat::write(&snapshot, text)))
            }
            (Kind::Json, Place::Table(table)) => documents(self.serving(table)?, std::slice::from_ref(table)),
            (Kind::Json, Place::Sample(sample)) => {
                let serving = self.serving_of(&sample.name).ok_or_else(|| Error::NotLoaded(file.place.path()))?;
                let mut on = Vec::with_capacity(sample.tables.len());
                for table in &sample.tables {
                    if serving.state.settings(table)?.counts() {
                        on.push(Arc::clone(table));
                    }
                }
                documents(serving, &on)
            }
            (Kind::Dump, Place::Table(table)) => {
                let found = self.serving(table)?.with_reader(|source| source.dump(table))?;
                Ok(written(&mut |text| dump::write(&found, text)))
            }
            (Kind::Own, _) => Ok(self.own(file)?.text().into_bytes()),
            (Kind::OwnJson, _) => Ok(self.own(file)?.json().into_bytes()),
            // The tree does not have these files in these directories.
            (Kind::Type | Kind::Stat | Kind::Json | Kind::Dump, _) => Err(Error::NotLoaded(file.path())),
        }
    }
}

/// The documents of tables of a family, a line each. Usage that was not pushed yet is looked for once, and not for each table. A
/// document has no rows of single CPUs.
fn documents(serving: &Serving, tables: &[Arc<TableInfo>]) -> Result<Vec<u8>, Error> {
    let snapshots = serving.with_reader(|source| {
        source.list_cpu_rows(false);
        source.snapshots(tables)
    })?;
    let readings: Vec<&dyn Reading> = snapshots.iter().map(|snapshot| snapshot as &dyn Reading).collect();
    Ok(Sink::new(Format::Json, TextOptions::default()).write(&readings, Space::default()).expect("a snapshot is JSON"))
}

/// Makes the report of `self`. This takes about a millisecond.
pub type OwnReport = Arc<dyn Fn() -> Own + Send + Sync>;

impl Store for Statistics {
    fn read(&self, file: &File) -> Result<Vec<u8>, Failure> {
        self.text(file).map_err(failure)
    }

    fn write(&self, place: &Place, setting: Setting, value: u32) -> Result<(), Failure> {
        self.set(place, setting, value).map_err(failure)
    }

    fn refused(&self, what: &str, file: &str, why: &str) {
        logging::refused(what, file, why);
    }
}

fn failure(error: Error) -> Failure {
    let errno = match error {
        Error::Option(_) => libc::EINVAL,
        Error::NotLoaded(_) => libc::ENODATA,
        Error::Unsupported { .. } | Error::Lacking { .. } | Error::SwitchedOff { .. } => libc::EOPNOTSUPP,
        Error::Kernel { .. } | Error::Pins { .. } | Error::Denied { .. } | Error::OtherAbi { .. } => libc::EIO,
    };
    Failure { errno, why: error.to_string() }
}

impl Serving {
    /// Lends a reader that no other thread uses.
    fn with_reader<T>(&self, read: impl FnOnce(&mut dyn Source) -> Result<T, Error>) -> Result<T, Error> {
        let mut lent = self.readers.take(&self.state)?;
        // A reader that panics is not given back.
        let result = read(lent.source());
        lent.give_back();
        result
    }
}

/// The idle readers of a family. Each reader has its own programs and memory in the kernel, so that readers don't disturb each
/// other. Readers are kept, since the verifier takes some time for each new one.
struct Readers {
    pool: Mutex<Pool>,
    freed: Condvar,
    most: usize,
}

#[derive(Default)]
struct Pool {
    idle: Vec<Box<dyn Source>>,
    /// The number of readers, idle and lent.
    made: usize,
}

/// A lent reader.
struct Lent<'a> {
    source: Option<Box<dyn Source>>,
    from: &'a Readers,
}

impl Readers {
    fn new(most: usize) -> Self {
        Self { pool: Mutex::default(), freed: Condvar::new(), most: most.max(1) }
    }

    /// Takes an idle reader, or makes a new one if there are fewer than `most`, or waits for a reader.
    fn take(&self, state: &Arc<dyn State>) -> Result<Lent<'_>, Error> {
        let mut pool = lock(&self.pool);
        loop {
            if let Some(source) = pool.idle.pop() {
                return Ok(Lent { source: Some(source), from: self });
            }
            if pool.made < self.most {
                pool.made += 1;
                break;
            }
            pool = self.freed.wait(pool).unwrap_or_else(PoisonError::into_inner);
        }
        drop(pool);
        // If this fails, the drop of `lent` makes room for another try.
        let mut lent = Lent { source: None, from: self };
        lent.source = Some(Arc::clone(state).reader()?);
        Ok(lent)
    }
}

impl Lent<'_> {
    fn source(&mut self) -> &mut dyn Source {
        &mut **self.source.as_mut().expect("it is there until it is given back")
    }

    /// Gives the reader back. A reader that is dropped without this call makes room for a new one.
    fn give_back(mut self) {
        let source = self.source.take();
        let mut pool = lock(&self.from.pool);
        pool.idle.extend(source);
        // The drop of `self` subtracts one.
        pool.made += 1;
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        lock(&self.from.pool).made -= 1;
        self.from.freed.notify_one();
    }
}
