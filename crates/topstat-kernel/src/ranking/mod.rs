// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all families of ranked tables share: the maps of their state, what users set, and the
//! reading of their tables. The C side of it is the engine's (`topstat/section.h`).
//!
//! A family says what its objects look like ([`Ranked`]); all else is here, once.

mod abi;
mod assemble;
mod banks;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod load;
mod merge;
mod pins;
mod reader;
mod settings;

use std::any::Any;
use std::borrow::Cow;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::mem::size_of;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle, Object, OpenObject};
use topstat_model::{Column, Field, Lost};

pub use abi::Row;
pub use banks::{Banks, bank_size};
pub use load::{Loaded, load};
pub use pins::{adopt, open};
pub use settings::{Settings, jiffy_ns};

use crate::bpf::{self, Shared};
use crate::cost::Skipped;
use crate::hooks::{Hook, Observer};
use crate::{Check, Error, Options, Program, SampleInfo, Source, State, TableInfo, TableSettings};
pub use abi::{Head, ts_tick};
use abi::{TS_BANK_TABLES, ts_census, ts_shape};

/// A family of ranked tables: what is its own.
pub trait Ranked: Send + Sync + Sized + 'static {
    /// Its folder: `inet`.
    const NAME: &'static str;
    /// Banks of a sample, a power of two. A bank has four tables; table `number` is in that of `number / 4`. Where there
    /// are more, "sample" is the number of the bank in what follows: `sample * SAMPLE_BANKS + number / 4`.
    const SAMPLE_BANKS: u32 = 1;
    /// Another one whenever a structure changes that is pinned.
    const ABI: u32;
    /// The eBPF object with the programs that read: `observe/ranked_snapshot.bpf.h`.
    const SNAPSHOT_OBJECT: &'static [u8];
    /// Bytes of a section before its rows: a `ts_section`, and what the family has behind it.
    const SECTION_HEAD: usize;
    /// Its iterator that orders all objects again: by the map of the objects' storage, unless [`Ranked::refill`] says
    /// otherwise.
    const REFILL: &'static str;
    /// Every place where its programs may be attached; which of them are, an [`Observer`] says.
    const HOOKS: &'static [Hook];
    /// Where its constants say whether objects are threads: the offset of a `u32`, where users may choose.
    const BY_THREAD: Option<usize> = None;
    /// Whether there are events of which its observer can't tell how much they are, so that they are not pushed.
    const OPAQUE: bool = false;
    /// What the names of its values' parts are: `rx`, `tx`.
    const PARTS: &'static [&'static str];
    /// A row of a section: `ts_row`, and what describes the object.
    type Row: Row;
    /// What it takes to put a description into words.
    type Describer: Send;

    /// Its samples; their order is that of the banks.
    fn samples() -> &'static [Arc<SampleInfo>];
    /// Maps of its state besides those that all families have, by what their names end with.
    fn further() -> &'static [&'static str] {
        &[]
    }
    /// See [`Family::ready`](crate::Family::ready).
    ///
    /// # Errors
    /// As there.
    fn ready() -> Result<(), Error> {
        Ok(())
    }
    /// See [`Family::less`](crate::Family::less).
    fn less() -> Option<String> {
        None
    }
    /// See [`Family::check`](crate::Family::check).
    fn check() -> Vec<Check>;
    /// Its programs that push, for tables of so many rows: those that this kernel takes. Programs of a pinned state
    /// get the constants that it was loaded with.
    ///
    /// # Errors
    /// When so many rows can't be kept.
    fn observer(options: &Options) -> Result<Observer, Error>;
    /// The programs that read, for this kernel, where there are more than one.
    fn snapshot_object() -> &'static [u8] {
        Self::SNAPSHOT_OBJECT
    }
    /// The columns that describe an object of a sample.
    fn columns(sample: u32) -> Vec<Column>;
    /// See [`Ranked::Describer`].
    fn describer() -> Self::Describer;
    /// The fields of a row, in the order of the columns.
    fn describe(sample: u32, row: &Self::Row, describer: &mut Self::Describer) -> Vec<Field>;

    /// Attaches what orders all objects of a sample again.
    ///
    /// # Errors
    /// What the kernel says.
    fn refill(object: &Object, maps: &Maps, _sample: u32) -> Result<Refill, Error> {
        let program = bpf::program(object, Self::REFILL)?;
        program
            .attach_iter(maps.objects.as_fd())
            .map(Refill::by)
            .map_err(|e| Error::Kernel { what: format!("attach {}", Self::REFILL), why: format!("{e:#}") })
    }

    /// What of a table could not be counted for reasons of the family's own, so often since it was loaded.
    fn lost(_maps: &Maps, _sample: u32, _table: u32) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// A row that no CPU ranks, at the moment of a snapshot.
    fn unranked(_maps: &Maps, _sample: u32, _table: u32, _tick: &ts_tick) -> Option<Self::Row> {
        None
    }
}

