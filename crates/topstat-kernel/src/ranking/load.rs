// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads the programs of a family that push.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use libbpf_rs::{Link, Object, OpenObject};

use super::{RankedFamily, Ranking};
use crate::clock::possible_cpus;
use crate::family::names_of;
use crate::hooks::{self, Hook};
use crate::maps::Maps;
use crate::report::explain;
use crate::{Error, Options, TableInfo, bpf, cgroup};

/// Programs that are loaded, and the maps that they use; not attached yet.
pub struct Loaded {
    /// Whose they are.
    pub of: RankedFamily,
    /// The programs.
    pub object: Object,
    cgroup: OwnedFd,
    /// Whether its programs can be replaced: see [`hooks::without_gates`].
    gates: bool,
}

impl Loaded {
    /// Loads them, onto whatever maps the object was given. With gates they can be replaced.
    pub fn new(of: &RankedFamily, mut object: OpenObject, gates: bool) -> Result<Self, Error> {
        let family = &of.family;
        if !gates {
            hooks::without_gates(&mut object, &of.build().hooks)?;
        }
        let cgroup = cgroup::root().map_err(|e| Error::Unsupported {
            sample: family.name.clone(),
            reason: format!("no cgroup v2 hierarchy ({e})"),
            advice: cgroup::MOUNT_ONE.to_owned(),
        })?;
        let object = bpf::load(&family.name, object).map_err(|e| explain(e, &names_of(&family.samples)))?;
        Ok(Self { of: of.clone(), object, cgroup, gates })
    }

    /// Loads them onto maps of their own, with the given tables on and all others off.
    pub fn afresh(
        of: &RankedFamily,
        tables: &[Arc<TableInfo>],
        options: &Options,
        gates: bool,
    ) -> Result<(Self, Maps), Error> {
        let loaded = Self::new(of, of.open(options, possible_cpus()?)?, gates)?;
        let maps = Maps::of(&loaded.object, &of.build().maps)?;
        // Set before anything is attached: no push finds tables without settings.
        of.set_up(&maps, tables, options)?;
        Ok((loaded, maps))
    }

    /// Attaches one of them.
    pub fn attach(&self, hook: &Hook) -> Result<Link, Error> {
        hooks::attach(&self.object, hook, self.cgroup.as_fd(), self.gates)
    }

    /// Attaches all of them, each in the way given, and finds the objects that were there before.
    pub fn begin(&self, mut attach: impl FnMut(&Hook) -> Result<(), Error>) -> Result<(), Error> {
        let build = self.of.build();
        for hook in &build.hooks {
            if build.adopt_before == Some(hook.program.as_str()) {
                (build.adopt)(&self.object)?;
            }
            attach(hook)?;
        }
        if build.adopt_before.is_none() {
            (build.adopt)(&self.object)?;
        }
        Ok(())
    }
}

/// Loads and attaches, with the given tables on and all others off. Dropping the state detaches.
pub fn load(of: &RankedFamily, tables: &[Arc<TableInfo>], options: &Options) -> Result<Ranking, Error> {
    let (loaded, maps) = Loaded::afresh(of, tables, options, false)?;
    let mut links = Vec::new();
    loaded.begin(|hook| {
        links.push(loaded.attach(hook)?);
        Ok(())
    })?;
    let hooks = &of.build().hooks;
    let programs = hooks.iter().map(|hook| hooks::describe(&loaded.object, hook)).collect::<Result<Vec<_>, _>>()?;
    Ranking::new(of, maps, programs, None, (links, loaded))
}
