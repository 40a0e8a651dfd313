// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pinned state of a family of ranked tables: opened, adopted, or made. See [`crate::pinned`].

use std::fs;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{Link, Map, MapCore as _, MapFlags, MapHandle, Object, OpenObject};
use rustix::fs::{Mode, OFlags};

use super::{Loaded, Maps, Ranked, Ranking};
use crate::hooks::{self, At, Hook};
use crate::pinned::{Adopted, BUILD, LINKS, Locked, MAPS, PARTIAL, PROGRAMS, Pins, abis, build, names, remove_tree};
use crate::{Error, Options, Program, State, TableInfo, bpf};

/// Opens what is pinned: see [`crate::pinned::open`].
pub fn open<F: Ranked>(pins: &Pins) -> Result<Option<Arc<dyn State>>, Error> {
    let family = pins.family(F::ABI, F::NAME);
    if !is_there(&family)? {
        return match others::<F>(pins.dir())?.into_iter().next() {
            Some(other) => Err(other),
            None => Ok(None),
        };
    }
    let pinned = Pinned::<F>::new(family.clone());
    let whole = || match pinned.fault()? {
        Some(fault) => Err(unusable(&family, &fault)),
        None => pinned.state(),
    };
    match whole() {
        Ok(state) => Ok(Some(Arc::new(state))),
        // Removed meanwhile.
        Err(_) if !is_there(&family)? => Ok(None),
        Err(e) => Err(e),
    }
}

/// Adopts what is pinned: see [`crate::pinned::adopt`].
pub fn adopt<F: Ranked>(
    pins: &Pins,
    tables: &[&TableInfo],
    options: &Options,
) -> Result<(Arc<dyn State>, Adopted), Error> {
    let locked = Locked::make(pins.dir())?;
    if let Some(other) = others::<F>(pins.dir())?.into_iter().next() {
        return Err(other);
    }
    let pinned = Pinned::<F>::new(pins.family(F::ABI, F::NAME));
    pinned.remove_leftovers(&locked)?;
    let adopted = if pinned.fault()?.is_some() {
        pinned.load(&locked, pins, tables, options)?;
        Adopted::Loaded
    } else if pinned.upgrade(pins)? {
        Adopted::Upgraded
    } else {
        Adopted::Found
    };
    let state = pinned.state()?;
    if adopted != Adopted::Loaded {
        state.mistrust()?;
    }
    Ok((Arc::new(state), adopted))
}

/// What is pinned of the family with other ABIs.
fn others<F: Ranked>(dir: &Path) -> Result<Vec<Error>, Error> {
    let others = abis(dir)?.into_iter().filter(|(abi, _)| *abi != F::ABI);
    let mut found = Vec::new();
    for (abi, path) in others.map(|(abi, path)| (abi, path.join(F::NAME))) {
        if is_there(&path)? {
            found.push(Error::OtherAbi { path, found: abi, own: F::ABI });
        }
    }
    Ok(found)
}

/// What a name ends with while the file is not yet the one that the name belongs to.
const NEW: &str = "-new";

/// Whether something is there.
fn is_there(path: &Path) -> Result<bool, Error> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(unusable(path, &e)),
    }
}

fn unusable(path: &Path, why: &dyn std::fmt::Display) -> Error {
    let advice = match rustix::process::geteuid().is_root() {
        true => "start the daemon, which repairs what it can, or remove it with 'topstat unload'",
        false => "run as root",
    };
    Error::Pins { path: path.to_owned(), why: why.to_string(), advice: advice.to_owned() }
}

fn cannot_pin(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::Kernel { what: format!("pin {}", path.display()), why: why.to_string() }
}

/// A map's file: what its name has behind the last dot, which names of files can't have.
fn file_of(map: &str) -> &str {
    map.rsplit('.').next().unwrap_or(map)
}

