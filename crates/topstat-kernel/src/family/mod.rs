// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Describes a family by data, and by functions where it differs in ways that data can't express.
//!
//! The code in here knows neither the list of families ([`Catalogue`](crate::Catalogue)) nor how one is read: a [`Kind`] does,
//! in `ranking`, `counting` and `events`, or in the folder of a family that is the only one of its kind.

mod build;
pub mod columns;
mod constants;
mod event;
mod kind;
mod place;
mod row;
mod sample;

use std::any::Any;
use std::borrow::Cow;
use std::mem::size_of;
use std::sync::Arc;

use libbpf_rs::{Link, MapCore as _, MapHandle, Object};
use topstat_engine::ts_tick;
use topstat_model::Stored;

pub use build::{Build, BuildKind, Builds, Entries, Feature, Grids, Keeps, Lent, MapSize, Probe, Probes, Settle};
pub use constants::{Constant, Constants};
pub use kind::Kind;
pub use place::{BankId, TablePlace};
pub use row::{EventField, EventFormat, FieldAt, Filter, FilterBy, RowColumn, describe};
pub use sample::{SampleInfo, TableInfo, Variant, names_of};

use crate::Options;
use crate::bpf;
use crate::error::Error;
use crate::maps::Maps;
use crate::report::Check;

/// Samples that share their eBPF programs.
#[derive(Clone)]
pub struct Family {
    /// Its folder: `inet`.
    pub name: String,
    /// The version of its structures: state that was pinned by another version can't be used.
    pub abi: u32,
    /// Its samples, in the order of their banks.
    pub samples: Vec<Arc<SampleInfo>>,
    /// Its kind, which determines how it is loaded and read.
    pub kind: Arc<dyn Kind>,
    /// The oldest Linux that it supports, and is tested on.
    pub since: (u32, u32),
    /// Whether the kernel gives it anything to count at present. Pinned state stays usable.
    ///
    /// # Errors
    /// [`Error::SwitchedOff`] or [`Error::Unsupported`].
    pub ready: fn() -> Result<(), Error>,
    /// Checks of the family, in addition to the checks for all families of its kind.
    pub check: fn() -> Vec<Check>,
}

impl Family {
    /// A family of ranked tables that is ready wherever its programs load, and has no further checks.
    pub fn ranked(
        name: &str,
        abi: u32,
        since: (u32, u32),
        samples: impl IntoIterator<Item = SampleInfo>,
        ranked: Ranked,
    ) -> Self {
        Self {
            name: name.to_owned(),
            abi,
            samples: samples.into_iter().map(Arc::new).collect(),
            kind: Arc::new(ranked),
            since,
            ready: || Ok(()),
            check: Vec::new,
        }
    }

    /// Its kind, if it is this one.
    pub fn kind_as<K: Kind>(&self) -> Option<Arc<K>> {
        let kind: Arc<dyn Any + Send + Sync> = Arc::clone(&self.kind) as _;
        kind.downcast().ok()
    }

    /// See [`Kind::programs`].
    pub fn programs(&self) -> Vec<String> {
        self.kind.programs()
    }

    /// See [`Kind::available_samples`].
    pub fn available_samples(&self) -> Vec<Arc<SampleInfo>> {
        self.kind.available_samples(self)
    }

    /// See [`Kind::parts`].
    pub fn parts(&self, table: &TableInfo) -> Vec<String> {
        self.kind.parts(table)
    }

    /// See [`Kind::lost`].
    pub fn lost(&self, table: &TableInfo) -> Vec<String> {
        self.kind.lost(table)
    }

    /// How the records of a table are stored.
    pub fn stored(&self, sample: &SampleInfo, table: &TableInfo) -> Stored {
        let is_number = |column: &RowColumn| column.from.is_number(column.column.kind);
        Stored {
            numbers: sample.columns.iter().map(is_number).collect(),
            parts: self.parts(table),
            lost: self.lost(table),
            key: sample.key.clone(),
        }
    }

    /// All its tables.
    pub fn tables(&self) -> Vec<Arc<TableInfo>> {
        self.samples.iter().flat_map(|sample| &sample.tables).cloned().collect()
    }
}

