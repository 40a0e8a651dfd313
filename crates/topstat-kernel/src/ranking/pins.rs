// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opens, adopts or makes the pinned state of a family of ranked tables. See [`crate::pinned`].

mod upgrade;
mod write;

use std::fs;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle, MapType};

use topstat_engine::abi::ts_shape;

use super::lent::Borrowed;
use super::load::Loaded;
use super::{Attached, RankedFamily, Ranking, lent};
use crate::bpffs::{self, Adopted, BUILD, Dir, LINKS, Locked, MAPS, PROGRAMS, Pins, abi_name, abis, build, partial};
use crate::hooks::{self, At, Hook};
use crate::maps::{Maps, first};
use crate::{Error, Options, Program, State, TableInfo, cgroup, process};

/// Opens the pinned state: see [`crate::pinned::open`].
pub fn open(of: &RankedFamily, pins: &Pins) -> Result<Option<Arc<dyn State>>, Error> {
    let Some(dir) = bpffs::open(pins.dir())? else { return Ok(None) };
    let found = match dir.dir(&abi_name(of.family.abi))? {
        Some(abi) => abi.find(&of.family.name)?.map(|found| (abi, found)),
        None => None,
    };
    let Some((abi, found)) = found else {
        return match others(of, &dir)?.into_iter().next() {
            Some(other) => Err(other),
            None => Ok(None),
        };
    };
    let whole = || {
        let Some(dir) = abi.dir(&of.family.name)? else { return Err(unusable(found.path(), &"it is no directory")) };
        let pinned = Pinned::found(of, dir);
        pinned.is_defined_so()?;
        match pinned.fault()? {
            Some(fault) => Err(unusable(found.path(), &fault)),
            None => pinned.state(),
        }
    };
    match whole() {
        Ok(state) => Ok(Some(Arc::new(state))),
        // The state was removed while it was opened.
        Err(_) if abi.find(&of.family.name)?.is_none() => Ok(None),
        Err(e) => Err(e),
    }
}

/// Adopts the pinned state: see [`crate::pinned::adopt`]. If the family borrows maps, the lender's state is adopted first.
pub fn adopt(
    of: &RankedFamily,
    pins: &Pins,
    tables: &[Arc<TableInfo>],
    options: &Options,
) -> Result<(Arc<dyn State>, Adopted), Error> {
    let (state, adopted) = adopt_ranking(of, pins, tables, options)?;
    Ok((Arc::new(state), adopted))
}

fn adopt_ranking(
    of: &RankedFamily,
    pins: &Pins,
    tables: &[Arc<TableInfo>],
    options: &Options,
) -> Result<(Ranking, Adopted), Error> {
    let lender = lent::lender(of)?.map(|lender| adopt_ranking(&lender, pins, &[], options)).transpose()?;
    let lender = lender.as_ref().map(|(state, _)| &state.maps);
    let locked = Locked::make(pins.dir())?;
    if let Some(other) = others(of, locked.dir())?.into_iter().next() {
        return Err(other);
    }
    let abi = locked.dir().make(&abi_name(of.family.abi))?;
    // A killed process may have left a partial state beside the state.
    locked.remove_family(&abi, &partial(&of.family.name), &mut Vec::new())?;
    let found = abi.dir(&of.family.name)?.map(|dir| Pinned::found(of, dir));
    if let Some(found) = &found {
        found.is_defined_so()?;
        found.remove_leftovers()?;
    }
    let (pinned, adopted) = match found {
        Some(found) if found.fault()?.is_none() && found.borrows_from(lender)? => {
            let upgraded = found.upgrade(pins)?;
            (found, if upgraded { Adopted::Upgraded } else { Adopted::Found })
        }
        _ => (Pinned::load(of, (&locked, &abi), pins, tables, options, lender)?, Adopted::Loaded),
    };
    let state = pinned.state()?;
    if adopted != Adopted::Loaded {
        state.mistrust()?;
    }
    Ok((state, adopted))
}