/// How all objects of a sample are ordered again.
pub struct Refill {
    /// Iterators, to be read out one after the other.
    pub iterators: Vec<Link>,
    /// Whether they find all objects; where they don't, nothing is proven by them.
    pub whole: bool,
}

impl Refill {
    /// By one that finds all.
    pub fn by(iterator: Link) -> Self {
        Self { iterators: vec![iterator], whole: true }
    }
}

/// The maps that hold a family's state: whoever has them can read it, and set it.
pub struct Maps {
    /// The banks, by CPU and sample.
    pub banks: MapHandle,
    /// `ts_settings` and the configurations.
    pub settings: MapHandle,
    /// How many objects there are.
    pub census: MapHandle,
    /// The constants, which begin with `ts_shape`.
    pub constants: MapHandle,
    /// The objects' storage.
    pub objects: MapHandle,
    /// See [`Ranked::further`].
    pub further: Vec<(&'static str, MapHandle)>,
}

impl Maps {
    /// By what their names end with, in eBPF objects, and of what they are.
    const NAMES: [&'static str; 5] = ["banks", ".data.settings", ".data.census", ".rodata.constants", "objects"];

    /// The names of all that a family has.
    pub fn names<F: Ranked>() -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().chain(F::further().iter().copied())
    }

    /// Those of a loaded object.
    pub fn of<F: Ranked>(object: &Object) -> Result<Self, Error> {
        Self::from::<F>(|name| bpf::map(object, name))
    }

    /// Each by its name.
    pub fn from<F: Ranked>(mut get: impl FnMut(&str) -> Result<MapHandle, Error>) -> Result<Self, Error> {
        let [banks, settings, census, constants, objects] = Self::NAMES;
        Ok(Self {
            banks: get(banks)?,
            settings: get(settings)?,
            census: get(census)?,
            constants: get(constants)?,
            objects: get(objects)?,
            further: F::further().iter().map(|name| Ok((*name, get(name)?))).collect::<Result<_, Error>>()?,
        })
    }

    /// With their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &MapHandle)> {
        let common = [&self.banks, &self.settings, &self.census, &self.constants, &self.objects];
        Self::NAMES.into_iter().zip(common).chain(self.further.iter().map(|(name, map)| (*name, map)))
    }

    /// Has programs that are about to be loaded use these maps. Those that they don't have are left out.
    pub fn share(&self, object: &mut OpenObject) -> Result<(), Error> {
        for (name, map) in self.iter() {
            if object.maps().any(|m| m.name().to_string_lossy().ends_with(name)) {
                bpf::reuse(object, name, map)?;
            }
        }
        Ok(())
    }

    /// What the tables were made for.
    pub fn shape(&self) -> Result<ts_shape, Error> {
        shape_in(&self.constants)
    }

    /// Whether objects are threads.
    fn threads<F: Ranked>(&self) -> bool {
        let constants = self.constants.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten();
        F::BY_THREAD
            .zip(constants)
            .and_then(|(at, bytes)| bytes.get(at..)?.first_chunk().copied())
            .is_some_and(|by_thread| u32::from_ne_bytes(by_thread) != 0)
    }
}

impl Maps {
    /// Whether they are as large as what is read from them.
    fn check<F: Ranked>(&self, shape: &ts_shape) -> Result<(), Error> {
        let unusable = |why: String| Error::Kernel { what: format!("use the constants of {}", F::NAME), why };
        rows_of(shape).map_err(unusable)?;
        let entries = shape.entries_mask.wrapping_add(1);
        let banks = banks::<F>();
        let bank = bank_size(entries);
        let needed = [
            ("banks", &self.banks, bank, bank),
            (".data.settings", &self.settings, Settings::size(banks), usize::MAX),
            (".data.census", &self.census, F::samples().len() * size_of::<ts_census>(), usize::MAX),
        ];
        for (name, map, least, most) in needed {
            let size = map.value_size() as usize;
            if size < least || size > most || (name == "banks" && !(map.max_entries() as usize).is_multiple_of(banks)) {
                return Err(Error::Kernel {
                    what: format!("use the map {name} of {}", F::NAME),
                    why: format!("{} values of {size} bytes are not what it should hold", map.max_entries()),
                });
            }
        }
        Ok(())
    }
}

