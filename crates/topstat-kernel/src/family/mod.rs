// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a family is: data, and functions where something is its own and can't be said otherwise.
//!
//! Nothing in here knows which families there are ([`catalogue`](crate::catalogue)) or how one is read
//! (`ranking`, `families/account`).

mod build;
pub mod columns;
mod constants;
mod row;
mod sample;
mod streaming;

use std::mem::size_of;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use libbpf_rs::{Link, MapHandle, Object};
use topstat_engine::ts_tick;
use topstat_model::interval::{Each, Interval};

pub use build::{Build, Builds, Entries, Feature, Keeps, MapSize, Probe, Probes, Settle, Which};
pub use constants::{Constant, Constants};
pub use row::{FieldAt, Filter, FilterBy, RowColumn, describe};
pub use sample::{SampleInfo, TableInfo, Variant, names_of};
pub use streaming::{EventKind, Payload, Streaming};

use crate::Options;
use crate::bpf;
use crate::counting::{self, Tallier, Whose};
use crate::error::Error;
use crate::maps::Maps;
use crate::report::Check;

/// Samples that share their eBPF programs.
#[derive(Clone)]
pub struct Family {
    /// Its folder: `inet`.
    pub name: String,
    /// The version of its structures: what is pinned of another one can't be used.
    pub abi: u32,
    /// Its samples; their order is that of the banks.
    pub samples: Vec<Arc<SampleInfo>>,
    /// What it is, which says how it is loaded and read.
    pub kind: Kind,
    /// The oldest Linux that it is promised for, and tested on.
    pub since: (u32, u32),
    /// Whether the kernel gives it anything to count just now. What is pinned stays of use all the same.
    ///
    /// # Errors
    /// [`Error::SwitchedOff`] or [`Error::Unsupported`].
    pub ready: fn() -> Result<(), Error>,
    /// What the family needs or tells, beyond what all of its kind do.
    pub check: fn() -> Vec<Check>,
}

impl Family {
    /// A family of ranked tables which is ready wherever its programs load, and has nothing more to check.
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
            kind: Kind::Ranked(Arc::new(ranked)),
            since,
            ready: || Ok(()),
            check: Vec::new,
        }
    }

    /// A family of events, which has no samples: `topstat events` shows them.
    pub fn streaming(name: &str, since: (u32, u32), streaming: Streaming) -> Self {
        Self {
            name: name.to_owned(),
            abi: 0, // nothing of it is ever pinned
            samples: Vec::new(),
            kind: Kind::Events(Arc::new(streaming)),
            since,
            ready: || Ok(()),
            check: Vec::new,
        }
    }

    /// The names of all programs that it may have attached, gates among them.
    pub fn programs(&self) -> Vec<String> {
        match &self.kind {
            Kind::Ranked(ranked) => {
                let hooks = ranked.builds.hooks();
                hooks.into_iter().flat_map(|hook| [hook.enter(), hook.program]).collect()
            }
            Kind::Account(account) => (account.programs)(),
            Kind::Events(streaming) => streaming.programs(),
            Kind::Counters(_) | Kind::Stacks(_) => Vec::new(),
        }
    }

    /// The samples that there are on this kernel.
    pub fn there(&self) -> Vec<Arc<SampleInfo>> {
        match &self.kind {
            Kind::Counters(counting) => counting::there(self, counting),
            Kind::Ranked(_) | Kind::Account(_) | Kind::Events(_) | Kind::Stacks(_) => self.samples.clone(),
        }
    }

    /// The names of what the values of one of its tables are made of.
    pub fn parts(&self, table: &TableInfo) -> Vec<String> {
        match &self.kind {
            Kind::Ranked(ranked) => ranked.parts.clone(),
            Kind::Counters(counting) => (counting.parts)(table).iter().map(|part| (*part).to_owned()).collect(),
            Kind::Account(_) | Kind::Events(_) | Kind::Stacks(_) => Vec::new(),
        }
    }

    /// All its tables.
    pub fn tables(&self) -> Vec<Arc<TableInfo>> {
        self.samples.iter().flat_map(|sample| &sample.tables).cloned().collect()
    }
}

/// The kinds of families.
#[derive(Clone)]
pub enum Kind {
    /// Tables that rank objects in the kernel.
    Ranked(Arc<Ranked>),
    /// An account of which every interval adds up.
    Account(Account),
    /// Counters that the kernel keeps anyway: nothing is attached, and nothing pushed.
    Counters(Counting),
    /// Events, one by one.
    Events(Arc<Streaming>),
    /// Stacks of the kernel, sampled for as long as somebody reads.
    Stacks(Sampling),
}

/// What sampling stacks takes.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// Loads the program that samples.
    ///
    /// # Errors
    /// What of it this kernel or this user does not allow.
    pub try_load: fn() -> Result<(), Error>,
}

