// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads the pushing programs of a family.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{Link, MapCore as _, MapHandle, Object, OpenObject};

use super::lent::Borrowed;
use super::{Attached, RankedFamily, Ranking, lent};
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
    /// Maps of another family that the programs use.
    pub borrowed: Borrowed,
}

impl Loaded {
    /// Loads the programs onto the maps that the object was given, `borrowed` ones among them. With gates they can be replaced.
    pub fn new(of: &RankedFamily, mut object: OpenObject, gates: bool, borrowed: Borrowed) -> Result<Self, Error> {
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
        Ok(Self { of: of.clone(), object, cgroup, gates, borrowed })
    }

    /// Loads the programs onto new maps, with the given tables on and all others off.
    pub fn afresh(
        of: &RankedFamily,
        tables: &[Arc<TableInfo>],
        options: &Options,
        gates: bool,
        lender: Option<&Maps>,
    ) -> Result<(Self, Maps), Error> {
        let mut object = of.open(options, possible_cpus()?)?;
        let borrowed = Borrowed::from(of.build().lent, lender)?;
        borrowed.share(&mut object)?;
        let loaded = Self::new(of, object, gates, borrowed)?;
        let own = loaded.own_maps()?;
        let maps = Maps::from(&of.build().maps, |name| {
            let borrowed = loaded.borrowed.maps().find(|(own, _)| *own == name).map(|(_, map)| map);
            let missing = || Error::Kernel { what: format!("find the map {name}"), why: "no such map".to_owned() };
            let found = borrowed.or_else(|| own.iter().find(|(own, _)| own.ends_with(name)).map(|(_, map)| map));
            let copy = MapHandle::try_from(found.ok_or_else(missing)?);
            copy.map_err(|e| Error::Kernel { what: format!("open the map {name}"), why: format!("{e:#}") })
        })?;
        // The settings are written before a program is attached: no push finds tables without settings.
        of.set_up(&maps, tables, options)?;
        Ok((loaded, maps))
    }

    /// The family's own maps among the maps of the programs, by their names.
    pub fn own_maps(&self) -> Result<Vec<(String, MapHandle)>, Error> {
        let mut own = Vec::new();
        // Maps that are not made have descriptors of no map.
        for map in self.object.maps().filter(|map| map.autocreate()) {
            if !self.borrowed.has(&map)? {
                let name = map.name().to_string_lossy().into_owned();
                let handle = MapHandle::try_from(&map)
                    .map_err(|e| Error::Kernel { what: format!("open the map {name}"), why: format!("{e:#}") })?;
                own.push((name, handle));
            }
        }
        Ok(own)
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
    let lender = lent::lender(of)?.map(|lender| load(&lender, &[], options)).transpose()?;
    let (loaded, maps) = Loaded::afresh(of, tables, options, false, lender.as_ref().map(|lender| &lender.maps))?;
    let mut links = HashMap::new();
    loaded.begin(tables, |hook| {
        links.insert(hook.link.clone(), loaded.attach(hook)?);
        Ok(())
    })?;
    let describe = |hook: &Hook| hooks::describe(&loaded.object, hook);
    let programs = of.hooks().iter().map(describe).collect::<Result<Vec<_>, _>>()?;
    Ranking::new(of, maps, programs, None, Box::new(Own { links: Mutex::new(links), loaded, _lender: lender }))
}

/// Programs that stay attached until this is dropped.
struct Own {
    // Dropped before `loaded`.
    links: Mutex<HashMap<String, Link>>,
    loaded: Loaded,
    /// Its programs make what these programs read.
    _lender: Option<Ranking>,
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
