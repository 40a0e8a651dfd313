// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pins the maps, programs and links of loaded programs.

use std::os::fd::AsFd as _;

use libbpf_rs::{MapCore as _, MapHandle, OpenObject};

use super::{NEW, Pinned, cannot_pin, file_of, is_kept};
use crate::bpffs::{BUILD, LINKS, MAPS, PROGRAMS};
use crate::hooks::{self, At, Hook};
use crate::ranking::load::Loaded;
use crate::{Error, bpf};

impl Pinned {
    /// Makes programs that are about to be loaded use the pinned maps.
    pub(super) fn share(&self, object: &mut OpenObject) -> Result<(), Error> {
        for mut map in object.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let Some(pinned) = self.map(&name)?.filter(|_| is_kept(&name)) else { continue };
            let made = (map.map_type(), map.key_size(), map.value_size(), map.max_entries());
            let found = (pinned.map_type(), pinned.key_size(), pinned.value_size(), pinned.max_entries());
            if made != found {
                let path = self.dir.path_of(MAPS).join(file_of(&name));
                return Err(Error::Pins {
                    path,
                    why: format!("it is {found:?} (type, key, value, entries), and not {made:?}"),
                    advice: "remove it with 'topstat unload', which ends its statistics".to_owned(),
                });
            }
            map.reuse_fd(pinned.as_fd())
                .map_err(|e| Error::Kernel { what: format!("share the map {name}"), why: format!("{e:#}") })?;
        }
        Ok(())
    }

    /// Pins the maps that are not pinned yet.
    pub(super) fn pin_maps(&self, loaded: &Loaded) -> Result<(), Error> {
        let pin = |name: &str, map: &MapHandle| match is_kept(name) && self.map(name)?.is_none() {
            true => self.pin_map(map, name),
            false => Ok(()),
        };
        loaded.own_maps()?.iter().try_for_each(|(name, map)| pin(name, map))?;
        loaded.borrowed.maps().try_for_each(|(name, map)| pin(name, map))
    }

    fn pin_map(&self, map: &MapHandle, name: &str) -> Result<(), Error> {
        let maps = self.dir.make(MAPS)?;
        maps.remove_tree(file_of(name), &mut Vec::new())?;
        maps.pin(map.as_fd(), file_of(name)).map_err(|e| cannot_pin(&maps.path_of(file_of(name)), &e))
    }

    /// Attaches a program, and pins it and its link.
    pub(super) fn attach(&self, loaded: &Loaded, hook: &Hook) -> Result<(), Error> {
        let links = self.dir.make(LINKS)?;
        // The name may have another object, or a link whose gate is lost.
        links.remove_tree(&hook.link, &mut Vec::new())?;
        let link = loaded.attach(hook)?;
        links.pin(link.as_fd(), &hook.link).map_err(|e| cannot_pin(&links.path_of(&hook.link), &e))?;
        if hook.comes_and_goes() { self.keep_ready(loaded, hook) } else { self.pin_program(loaded, &hook.program) }
    }

    /// Pins a program that comes and goes, so that it can be attached later: behind its gate, if it has one.
    pub(super) fn keep_ready(&self, loaded: &Loaded, hook: &Hook) -> Result<(), Error> {
        if hook.at == At::Gate {
            hooks::enter(&loaded.object, hook, &bpf::map(&loaded.object, &hook.gate())?)?;
            self.pin_program(loaded, &hook.enter())?;
        }
        self.pin_program(loaded, &hook.program)
    }

    pub(super) fn pin_program(&self, loaded: &Loaded, name: &str) -> Result<(), Error> {
        let programs = self.dir.make(PROGRAMS)?;
        let new = format!("{name}{NEW}");
        let program = bpf::program(&loaded.object, name)?;
        let pinned = programs.pin(program.as_fd(), &new).and_then(|()| programs.rename(&new, name));
        pinned.map_err(|e| cannot_pin(&programs.path_of(name), &e))
    }

    pub(super) fn set_build(&self, to: &str) -> Result<(), Error> {
        let new = format!("{BUILD}{NEW}");
        let made = self.dir.make_link(to, &new).and_then(|()| self.dir.rename(&new, BUILD));
        made.map_err(|e| cannot_pin(&self.dir.path_of(BUILD), &e))
    }
}
