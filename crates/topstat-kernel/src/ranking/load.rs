// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads the pushing programs of a family.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{Link, Object, OpenObject};

use super::{Attached, RankedFamily, Ranking};
use crate::clock::possible_cpus;
use crate::family::names_of;
use crate::hooks::{self, Hook};
use crate::maps::Maps;
use crate::report::explain;
use crate::{Error, Options, TableInfo, bpf, cgroup};

/// Programs that are loaded but not attached, and the maps that they use.
pub struct Loaded {
    /// The family of the programs.
    pub of: RankedFamily,
    /// The programs.
    pub object: Object,
    cgroup: OwnedFd,
    /// Whether the programs can be replaced: see [`hooks::without_gates`].
    gates: bool,
}

impl Loaded {
    /// Loads the programs onto the maps that the object was given. With gates they can be replaced.
    pub fn new(of: &RankedFamily, mut object: OpenObject, gates: bool) -> Result<Self, Error> {
        let family = &of.family;
        if !gates {
            hooks::without_gates(&mut object, &of.hooks())?;
        }
        let cgroup = cgroup::root().map_err(|e| Error::Unsupported {
            sample: family.name.clone(),
            reason: format!("no cgroup v2 hierarchy ({e})"),
            advice: cgroup::MOUNT_ONE.to_owned(),
        })?;
        let object = bpf::load(&family.name, object).map_err(|e| explain(e, &names_of(&family.samples)))?;
        Ok(Self { of: of.clone(), object, cgroup, gates })
    }

    /// Loads the programs onto new maps, with the given tables on and all others off.
    pub fn afresh(
        of: &RankedFamily,
        tables: &[Arc<TableInfo>],
        options: &Options,
        gates: bool,
    ) -> Result<(Self, Maps), Error> {
        let loaded = Self::new(of, of.open(options, possible_cpus()?)?, gates)?;
        let maps = Maps::of(&loaded.object, &of.build().maps)?;
        // The settings are written before a program is attached: no push finds tables without settings.
        of.set_up(&maps, tables, options)?;
        Ok((loaded, maps))
    }

    /// Attaches one of the programs.
    pub fn attach(&self, hook: &Hook) -> Result<Link, Error> {
        hooks::attach(&self.object, hook, self.cgroup.as_fd(), self.gates)
    }

    /// Attaches the programs that these tables need, by `attach`, and finds the objects that existed before.
    pub fn begin(
        &self,
        tables: &[Arc<TableInfo>],
        mut attach: impl FnMut(&Hook) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let build = self.of.build();
        let is_on = |sample: &str| tables.iter().any(|table| table.sample == sample);
        for hook in self.of.hooks().into_iter().filter(|hook| hook.is_needed(is_on)) {
            if build.adopt_before == Some(hook.program.as_str()) {
                (build.adopt)(&self.object)?;
            }
            attach(&hook)?;
        }
        if build.adopt_before.is_none() {
            (build.adopt)(&self.object)?;
        }
        Ok(())
    }
}

/// Loads and attaches the programs, with the given tables on and all others off. Dropping the state detaches them.
pub fn load(of: &RankedFamily, tables: &[Arc<TableInfo>], options: &Options) -> Result<Ranking, Error> {
    let (loaded, maps) = Loaded::afresh(of, tables, options, false)?;
    let mut links = HashMap::new();
    loaded.begin(tables, |hook| {
        links.insert(hook.link.clone(), loaded.attach(hook)?);
        Ok(())
    })?;
    let describe = |hook: &Hook| hooks::describe(&loaded.object, hook);
    let programs = of.hooks().iter().map(describe).collect::<Result<Vec<_>, _>>()?;
    Ranking::new(of, maps, programs, None, Box::new(Own { links: Mutex::new(links), loaded }))
}

/// Programs that stay attached until this is dropped.
struct Own {
    // Dropped before `loaded`.
    links: Mutex<HashMap<String, Link>>,
    loaded: Loaded,
}

impl Attached for Own {
    fn attach(&self, hook: &Hook) -> Result<(), Error> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        if !links.contains_key(&hook.link) {
            links.insert(hook.link.clone(), self.loaded.attach(hook)?);
        }
        Ok(())
    }

    fn detach(&self, hook: &Hook) -> Result<(), Error> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner).remove(&hook.link);
        Ok(())
    }

    fn pin_again(&self) -> Result<OwnedFd, Error> {
        Err(Error::NotLoaded(self.loaded.of.family.name.clone()))
    }
}
