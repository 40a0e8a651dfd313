// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The samples of topstat: the objects that are ranked, the eBPF programs that rank them, and the snapshots of their tables.
//!
//! One folder holds a whole family of samples: its eBPF programs, the header that they share with this crate, and the Rust side.
//! The build finds it; see `build.rs`. This crate writes no text for people; `topstat-model` does.

mod bpf;
mod bpffs;
mod catalogue;
mod cgroup;
mod check;
mod clock;
pub mod cost;
mod counting;
mod detached_mount;
mod error;
pub mod events;
mod families;
mod family;
mod hooks;
mod maps;
mod module;
mod options;
mod path_cache;
mod perf;
pub mod pinned;
mod process;
mod ranking;
mod report;
mod skipped;
mod state;
mod symbols;
mod udp;

pub use bpf::{Verified, found};
pub use catalogue::{add, families, family_of, find, own_period_ms, samples};
pub use cgroup::remembered as remembered_paths;
pub use check::{check, verify};
pub use clock::possible_cpus;
pub use error::Error;
pub use families::{account, capture, custom, example, netstack, snmp};
#[cfg(feature = "bench")]
pub use families::{inet::bench, tasks};
pub use family::{
    Account, AccountOptions, AccountReader, Counting, EventKind, Family, Filter, FilterBy, Kind, Objects, RowColumn,
    SampleInfo, Sampling, Streaming, TableInfo, Variant,
};
pub use options::{DEFAULT_TOP, MAX_GROUPS, MAX_TOP, Options};
pub use path_cache::{MOST_BYTES as MOST_PATH_BYTES, Remembered};
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub use ranking::fuzz;
pub use report::{Check, Outcome};
pub use state::{Program, Setter, Source, State, TableSettings, update, update_all};

use std::sync::Arc;

use ranking::RankedFamily;

/// Loads and attaches the programs that the tables need; the other tables of their samples stay off. The tables have to be of one
/// family of samples.
///
/// # Errors
/// See [`Error`]: no privilege, no BTF, no cgroup v2, a program that the kernel refuses.
pub fn load(tables: &[Arc<TableInfo>], options: &Options) -> Result<Box<dyn Source>, Error> {
    let first = tables.first().ok_or_else(|| Error::Option("no table to load".to_owned()))?;
    let family = catalogue::family_of(&first.sample).ok_or_else(|| Error::NotLoaded(first.path()))?;
    if let Some(counting) = counting::of(&family) {
        let whose = options.netns.clone().map_or(counting::Whose::Own, counting::Whose::Of);
        return Ok(counting::read(counting::load(&family, counting, tables, options, &whose)?, options.cpu_rows));
    }
    let of = of_table(first)?;
    if let Some(other) = tables.iter().find(|table| !of.family.samples.iter().any(|s| s.name == table.sample)) {
        return Err(Error::NotLoaded(other.path()));
    }
    (of.family.ready)()?;
    Arc::new(ranking::load(&of, tables, options)?).read(options.cpu_rows)
}

/// Loads the observers of a family for this program alone: dropping the state detaches them. The given tables are on, the others
/// of the family are off.
///
/// # Errors
/// As [`load`].
pub fn load_state(family: &Arc<Family>, tables: &[Arc<TableInfo>], options: &Options) -> Result<Arc<dyn State>, Error> {
    if let Some(counting) = counting::of(family) {
        return Ok(Arc::new(counting::load(family, counting, tables, options, &counting::Whose::Host)?));
    }
    let of = RankedFamily::of(family).ok_or_else(|| Error::NotLoaded(family.name.clone()))?;
    (family.ready)()?;
    Ok(Arc::new(ranking::load(&of, tables, options)?))
}

/// Loads and attaches the account of CPU time, for as long as the reader lives, and begins its first interval. User and system
/// time of the processes in `exact` are separated by their system calls.
///
/// # Errors
/// As [`load`]; also if `exact` has too many processes.
pub fn load_account(options: &AccountOptions, exact: &[u32]) -> Result<Box<dyn AccountReader>, Error> {
    let of = |family: &Arc<Family>| match &family.kind {
        Kind::Account(account) => Some(account.load),
        Kind::Ranked(_) | Kind::Counters(_) | Kind::Events(_) | Kind::Stacks(_) => None,
    };
    let load = families().iter().find_map(of).ok_or_else(|| Error::NotLoaded("account".to_owned()))?;
    load(options, exact)
}

/// The family of ranked tables that a table belongs to.
fn of_table(table: &TableInfo) -> Result<RankedFamily, Error> {
    let family = catalogue::family_of(&table.sample);
    family.as_ref().and_then(RankedFamily::of).ok_or_else(|| Error::NotLoaded(table.path()))
}
