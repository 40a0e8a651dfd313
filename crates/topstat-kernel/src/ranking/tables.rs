// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The maps, programs and tables of a family, as its data defines them.

use std::mem::size_of;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use libbpf_rs::{MapCore as _, OpenObject};
use topstat_engine::abi::{ts_census, ts_shape};

use super::banks::{Banks, bank_size};
use super::lent::SharedGrids;
use super::settings::SharedSettings;
use crate::bpf::{self, Shared};
use crate::family::{BankId, Build, BuildKind, Constant, Family, Ranked, SampleInfo, TablePlace};
use crate::hooks::{self, Hook};
use crate::maps::{Maps, rows_of};
use crate::{Error, Options, TableInfo, TableSettings};

/// A family of ranked tables.
#[derive(Clone)]
pub struct RankedFamily {
    /// The family.
    pub family: Arc<Family>,
    /// Its kind.
    pub ranked: Arc<Ranked>,
    /// The build that made the state; `None`: there is no state yet, and this kernel's build is meant.
    made_by: Option<BuildKind>,
}

impl RankedFamily {
    /// The family, if it is one of ranked tables.
    pub fn of(family: &Arc<Family>) -> Option<Self> {
        family.kind_as().map(|ranked| Self { family: Arc::clone(family), ranked, made_by: None })
    }

    /// The family of a state with these constants and these programs: only the build that made a state can go on with it.
    #[must_use]
    pub fn made_with(&self, constants: &[u8], is_there: impl Fn(&str) -> bool) -> Self {
        // All builds of a family without this field have the number 0.
        let number = self.ranked.constants.read(Constant::Build, constants).unwrap_or(0);
        Self { made_by: Some(self.ranked.builds.numbered(number, is_there)), ..self.clone() }
    }

    fn build_kind(&self) -> BuildKind {
        self.made_by.unwrap_or_else(|| self.ranked.builds.chosen())
    }

    /// The build of its programs.
    pub fn build(&self) -> &Build {
        self.ranked.builds.build(self.build_kind())
    }