/// Whether a map of the programs' is more than their own constants, which go with them.
fn is_kept(map: &str) -> bool {
    !(map.ends_with(".rodata") || map.contains(".rodata.str") || map.ends_with(".kconfig"))
}

/// Whether a descriptor is of a map, a link (`bpf_link`) or a program: the kernel opens whatever is pinned.
fn is_a(what: &str, fd: &impl AsFd) -> bool {
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    fs::read_link(path).is_ok_and(|name| name.to_string_lossy().replace('_', "-").contains(what))
}

/// The state of a family, in its directory.
struct Pinned<F> {
    dir: PathBuf,
    family: PhantomData<F>,
}

impl<F: Ranked> Pinned<F> {
    fn new(dir: PathBuf) -> Self {
        Self { dir, family: PhantomData }
    }

    /// A pinned map; `None`: it is not there, or it is something else.
    fn map(&self, name: &str) -> Result<Option<MapHandle>, Error> {
        let path = self.dir.join(MAPS).join(file_of(name));
        match fs::symlink_metadata(&path) {
            Ok(found) if !found.is_file() => return Ok(None),
            Ok(_) => {}
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => return Ok(None),
            Err(e) => return Err(unusable(&path, &e)),
        }
        let map = MapHandle::from_pinned_path(&path).map_err(|e| unusable(&path, &e))?;
        Ok(Some(map).filter(|map| is_a("bpf-map", map)))
    }

    /// The maps of the state.
    fn maps(&self) -> Result<Maps, Error> {
        Maps::from::<F>(|name| {
            let missing = || unusable(&self.dir.join(MAPS).join(file_of(name)), &"it is no map");
            self.map(name)?.ok_or_else(missing)
        })
    }

    /// What is wrong with the maps, if they can't be used. What keeps one from looking is an error.
    fn fault(&self) -> Result<Option<String>, Error> {
        for name in Maps::names::<F>() {
            if self.map(name)?.is_none() {
                return Ok(Some(format!("the map {} is missing", file_of(name))));
            }
        }
        let maps = self.maps()?;
        Ok(match maps.shape() {
            Ok(shape) if shape.abi == F::ABI => maps.check::<F>(shape.entries_mask + 1).err().map(|e| e.to_string()),
            Ok(shape) => Some(format!("its constants are of ABI {}, not {}", shape.abi, F::ABI)),
            Err(e) => Some(e.to_string()),
        })
    }

    /// What is attached at a hook, if it is attached, and can be replaced.
    fn link(&self, hook: &Hook) -> Result<Option<(Link, u32)>, Error> {
        let path = self.dir.join(LINKS).join(hook.program);
        if !fs::symlink_metadata(&path).is_ok_and(|found| found.is_file()) {
            return Ok(None);
        }
        let link = Link::open(&path).map_err(|e| unusable(&path, &e))?;
        if !is_a("bpf-link", &link) {
            return Ok(None);
        }
        let info = link.info().map_err(|e| unusable(&path, &e))?;
        let program = match (hook.at, info.info) {
            // Detached by force, or with its cgroup.
            (At::Cgroup, LinkTypeInfo::Cgroup(cgroup)) if cgroup.cgroup_id == 0 => None,
            (At::Cgroup, LinkTypeInfo::Cgroup(_)) => Some(info.prog_id),
            (At::Cgroup, _) => None,
            (At::Gate, _) => match self.map(&hook.gate())? {
                Some(gate) => gate.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten().and_then(number),
                None => None,
            },
        };
        Ok(program.map(|id| (link, id)))
    }