/// An error for each state of the family that is pinned with another ABI.
fn others(of: &RankedFamily, dir: &Dir) -> Result<Vec<Error>, Error> {
    let mut found = Vec::new();
    for (abi, dir) in abis(dir)?.into_iter().filter(|(abi, _)| *abi != of.family.abi) {
        if let Some(entry) = dir.find(&of.family.name)? {
            found.push(Error::OtherAbi { path: entry.path().to_owned(), found: abi, own: of.family.abi });
        }
    }
    Ok(found)
}

/// The map of the programs' constants.
const CONSTANTS: &str = ".rodata.constants";
/// The end of a file's name until the file takes the place of its predecessor.
const NEW: &str = "-new";

fn unusable(path: &Path, why: &dyn std::fmt::Display) -> Error {
    let advice = match rustix::process::geteuid().is_root() {
        true => "start the daemon, which repairs what it can, or remove it with 'topstat unload'",
        false => "run as root",
    };
    Error::Pins { path: path.to_owned(), why: format!("{why:#}"), advice: advice.to_owned() }
}

fn cannot_pin(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::Kernel { what: format!("pin {}", path.display()), why: format!("{why:#}") }
}

/// The name of a map's file: the map's name after its last dot, since names of files can't have dots.
fn file_of(map: &str) -> &str {
    map.rsplit('.').next().unwrap_or(map)
}

/// Whether a map stays with the state. Constants of the programs are loaded with each of them.
fn is_kept(map: &str) -> bool {
    !(map.ends_with(".rodata") || map.contains(".rodata.str") || map.ends_with(".kconfig"))
}

/// Whether a descriptor refers to a map, a link (`bpf_link`) or a program: the kernel opens any pinned object. If that can't be
/// read, it is an error: otherwise the object would be taken for damaged, and removed.
fn is_a(what: &str, fd: &impl AsFd) -> Result<bool, Error> {
    let path = std::path::PathBuf::from(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()));
    let name = fs::read_link(&path).map_err(|e| unusable(&path, &e))?;
    Ok(name.to_string_lossy().replace('_', "-").contains(what))
}

/// The state of a family, in its directory.
struct Pinned {
    of: RankedFamily,
    dir: Dir,
}

impl Pinned {
    fn new(of: &RankedFamily, dir: Dir) -> Self {
        Self { of: of.clone(), dir }
    }

    /// A state that exists already. The build that made it goes on with it, whatever this kernel's build is.
    fn found(of: &RankedFamily, dir: Dir) -> Self {
        let found = Self::new(of, dir);
        let constants = found.map(CONSTANTS).ok().flatten();
        let bytes = constants.and_then(|map| map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten());
        match bytes {
            Some(bytes) => {
                let is_there = |program: &str| found.pinned_program(program).ok().flatten().is_some();
                Self { of: of.made_with(&bytes, is_there), ..found }
            }
            None => found,
        }
    }

    /// A pinned map; `None`: nothing is there, or an object of another kind.
    fn map(&self, name: &str) -> Result<Option<MapHandle>, Error> {
        let Some(maps) = self.dir.dir(MAPS)? else { return Ok(None) };
        let Some(file) = maps.pinned(file_of(name))? else { return Ok(None) };
        let map = MapHandle::from_pinned_path(file.object()).map_err(|e| unusable(file.path(), &e))?;
        Ok(if is_a("bpf-map", &map)? { Some(map) } else { None })
    }

    /// The maps of the state.
    fn maps(&self) -> Result<Maps, Error> {
        Maps::from(&self.of.build().maps, |name| {
            let missing = || unusable(&self.dir.path_of(MAPS).join(file_of(name)), &"it is no map");
            self.map(name)?.ok_or_else(missing)
        })
    }

