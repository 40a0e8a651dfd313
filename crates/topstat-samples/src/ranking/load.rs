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
    begin: fn(&Object) -> Result<(), Error>,
    begin_before: Option<&'static str>,
    cgroup: OwnedFd,
}

impl Loaded {
    /// Loads them, onto whatever maps the object was given.
    pub fn new<F: Ranked>(observer: Observer) -> Result<Self, Error> {
        let Observer { bytes, object, hooks, begin, begin_before } = observer;
        let cgroup = cgroup::root().map_err(|e| Error::Unsupported {
            sample: F::NAME,
            reason: format!("no cgroup v2 hierarchy ({e})"),
            advice: "mount one: mount -t cgroup2 none /sys/fs/cgroup/unified".to_owned(),
        })?;
        let object = bpf::load(F::NAME, object).map_err(F::explain)?;
        Ok(Self { object, bytes, hooks, begin, begin_before, cgroup })
    }

    /// Loads them onto maps of their own, with the given tables on and all others off.
    pub fn afresh<F: Ranked>(tables: &[&TableInfo], options: &Options) -> Result<(Self, Maps), Error> {
        let loaded = Self::new::<F>(F::observer(options.top, options.threads)?)?;
        let maps = Maps::of::<F>(&loaded.object)?;
        Banks::new(&maps.banks, F::SAMPLES.len(), maps.shape()?.entries_mask + 1)?.init();
        // Set before anything is attached: no push finds tables without settings.
        set_up::<F>(&maps, tables, options)?;
        Ok((loaded, maps))
    }

    /// Attaches one of them.
    pub fn attach(&self, hook: &Hook) -> Result<Link, Error> {
        hooks::attach(&self.object, hook, self.cgroup.as_fd())
    }

    /// Attaches all of them, each in the way given, and finds the objects that were there before.
    pub fn begin(&self, mut attach: impl FnMut(&Hook) -> Result<(), Error>) -> Result<(), Error> {
        for hook in self.hooks {
            if self.begin_before == Some(hook.program) {
                (self.begin)(&self.object)?;
            }
            attach(hook)?;
        }
        if self.begin_before.is_none() {
            (self.begin)(&self.object)?;
        }
        Ok(())
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
    loaded.begin(|hook| {
        links.push(loaded.attach(hook)?);
        Ok(())
    })?;
    let programs = loaded.programs()?;
    Ranking::new(maps, programs, None, (links, loaded))
}
