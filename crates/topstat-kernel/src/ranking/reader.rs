// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes snapshots of a family's tables.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use libbpf_rs::{Object, ProgramInput};
use topstat_model::{Dump, DumpCpu, DumpSlot, Lost, Snapshot, TableType};

use topstat_engine::abi::{TS_SLIDES, ts_refill, ts_section, ts_tick};

use super::assemble::{Read, Section, Table, assemble, first, header, scale, sum};
use super::rows::{Row, Rows};
use super::settings::Locked;
use super::settler::Settled;
use super::{Ranking, ended};
use crate::bpf::{self, Shared};
use crate::cgroup::{Paths, V1Controller};
use crate::family::{BankId, Cause, Constant, Finds, Ranked, TablePlace, Walk, describe};
use crate::{Error, Source, TableInfo};

/// The program that takes a section.
const SNAPSHOT: &str = "ranked_snapshot";
/// The most tries while a push holds the bank. Between them the push gets time to finish.
const BUSY_TRIES: u32 = 200;
/// The places of an array that are gone over in one call: a millisecond at most.
const PLACES: u32 = 4096;
/// The most times that all objects are ordered again for one snapshot.
const REFILL_TRIES: u32 = 3;
/// The most times that a snapshot is begun anew because tables advanced by two slides during it. After that the totals are of a
/// later moment than the rows, and no row is proven.
const SNAPSHOT_TRIES: u32 = 5;
/// The most reads of a CPU's total at a later moment, until less than two slides pass between the reading of the clock and of the
/// total.
const LATE_TRIES: u32 = 20;

/// Reads the tables of a family. Each reader has its own programs and its own section, independent of other readers.
pub struct Reader {
    state: Arc<Ranking>,
    object: Object,
    section: Shared,
    refill: Shared,
    /// The result of settling, for the snapshots that are being taken together.
    settled: Option<Settled>,
    paths: Paths,
    /// Whether snapshots list the rows of every CPU, too.
    cpu_rows: bool,
    /// Whether a refill ran while the latest snapshot was taken, so that none of its rows is proven.
    disturbed: bool,
    /// Whether the latest snapshot has unproven rows that may be proven once all objects are ordered again. Refused amounts (T6)
    /// have no object to order.
    unordered: bool,
    /// Whether an object was turned away (T5) when the latest snapshot was taken: only then can an object be in no table although
    /// there are free rows.
    turned_away: bool,
}

impl Reader {
    /// Loads the reading programs onto the state's maps.
    pub fn new(state: Arc<Ranking>, cpu_rows: bool) -> Result<Self, Error> {
        let mut object = bpf::open("snapshot", state.of.build().snapshot)?;
        let Ranked { section_head, row, .. } = *state.of.ranked;
        let size = section_head + state.banks.entries() as usize * row;
        bpf::resize(&mut object, "section", size, 1)?;
        state.maps.share(&mut object)?;
        let object = bpf::load("snapshot", object)?;
        bpf::program(&object, SNAPSHOT)?;
        let section = Shared::new(&bpf::map(&object, "section")?)?;
        let refill = Shared::new(&bpf::map(&object, ".data.refill")?)?;
        state.prepare_to_settle()?;
        let v1 = state.of.ranked.constants.read(Constant::V1Controller, &state.maps.constants());
        let paths = Paths::new(v1.and_then(V1Controller::numbered));
        Ok(Self {
            state,
            object,
            section,
            refill,
            settled: None,
            paths,
            cpu_rows,
            disturbed: false,
            unordered: false,
            turned_away: false,
        })
    }

