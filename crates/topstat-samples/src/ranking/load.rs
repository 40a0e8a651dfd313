// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads the programs of a family that push.

use std::os::fd::{AsFd as _, OwnedFd};

use libbpf_rs::{Link, Object};

use super::{Banks, Maps, Ranked, Ranking, set_up};
use crate::hooks::{self, Hook, Observer};
use crate::{Error, Options, TableInfo, bpf, cgroup};

/// Programs that are loaded, and the maps that they use; not attached yet.
pub struct Loaded {
    /// The programs.
    pub object: Object,
    /// What the object was compiled to.
    pub bytes: &'static [u8],
    /// Where they belong.
    pub hooks: &'static [Hook],
    begin: fn(&Object) -> Result<(), Error>,
    cgroup: OwnedFd,
    /// Whether its programs can be replaced: see [`hooks::without_gates`].
    gates: bool,
}

impl Loaded {
    /// Loads them, onto whatever maps the object was given. With gates they can be replaced.
    pub fn new<F: Ranked>(observer: Observer, gates: bool) -> Result<Self, Error> {
        let Observer { bytes, mut object, hooks, begin } = observer;
        if !gates {
            hooks::without_gates(&mut object, hooks)?;
        }
        let cgroup = cgroup::root().map_err(|e| Error::Unsupported {
            sample: F::NAME,
            reason: format!("no cgroup v2 hierarchy ({e})"),
            advice: "mount one: mount -t cgroup2 none /sys/fs/cgroup/unified".to_owned(),
        })?;
        let object = bpf::load(F::NAME, object).map_err(F::explain)?;
        Ok(Self { object, bytes, hooks, begin, cgroup, gates })
    }

    /// Loads them onto maps of their own, with the given tables on and all others off.
    pub fn afresh<F: Ranked>(tables: &[&TableInfo], options: &Options, gates: bool) -> Result<(Self, Maps), Error> {
        let loaded = Self::new::<F>(F::observer(options.top)?, gates)?;
        let maps = Maps::of(&loaded.object)?;
        Banks::new(&maps.banks, F::SAMPLES.len(), maps.shape()?.entries_mask + 1)?.init();
        // Set before anything is attached: no push finds tables without settings.
        set_up::<F>(&maps, tables, options)?;
        Ok((loaded, maps))
    }

    /// Attaches one of them.
    pub fn attach(&self, hook: &Hook) -> Result<Link, Error> {
        hooks::attach(&self.object, hook, self.cgroup.as_fd(), self.gates)
    }

    /// Once all are attached: finds the objects that were there before.
    pub fn begin(&self) -> Result<(), Error> {
        (self.begin)(&self.object)
    }
}

/// Loads and attaches, with the given tables on and all others off. Dropping the state detaches.
pub fn load<F: Ranked>(tables: &[&TableInfo], options: &Options) -> Result<Ranking<F>, Error> {
    let (loaded, maps) = Loaded::afresh::<F>(tables, options, false)?;
    let links = loaded.hooks.iter().map(|hook| loaded.attach(hook)).collect::<Result<Vec<_>, _>>()?;
    let programs =
        loaded.hooks.iter().map(|hook| hooks::describe(&loaded.object, hook)).collect::<Result<Vec<_>, _>>()?;
    loaded.begin()?;
    Ranking::new(maps, programs, None, (links, loaded))
}
