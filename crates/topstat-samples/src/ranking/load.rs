// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads the programs of a family that push.

use std::os::fd::{AsFd as _, OwnedFd};

use libbpf_rs::{Link, Object};

use super::{Banks, Maps, Ranked, Ranking, set_up};
use crate::hooks::{self, Hook, Observer};
use crate::{Error, Options, Program, TableInfo, bpf, cgroup};

/// Programs that are loaded, and the maps that they use; not attached yet.
pub struct Loaded {
    /// The programs.
    pub object: Object,
    /// What the object was compiled to.
    pub bytes: &'static [u8],
    /// Where they belong.
    pub hooks: &'static [Hook],
    births: usize,
    begin: fn(&Object) -> Result<(), Error>,
    cgroup: OwnedFd,
}

impl Loaded {
    /// Loads them, onto whatever maps the object was given.
    pub fn new<F: Ranked>(observer: Observer) -> Result<Self, Error> {
        let Observer { bytes, object, hooks, births, begin } = observer;
        let cgroup = cgroup::root().map_err(|e| Error::Unsupported {
            sample: F::NAME,
            reason: format!("no cgroup v2 hierarchy ({e})"),
            advice: "mount one: mount -t cgroup2 none /sys/fs/cgroup/unified".to_owned(),
        })?;
        let object = bpf::load(F::NAME, object).map_err(F::explain)?;
        Ok(Self { object, bytes, hooks, births, begin, cgroup })
    }

    /// Loads them onto maps of their own, with the given tables on and all others off.
    pub fn afresh<F: Ranked>(tables: &[&TableInfo], options: &Options) -> Result<(Self, Maps), Error> {
        let loaded = Self::new::<F>(F::observer(options.top)?)?;
        let maps = Maps::of(&loaded.object)?;
        Banks::new(&maps.banks, F::SAMPLES.len(), maps.shape()?.entries_mask + 1)?.init();
        // Set before anything is attached: no push finds tables without settings.
        set_up::<F>(&maps, tables, options)?;
        Ok((loaded, maps))
    }

    /// Attaches them, in their order, and finds the objects that were there before. Each link goes to `keep`.
    pub fn attach(&self, mut keep: impl FnMut(&Hook, Link) -> Result<(), Error>) -> Result<(), Error> {
        for (number, hook) in self.hooks.iter().enumerate() {
            if number == self.births {
                (self.begin)(&self.object)?;
            }
            keep(hook, hooks::attach(&self.object, hook, self.cgroup.as_fd())?)?;
        }
        Ok(())
    }

    /// Attaches one of them.
    pub fn attach_one(&self, hook: &Hook) -> Result<Link, Error> {
        hooks::attach(&self.object, hook, self.cgroup.as_fd())
    }

    /// What is attached at all hooks.
    fn programs(&self) -> Result<Vec<Program>, Error> {
        let all = self.hooks.iter().map(|hook| hooks::describe(&self.object, hook)).collect::<Result<Vec<_>, _>>()?;
        Ok(all.concat())
    }
}

/// Loads and attaches, with the given tables on and all others off. Dropping the state detaches.
pub fn load<F: Ranked>(tables: &[&TableInfo], options: &Options) -> Result<Ranking<F>, Error> {
    let (loaded, maps) = Loaded::afresh::<F>(tables, options)?;
    let mut links = Vec::new();
    loaded.attach(|_, link| {
        links.push(link);
        Ok(())
    })?;
    let programs = loaded.programs()?;
    Ranking::new(maps, programs, None, (links, loaded))
}
