// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads, sets and reads families of ranked tables. The C side is in the engine (`topstat/section.h`).
//!
//! Data defines each family ([`Ranked`]); the code in here knows no particular family.

mod assemble;
mod banks;
mod check;
mod doubts;
mod ended;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod kind;
mod lent;
mod load;
mod merge;
mod pins;
mod reader;
mod rows;
mod settings;
mod settler;
mod tables;
mod wanted;

use std::collections::HashMap;
use std::mem::size_of;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use topstat_engine::abi::ts_census;
use topstat_model::{Lost, TableType};

#[cfg(feature = "bench")]
pub use banks::bank_size;
pub use banks::window;
pub use load::load;
pub use pins::{adopt, open};
pub use tables::RankedFamily;

use crate::bpf::Shared;
use crate::family::{BankId, Settle, TablePlace};
use crate::hooks::Hook;
use crate::maps::Maps;
use crate::skipped::Skipped;
use crate::{Error, Program, SampleInfo, Setter, Source, State, TableInfo, TableSettings};
use banks::Banks;
use check::check;
use doubts::Doubts;
use ended::Ended;
use lent::SharedGrids;
use settings::{Locked, SharedSettings};
use settler::{Settled, Settler};
use wanted::Wanted;

/// The losses that the latest snapshot of each table has reported.
struct ReportedLosses {
    /// Whether this process has loaded the tables: nothing was lost before then.
    is_ours: bool,
    by_table: Mutex<HashMap<TablePlace, Lost>>,
}

/// A family's state: its maps, and the object that keeps its programs attached.
pub struct Ranking {
    of: RankedFamily,
    maps: Maps,
    banks: Banks,
    census: Shared,
    settings: SharedSettings,
    top: u32,
    threads: bool,
    programs: Vec<Program>,
    skipped: Skipped,
    reported: ReportedLosses,
    settler: Settler,
    /// The moment from which each table counts, where the kernel itself counts objects: see
    /// [`Settle::since`](crate::family::Settle::since).
    since: Option<Shared>,
    /// A value that programs compute from the settings: see [`Settle::computed`](crate::family::Settle::computed).
    computed: Option<Shared>,
    /// See [`Lent::grids`](crate::family::Lent::grids).
    grids: Option<SharedGrids>,
    /// See the engine's `keep.h`.
    ended: Option<Ended>,
    /// See [`Doubt::refused`](crate::family::Doubt::refused).
    doubts: Option<Doubts>,
    /// The hooks that readers attach and detach.
    wanted: Vec<Wanted>,
    attached: Box<dyn Attached>,
}

/// Attached programs. Some of them come and go: see [`Hook::comes_and_goes`].
pub trait Attached: Send + Sync {
    /// Attaches a program, unless it is attached.
    fn attach(&self, hook: &Hook) -> Result<(), Error>;

    /// Detaches a program, if it is attached.
    fn detach(&self, hook: &Hook) -> Result<(), Error>;

    /// Whether the path of the pins leads to them. True where nothing is pinned.
    fn is_found(&self) -> bool {
        true
    }

    /// Pins all objects again at the path of the pins. Returns the new directory, on which processes lock the settings from then
    /// on. The caller has locked the settings.
    ///
    /// # Errors
    /// The kernel refuses, or nothing is pinned of this state.
    fn pin_again(&self) -> Result<OwnedFd, Error>;
}