    fn table<'a>(&self, info: &'a TableInfo) -> Result<Table<'a>, Error> {
        let of = Arc::clone(self.state.of.sample(info)?);
        let place = self.state.of.place(info)?;
        Ok(Table { info, of, place, settings: self.state.settings.get(place) })
    }

    /// Runs the snapshot program for one CPU's table, on that CPU. With `read_only` it runs on the calling thread's CPU, and
    /// disturbs nothing. A `now` of 0 stands for the present moment.
    fn section(&self, cpu: u32, table: &Table<'_>, now: u64, read_only: bool) -> Result<Section, Error> {
        let failed = |why: &dyn std::fmt::Display| Error::Kernel {
            what: format!("read the tables of CPU {cpu}"),
            why: why.to_string(),
        };
        if read_only {
            self.call(cpu, table, now, None).map_err(|e| failed(&e))?;
            return Ok(self.taken(cpu, false));
        }
        for _ in 0..=BUSY_TRIES {
            match self.call(cpu, table, now, Some(cpu)) {
                Ok(0) => return Ok(self.taken(cpu, false)),
                Ok(libc::EAGAIN) => std::thread::yield_now(),
                Ok(code) => return Err(failed(&std::io::Error::from_raw_os_error(code))),
                // The CPU is offline: no push writes its tables, and any CPU may read them.
                Err(e) if e.kind() == libbpf_rs::ErrorKind::Other => break,
                Err(e) => return Err(failed(&e)),
            }
        }
        // The CPU is offline, or its bank was held during all tries: read its present content.
        self.call(cpu, table, now, None).map_err(|e| failed(&e))?;
        Ok(self.taken(cpu, true))
    }

    /// Calls the snapshot program, on a CPU or only to read.
    fn call(&self, cpu: u32, table: &Table<'_>, now: u64, on_cpu: Option<u32>) -> libbpf_rs::Result<i32> {
        let program = self.object.progs_mut().find(|p| p.name() == SNAPSHOT).expect("Reader::new has looked");
        // struct ts_section_args
        let TablePlace { bank: BankId(bank), table } = table.place;
        let args = [cpu.into(), bank.into(), table.into(), now, u64::from(on_cpu.is_none())];
        let mut words = args.map(u64::to_ne_bytes).concat();
        let mut input = ProgramInput { context_in: Some(&mut words), ..Default::default() };
        if let Some(cpu) = on_cpu {
            input.cpu = cpu;
            input.flags = libbpf_sys::BPF_F_TEST_RUN_ON_CPU;
        }
        Ok(program.test_run(input)?.return_value.cast_signed())
    }

    /// The section that the snapshot program has just written.
    fn taken(&self, cpu: u32, stale: bool) -> Section {
        let head: ts_section = self.section.read(0, 0);
        let Ranked { section_head, row, .. } = *self.state.of.ranked;
        let rows = head.rows.min(self.state.banks.entries()) as usize;
        let bytes = self.section.bytes(0, section_head, rows * row);
        Section { cpu, head, rows: Rows::new(bytes, row), stale, again: false }
    }

    /// The sections of the CPUs where anything was ever counted; if there is no such CPU, of one CPU. All have the instant of
    /// the first one.
    fn sections(&self, table: &Table<'_>, read_only: bool) -> Result<Vec<Section>, Error> {
        let banks = &self.state.banks;
        let used = |cpu| banks.used(cpu, table.place);
        let ends = |cpu| self.state.ended.as_ref().map(|ended| ended.ends(cpu, table.place));
        ended::sections(banks.cpus(), used, |cpu, now| self.section(cpu, table, now, read_only), ends)
    }

    /// The pushed and the refused amount of the section's CPU at the section's moment; `None`: the CPU's windows have advanced by
    /// two slides since then.
    fn counted(&self, table: &Table<'_>, section: &Section, tick: &ts_tick) -> Option<(u64, u64)> {
        let Table { info, place, .. } = table;
        let total = self.state.banks.total(section.cpu, *place, info.kind, tick)?;
        let refused = self.state.banks.refused(section.cpu, *place, info.kind, tick)?;
        Some((total, refused))
    }

    /// As [`Self::counted`], at a later moment, for which the refused amount is unknown. On a CPU where each try takes two
    /// slides, the total is taken for 0, and the rows make up for it.
    fn counted_late(&self, table: &Table<'_>, cpu: u32) -> Result<(u64, u64), Error> {
        for _ in 0..LATE_TRIES {
            let section = self.section(cpu, table, 0, true)?;
            if let Some((total, _)) = self.counted(table, &section, &section.head.tick) {
                return Ok((total, u64::MAX));
            }
        }
        Ok((0, u64::MAX))
    }

    /// `None`: tables have advanced by two slides since the first row was read. On the `last` try, totals of a later moment are
    /// used instead.
    fn try_peek(&mut self, table: &Table<'_>, last: bool) -> Result<Option<Snapshot>, Error> {
        let time = SystemTime::now();
        let refills = self.refills();
        let settled = match self.settled {
            Some(settled) => settled,
            None => self.state.settle([table.place.bank])?,
        };
        let sections = self.sections(table, !table.settings.sync)?;
        self.disturbed = refills % 2 == 1 || refills != self.refills();
        self.turned_away = sections.iter().any(|s| s.head.missed > 0);
        let tick = sections[0].head.tick;
        // The unranked row is read before the totals, like the others (P1).
        let unranked = self.state.of.ranked.unranked;
        let unranked = unranked.and_then(|row| row(&self.state.maps, table.place, &tick));
        let (mut totals, mut refused) = (Vec::with_capacity(sections.len()), 0_u64);
        for section in first(&sections) {
            let (total, more) = match self.counted(table, section, &tick) {
                Some(counted) => counted,
                None if last => self.counted_late(table, section.cpu)?,
                None => return Ok(None),
            };
            totals.push(total);
            refused = refused.saturating_add(more);
        }
        if let Some(doubts) = &self.state.doubts {
            // Each refused amount is in one of these windows, and the amounts of one object are all in the same window.
            match doubts.most(&tick) {
                Some(most) => refused = refused.min(most),
                None if last => {}
                None => return Ok(None),
            }
        }
        let unranked = unranked.unwrap_or_default();
        let mut snapshot =
            self.assemble((table, settled == Settled::All), time, (&sections, unranked), totals, refused)?;
        if settled == Settled::NotAll {
            snapshot.proven = 0;
        }
        if self.disturbed {
            snapshot.proven = 0;
            self.unordered = !snapshot.rows.is_empty();
        }
        Ok(Some(snapshot))
    }

    /// See [`SharedSettings::refills`](super::SharedSettings::refills). If the process that began a refill was killed, the refill
    /// ends here, and its table is not trusted.
    fn refills(&self) -> u32 {
        let Ranking { settings, banks, .. } = &*self.state;
        if settings.refills() % 2 == 1
            && let Some(locked) = settings.try_lock()
        {
            if let Some(place) = settings.refilling(&locked) {
                banks.distrust(place);
            }
            settings.end_refill(&locked);
        }
        settings.refills()
    }

    fn assemble(
        &mut self,
        (table, settled): (&Table<'_>, bool),
        time: SystemTime,
        (sections, unranked): (&[Section], Vec<u8>),
        totals: Vec<u64>,
        refused: u64,
    ) -> Result<Snapshot, Error> {
        // Read after the rows: pushes that they lack because they were skipped are counted by now.
        let skipped = self.state.skipped.read(&table.info.sample);
        let lost = self.lost(table, sections, skipped.all);
        let ranked = &self.state.of.ranked;
        let read = Read {
            table,
            time,
            sections,
            totals,
            refused,
            missing_at: ranked.doubt.map(|doubt| doubt.missing),
            settled,
            unranked: Rows::new(unranked, ranked.row),
            parts: &ranked.parts,
            top: self.state.top,
            objects: self.state.census(table.place.bank),
            lost_now: self.state.lost_now(table.place, &lost),
            lost,
            cpu_rows: self.cpu_rows,
        };
        let (mut snapshot, unordered) = assemble(read, &mut self.paths)?;
        self.unordered = unordered;
        // A dynamic table counts a push for a period, and a slide more at most (W1).
        let period = Duration::from_millis(table.settings.period_ms.into());
        let reach = (table.info.kind == TableType::Dynamic).then(|| period + period / TS_SLIDES);
        if self.state.skipped.lacks(&table.info.sample, skipped, reach) {
            snapshot.proven = 0;
        }
        Ok(snapshot)
    }

    fn lost(&self, table: &Table<'_>, sections: &[Section], skipped: u64) -> Lost {
        let count = |cause| match cause {
            Cause::Crowded => sum(first(sections).map(|s| s.head.crowded)),
            Cause::Skipped => skipped,
            Cause::Opaque => sum(first(sections).map(|s| s.head.opaque)),
            Cause::Full => sum(first(sections).map(|s| s.head.full)),
            Cause::Unmatched => sum(first(sections).map(|s| s.head.unmatched)),
            Cause::Own(own) => self.state.maps.number(&own.map).unwrap_or(0),
        };
        let causes = self.state.of.ranked.causes(table.info);
        let further = causes.into_iter().map(|cause| (cause.name(), count(cause))).collect();
        Lost {
            contended: sum(first(sections).map(|s| s.head.contended)),
            no_memory: sum(first(sections).map(|s| s.head.no_memory)),
            further,
        }
    }

    fn refill_locked(&self, info: &TableInfo, locked: &Locked<'_>) -> Result<u64, Error> {
        let table = self.table(info)?;
        let failed = |why: &dyn std::fmt::Display| Error::Kernel {
            what: format!("order the objects of {} again", info.sample),
            why: why.to_string(),
        };
        let Ranking { settings, banks, .. } = &*self.state;
        if let Some(place) = settings.refilling(locked) {
            // The process that began this refill was killed.
            banks.distrust(place);
        }
        settings.begin_refill(locked, table.place);
        // Objects that were turned away before are looked at again now. Only objects that are turned away from here on count
        // against the rows.
        banks.forgive(table.place);
        let before: ts_refill = self.refill.read(0, 0);
        let number = before.number + 1;
        let TablePlace { bank, table: in_bank } = table.place;
        let wanted = ts_refill { bank: bank.0, table: in_bank, objects: 0, skipped: 0, number };
        self.refill.write(0, 0, wanted);
        let ordered = self.order_all(bank).map_err(|e| failed(&e));
        let done: ts_refill = self.refill.read(0, 0);
        // An object is skipped if a preempted push holds its bank. It is then in no table, and counted nowhere.
        if !matches!(ordered, Ok(true)) || done.skipped > 0 {
            banks.distrust(table.place);
        }
        settings.end_refill(locked);
        ordered.map(|_| done.objects)
    }

    /// Runs the iterators over all objects of a bank's sample. Returns whether they found all objects.
    fn order_all(&self, bank: BankId) -> Result<bool, Box<dyn std::error::Error>> {
        let sample = self.state.of.sample_of(bank);
        let refill = (self.state.of.build().refill)(&self.object, &self.state.maps, sample)?;
        let before = self.state.count(bank);
        for walk in &refill.walks {
            match walk {
                Walk::Iterator(iterator) => drop(bpf::read_out(iterator)?),
                Walk::Places(program, places) => {
                    for first in (0..*places).step_by(PLACES as usize) {
                        program.run(&[first.into(), PLACES.min(places - first).into()])?;
                    }
                }
            }
        }
        let found: ts_refill = self.refill.read(0, 0);
        let (begun, ended) = before;
        Ok(match refill.finds {
            Finds::All => true,
            // An object that begins or ends meanwhile would hide one that is not found.
            Finds::AllIfAsMany => found.objects >= begun.saturating_sub(ended) && self.state.count(bank) == before,
            Finds::Some => false,
        })
    }
}