    /// The state, for reading and setting.
    fn state(&self) -> Result<Ranking<F>, Error> {
        let mut programs = Vec::new();
        for hook in F::HOOKS {
            let Some((link, id)) = self.link(hook)? else { continue };
            if hook.at == At::Gate {
                let id = link.info().map_err(|e| unusable(&self.dir, &e))?.prog_id;
                programs.push(Program { name: hook.enter(), id, hook: hook.name });
            }
            programs.push(Program { name: hook.program.to_owned(), id, hook: hook.name });
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let shared = rustix::fs::open(&self.dir, flags, Mode::empty()).map_err(|e| unusable(&self.dir, &e))?;
        Ranking::new(self.maps()?, programs, Some(shared), ())
    }

    /// Removes what somebody who was killed has left beside the state, and in it.
    fn remove_leftovers(&self, locked: &Locked) -> Result<(), Error> {
        let (Some(abi), Some(name)) = (self.dir.parent(), self.dir.file_name()) else { return Ok(()) };
        locked.remove_family(abi, &format!("{}{PARTIAL}", name.to_string_lossy()), &mut Vec::new())?;
        let new = |name: &String| name.ends_with(NEW);
        let parts = [self.dir.clone(), self.dir.join(LINKS), self.dir.join(PROGRAMS)];
        for part in parts.into_iter().filter(|part| part.is_dir()) {
            for name in names(&part)?.into_iter().filter(new) {
                remove_tree(&part.join(name), &mut Vec::new())?;
            }
        }
        Ok(())
    }

    /// Loads, attaches and pins. Until the very end it is in a directory that nobody takes for the state.
    fn load(&self, locked: &Locked, pins: &Pins, tables: &[&TableInfo], options: &Options) -> Result<(), Error> {
        if let (true, Some(abi), Some(name)) = (is_there(&self.dir)?, self.dir.parent(), self.dir.file_name()) {
            locked.remove_family(abi, &name.to_string_lossy(), &mut Vec::new())?;
        }
        let (loaded, _) = Loaded::afresh::<F>(tables, options, true)?;
        let partial = Self::new(locked.make_partial(&self.dir)?);
        let done = partial.fill(&loaded, pins).and_then(|()| locked.name(&partial.dir, &self.dir));
        if done.is_err() {
            // What went wrong says more than what goes wrong now.
            let _ = remove_tree(&partial.dir, &mut Vec::new());
        }
        done
    }

    fn fill(&self, loaded: &Loaded, pins: &Pins) -> Result<(), Error> {
        self.pin_maps(&loaded.object)?;
        loaded.begin(|hook| self.attach(loaded, hook))?;
        self.set_build(&pins.build_of(loaded.bytes))
    }

    /// Replaces the programs if they are not of this build, or not all there. Says whether it did.
    fn upgrade(&self, pins: &Pins) -> Result<bool, Error> {
        let shape = self.maps()?.shape()?;
        let mut observer = F::observer(&Options { top: shape.top, ..Options::default() })?;
        let build_now = pins.build_of(observer.bytes);
        let links = observer.hooks.iter().map(|hook| self.link(hook)).collect::<Result<Vec<_>, _>>()?;
        let surplus = self.surplus(observer.hooks)?;
        if build(&self.dir).is_some_and(|b| b == build_now) && links.iter().all(Option::is_some) && surplus.is_empty() {
            return Ok(false);
        }
        self.share(&mut observer.object)?;
        for (hook, link) in observer.hooks.iter().zip(&links) {
            // What is attached already is not needed again.
            if hook.at == At::Gate && link.is_some() {
                bpf::leave_out(&mut observer.object, &hook.enter())?;
            }
        }
        let loaded = Loaded::new::<F>(observer, true)?;
        // From here on, until it is done, it is of no build: whoever finds it so does it again.
        remove_tree(&self.dir.join(BUILD), &mut Vec::new())?;
        self.pin_maps(&loaded.object)?;
        for (hook, link) in loaded.hooks.iter().zip(links) {
            match (hook.at, link) {
                (_, None) => self.attach(&loaded, hook)?,
                (At::Cgroup, Some((mut link, _))) => hooks::replace(&loaded.object, hook, &mut link)?,
                (At::Gate, Some(_)) => {
                    let gate = bpf::map(&loaded.object, &hook.gate())?;
                    hooks::enter(&loaded.object, hook, &gate)?;
                }
            }
            self.pin_program(&loaded, hook)?;
        }
        for name in surplus {
            remove_tree(&self.dir.join(LINKS).join(&name), &mut Vec::new())?;
            remove_tree(&self.dir.join(PROGRAMS).join(&name), &mut Vec::new())?;
        }
        self.set_build(&build_now)?;
        Ok(true)
    }

    /// Links of hooks that this build does not have.
    fn surplus(&self, hooks: &[Hook]) -> Result<Vec<String>, Error> {
        let known = |name: &String| hooks.iter().any(|hook| hook.program == name);
        Ok(names(&self.dir.join(LINKS))?.into_iter().filter(|name| !known(name)).collect())
    }

    /// Has programs that are about to be loaded use the pinned maps.
    fn share(&self, object: &mut OpenObject) -> Result<(), Error> {
        for mut map in object.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let Some(pinned) = self.map(&name)?.filter(|_| is_kept(&name)) else { continue };
            let made = (map.map_type(), map.key_size(), map.value_size(), map.max_entries());
            let found = (pinned.map_type(), pinned.key_size(), pinned.value_size(), pinned.max_entries());
            if made != found {
                let path = self.dir.join(MAPS).join(file_of(&name));
                return Err(Error::Pins {
                    path,
                    why: format!("it is {found:?} (type, key, value, entries), and not {made:?}"),
                    advice: "remove it with 'topstat unload', which ends its statistics".to_owned(),
                });
            }
            map.reuse_fd(pinned.as_fd())
                .map_err(|e| Error::Kernel { what: format!("share the map {name}"), why: e.to_string() })?;
        }
        Ok(())
    }