impl Ranking {
    /// The state in these maps. Dropping it drops `attached`. Other processes hold a lock on `shared` while they set the state.
    ///
    /// # Errors
    /// The maps are of another ABI or of the wrong size, or can't be mapped.
    pub fn new(
        of: &RankedFamily,
        maps: Maps,
        programs: Vec<Program>,
        shared: Option<OwnedFd>,
        attached: Box<dyn Attached>,
    ) -> Result<Self, Error> {
        let shape = maps.shape()?;
        if shape.abi != of.family.abi {
            return Err(Error::Kernel {
                what: format!("use the loaded programs of {}", of.family.name),
                why: format!("they are of ABI {}, this program is of ABI {}", shape.abi, of.family.abi),
            });
        }
        of.check_maps(&maps, &shape)?;
        let entries = shape.entries_mask.wrapping_add(1);
        let of_settle = |name: fn(&Settle) -> Option<&'static str>| {
            of.build().settle.as_ref().and_then(name).and_then(|name| maps.get(name)).map(Shared::new).transpose()
        };
        let (since, computed) = (of_settle(|settle| settle.since)?, of_settle(|settle| settle.computed)?);
        Ok(Self {
            banks: Banks::new(&maps.banks, of.banks(), entries)?,
            census: Shared::new(&maps.census)?,
            top: shape.top,
            threads: of.threads(&maps),
            skipped: Skipped::by(&programs, &of.ranked.builds.hooks()),
            reported: ReportedLosses { is_ours: shared.is_none(), by_table: Mutex::default() },
            settings: of.settings(&maps, shared)?,
            grids: SharedGrids::of(&maps, of.build().lent)?,
            ended: Ended::of(&maps, of.build().keeps)?,
            doubts: Doubts::of(&maps, of.ranked.doubt)?,
            wanted: Wanted::of(of.hooks(), &maps)?,
            of: of.clone(),
            maps,
            programs,
            settler: Settler::new(of.build().settle.clone()),
            since,
            computed,
            attached,
        })
    }

    /// The part of `lost` that the snapshot before did not report; `lost` counts from when the table was made. The first snapshot
    /// of tables that another process loaded can't know that part, and reports none.
    fn lost_now(&self, place: TablePlace, lost: &Lost) -> Lost {
        let mut reported = self.reported.by_table.lock().unwrap_or_else(PoisonError::into_inner);
        let before = reported.insert(place, lost.clone());
        let first = || if self.reported.is_ours { Lost::default() } else { lost.clone() };
        lost.since(&before.unwrap_or_else(first))
    }

    /// The maps.
    #[cfg(feature = "bench")]
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// The numbers of objects of a bank's sample that have begun, and that have ended.
    fn count(&self, bank: BankId) -> (u64, u64) {
        let sample = self.of.sample_of(bank) as usize;
        let census: ts_census = self.census.read(0, sample * size_of::<ts_census>());
        (census.begun, census.ended)
    }

    /// The number of objects that exist now of a bank's sample.
    fn census(&self, bank: BankId) -> u64 {
        let (begun, ended) = self.count(bank);
        begun.saturating_sub(ended)
    }

    /// Reads its tables: see [`State::reader`].
    pub fn read(self: Arc<Self>, cpu_rows: bool) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(reader::Reader::new(self, cpu_rows)?))
    }

    /// Whether any table of a sample is on once `table` has the settings `to`.
    fn is_on(&self, sample: &str, table: &TableInfo, to: &TableSettings) -> bool {
        let Some(sample) = self.of.family.samples.iter().find(|info| info.name == sample) else { return false };
        let is_on = |info: &Arc<TableInfo>| {
            let is_this = (&info.sample, &info.name) == (&table.sample, &table.name);
            if is_this { Ok(to.counts()) } else { self.settings(info).map(|settings| settings.counts()) }
        };
        sample.tables.iter().any(|info| is_on(info).unwrap_or(true))
    }

    /// The hooks for the table's sample, and whether each is needed once the table has the settings `to`.
    fn hooks_for(&self, table: &TableInfo, to: &TableSettings) -> Vec<(Hook, bool)> {
        let of = |hook: &Hook| hook.only_for.contains(&table.sample.as_str());
        let hooks = self.of.hooks().into_iter().filter(of);
        hooks.map(|hook| (hook.is_needed(|sample| self.is_on(sample, table, to)), hook)).map(|(n, h)| (h, n)).collect()
    }

    /// See [`Settler::prepare`].
    pub fn prepare_to_settle(&self) -> Result<(), Error> {
        self.settler.prepare(&self.maps)
    }

    /// Pushes pending amounts, if the programs of one of these banks leave any: see [`Settler::run`]. Attaches and detaches the hooks
    /// that objects need at times.
    pub fn settle(&self, banks: impl IntoIterator<Item = BankId>) -> Result<Settled, Error> {
        self.wanted.iter().for_each(|hook| hook.follow(&*self.attached));
        match banks.into_iter().any(|bank| self.settler.is_for(bank)) {
            true => self.settler.run(&self.maps),
            false => Ok(Settled::NothingPending),
        }
    }

    /// Where the kernel itself counts, has this table count from now on: it was switched on, or has another period. The state was
    /// settled just before.
    fn begin(&self, table: &TableInfo, to: &TableSettings) -> Result<(), Error> {
        let Some(since) = &self.since else { return Ok(()) };
        if table.kind == TableType::Static {
            return Ok(());
        }
        let place = |table: &TableInfo| self.of.place(table).map(|place| place.index() as usize * size_of::<u64>());
        let Some(moment) = self.settler.moment() else { return Ok(()) };
        let is_precise = self.settings.is_precise(to)?;
        since.write(0, place(table)?, if is_precise { moment.ns } else { moment.jiffies });
        let sample = self.of.family.samples.iter().find(|sample| sample.name == table.sample);
        let tables = sample.map_or(&[][..], |sample| &sample.tables);
        let of_kind = |kind: TableType| tables.iter().filter(move |other| other.kind == kind);
        let is_on = |other: &Arc<TableInfo>| self.settings(other).is_ok_and(|settings| settings.counts());
        if !of_kind(TableType::Dynamic).any(|other| other.name != table.name && is_on(other)) {
            // All records are from before.
            for other in of_kind(TableType::Static) {
                since.write(0, place(other)?, moment.jiffies);
            }
        }
        Ok(())
    }

    /// While there was a delay, objects may have grown without being ordered.
    fn changed(&self, place: TablePlace, before: &TableSettings, after: &TableSettings) {
        if before.order_ms() > 0 && after.order_ms() == 0 {
            self.banks.distrust(place);
        }
    }

    /// To be called when a process that used the state may have been killed amid any step: no row is proven until its object is
    /// looked at again, and the programs read the settings as they are.
    pub fn mistrust(&self) -> Result<(), Error> {
        self.settings.announce()?;
        if let Some(grids) = &self.grids {
            grids.write(&self.settings.dynamic());
        }
        for table in &self.of.family.tables() {
            self.banks.distrust(self.of.place(table)?);
        }
        Ok(())
    }
}