    /// Checks that the state was made of the definition that the family was made of.
    ///
    /// # Errors
    /// It was made of another one, or the fields of its events have moved since then.
    fn is_defined_so(&self) -> Result<(), Error> {
        let Some(own) = &self.of.ranked.definition else { return Ok(()) };
        let Some(bytes) = self.map(CONSTANTS)?.and_then(|map| first(&map)) else { return Ok(()) };
        if self.of.ranked.constants.are_given(&bytes) {
            return Ok(());
        }
        let pinned = bytes.get(own.at..).and_then(process::text).unwrap_or_default();
        let why = match pinned == own.text {
            true => format!("the fields of its events are not where they were when '{pinned}' was loaded"),
            false => format!("it counts '{pinned}', and the table of this name is '{}' now", own.text),
        };
        let advice = "give the table another name, or end the pinned one with 'topstat unload'".to_owned();
        Err(Error::Pins { path: self.dir.path().to_owned(), why, advice })
    }

    /// What is wrong with the maps, if they can't be used. It is an error if they can't be read.
    fn fault(&self) -> Result<Option<String>, Error> {
        for name in Maps::names(&self.of.build().maps) {
            if self.map(name)?.is_none() {
                return Ok(Some(format!("the map {} is missing", file_of(name))));
            }
        }
        let maps = self.maps()?;
        if (maps.constants.value_size() as usize) < size_of::<ts_shape>() {
            return Ok(Some("its constants are too short".to_owned()));
        }
        let shape = maps.shape()?;
        Ok(match shape.abi == self.of.family.abi {
            true => self.of.check_maps(&maps, &shape).err().map(|e| e.to_string()),
            false => Some(format!("its constants are of ABI {}, not {}", shape.abi, self.of.family.abi)),
        })
    }

    /// Whether its borrowed maps are the lender's. They are not if the lender was loaded anew.
    fn borrows_from(&self, lender: Option<&Maps>) -> Result<bool, Error> {
        Borrowed::from(self.of.build().lent, lender)?.are(&self.maps()?)
    }

    /// The link at a hook, and its program's id, if the program is attached and can be replaced.
    fn link(&self, hook: &Hook) -> Result<Option<(Link, u32)>, Error> {
        let Some(links) = self.dir.dir(LINKS)? else { return Ok(None) };
        let Some(file) = links.pinned(&hook.link)? else { return Ok(None) };
        let link = Link::open(file.object()).map_err(|e| unusable(file.path(), &e))?;
        if !is_a("bpf-link", &link)? {
            return Ok(None);
        }
        let info = link.info().map_err(|e| unusable(file.path(), &e))?;
        let program = match (hook.at, info.info) {
            // The link was detached by force, or with its cgroup.
            (At::Cgroup, LinkTypeInfo::Cgroup(cgroup)) if cgroup.cgroup_id == 0 => None,
            (At::Cgroup, LinkTypeInfo::Cgroup(_)) => Some(info.prog_id),
            (At::Cgroup, _) => None,
            (At::Gate, _) => match self.map(&hook.gate())? {
                Some(gate) if gate.map_type() == MapType::ProgArray => {
                    let program = gate.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
                    program.map_err(|e| unusable(file.path(), &e))?.and_then(number)
                }
                _ => None,
            },
        };
        Ok(program.map(|id| (link, id)))
    }

    /// The state, for reading and setting.
    fn state(&self) -> Result<Ranking, Error> {
        let mut programs = Vec::new();
        let own = self.of.hooks();
        let others = self.of.ranked.builds.hooks().into_iter();
        let others = others.filter(|hook| !own.iter().any(|own| own.program == hook.program));
        for hook in own.iter().cloned().chain(others) {
            let (gate, program) = match self.link(&hook)? {
                Some((link, id)) if hook.at == At::Gate => {
                    (Some(link.info().map_err(|e| unusable(self.dir.path(), &e))?.prog_id), Some(id))
                }
                Some((_, id)) => (None, Some(id)),
                // A program that comes and goes waits, pinned, until it is needed.
                None if !hook.comes_and_goes() => (None, None),
                None if hook.at == At::Gate => (self.id_of(&hook.enter())?, self.id_of(&hook.program)?),
                None => (None, self.id_of(&hook.program)?),
            };
            programs.extend(gate.map(|id| Program { name: hook.enter(), id, hook: hook.name.clone() }));
            programs.extend(program.map(|id| Program { name: hook.program, id, hook: hook.name }));
        }
        let attached = Self::new(&self.of, Dir::open(self.dir.again()?.as_fd(), self.dir.path().to_owned())?);
        Ranking::new(&self.of, self.maps()?, programs, Some(self.dir.again()?), Box::new(attached))
    }

