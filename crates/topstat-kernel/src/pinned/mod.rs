// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State that outlives the program that loaded it: programs, links and maps pinned in a BPF file system.
//!
//! The pinned state of each family of samples:
//!
//! ```text
//! <pins>/abi-4/inet/maps/      all that the programs share with readers and with their successors, and the gates
//!                   links/     what keeps the programs attached, by the program's name
//!                   programs/  the programs that are attached
//!                   build      a symbolic link that says which build the programs are
//! ```
//!
//! A directory gets its name once its content is complete: `inet` is complete, `inet-partial` was left by a process that was
//! killed. A lock on `<pins>` lets one process at a time load, replace or remove.

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
use crate::{Error, Options, State, TableInfo, maps};

/// Opens the pinned state of a family, for reading and setting. `None`: nothing is pinned.
///
/// # Errors
/// It is not permitted, or the pinned state is of another ABI or damaged.
pub fn open(pins: &Pins, family: &Arc<Family>) -> Result<Option<Arc<dyn State>>, Error> {
    match RankedFamily::of(family) {
        Some(ranked) => ranking::open(&ranked, pins),
        // Families of other kinds are never pinned.
        None => Ok(None),
    }
}

/// Adopts the pinned state of a family, with its settings: its tables keep their number of rows, and `tables` and `options` have
/// no effect. Programs of another build are replaced in one step each, while objects and tables stay: no push is lost, and none
/// is counted twice. If nothing is pinned, the state is loaded and pinned.
///
/// Incomplete work of a process that was killed is finished, or removed. Dropping the state leaves all pins.
///
/// # Errors
/// The directory is not on a BPF file system, the pinned state is of another ABI, or the kernel refuses. If nothing is pinned,
/// also [`Error::SwitchedOff`].
pub fn adopt(
    pins: &Pins,
    family: &Arc<Family>,
    tables: &[Arc<TableInfo>],
    options: &Options,
) -> Result<(Arc<dyn State>, Adopted), Error> {
    let Some(ranked) = RankedFamily::of(family) else {
        // Of counters there is nothing to pin: the kernel counts on by itself.
        return Ok((family.kind.load_state(family, tables, options)?, Adopted::Loaded));
    };
    // Pinned state counts on as soon as there are events to count. Without pinned state, the family has to be ready.
    if !has(pins, family)? {
        (family.ready)()?;
    }
    ranking::adopt(&ranked, pins, tables, options)
}

/// Whether anything is pinned of a family.
fn has(pins: &Pins, family: &Family) -> Result<bool, Error> {
    let Some(dir) = bpffs::open(pins.dir())? else { return Ok(false) };
    let Some(abi) = dir.dir(&abi_name(family.abi))? else { return Ok(false) };
    Ok(abi.find(&family.name)?.is_some())
}

/// Removes all pinned state, of any ABI. Its programs are detached, and its statistics end. Returns the removed paths.
///
/// # Errors
/// It is not permitted, or the directory is not on a BPF file system.
pub fn remove(pins: &Pins) -> Result<Vec<PathBuf>, Error> {
    let Some(locked) = Locked::existing(pins.dir())? else { return Ok(Vec::new()) };
    let mut removed = Vec::new();
    for (number, abi) in abis(locked.dir())? {
        for name in abi.names()? {
            locked.remove_family(&abi, &name, &mut removed)?;
        }
        locked.dir().remove_tree(&abi_name(number), &mut removed)?;
    }
    // Entries that are not topstat's stay, and the directory with them.
    let path = locked.dir().path().to_owned();
    if locked.remove() {
        removed.push(path);
    }
    Ok(removed)
}

/// The pinned state of a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its path.
    pub path: PathBuf,
    /// The family's name.
    pub family: String,
    /// The version of its structures.
    pub abi: u32,
    /// Whether this program has the same version; `None`: it does not know the family.
    pub abi_is_own: Option<bool>,
    /// The build of the programs; `None` while they are being replaced, or after a process was killed that replaced them.
    pub build: Option<String>,
    /// When it began to count.
    pub since: Option<SystemTime>,
    /// When it began to count by these programs.
    pub build_since: Option<SystemTime>,
    /// Rows that each table keeps; `None`: the maps are damaged.
    pub top: Option<u32>,
}

/// The pinned state of all families.
///
/// # Errors
/// It is not permitted, or the directory is not on a BPF file system.
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
                abi_is_own: crate::catalogue::families().iter().find(|f| f.name == family).map(|f| f.abi == abi),
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

/// Notes about adopted tables that differ from the options.
pub fn kept(state: &dyn State, options: &Options) -> Vec<String> {
    const ANEW: &str = "'topstat unload' removes them, then they are made anew";
    let mut notes = Vec::new();
    if state.top() != options.top {
        notes.push(format!("the pinned tables keep {} rows, not {}; {ANEW}", state.top(), options.top));
    }
    // Only processes can be threads instead.
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