/// How ranked tables are loaded and read.
pub struct Ranked {
    /// Banks of a sample, a power of two. A bank has four tables; table `number` is in bank `number / 4`.
    pub sample_banks: u32,
    /// The programs, compiled for kernels that have more or fewer features.
    pub builds: Builds,
    /// The constants that the programs get before they are loaded.
    pub constants: Constants,
    /// Bytes of a section before its rows: a `ts_section`, and the family's data behind it.
    pub section_head: usize,
    /// Bytes of a row: a `ts_row`, and the description of the object.
    pub row: usize,
    /// Whether its observer does not know the amount of some events, which it does not push then.
    pub opaque: bool,
    /// Whether the number of its objects is bounded.
    pub full: bool,
    /// Whether an amount takes two events. The first one may have been missed.
    pub unmatched: bool,
    /// The names of the parts of its values: `rx`, `tx`.
    pub parts: Vec<String>,
    /// Counts of losses that only this family has.
    pub lost: Vec<OwnLost>,
    /// A row that no CPU ranks.
    pub unranked: Option<UnrankedRow>,
    /// How amounts are bounded that a row may lack, where objects displace each other.
    pub doubt: Option<Doubt>,
    /// The text that its constants were made of, where users define it.
    pub definition: Option<Defined>,
    /// Options of its tables that precede the user's general ones: its definition has them.
    pub own: OwnOptions,
}

/// Objects whose number is bounded, and of which the large ones displace the small ones: what a row may lack of its true value.
#[derive(Clone, Copy, Debug)]
pub struct Doubt {
    /// The offset, in a row, of a `u64`: its value may be too low by this amount.
    pub missing: usize,
    /// The map of the amounts that were refused, one of [`Build::maps`]: each value begins with a `ts_window`. No object, with a
    /// row or without, lacks more than the largest of these windows.
    pub refused: &'static str,
}

/// See [`Ranked::definition`].
#[derive(Clone, Debug)]
pub struct Defined {
    /// The text.
    pub text: String,
    /// The offset of the text, with a zero behind it, in the constants.
    pub at: usize,
}

/// See [`Ranked::own`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnOptions {
    /// As [`Options::top`].
    pub top: Option<u32>,
    /// As [`Options::period_ms`].
    pub period_ms: Option<u32>,
}

impl OwnOptions {
    /// The user's options, with these in their place where there are any.
    pub fn or(self, options: &Options) -> Options {
        Options {
            top: self.top.unwrap_or(options.top),
            period_ms: self.period_ms.unwrap_or(options.period_ms),
            ..options.clone()
        }
    }
}

impl Ranked {
    /// Tables that are read by sections `S` with rows `R`: one bank per sample, values of one part, and no extras of the family.
    pub fn new<S, R>(builds: Builds, constants: Constants) -> Self {
        Self {
            sample_banks: 1,
            builds,
            constants,
            section_head: size_of::<S>(),
            row: size_of::<R>(),
            opaque: false,
            full: false,
            unmatched: false,
            parts: Vec::new(),
            lost: Vec::new(),
            unranked: None,
            doubt: None,
            definition: None,
            own: OwnOptions::default(),
        }
    }

    /// What a table has lost, by cause, in the order of [`Lost::further`](topstat_model::Lost::further).
    pub fn causes(&self, table: &TableInfo) -> Vec<Cause<'_>> {
        let optional = [(Cause::Opaque, self.opaque), (Cause::Full, self.full), (Cause::Unmatched, self.unmatched)];
        let counted = optional.into_iter().filter(|(_, is_counted)| *is_counted).map(|(cause, _)| cause);
        let own = self.lost.iter().filter(|own| own.table == table.path()).map(Cause::Own);
        [Cause::Crowded, Cause::Skipped].into_iter().chain(counted).chain(own).collect()
    }
}