    /// The directory in which all families are pinned.
    fn pins(&self) -> &Path {
        let path = self.dir.path();
        path.parent().and_then(Path::parent).unwrap_or(path)
    }

    /// Pins all objects of this directory in another directory, too.
    fn copy(&self, to: &Dir) -> Result<(), Error> {
        for part in [MAPS, LINKS, PROGRAMS] {
            let path = self.dir.path_of(part);
            let from = self.dir.dir(part)?.ok_or_else(|| unusable(&path, &"it was removed"))?;
            let into = to.make(part)?;
            for name in from.names()?.into_iter().filter(|name| !name.ends_with(NEW)) {
                let Some(file) = from.pinned(&name)? else { continue };
                let object = file.get().map_err(|e| unusable(file.path(), &e))?;
                let pinned = into.pin(object.as_fd(), &name);
                pinned.map_err(|e| cannot_pin(&into.path_of(&name), &e))?;
                // The time of a file says since when the family counts. If it can't be copied, only that time is wrong.
                let _ = into.date(&name, &file);
            }
        }
        match build(&self.dir) {
            Some(build) => to.make_link(&build, BUILD).map_err(|e| cannot_pin(&to.path_of(BUILD), &e)),
            // The next adopter replaces the programs.
            None => Ok(()),
        }
    }

    /// Removes what a killed process has left in the state.
    fn remove_leftovers(&self) -> Result<(), Error> {
        remove_new(&self.dir)?;
        for part in [LINKS, PROGRAMS] {
            if let Some(part) = self.dir.dir(part)? {
                remove_new(&part)?;
            }
        }
        Ok(())
    }

    /// Loads, attaches and pins.
    fn load(
        of: &RankedFamily,
        (locked, abi): (&Locked, &Dir),
        pins: &Pins,
        tables: &[Arc<TableInfo>],
        options: &Options,
        lender: Option<&Maps>,
    ) -> Result<Self, Error> {
        let name = &of.family.name;
        if abi.find(name)?.is_some() {
            locked.remove_family(abi, name, &mut Vec::new())?;
        }
        let (loaded, _) = Loaded::afresh(of, tables, options, true, lender)?;
        locked.make_family(abi, name, |dir| Self::new(of, dir).fill(&loaded, pins, tables))?;
        let named = abi.dir(name)?.map(|dir| Self::new(of, dir));
        named.ok_or_else(|| unusable(&abi.path_of(name), &"somebody has removed it"))
    }

    fn fill(&self, loaded: &Loaded, pins: &Pins, tables: &[Arc<TableInfo>]) -> Result<(), Error> {
        self.pin_maps(loaded)?;
        for hook in self.of.hooks().iter().filter(|hook| hook.comes_and_goes()) {
            self.keep_ready(loaded, hook)?;
        }
        loaded.begin(tables, |hook| self.attach(loaded, hook))?;
        self.set_build(&pins.build_of(self.of.build().observer))
    }

    /// A pinned program.
    fn pinned_program(&self, name: &str) -> Result<Option<OwnedFd>, Error> {
        let Some(programs) = self.dir.dir(PROGRAMS)? else { return Ok(None) };
        let Some(file) = programs.pinned(name)? else { return Ok(None) };
        let program = libbpf_rs::Program::fd_from_pinned_path(file.object());
        program.map(Some).map_err(|e| unusable(file.path(), &e))
    }