impl Source for Reader {
    fn snapshots(&mut self, tables: &[Arc<TableInfo>]) -> Result<Vec<Snapshot>, Error> {
        let banks: Vec<_> =
            tables.iter().map(|info| self.table(info).map(|table| table.place.bank)).collect::<Result<_, _>>()?;
        self.settled = Some(self.state.settle(banks)?);
        let snapshots = tables.iter().map(|table| self.snapshot(table)).collect();
        self.settled = None;
        snapshots
    }

    fn list_cpu_rows(&mut self, wanted: bool) {
        self.cpu_rows = wanted;
    }

    fn peek(&mut self, info: &TableInfo) -> Result<Snapshot, Error> {
        let table = self.table(info)?;
        for _ in 1..SNAPSHOT_TRIES {
            if let Some(snapshot) = self.try_peek(&table, false)? {
                return Ok(snapshot);
            }
        }
        let snapshot = self.try_peek(&table, true)?;
        Ok(snapshot.expect("the last try takes totals of any moment"))
    }

    fn snapshot(&mut self, info: &TableInfo) -> Result<Snapshot, Error> {
        let snapshot = self.peek(info)?;
        let short = self.turned_away && snapshot.rows.len() < self.state.top as usize && snapshot.other > 0;
        let settings = self.table(info)?.settings;
        if settings.order_ms() > 0 || !settings.sync || (!self.unordered && !short) {
            return Ok(snapshot);
        }
        let mut snapshot = snapshot;
        for _ in 0..REFILL_TRIES {
            let state = Arc::clone(&self.state);
            // Another process holds the lock for longer than the wait. Rows that are proven without a refill stay proven.
            let Ok(locked) = state.settings.lock() else { break };
            self.refill_locked(info, &locked)?;
            drop(locked);
            snapshot = self.peek(info)?;
            // Another process may have refilled, too, in between: only then is there another try.
            if !self.disturbed {
                break;
            }
        }
        Ok(snapshot)
    }