    /// How the values of a sample are counted, where builds differ in that.
    pub fn way(&self, sample: &SampleInfo) -> Option<&'static str> {
        let ways = &self.build().ways;
        ways.iter().find(|(name, _)| *name == sample.name).map(|(_, way)| *way)
    }

    /// The hooks of its programs.
    pub fn hooks(&self) -> Vec<Hook> {
        self.ranked.builds.hooks_of(self.build_kind())
    }

    /// Banks of a CPU.
    pub fn banks(&self) -> usize {
        self.family.samples.len() * self.ranked.sample_banks as usize
    }

    /// The number of a sample.
    pub fn number_of(&self, sample: &str) -> Option<u32> {
        let number = self.family.samples.iter().position(|s| s.name == sample)?;
        u32::try_from(number).ok()
    }

    /// The first bank of the sample with this number.
    pub fn first_bank(&self, sample: u32) -> BankId {
        BankId(sample * self.ranked.sample_banks)
    }

    /// The number of the sample that has this bank.
    pub fn sample_of(&self, bank: BankId) -> u32 {
        bank.0 / self.ranked.sample_banks
    }

    /// Where the programs keep a table.
    pub fn place(&self, table: &TableInfo) -> Result<TablePlace, Error> {
        let sample = self.number_of(&table.sample).ok_or_else(|| Error::NotLoaded(table.path()))?;
        let within = TablePlace::at(table.number);
        Ok(TablePlace { bank: BankId(self.first_bank(sample).0 + within.bank.0), ..within })
    }

    /// The sample of a table.
    pub fn sample(&self, table: &TableInfo) -> Result<&Arc<SampleInfo>, Error> {
        let found = self.family.samples.iter().find(|sample| sample.name == table.sample);
        found.ok_or_else(|| Error::NotLoaded(table.path()))
    }

    /// The settings that users give, in these maps: see [`SharedSettings::new`].
    pub fn settings(&self, maps: &Maps, shared: Option<OwnedFd>) -> Result<SharedSettings, Error> {
        Ok(SharedSettings::new(Shared::new(&maps.settings)?, self.numbers(), shared))
    }

    /// The numbers of the tables in each bank.
    pub fn numbers(&self) -> Vec<Vec<u32>> {
        let mut banks = vec![Vec::new(); self.banks()];
        for place in self.family.tables().iter().filter_map(|table| self.place(table).ok()) {
            if let Some(numbers) = banks.get_mut(place.bank.0 as usize) {
                numbers.push(place.table);
            }
        }
        banks
    }

    /// The pushing programs for `cpus` CPUs, ready to be loaded. Programs of a pinned state get the constants that the state was
    /// loaded with.
    ///
    /// # Errors
    /// The options ask for more rows than can be kept.
    pub fn open(&self, options: &Options, cpus: u32) -> Result<OpenObject, Error> {
        let options = &self.ranked.own.or(options);
        let mut object = bpf::open(&self.family.name, self.build().observer)?;
        let shape = self.shape(options.top)?;
        bpf::set_constants(
            &mut object,
            ".rodata.constants",
            &self.ranked.constants.bytes(&shape, options, self.build().number)?,
        )?;
        let banks = u32::try_from(self.banks()).unwrap_or(u32::MAX);
        bpf::resize(&mut object, "banks", bank_size(shape.entries_mask + 1), cpus.saturating_mul(banks))?;
        self.build().resize(&mut object, options, cpus)?;
        let hooks = self.hooks();
        let is_own = |hook: &Hook| hooks.iter().any(|own| own.program == hook.program);
        for hook in self.ranked.builds.hooks().iter().filter(|hook| !is_own(hook)) {
            // Builds may share an object.
            if object.progs().any(|program| program.name() == &*hook.program) {
                hooks::leave_out(&mut object, hook)?;
            }
        }
        for hook in &self.build().unused {
            hooks::leave_out(&mut object, hook)?;
        }
        hooks::aim(&mut object, &hooks)?;
        Ok(object)
    }

    /// The beginning of the constants, for tables of `top` rows.
    fn shape(&self, top: u32) -> Result<ts_shape, Error> {
        let entries = topstat_engine::entries_for(top).map_err(|e| Error::Option(e.to_string()))?;
        let table_stride = u32::try_from(topstat_engine::table_size(entries)).unwrap_or(u32::MAX);
        Ok(ts_shape { abi: self.family.abi, top, entries_mask: entries - 1, table_stride })
    }

    /// Whether objects are threads instead of processes.
    pub fn threads(&self, maps: &Maps) -> bool {
        self.ranked.constants.read(Constant::ByThread, &maps.constants()).is_some_and(|by_thread| by_thread != 0)
    }

    /// Checks that maps are as large as the data that is read from them.
    pub fn check_maps(&self, maps: &Maps, shape: &ts_shape) -> Result<(), Error> {
        let name = &self.family.name;
        let unusable = |why: String| Error::Kernel { what: format!("use the constants of {name}"), why };
        rows_of(shape).map_err(unusable)?;
        let banks = self.banks();
        let bank = bank_size(shape.entries_mask.wrapping_add(1));
        let needed = [
            ("banks", &maps.banks, bank, bank),
            (".data.settings", &maps.settings, SharedSettings::size(banks), usize::MAX),
            (".data.census", &maps.census, self.family.samples.len() * size_of::<ts_census>(), usize::MAX),
        ];
        for (map_name, map, least, most) in needed {
            let size = map.value_size() as usize;
            let uneven = map_name == "banks" && !(map.max_entries() as usize).is_multiple_of(banks);
            if size < least || size > most || uneven {
                return Err(Error::Kernel {
                    what: format!("use the map {map_name} of {name}"),
                    why: format!("{} values of {size} bytes are not what it should hold", map.max_entries()),
                });
            }
        }
        let Some(keeps) = self.build().keeps else { return Ok(()) };
        let cpus = maps.banks.max_entries() / u32::try_from(banks).unwrap_or(u32::MAX).max(1);
        for (map_name, size, entries) in keeps.sizes(cpus, shape.entries_mask.wrapping_add(1)) {
            let map = maps.get(map_name);
            if map.is_none_or(|map| (map.value_size() as usize, map.max_entries()) != (size, entries)) {
                return Err(Error::Kernel {
                    what: format!("use the map {map_name} of {name}"),
                    why: format!("it does not hold {entries} values of {size} bytes"),
                });
            }
        }
        Ok(())
    }

    /// Makes the tables of maps that were just loaded: empty, with the given tables on and the others off.
    pub fn set_up(&self, maps: &Maps, tables: &[Arc<TableInfo>], options: &Options) -> Result<(), Error> {
        let options = &self.ranked.own.or(options);
        Banks::new(&maps.banks, self.banks(), maps.shape()?.entries_mask + 1)?.init();
        let settings = self.settings(maps, None)?;
        let locked = settings.lock()?;
        for table in &self.family.tables() {
            let place = self.place(table)?;
            let (period_ms, delay_ms) = (options.period_ms, options.delay_ms);
            let to = TableSettings { enabled: tables.contains(table), period_ms, delay_ms, ..TableSettings::default() };
            settings.set(&locked, place, table.kind, &to)?;
        }
        if let Some(grids) = SharedGrids::of(maps, self.build().lent)? {
            let tables = settings.dynamic();
            grids.check(&tables)?;
            grids.write(&tables);
        }
        Ok(())
    }
}