impl State for Ranking {
    fn samples(&self) -> &[Arc<SampleInfo>] {
        &self.of.family.samples
    }

    fn top(&self) -> u32 {
        self.top
    }

    fn threads(&self) -> bool {
        self.threads
    }

    fn settings(&self, table: &TableInfo) -> Result<TableSettings, Error> {
        Ok(self.settings.get(self.of.place(table)?))
    }

    fn lock(&self) -> Result<Box<dyn Setter + '_>, Error> {
        Ok(Box::new(Setting { state: self, locked: self.settings.lock()? }))
    }

    fn pushed(&self, table: &TableInfo) -> Result<u64, Error> {
        Ok(self.banks.pushed(self.of.place(table)?).saturating_mul(assemble::scale(table.unit)))
    }

    fn objects(&self, sample: &SampleInfo) -> u64 {
        self.of.number_of(&sample.name).map_or(0, |number| self.census(self.of.first_bank(number)))
    }

    fn reader(self: Arc<Self>) -> Result<Box<dyn Source>, Error> {
        self.read(true)
    }

    fn programs(&self) -> Vec<Program> {
        self.programs.clone()
    }

    fn way(&self, sample: &SampleInfo) -> Option<&'static str> {
        self.of.way(sample)
    }

    fn keep_pinned(&self) -> Result<bool, Error> {
        if self.attached.is_found() {
            return Ok(false);
        }
        let locked = self.settings.lock()?;
        self.settings.lock_by(&locked, &self.attached.pin_again()?)?;
        Ok(true)
    }

    #[cfg(feature = "bench")]
    fn calm(&self) {
        self.wanted.iter().for_each(|hook| hook.calm(&*self.attached));
    }
}

/// The lock on a family's settings.
struct Setting<'a> {
    state: &'a Ranking,
    locked: Locked<'a>,
}

impl Setter for Setting<'_> {
    fn set(&self, table: &TableInfo, to: &TableSettings) -> Result<(), Error> {
        let place = self.state.of.place(table)?;
        let old = self.state.settings.get(place);
        let switched = old.counts() != to.counts();
        if let Some(grids) = &self.state.grids {
            grids.check(&self.state.settings.dynamic_with(place, table.kind, to)?)?;
        }
        // Usage until now counts by the settings until now.
        if switched || old.period_ms != to.period_ms {
            self.state.settle([place.bank])?;
        }
        let hooks = if switched { self.state.hooks_for(table, to) } else { Vec::new() };
        for (hook, _) in hooks.iter().filter(|(_, is_needed)| *is_needed) {
            self.state.attached.attach(hook)?;
        }
        if (switched && to.counts()) || old.period_ms != to.period_ms {
            self.state.begin(table, to)?;
        }
        let before = self.state.settings.set(&self.locked, place, table.kind, to)?;
        if let Some(grids) = &self.state.grids {
            grids.write(&self.state.settings.dynamic());
        }
        self.state.changed(place, &before, to);
        if let Some(computed) = &self.state.computed {
            computed.write(0, 0, 0_u64);
        }
        for (hook, _) in hooks.iter().filter(|(_, is_needed)| !is_needed) {
            self.state.attached.detach(hook)?;
        }
        Ok(())
    }
}
