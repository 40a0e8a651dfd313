// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State that outlives the program that loaded it: programs, links and maps pinned in a BPF file system.
//!
//! What is pinned, of each family of samples:
//!
//! ```text
//! <pins>/abi-4/inet/maps/      all that the programs share with readers and with their successors, and the gates
//!                   links/     what keeps the programs attached, by the program's name
//!                   programs/  the programs that are attached
//!                   build      a symbolic link that says which build the programs are
//! ```
//!
//! A directory gets its name when all that belongs in it is there: what is called `inet` is whole, what is called
//! `inet-partial` was left by somebody who was killed. A lock on `<pins>` keeps those apart who load, replace or remove.

mod attached;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use libbpf_rs::MapHandle;

pub use attached::{Attached, attached};

use crate::bpffs::{self, BUILD, Entry, Locked, MAPS, PARTIAL, abi_name, abis, build};
pub use crate::bpffs::{Adopted, DEFAULT_DIR, Pins};
use crate::family::Family;
use crate::ranking::{self, RankedFamily};
use crate::{Error, Options, State, TableInfo, counting, maps};

/// Opens what is pinned of a family, for reading and setting. `None`: nothing is.
///
/// # Errors
/// When it is not permitted, or what is pinned is of another ABI or damaged.
pub fn open(pins: &Pins, family: &Arc<Family>) -> Result<Option<Arc<dyn State>>, Error> {
    match RankedFamily::of(family) {
        Some(ranked) => ranking::open(&ranked, pins),
        // Nothing else is ever pinned.
        None => Ok(None),
    }
}

/// Adopts what is pinned of a family, with the settings that it has: its tables keep their number of rows, and
/// `tables` and `options` count for nothing. Programs of another build are replaced in one step each, while objects and
/// tables stay: no push is lost, and none counted twice. Where nothing is pinned, loads and pins it.
///
/// Whatever somebody who was killed has left is finished, or removed. Dropping the state leaves all that is pinned.
///
/// # Errors
/// When the directory is not on a BPF file system, what is pinned is of another ABI, or the kernel refuses; and where
/// nothing is pinned, [`Error::SwitchedOff`].
pub fn adopt(
    pins: &Pins,
    family: &Arc<Family>,
    tables: &[Arc<TableInfo>],
    options: &Options,
) -> Result<(Arc<dyn State>, Adopted), Error> {
    if let Some(counting) = counting::of(family) {
        // The kernel counts on by itself: there is nothing to pin, and the counters of the host are meant.
        let state = counting::load(family, counting, tables, options, &counting::Whose::Host)?;
        return Ok((Arc::new(state), Adopted::Loaded));
    }
    let ranked = RankedFamily::of(family).ok_or_else(|| Error::NotLoaded(family.name.clone()))?;
    // What is pinned counts on as soon as there is something to count; nothing is pinned anew without.
    if !has(pins, family)? {
        (family.ready)()?;
    }
    ranking::adopt(&ranked, pins, tables, options)
}

/// Whether anything is there of a family.
fn has(pins: &Pins, family: &Family) -> Result<bool, Error> {
    let Some(dir) = bpffs::open(pins.dir())? else { return Ok(false) };
    let Some(abi) = dir.dir(&abi_name(family.abi))? else { return Ok(false) };
    Ok(abi.find(&family.name)?.is_some())
}

/// Removes all that is pinned, of any ABI. Its programs are detached, and its statistics end. Returns what it removed.
///
/// # Errors
/// When it is not permitted, or the directory is not on a BPF file system.
pub fn remove(pins: &Pins) -> Result<Vec<PathBuf>, Error> {
    let Some(locked) = Locked::existing(pins.dir())? else { return Ok(Vec::new()) };
    let mut removed = Vec::new();
    for (number, abi) in abis(locked.dir())? {
        for name in abi.names()? {
            locked.remove_family(&abi, &name, &mut removed)?;
        }
        locked.dir().remove_tree(&abi_name(number), &mut removed)?;
    }
    // What is not topstat's stays, and its directory with it.
    let path = locked.dir().path().to_owned();
    if locked.remove() {
        removed.push(path);
    }
    Ok(removed)
}

/// What is pinned of a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Where.
    pub path: PathBuf,
    /// The family's name.
    pub family: String,
    /// The version of its structures.
    pub abi: u32,
    /// Whether this program's are the same; `None`: it does not know the family.
    pub abi_is_own: Option<bool>,
    /// Which build the programs are; `None` while they are being replaced, or after somebody was killed who did so.
    pub build: Option<String>,
    /// Since when it counts.
    pub since: Option<SystemTime>,
    /// Since when by these programs.
    pub build_since: Option<SystemTime>,
    /// Rows that each table keeps; `None`: the maps are damaged.
    pub top: Option<u32>,
}

/// What is pinned.
///
/// # Errors
/// When it is not permitted, or the directory is not on a BPF file system.
pub fn status(pins: &Pins) -> Result<Vec<Status>, Error> {
    let mut all = Vec::new();
    let Some(dir) = bpffs::open(pins.dir())? else { return Ok(all) };
    for (abi, dir) in abis(&dir)? {
        for family in dir.names()?.into_iter().filter(|name| !name.ends_with(PARTIAL)) {
            let path = dir.path_of(&family);
            let found = dir.dir(&family)?;
            let maps = found.as_ref().map(|found| found.dir(MAPS)).transpose()?.flatten();
            let constants = maps.map(|maps| maps.pinned("constants")).transpose()?.flatten();
            let map = constants.as_ref().and_then(|file| MapHandle::from_pinned_path(file.object()).ok());
            let build_file = found.as_ref().map(|found| found.find(BUILD)).transpose()?.flatten();
            all.push(Status {
                family: family.clone(),
                abi,
                abi_is_own: crate::families().iter().find(|f| f.name == family).map(|f| f.abi == abi),
                build: found.as_ref().and_then(build),
                since: constants.as_ref().and_then(Entry::modified),
                build_since: build_file.as_ref().and_then(Entry::modified),
                top: map.and_then(|map| maps::top_of(&map)),
                path,
            });
        }
    }
    Ok(all)
}

/// What to say when tables were adopted that were made otherwise than is wanted.
pub fn kept(state: &dyn State, options: &Options) -> Vec<String> {
    const ANEW: &str = "'topstat unload' removes them, then they are made anew";
    let mut notes = Vec::new();
    if state.top() != options.top {
        notes.push(format!("the pinned tables keep {} rows, not {}; {ANEW}", state.top(), options.top));
    }
    // Others than processes are what they are.
    let may_be_threads = state.samples().iter().any(|sample| sample.may_be_threads());
    if may_be_threads && state.threads() != options.threads {
        let (are, wanted) = if state.threads() { ("threads", "processes") } else { ("processes", "threads") };
        notes.push(format!("the pinned tables rank {are}, not {wanted}; {ANEW}"));
    }
    let family = crate::catalogue::families().iter().find_map(|family| {
        let is_it =
            family.samples.first().zip(state.samples().first()).is_some_and(|(one, other)| one.name == other.name);
        is_it.then(|| RankedFamily::of(family)).flatten()
    });
    for sample in state.samples() {
        let (is, wanted) = (state.way(sample), family.as_ref().and_then(|family| family.way(sample)));
        if let (Some(is), Some(wanted)) = (is, wanted)
            && is != wanted
        {
            notes.push(format!("the pinned tables of {} count by {is}, not by {wanted}; {ANEW}", sample.name));
        }
    }
    notes
}