/// The rows that these constants say, if the entries are as many as that takes: whoever can write to what is pinned can
/// write anything there.
fn rows_of(shape: &ts_shape) -> Result<u32, String> {
    let made = topstat_engine::entries_for(shape.top).map_err(|e| e.to_string())?;
    let entries = shape.entries_mask.wrapping_add(1);
    if entries == made { Ok(shape.top) } else { Err(format!("{entries} entries are not what {} rows take", shape.top)) }
}

/// What these constants begin with.
fn shape_in(constants: &MapHandle) -> Result<ts_shape, Error> {
    let failed = |why: &dyn std::fmt::Display| Error::Kernel {
        what: "read the constants of the loaded programs".to_owned(),
        why: why.to_string(),
    };
    let bytes = constants
        .lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(|e| failed(&e))?
        .filter(|bytes| bytes.len() >= size_of::<ts_shape>())
        .ok_or_else(|| failed(&"they are too short"))?;
    // SAFETY: long enough, as just checked, and any bytes are a shape.
    Ok(unsafe { bytes.as_ptr().cast::<ts_shape>().read_unaligned() })
}

/// How many rows the tables keep that have these constants.
pub fn top_of(constants: &MapHandle) -> Option<u32> {
    shape_in(constants).ok().map(|shape| shape.top)
}

/// What a family's constants begin with, for tables of so many rows.
pub fn shape<F: Ranked>(top: u32) -> Result<ts_shape, Error> {
    let entries = topstat_engine::entries_for(top).map_err(|e| Error::Option(e.to_string()))?;
    let table_stride = u32::try_from(topstat_engine::table_size(entries)).unwrap_or(u32::MAX);
    Ok(ts_shape { abi: F::ABI, top, entries_mask: entries - 1, table_stride })
}

/// All CPUs that the machine could ever have: each has banks.
pub fn possible_cpus() -> Result<u32, Error> {
    let cpus = libbpf_rs::num_possible_cpus()
        .map_err(|e| Error::Kernel { what: "count the CPUs".to_owned(), why: e.to_string() })?;
    Ok(u32::try_from(cpus).unwrap_or(u32::MAX))
}

/// What snapshots have told to be lost, by sample and number of the table.
struct Told {
    /// Nobody else has loaded what is read, so nothing was lost before.
    is_ours: bool,
    by_table: Mutex<HashMap<(u32, u32), Lost>>,
}

/// A family's state: its maps, and whatever has to be kept for its programs to stay attached.
pub struct Ranking<F: Ranked> {
    maps: Maps,
    banks: Banks,
    census: Shared,
    settings: Settings,
    top: u32,
    threads: bool,
    programs: Vec<Program>,
    skipped: Skipped,
    told: Told,
    _attached: Box<dyn Any + Send + Sync>,
    family: PhantomData<F>,
}

impl<F: Ranked> Ranking<F> {
    /// The state that is in these maps. Dropping it drops `attached`. Others who set it, too, hold a lock on `shared`
    /// meanwhile.
    ///
    /// # Errors
    /// When the maps are of another ABI or of the wrong size, or can't be mapped.
    pub fn new(
        maps: Maps,
        programs: Vec<Program>,
        shared: Option<OwnedFd>,
        attached: impl Any + Send + Sync,
    ) -> Result<Self, Error> {
        let shape = maps.shape()?;
        if shape.abi != F::ABI {
            return Err(Error::Kernel {
                what: format!("use the loaded programs of {}", F::NAME),
                why: format!("they are of ABI {}, this program is of ABI {}", shape.abi, F::ABI),
            });
        }
        maps.check::<F>(&shape)?;
        let entries = shape.entries_mask.wrapping_add(1);
        let banks = Banks::new(&maps.banks, banks::<F>(), entries)?;
        let census = Shared::new(&maps.census)?;
        let (top, threads) = (shape.top, maps.threads::<F>());
        let skipped = Skipped::by(&programs, F::HOOKS);
        let told = Told { is_ours: shared.is_none(), by_table: Mutex::default() };
        let settings = Settings::new(Shared::new(&maps.settings)?, F::samples(), F::SAMPLE_BANKS, shared);
        let _attached = Box::new(attached);
        Ok(Self {
            maps,
            banks,
            census,
            settings,
            top,
            threads,
            programs,
            skipped,
            told,
            _attached,
            family: PhantomData,
        })
    }

    /// What of this, which is lost of a table since it was made, was not told by the snapshot before. The first one of
    /// what others have loaded can't know that.
    fn lost_now(&self, sample: u32, table: u32, lost: &Lost) -> Lost {
        let mut told = self.told.by_table.lock().unwrap_or_else(PoisonError::into_inner);
        let before = told.insert((sample, table), lost.clone());
        let first = || if self.told.is_ours { Lost::default() } else { lost.clone() };
        lost.since(&before.unwrap_or_else(first))
    }