    /// The pinned program that is attached at a hook: the gate's program, if it has a gate.
    fn attachable(&self, hook: &Hook) -> Result<Option<OwnedFd>, Error> {
        self.pinned_program(&if hook.at == At::Gate { hook.enter() } else { hook.program.clone() })
    }

    /// The id of a pinned program.
    fn id_of(&self, name: &str) -> Result<Option<u32>, Error> {
        let Some(program) = self.pinned_program(name)? else { return Ok(None) };
        let id = libbpf_rs::Program::id_from_fd(program.as_fd());
        id.map(Some).map_err(|e| unusable(&self.dir.path_of(PROGRAMS).join(name), &e))
    }
}

impl Attached for Pinned {
    fn attach(&self, hook: &Hook) -> Result<(), Error> {
        if self.link(hook)?.is_some() {
            return Ok(());
        }
        let missing =
            || unusable(&self.dir.path_of(PROGRAMS).join(&hook.program), &"it is not there, or its gate's program");
        let program = self.attachable(hook)?.ok_or_else(missing)?;
        if let Some(lacks) = hooks::lacks(hook.at) {
            return Err(Error::Kernel {
                what: format!("attach {} ({})", hook.program, hook.name),
                why: format!(
                    "this process has given up {lacks}; have the configuration switch the sample on, and restart the daemon"
                ),
            });
        }
        let cgroup = cgroup::root().map_err(|e| cannot_pin(&self.dir.path_of(LINKS), &e))?;
        let link = hooks::attach_loaded(program.as_fd(), hook, cgroup.as_fd())?;
        let links = self.dir.make(LINKS)?;
        links.remove_tree(&hook.link, &mut Vec::new())?;
        links.pin(link.as_fd(), &hook.link).map_err(|e| cannot_pin(&links.path_of(&hook.link), &e))
    }

    /// A process detaches only what can be attached again. The daemon may have given that up, and would not get the program back;
    /// and a build that never detached the hook has not pinned its gate's program.
    fn detach(&self, hook: &Hook) -> Result<(), Error> {
        if hooks::lacks(hook.at).is_some() || self.attachable(hook)?.is_none() {
            return Ok(());
        }
        self.dir.make(LINKS)?.remove_tree(&hook.link, &mut Vec::new())
    }

    fn is_found(&self) -> bool {
        let found = || -> Result<bool, Error> {
            let Some(pins) = bpffs::open(self.pins())? else { return Ok(false) };
            let Some(abi) = pins.dir(&abi_name(self.of.family.abi))? else { return Ok(false) };
            abi.dir(&self.of.family.name)?.map_or(Ok(false), |found| found.is(&self.dir))
        };
        found().unwrap_or(false)
    }

    fn pin_again(&self) -> Result<OwnedFd, Error> {
        let name = &self.of.family.name;
        let locked = Locked::make(self.pins())?;
        let abi = locked.dir().make(&abi_name(self.of.family.abi))?;
        if let Some(other) = abi.find(name)? {
            return Err(Error::Pins {
                path: other.path().to_owned(),
                why: "another state is pinned there by now".to_owned(),
                advice: "restart the daemon, which adopts that state; the statistics of this daemon end then"
                    .to_owned(),
            });
        }
        let copy = locked.make_family(&abi, name, |dir| self.copy(&dir).map(|()| dir))?;
        // The descriptor stays valid after the rename.
        self.dir.replace(&copy)?;
        self.dir.again()
    }
}

/// Removes files that have not got their final name yet.
fn remove_new(dir: &Dir) -> Result<(), Error> {
    for name in dir.names()?.into_iter().filter(|name| name.ends_with(NEW)) {
        dir.remove_tree(&name, &mut Vec::new())?;
    }
    Ok(())
}

/// The number that an element of a map of numbers holds.
fn number(bytes: Vec<u8>) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_ne_bytes)
}