    fn refill(&mut self, info: &TableInfo) -> Result<u64, Error> {
        let state = Arc::clone(&self.state);
        let locked = state.settings.lock()?;
        self.refill_locked(info, &locked)
    }

    fn dump(&mut self, info: &TableInfo) -> Result<Dump, Error> {
        let table = self.table(info)?;
        let scale = scale(info.unit);
        let sections = self.sections(&table, true)?;
        let tick = sections[0].head.tick;
        let slots = |section: &Section, paths: &mut Paths| {
            let slot = |Row { head, bytes }: Row<'_>| DumpSlot {
                index: head.slot,
                value: head.key.saturating_mul(scale),
                time: head.pushed,
                count: head.count.into(),
                object: describe(&table.of.columns, bytes, paths),
            };
            section.rows.iter().map(slot).collect()
        };
        Ok(Dump {
            table: info.name.clone(),
            kind: info.kind,
            value_name: info.value_name.clone(),
            period_ms: table.settings.period_ms,
            delay_ms: table.settings.order_ms(),
            settings: header(&table),
            ticks_per_slide: tick.end.saturating_sub(tick.start),
            now: tick.now,
            objects: self.state.census(table.place.bank),
            entries: self.state.banks.entries(),
            unkept: self.state.ended.is_some().then(|| sum(first(&sections).map(|s| s.head.unkept))),
            lost: self.lost(&table, &sections, self.state.skipped.read(&table.info.sample).all),
            columns: table.of.columns(),
            cpus: first(&sections).map(|s| DumpCpu { cpu: s.cpu, slots: slots(s, &mut self.paths) }).collect(),
        })
    }
}