    /// The maps.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// Objects that are there now of the sample that a bank is of.
    fn census(&self, bank: u32) -> u64 {
        let sample = (bank / F::SAMPLE_BANKS) as usize;
        let census: ts_census = self.census.read(0, sample * size_of::<ts_census>());
        census.begun.saturating_sub(census.ended)
    }

    /// Reads its tables: see [`State::reader`].
    pub fn read(self: Arc<Self>, cpu_rows: bool) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(reader::Reader::new(self, cpu_rows)?))
    }

    /// While there was a delay, objects may have grown unseen.
    fn changed(&self, sample: u32, number: u32, (before, after): (TableSettings, TableSettings)) {
        if before.order_ms() > 0 && after.order_ms() == 0 {
            self.banks.distrust(sample, number);
        }
    }

    /// After somebody who used the state may have been killed amid anything: nothing is proven until it is looked at
    /// again, and settings count as they are.
    pub fn mistrust(&self) -> Result<(), Error> {
        self.settings.announce()?;
        for table in F::samples().iter().flat_map(|s| &s.tables) {
            let (sample, number) = Self::place(table)?;
            self.banks.distrust(sample, number);
        }
        Ok(())
    }

    /// Where the programs keep a table: the bank's number, and the table's in it.
    fn place(table: &TableInfo) -> Result<(u32, u32), Error> {
        let sample = F::samples().iter().position(|s| s.name == table.sample);
        match sample.and_then(|s| u32::try_from(s).ok()) {
            Some(sample) => {
                Ok((sample * F::SAMPLE_BANKS + table.number / TS_BANK_TABLES, table.number % TS_BANK_TABLES))
            }
            None => Err(Error::NotLoaded(table.path())),
        }
    }
}

impl<F: Ranked> State for Ranking<F> {
    fn samples(&self) -> &[Arc<SampleInfo>] {
        F::samples()
    }

    fn top(&self) -> u32 {
        self.top
    }

    fn threads(&self) -> bool {
        self.threads
    }

    fn settings(&self, table: &TableInfo) -> Result<TableSettings, Error> {
        let (sample, number) = Self::place(table)?;
        Ok(self.settings.get(sample, number))
    }

    fn set(&self, table: &TableInfo, settings: &TableSettings) -> Result<(), Error> {
        let (sample, number) = Self::place(table)?;
        let change = self.settings.set(sample, number, table.kind, settings)?;
        self.changed(sample, number, change);
        Ok(())
    }

    fn raise(&self, table: &TableInfo, delay_ms: u32) -> Result<(), Error> {
        let (sample, number) = Self::place(table)?;
        let change = self.settings.raise(sample, number, table.kind, delay_ms)?;
        self.changed(sample, number, change);
        Ok(())
    }

    fn pushed(&self, table: &TableInfo) -> Result<u64, Error> {
        let (sample, number) = Self::place(table)?;
        Ok(self.banks.pushed(sample, number).saturating_mul(assemble::scale(table.unit)))
    }

    fn objects(&self, sample: &SampleInfo) -> u64 {
        let number = F::samples().iter().position(|s| s.name == sample.name).and_then(|n| u32::try_from(n).ok());
        number.map_or(0, |number| self.census(number * F::SAMPLE_BANKS))
    }

    fn reader(self: Arc<Self>) -> Result<Box<dyn Source>, Error> {
        self.read(true)
    }

    fn programs(&self) -> Vec<Program> {
        self.programs.clone()
    }
}

/// Sets the tables of a family that has just been loaded: those named are on, the others off.
pub fn set_up<F: Ranked>(maps: &Maps, tables: &[Arc<TableInfo>], options: &Options) -> Result<(), Error> {
    let settings = Settings::new(Shared::new(&maps.settings)?, F::samples(), F::SAMPLE_BANKS, None);
    for table in F::samples().iter().flat_map(|s| &s.tables) {
        let (sample, number) = Ranking::<F>::place(table)?;
        let (period_ms, delay_ms) = (options.period_ms, options.delay_ms);
        let to = TableSettings { enabled: tables.contains(table), period_ms, delay_ms, ..TableSettings::default() };
        settings.set(sample, number, table.kind, &to)?;
    }
    Ok(())
}

/// Banks of a CPU.
fn banks<F: Ranked>() -> usize {
    F::samples().len() * F::SAMPLE_BANKS as usize
}

/// The names of the parts of a value, as a snapshot has them.
fn parts<F: Ranked>() -> Vec<Cow<'static, str>> {
    F::PARTS.iter().map(|p| Cow::Borrowed(*p)).collect()
}
