// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The samples of topstat: what is ranked, the eBPF programs that rank it, and the
//! snapshots taken of their tables.
//!
//! One folder holds all of one family of samples: its eBPF programs, the header they share
//! with this crate, and the Rust side. Nothing in here writes text for people; that is
//! `topstat-model`'s.

mod catalogue;
mod check;
mod error;

pub use catalogue::{SampleInfo, TableInfo, find, samples};
pub use check::{Check, Outcome, check};
pub use error::Error;

use topstat_model::Snapshot;

/// How many rows a table keeps, unless the user says otherwise.
pub const DEFAULT_TOP: u32 = 128;
/// The most rows a table can keep.
pub const MAX_TOP: u32 = 1024;

/// What to load, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rows each table keeps, 1 to [`MAX_TOP`].
    pub top: u32,
    /// The period of dynamic tables, 1 to 3,600,000 ms.
    pub period_ms: u32,
    /// An object is ordered at most once per delay, 0 to 3,600,000 ms.
    pub delay_ms: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { top: DEFAULT_TOP, period_ms: 1000, delay_ms: 0 }
    }
}

/// A source of snapshots: observers that are loaded and attached. Dropping it detaches and
/// frees all that it loaded.
pub trait Source {
    /// Takes a snapshot of a table.
    ///
    /// # Errors
    /// When the table is not among those loaded, or the kernel refuses to run the snapshot.
    fn snapshot(&mut self, table: &TableInfo) -> Result<Snapshot, Error>;
}

/// Loads and attaches what the tables need; the other tables of their samples stay off.
///
/// # Errors
/// See [`Error`]: no privilege, no BTF, no cgroup v2, a program that the kernel refuses.
pub fn load(tables: &[&TableInfo], options: &Options) -> Result<Box<dyn Source>, Error> {
    let _ = (tables, options);
    todo!()
}
