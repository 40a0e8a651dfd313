// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads the programs of a family that push.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use libbpf_rs::{Link, Object};

use super::{Banks, Maps, Ranked, Ranking, set_up};
use crate::catalogue::names_of;
use crate::hooks::{self, Hook, Observer};
use crate::{Error, Options, TableInfo, bpf, cgroup, check};

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
    /// Whether its programs can be replaced: see [`hooks::without_gates`].
    gates: bool,
}

impl Loaded {
    /// Loads them, onto whatever maps the object was given. With gates they can be replaced.
    pub fn new<F: Ranked>(observer: Observer, gates: bool) -> Result<Self, Error> {
        let Observer { bytes, mut object, hooks, begin, begin_before } = observer;
        if !gates {
            hooks::without_gates(&mut object, hooks)?;
        }
        let cgroup = cgroup::root().map_err(|e| Error::Unsupported {
            sample: F::NAME.to_owned(),
            reason: format!("no cgroup v2 hierarchy ({e})"),
            advice: "mount one: mount -t cgroup2 none /sys/fs/cgroup/unified".to_owned(),
        })?;
        let object = bpf::load(F::NAME, object).map_err(|e| check::explain(e, &names_of(F::samples())))?;
        Ok(Self { object, bytes, hooks, begin, begin_before, cgroup, gates })
    }

    /// Loads them onto maps of their own, with the given tables on and all others off.
    pub fn afresh<F: Ranked>(tables: &[Arc<TableInfo>], options: &Options, gates: bool) -> Result<(Self, Maps), Error> {
        let loaded = Self::new::<F>(F::observer(options)?, gates)?;
        let maps = Maps::of::<F>(&loaded.object)?;
        Banks::new(&maps.banks, super::banks::<F>(), maps.shape()?.entries_mask + 1)?.init();
        // Set before anything is attached: no push finds tables without settings.
        set_up::<F>(&maps, tables, options)?;
        Ok((loaded, maps))
    }

    /// Attaches one of them.
    pub fn attach(&self, hook: &Hook) -> Result<Link, Error> {
        hooks::attach(&self.object, hook, self.cgroup.as_fd(), self.gates)
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
}

/// Loads and attaches, with the given tables on and all others off. Dropping the state detaches.
pub fn load<F: Ranked>(tables: &[Arc<TableInfo>], options: &Options) -> Result<Ranking<F>, Error> {
    let (loaded, maps) = Loaded::afresh::<F>(tables, options, false)?;
    let mut links = Vec::new();
    loaded.begin(|hook| {
        links.push(loaded.attach(hook)?);
        Ok(())
    })?;
    let programs =
        loaded.hooks.iter().map(|hook| hooks::describe(&loaded.object, hook)).collect::<Result<Vec<_>, _>>()?;
    Ranking::new(maps, programs, None, (links, loaded))
}
