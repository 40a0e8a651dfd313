// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Replaces pinned programs by those of another build.

use libbpf_rs::Link;

use super::{Pinned, file_of, unusable};
use crate::bpffs::{BUILD, LINKS, MAPS, PROGRAMS, Pins, build};
use crate::clock::possible_cpus;
use crate::hooks::{self, At, Hook};
use crate::ranking::lent::Borrowed;
use crate::ranking::load::Loaded;
use crate::{Error, Options, bpf};

impl Pinned {
    /// Replaces the programs if they are of another build, or not all there. Returns whether it did.
    pub(super) fn upgrade(&self, pins: &Pins) -> Result<bool, Error> {
        let shape = self.maps()?.shape()?;
        let made = self.of.build();
        let mut object = self.of.open(&Options { top: shape.top, ..Options::default() }, possible_cpus()?)?;
        let build_now = pins.build_of(made.observer);
        let hooks = self.of.hooks();
        let links = hooks.iter().map(|hook| self.link(hook)).collect::<Result<Vec<_>, _>>()?;
        let needed = self.needed(&hooks, &links)?;
        let surplus = self.surplus(&hooks)?;
        let is_whole = needed.iter().zip(&links).all(|(is_needed, link)| link.is_some() || !is_needed);
        if build(&self.dir).is_some_and(|b| b == build_now) && is_whole && surplus.is_empty() {
            return Ok(false);
        }
        self.share(&mut object)?;
        for (hook, link) in hooks.iter().zip(&links) {
            // A program that is attached already is not loaded again.
            if hook.at == At::Gate && link.is_some() {
                bpf::leave_out(&mut object, &hook.enter())?;
            }
        }
        let borrowed = made.lent.map(|lent| {
            Borrowed::of(lent, |own, _| {
                self.map(own)?.ok_or_else(|| unusable(&self.dir.path_of(MAPS).join(file_of(own)), &"it is no map"))
            })
        });
        let loaded = Loaded::new(&self.of, object, true, borrowed.transpose()?.unwrap_or_default())?;
        // From here until the end the state has no build: a process that finds it without one upgrades it again.
        self.dir.remove_tree(BUILD, &mut Vec::new())?;
        self.pin_maps(&loaded)?;
        for ((hook, link), is_needed) in hooks.iter().zip(links).zip(needed) {
            match (hook.at, link) {
                (_, None) if !is_needed => self.keep_ready(&loaded, hook)?,
                (_, None) => self.attach(&loaded, hook)?,
                (At::Cgroup, Some((mut link, _))) => hooks::replace(&loaded.object, hook, &mut link)?,
                (At::Gate, Some(_)) => {
                    let gate = bpf::map(&loaded.object, &hook.gate())?;
                    hooks::enter(&loaded.object, hook, &gate)?;
                }
            }
            self.pin_program(&loaded, &hook.program)?;
        }
        for part in [LINKS, PROGRAMS] {
            let part = self.dir.make(part)?;
            for name in &surplus {
                part.remove_tree(name, &mut Vec::new())?;
            }
        }
        self.set_build(&build_now)?;
        Ok(true)
    }

    /// Whether each hook has to be attached, by the settings of tables and by the objects that need it. A hook that objects have
    /// needed, and which readers have not detached yet, still has to be.
    fn needed(&self, hooks: &[Hook], links: &[Option<(Link, u32)>]) -> Result<Vec<bool>, Error> {
        let maps = self.maps()?;
        let settings = self.of.settings(&maps, None)?;
        let on: Vec<String> = self
            .of
            .family
            .tables()
            .into_iter()
            .filter_map(|table| settings.get(self.of.place(&table).ok()?).counts().then(|| table.sample.clone()))
            .collect();
        let is_counted = |hook: &Hook| hook.while_counted.is_none_or(|word| maps.number(word) != Some(0));
        let is_needed = |(hook, link): (&Hook, &Option<(Link, u32)>)| {
            hook.is_needed(|sample| on.iter().any(|name| name == sample)) && (link.is_some() || is_counted(hook))
        };
        Ok(hooks.iter().zip(links).map(is_needed).collect())
    }

    /// Links of hooks that this build lacks.
    fn surplus(&self, hooks: &[Hook]) -> Result<Vec<String>, Error> {
        let known = |name: &String| hooks.iter().any(|hook| hook.link == *name);
        let names = self.dir.make(LINKS)?.names()?;
        Ok(names.into_iter().filter(|name| !known(name)).collect())
    }
}