/// What reading counters takes.
#[derive(Clone, Copy)]
pub struct Counting {
    /// Loads the programs that read, as for all counters.
    ///
    /// # Errors
    /// What of it this kernel or this user does not allow.
    pub try_load: fn() -> Result<(), Error>,
    /// The names of the samples that this kernel counts.
    pub there: fn() -> Vec<String>,
    /// Opens what reads the tables.
    ///
    /// # Errors
    /// When what the options name is not there.
    pub open: fn(&Options, &Whose) -> Result<Tallier, Error>,
    /// The names of what the values of a table are made of.
    pub parts: fn(&TableInfo) -> &'static [&'static str],
}

/// What loading and reading ranked tables takes.
pub struct Ranked {
    /// Banks of a sample, a power of two. A bank has four tables; table `number` is in that of `number / 4`.
    pub sample_banks: u32,
    /// The programs, as they were compiled for kernels that have more or less.
    pub builds: Builds,
    /// What the programs are told before they are loaded.
    pub constants: Constants,
    /// Bytes of a section before its rows: a `ts_section`, and what the family has behind it.
    pub section_head: usize,
    /// Bytes of a row: a `ts_row`, and what describes the object.
    pub row: usize,
    /// Whether there are events of which its observer can't tell how much they are, so that they are not pushed.
    pub opaque: bool,
    /// Whether its objects have a bounded number of places.
    pub full: bool,
    /// Whether an amount takes two events, and the first may have been missed.
    pub unmatched: bool,
    /// What the names of its values' parts are: `rx`, `tx`.
    pub parts: Vec<String>,
    /// What of a table could not be counted for reasons of the family's own.
    pub lost: Vec<OwnLost>,
    /// A row that no CPU ranks.
    pub unranked: Option<UnrankedRow>,
}

impl Ranked {
    /// Tables read by sections `S` with rows `R`: one bank to a sample, values of one part, and nothing of the family's own.
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
        }
    }
}

/// What an account is loaded by.
#[derive(Clone)]
pub struct Account {
    /// The sample of the same objects: whoever asks whether that can be had wants to know of the account, too.
    pub beside: &'static str,
    /// The names of all programs that it may have attached.
    pub programs: fn() -> Vec<String>,
    /// Loads and attaches it, for as long as the reader lives; user and system of the processes in `exact` are told apart
    /// by their system calls.
    pub load: LoadAccount,
}

/// See [`Account::load`].
pub type LoadAccount = fn(&AccountOptions, exact: &[u32]) -> Result<Box<dyn AccountReader>, Error>;

/// What to account for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountOptions {
    /// Interrupts and softirqs are taken apart from the tasks that they interrupt. It costs two looks at the clock for
    /// each of them.
    pub interrupts: bool,
}

impl Default for AccountOptions {
    fn default() -> Self {
        Self { interrupts: true }
    }
}

/// Reads an account.
pub trait AccountReader: Send {
    /// What was used since the previous call, or since the reader was made.
    ///
    /// # Errors
    /// When the kernel does not run the programs that read, or something holds up all readers.
    fn interval(&mut self, each: Each) -> Result<Interval, Error>;

    /// Takes down who has ended. To be called every second or so where intervals are long: the kernel keeps only so many.
    fn poll(&mut self);
}

/// A count of what is lost, in a map of one `u64`.
pub struct OwnLost {
    /// The table.
    pub table: String,
    /// Its name in outputs: `impossible`.
    pub name: String,
    /// What the map's name ends with. It must be one of [`Build::maps`].
    pub map: String,
}

/// The bytes of a row of a bank's table that no CPU ranks, at the moment of a snapshot.
pub type UnrankedRow = fn(&Maps, bank: u32, table: u32, tick: &ts_tick) -> Option<Vec<u8>>;

/// What the objects of a sample are, by the kernel's storage that they live in.
#[derive(Clone, Copy, Debug)]
pub enum Objects {
    /// Sockets.
    Socket,
    /// Processes, or threads where that is asked for.
    Task,
    /// Control groups.
    Cgroup,
    /// What a key of the family's own tells apart, in a bounded hash.
    Keyed,
    /// What the kernel counts anyway: nothing is made for it.
    Counter,
}

impl Objects {
    /// Where they live, for people.
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

/// How all objects of a sample are ordered again.
pub struct Refill {
    /// Iterators, to be read out one after the other.
    pub iterators: Vec<Link>,
    /// Whether they find all objects; where they don't, nothing is proven by them.
    pub whole: bool,
}

impl Refill {
    /// By a program that goes over all that is in a map: the storage, or the hash, of the objects.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn over_map(object: &Object, map: &MapHandle, program: &str) -> Result<Self, Error> {
        Self::by(program, bpf::program(object, program)?.attach_iter(map.as_fd()))
    }

    /// By a program that goes over all tasks.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn over_tasks(object: &Object, program: &str) -> Result<Self, Error> {
        Self::by(program, bpf::program(object, program)?.attach())
    }

    fn by(program: &str, attached: libbpf_rs::Result<Link>) -> Result<Self, Error> {
        let failed = |e: libbpf_rs::Error| Error::Kernel { what: format!("attach {program}"), why: format!("{e:#}") };
        Ok(Self { iterators: vec![attached.map_err(failed)?], whole: true })
    }
}
