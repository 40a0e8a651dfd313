// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The samples of topstat: what is ranked, the eBPF programs that rank it, and the
//! snapshots taken of their tables.
//!
//! One folder holds all of one family of samples: its eBPF programs, the header they share
//! with this crate, and the Rust side. The build finds it; see `build.rs`. Nothing in here
//! writes text for people; that is `topstat-model`'s.

mod bpf;
mod catalogue;
mod cgroup;
mod check;
mod container;
pub mod cost;
mod error;
mod fallbacks;
mod families;
mod hooks;
mod path_cache;
pub mod pinned;
mod process;
mod ranking;
mod state;

pub use bpf::Verified;
pub use catalogue::{SampleInfo, TableInfo, find, samples};
pub use cgroup::remembered as remembered_paths;
pub use check::{Check, Outcome, check, verify};
pub use error::Error;
#[cfg(feature = "bench")]
pub use families::inet::bench;
pub use families::{Family, account, tasks};
pub use path_cache::{MOST_BYTES as MOST_PATH_BYTES, Remembered};
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub use ranking::fuzz;

pub use state::{Program, State, TableSettings, families, load_state};

use std::sync::Arc;

use topstat_model::{Dump, Snapshot};

/// How many rows a table keeps, unless the user says otherwise.
pub const DEFAULT_TOP: u32 = 128;
/// The most rows a table can keep.
pub const MAX_TOP: u32 = 1024;
/// The most control groups that can be told apart where the kernel has no storage for them: 3 MiB.
pub const MAX_GROUPS: u32 = 8192;

/// What to load, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rows each table keeps, 1 to [`MAX_TOP`].
    pub top: u32,
    /// The period of dynamic tables, 1 to 3,600,000 ms.
    pub period_ms: u32,
    /// An object is ordered at most once per delay, 0 to 3,600,000 ms.
    pub delay_ms: u32,
    /// Whether snapshots list the rows of every CPU, too, and not only its total.
    pub cpu_rows: bool,
    /// Objects are threads, where they would be processes.
    pub threads: bool,
    /// Control groups that can be told apart where the kernel has no storage for them, 1 to [`MAX_GROUPS`].
    pub groups: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { top: DEFAULT_TOP, period_ms: 1000, delay_ms: 0, cpu_rows: false, threads: false, groups: MAX_GROUPS }
    }
}

/// A source of snapshots: observers that are loaded and attached. Dropping it detaches and
/// frees all that it loaded.
pub trait Source: Send {
    /// Takes a snapshot of a table: every row of it is proven to be among the true top, if
    /// need be by looking at all objects (see [`Source::refill`]).
    ///
    /// # Errors
    /// When the table is not among those loaded, or the kernel refuses to run the snapshot.
    fn snapshot(&mut self, table: &TableInfo) -> Result<Snapshot, Error>;

    /// Takes a snapshot of what the tables hold, at a cost that does not depend on how many
    /// objects there are. [`Snapshot::proven`] says how many of its rows are certain.
    ///
    /// # Errors
    /// As [`Source::snapshot`].
    fn peek(&mut self, table: &TableInfo) -> Result<Snapshot, Error>;

    /// Orders every object of the table's sample again. It costs by the object (tens of
    /// nanoseconds each), and is needed only where many of the top have closed or fallen
    /// silent since smaller objects were turned away. Returns how many objects it looked at.
    ///
    /// # Errors
    /// As [`Source::snapshot`].
    fn refill(&mut self, table: &TableInfo) -> Result<u64, Error>;

    /// The table as it is, for debugging: nothing is synchronised, and nothing is changed.
    ///
    /// # Errors
    /// As [`Source::snapshot`].
    fn dump(&mut self, table: &TableInfo) -> Result<Dump, Error>;
}

/// Loads and attaches what the tables need; the other tables of their samples stay off. The
/// tables may be of one family of samples only.
///
/// # Errors
/// See [`Error`]: no privilege, no BTF, no cgroup v2, a program that the kernel refuses.
pub fn load(tables: &[Arc<TableInfo>], options: &Options) -> Result<Box<dyn Source>, Error> {
    let first = tables.first().ok_or_else(|| Error::Option("no table to load".to_owned()))?;
    let family = families::of(&first.sample).ok_or_else(|| Error::NotLoaded(first.sample.clone()))?;
    if let Some(other) = tables.iter().find(|t| !family.samples().iter().any(|s| s.name == t.sample)) {
        return Err(Error::NotLoaded(other.path()));
    }
    family.ready()?;
    family.load(tables, options)
}
