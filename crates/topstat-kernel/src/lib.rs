// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads, attaches, pins and reads families of samples: the eBPF programs that rank objects in the kernel, and the snapshots of
//! their tables.
//!
//! A family describes itself by a [`Family`](family::Family). This crate knows no family: a program registers its families in a
//! [`Catalogue`]. This crate writes no text for people; `topstat-model` does.

#![warn(missing_docs)]

pub mod bpf;
pub mod bpffs;
mod catalogue;
pub mod cgroup;
mod check;
pub mod clock;
pub mod cost;
pub mod counting;
pub mod detached_mount;
mod error;
pub mod events;
pub mod family;
pub mod hooks;
pub mod maps;
mod module;
mod options;
pub mod perf;
pub mod pinned;
pub mod process;
pub mod ranking;
pub mod report;
mod skipped;
mod state;
pub mod symbols;

pub use bpf::{Verified, found};
pub use catalogue::Catalogue;
pub use cgroup::{MOST_PATH_BYTES, Remembered, remembered as remembered_paths};
pub use check::{check, verify};
pub use clock::possible_cpus;
pub use counting::Counting;
pub use error::Error;
pub use events::{EventKind, Streaming};
pub use family::{Family, Filter, FilterBy, Kind, Objects, RowColumn, SampleInfo, TableInfo, Variant};
pub use options::{DEFAULT_TOP, MAX_GROUPS, MAX_TOP, Options};
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub use ranking::fuzz;
pub use report::{Check, Outcome};
pub use state::{Program, Setter, Source, State, TableSettings, update, update_all};

use std::sync::Arc;

/// Loads and attaches the programs that the tables need; the other tables of their samples stay off. The tables have to be of one
/// family of samples.
///
/// # Errors
/// See [`Error`]: no privilege, no BTF, no cgroup v2, a program that the kernel refuses.
pub fn load(tables: &[Arc<TableInfo>], options: &Options) -> Result<Box<dyn Source>, Error> {
    let first = tables.first().ok_or_else(|| Error::Option("no table to load".to_owned()))?;
    let family = catalogue::family_of(&first.sample).ok_or_else(|| Error::NotLoaded(first.path()))?;
    family.kind.load(&family, tables, options)
}

/// Loads the observers of a family for this program alone: dropping the state detaches them. The given tables are on, the others
/// of the family are off.
///
/// # Errors
/// As [`load`].
pub fn load_state(family: &Arc<Family>, tables: &[Arc<TableInfo>], options: &Options) -> Result<Arc<dyn State>, Error> {
    family.kind.load_state(family, tables, options)
}