    /// Pins the maps that are not.
    fn pin_maps(&self, object: &Object) -> Result<(), Error> {
        for map in object.maps() {
            let name = map.name().to_string_lossy().into_owned();
            if is_kept(&name) && self.map(&name)?.is_none() {
                self.pin_map(&map, &name)?;
            }
        }
        Ok(())
    }

    fn pin_map(&self, map: &Map<'_>, name: &str) -> Result<(), Error> {
        let path = self.dir.join(MAPS).join(file_of(name));
        remove_tree(&path, &mut Vec::new())?;
        let mut map = MapHandle::try_from(map).map_err(|e| cannot_pin(&path, &e))?;
        map.pin(&path).map_err(|e| cannot_pin(&path, &e))
    }

    /// Attaches a program, and pins it and its link.
    fn attach(&self, loaded: &Loaded, hook: &Hook) -> Result<(), Error> {
        let path = self.dir.join(LINKS).join(hook.program);
        // Something that is no such link, or one whose gate is lost.
        remove_tree(&path, &mut Vec::new())?;
        loaded.attach(hook)?.pin(&path).map_err(|e| cannot_pin(&path, &e))?;
        self.pin_program(loaded, hook)
    }

    fn pin_program(&self, loaded: &Loaded, hook: &Hook) -> Result<(), Error> {
        let path = self.dir.join(PROGRAMS).join(hook.program);
        let new = self.dir.join(PROGRAMS).join(format!("{}{NEW}", hook.program));
        bpf::program(&loaded.object, hook.program)?.pin(&new).map_err(|e| cannot_pin(&new, &e))?;
        fs::rename(&new, &path).map_err(|e| cannot_pin(&path, &e))
    }

    fn set_build(&self, to: &str) -> Result<(), Error> {
        let path = self.dir.join(BUILD);
        let new = self.dir.join(format!("{BUILD}{NEW}"));
        symlink(to, &new).and_then(|()| fs::rename(&new, &path)).map_err(|e| cannot_pin(&path, &e))
    }
}

/// What an element of a map of numbers holds.
fn number(bytes: Vec<u8>) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_ne_bytes)
}