/// The cause of a loss that is counted besides [`Lost`](topstat_model::Lost)'s own fields. docs/glossary.md describes them.
#[derive(Clone, Copy)]
pub enum Cause<'a> {
    /// A hash chain was full.
    Crowded,
    /// The kernel did not run a program.
    Skipped,
    /// IPsec had wrapped the packet.
    Opaque,
    /// All places for objects were taken.
    Full,
    /// The event that names the owner was not seen.
    Unmatched,
    /// A count of the family.
    Own(&'a OwnLost),
}

impl Cause<'_> {
    /// The name in documents.
    pub fn name(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Crowded => "crowded",
            Self::Skipped => "skipped",
            Self::Opaque => "opaque",
            Self::Full => "full",
            Self::Unmatched => "unmatched",
            Self::Own(own) => return own.name.clone().into(),
        })
    }
}

/// A count of losses, in a map of one `u64`.
pub struct OwnLost {
    /// The table.
    pub table: String,
    /// Its name in outputs: `impossible`.
    pub name: String,
    /// The end of the map's name. The map must be one of [`Build::maps`].
    pub map: String,
}

/// The bytes of a row that no CPU ranks, for a table, at the moment of a snapshot.
pub type UnrankedRow = fn(&Maps, TablePlace, tick: &ts_tick) -> Option<Vec<u8>>;

/// The kind of a sample's objects, by the kernel's storage that they live in.
#[derive(Clone, Copy, Debug)]
pub enum Objects {
    /// Sockets.
    Socket,
    /// Processes, or threads where the options ask for them.
    Task,
    /// Control groups.
    Cgroup,
    /// Objects that a key of the family tells apart, in a bounded hash.
    Keyed,
    /// Objects that the kernel counts anyway: nothing is made for them.
    Counter,
}

impl Objects {
    /// Their storage, for people.
    pub fn storage(self) -> &'static str {
        match self {
            Self::Socket => "socket storage",
            Self::Task => "task storage",
            Self::Cgroup => "cgroup storage",
            Self::Keyed => "a hash",
            Self::Counter => "the kernel's counters",
        }
    }
}

/// A way over objects.
pub enum Walk {
    /// An iterator, which is read out.
    Iterator(Link),
    /// A program that is called for some places of an array at a time (`REFILL_PLACES`), and the number of places.
    Places(bpf::Runner, u32),
}

/// What a refill finds. If it does not find all objects, it proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finds {
    /// All objects.
    All,
    /// All objects, if it has found as many as exist.
    AllIfAsMany,
    /// Perhaps not all.
    Some,
}

/// How all objects of a sample are ordered again.
pub struct Refill {
    /// One after the other.
    pub walks: Vec<Walk>,
    /// What they find.
    pub finds: Finds,
}

impl Refill {
    /// A refill by a program that is called for the places of an array.
    ///
    /// # Errors
    /// There is no program of this name.
    pub fn over_places(object: &Object, array: &MapHandle, program: &str) -> Result<Self, Error> {
        let walk = Walk::Places(bpf::Runner::new(object, program)?, array.max_entries());
        Ok(Self { walks: vec![walk], finds: Finds::All })
    }

    /// A refill over the sockets in a storage: see [`bpf::sockets`].
    ///
    /// # Errors
    /// The kernel does not attach the program.
    pub fn over_sockets(object: &Object, storage: &MapHandle, program: &str) -> Result<Self, Error> {
        let finds = if bpf::sockets::are_iterated() { Finds::All } else { Finds::AllIfAsMany };
        let iterators = bpf::sockets::iterate(object, storage, program)?;
        Ok(Self { walks: iterators.into_iter().map(Walk::Iterator).collect(), finds })
    }

    /// A refill by a program that goes over all tasks.
    ///
    /// # Errors
    /// The kernel does not attach the program.
    pub fn over_tasks(object: &Object, program: &str) -> Result<Self, Error> {
        Self::by(program, bpf::program(object, program)?.attach())
    }

    fn by(program: &str, attached: libbpf_rs::Result<Link>) -> Result<Self, Error> {
        let failed = |e: libbpf_rs::Error| Error::Kernel { what: format!("attach {program}"), why: format!("{e:#}") };
        Ok(Self { walks: vec![Walk::Iterator(attached.map_err(failed)?)], finds: Finds::All })
    }
}
