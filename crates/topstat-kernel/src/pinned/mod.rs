// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State that outlives the program that loaded it: programs, links and maps pinned in a BPF file system.
//!
//! What is pinned, of each family of samples:
//!
//! ```text
//! <pins>/abi-2/inet/maps/      all that the programs share with readers and with their successors, and the gates
//!                   links/     what keeps the programs attached, by the program's name
//!                   programs/  the programs that are attached
//!                   build      a symbolic link that says which build the programs are
//! ```
//!
//! A directory gets its name when all that belongs in it is there: what is called `inet` is whole, what is called
//! `inet-partial` was left by somebody who was killed. A lock on `<pins>` keeps those apart who load, replace or remove.

mod attached;
mod dir;
mod place;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use libbpf_rs::MapHandle;

pub use attached::{Attached, attached};
pub(crate) use dir::{Dir, Entry};
use place::PARTIAL;
pub(crate) use place::{
    BUILD, LINKS, Locked, MAPS, PROGRAMS, abi_name, abis, build, lock_file, open as open_dir, partial,
};

use crate::{Error, Family, Options, State, TableInfo, ranking};

/// Where state is pinned unless the user says otherwise.
pub const DEFAULT_DIR: &str = "/sys/fs/bpf/topstat";

/// Where state is pinned.
#[derive(Clone, Debug)]
pub struct Pins {
    dir: PathBuf,
    build: String,
}

impl Default for Pins {
    fn default() -> Self {
        Self::at(Path::new(DEFAULT_DIR))
    }
}

impl Pins {
    /// In this directory of a BPF file system.
    pub fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), build: String::new() }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Has this program pass for another build, whose programs have to be replaced: for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn as_build(self, build: &str) -> Self {
        Self { build: build.to_owned(), ..self }
    }

    /// What tells builds of these programs apart.
    pub(crate) fn build_of(&self, object: &[u8]) -> String {
        use sha2::Digest as _;
        let digest = sha2::Sha256::new().chain_update(object).chain_update(&self.build).finalize();
        digest.iter().take(BUILD_BYTES).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether anything is there of a family.
    fn has(&self, family: &dyn Family) -> Result<bool, Error> {
        let Some(pins) = open_dir(&self.dir)? else { return Ok(false) };
        let Some(abi) = pins.dir(&abi_name(family.abi()))? else { return Ok(false) };
        Ok(abi.find(family.name())?.is_some())
    }
}

/// Of a build's hash: as many as tell any two apart.
const BUILD_BYTES: usize = 16;

/// What [`adopt`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adopted {
    /// Nothing was pinned, or nothing that could be used: loaded, and pinned.
    Loaded,
    /// It was there, of this very build.
    Found,
    /// It was there; programs of another build, or such as were missing, were replaced.
    Upgraded,
}

/// Opens what is pinned of a family, for reading and setting. `None`: nothing is.
///
/// # Errors
/// When it is not permitted, or what is pinned is of another ABI or damaged.
pub fn open(pins: &Pins, family: &dyn Family) -> Result<Option<Arc<dyn State>>, Error> {
    family.open(pins)
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
    family: &dyn Family,
    tables: &[Arc<TableInfo>],
    options: &Options,
) -> Result<(Arc<dyn State>, Adopted), Error> {
    // What is pinned counts on as soon as there is something to count; nothing is pinned anew without.
    if !pins.has(family)? {
        family.ready()?;
    }
    family.adopt(pins, tables, options)
}

/// Removes all that is pinned, of any ABI. Its programs are detached, and its statistics end. Returns what it removed.
///
/// # Errors
/// When it is not permitted, or the directory is not on a BPF file system.
pub fn remove(pins: &Pins) -> Result<Vec<PathBuf>, Error> {
    let Some(locked) = Locked::existing(&pins.dir)? else { return Ok(Vec::new()) };
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
    let Some(dir) = open_dir(&pins.dir)? else { return Ok(all) };
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
                abi_is_own: crate::families().iter().find(|f| f.name() == family).map(|f| f.abi() == abi),
                build: found.as_ref().and_then(build),
                since: constants.as_ref().and_then(Entry::modified),
                build_since: build_file.as_ref().and_then(Entry::modified),
                top: map.and_then(|map| ranking::top_of(&map)),
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
    let may_be_threads = state.samples().iter().any(|sample| sample.threads);
    if may_be_threads && state.threads() != options.threads {
        let (are, wanted) = if state.threads() { ("threads", "processes") } else { ("processes", "threads") };
        notes.push(format!("the pinned tables rank {are}, not {wanted}; {ANEW}"));
    }
    notes
}
