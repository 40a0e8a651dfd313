// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes snapshots of the observer's tables.

use std::io::Read as _;
use std::mem::{offset_of, size_of};
use std::time::SystemTime;

use libbpf_rs::{Iter, MapHandle, Object, ProgramInput};
use topstat_engine::window_value;
use topstat_model::{CpuRow, CpuSection, Lost, Settings, Snapshot, TableType, Unit};

use super::abi;
use super::observer::{Observer, program};
use super::rows::{self, Merged};
use super::tables::place;
use crate::bpf::{self, Shared};
use crate::cgroup::Paths;
use crate::{Error, Source, TableInfo};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/inet/snapshot.bpf.o"));
/// How often a push that holds the bank is given the time to finish.
const BUSY_TRIES: u32 = 200;
/// How often a snapshot is begun anew because tables went on by two slides meanwhile.
const SNAPSHOT_TRIES: u32 = 5;

/// Reads the tables of an observer.
pub struct Reader {
    observer: Observer,
    object: Object,
    objects: MapHandle,
    section: Shared,
    refill: Shared,
    paths: Paths,
}

/// One CPU's part, as it was read.
struct Section {
    cpu: u32,
    head: abi::SectionHead,
    rows: Vec<abi::inet_row>,
    stale: bool,
}

impl Reader {
    /// Loads the programs that read, onto the observer's maps.
    pub fn new(observer: Observer) -> Result<Self, Error> {
        let mut object = bpf::open("snapshot", OBJECT)?;
        let constants = abi::inet_constants {
            entries_mask: observer.entries - 1,
            table_stride: u32::try_from(topstat_engine::table_size(observer.entries)).unwrap_or(u32::MAX),
            v1_controller: 0,
            pad: 0,
        };
        bpf::set_constants(&mut object, ".rodata.constants", &constants)?;
        let size = size_of::<abi::inet_section>() + observer.entries as usize * size_of::<abi::inet_row>();
        bpf::resize(&mut object, "section", size, 1)?;
        for map in ["banks", ".data.settings", ".data.census", "objects"] {
            bpf::reuse(&mut object, map, &bpf::map(&observer.object, map)?)?;
        }
        let object = bpf::load("snapshot", object)?;
        let section = Shared::new(&bpf::map(&object, "section")?)?;
        let refill = Shared::new(&bpf::map(&object, ".data.refill")?)?;
        let objects = bpf::map(&observer.object, "objects")?;
        Ok(Self { observer, object, objects, section, refill, paths: Paths::new() })
    }

    /// Runs the snapshot program for one CPU's table, on that CPU; `now` 0: now.
    fn section(&self, cpu: u32, sample: u32, table: u32, now: u64) -> Result<Section, Error> {
        let program = program(&self.object, "inet_snapshot")?;
        let mut args = abi::inet_snapshot_args {
            cpu: cpu.into(),
            sample: sample.into(),
            table: table.into(),
            now,
            flags: 0,
        };
        let (mut on_cpu, mut stale) = (true, false);
        for _ in 0..=BUSY_TRIES {
            let mut words = [args.cpu, args.sample, args.table, args.now, args.flags].map(u64::to_ne_bytes).concat();
            let mut input = ProgramInput { context_in: Some(&mut words), ..Default::default() };
            if on_cpu {
                input.cpu = cpu;
                input.flags = u64::from(libbpf_sys::BPF_F_TEST_RUN_ON_CPU) as u32;
            }
            let result = match program.test_run(input) {
                Ok(output) => output.return_value,
                // The CPU is offline: nobody writes its tables, any CPU may read them.
                Err(e) if on_cpu && e.kind() == libbpf_rs::ErrorKind::Other => {
                    on_cpu = false;
                    args.flags = abi::INET_SNAPSHOT_READ_ONLY.into();
                    stale = true;
                    continue;
                }
                Err(e) => return Err(Error::Kernel { what: format!("read the tables of CPU {cpu}"), why: e.to_string() }),
            };
            match i32::try_from(result).unwrap_or(-1) {
                0 => {
                    return Ok(self.taken(cpu, stale));
                }
                libc::EAGAIN => {
                    std::thread::yield_now();
                }
                code => {
                    return Err(Error::Kernel {
                        what: format!("read the tables of CPU {cpu}"),
                        why: std::io::Error::from_raw_os_error(code).to_string(),
                    });
                }
            }
        }
        // Something has held the bank all the while: read what is there.
        args.flags = abi::INET_SNAPSHOT_READ_ONLY.into();
        let mut words = [args.cpu, args.sample, args.table, args.now, args.flags].map(u64::to_ne_bytes).concat();
        let input = ProgramInput { context_in: Some(&mut words), ..Default::default() };
        program
            .test_run(input)
            .map_err(|e| Error::Kernel { what: format!("read the tables of CPU {cpu}"), why: e.to_string() })?;
        Ok(self.taken(cpu, true))
    }

    /// What the snapshot program has just written.
    fn taken(&self, cpu: u32, stale: bool) -> Section {
        let head: abi::SectionHead = self.section.read(0, 0);
        let rows = (0..head.rows.min(self.observer.entries) as usize)
            .map(|i| self.section.read(0, size_of::<abi::inet_section>() + i * size_of::<abi::inet_row>()))
            .collect();
        Section { cpu, head, rows, stale }
    }

    /// What was pushed on a CPU, at the snapshot's instant. Read after the rows, so that it is
    /// never less than they are. `None`: the table has gone on too far, begin anew.
    fn total(&self, cpu: u32, sample: u32, table: u32, kind: TableType, tick: &abi::ts_tick) -> Option<u64> {
        let offset = self.observer.table_offset(table) + offset_of!(abi::ts_table, total);
        let bank = Observer::bank(cpu, sample);
        for _ in 0..BUSY_TRIES {
            let window: abi::ts_window = self.observer.banks.read(bank, offset);
            if kind == TableType::Static {
                return Some(window.sum[0] + window.sum[1]);
            }
            let again: abi::ts_window = self.observer.banks.read(bank, offset);
            if window.slide != again.slide || window.done != again.done {
                continue;
            }
            if let Some(value) = window_value(&again, tick) {
                return Some(value.value);
            }
            if again.slide == again.done {
                return None;
            }
        }
        None
    }

    /// Whether anything was ever counted on the CPU, so that idle CPUs cost nothing.
    fn used(&self, cpu: u32, sample: u32, table: u32) -> bool {
        let offset = self.observer.table_offset(table) + offset_of!(abi::ts_table, total);
        let bank = Observer::bank(cpu, sample);
        self.observer.banks.read::<u64>(bank, offset) != 0 || self.observer.banks.read::<u64>(bank, offset + 8) != 0
    }

    fn try_peek(&mut self, info: &TableInfo) -> Result<Option<Snapshot>, Error> {
        let (sample, table) = place(info).ok_or_else(|| not_loaded(info))?;
        let time = SystemTime::now();
        let mut cpus: Vec<u32> = (0..self.observer.cpus).filter(|c| self.used(*c, sample, table)).collect();
        if cpus.is_empty() {
            cpus.push(0);
        }
        let mut sections: Vec<Section> = Vec::with_capacity(cpus.len());
        for cpu in cpus {
            let now = sections.first().map_or(0, |s| s.head.tick.now);
            sections.push(self.section(cpu, sample, table, now)?);
        }
        let tick = sections[0].head.tick;
        let mut totals = Vec::with_capacity(sections.len());
        for section in &sections {
            match self.total(section.cpu, sample, table, info.kind, &tick) {
                Some(total) => totals.push(total),
                None => return Ok(None),
            }
        }
        Ok(Some(self.assemble(info, sample, time, sections, totals)?))
    }

    fn assemble(
        &mut self,
        info: &TableInfo,
        sample: u32,
        time: SystemTime,
        sections: Vec<Section>,
        mut totals: Vec<u64>,
    ) -> Result<Snapshot, Error> {
        let tick = sections[0].head.tick;
        let top = self.observer.top as usize;
        let scale = if info.unit == Unit::Bits { 8 } else { 1 };
        let period = u64::from(abi::TS_SLIDES) * (tick.end - tick.start);
        let since = (info.kind == TableType::Dynamic).then(|| tick.now.saturating_sub(period));
        let merged = rows::merge(sections.iter().map(|s| (s.cpu, s.rows.as_slice())), since);

        // A push that was under way at a slide's boundary may be in one slide for its object and
        // in the next for the total; the larger of the two is what was pushed.
        let shown: u64 = merged.iter().take(top).map(|m| m.row.value).sum();
        let total: u64 = totals.iter().sum();
        if let (Some(most), true) = (totals.iter_mut().max(), shown > total) {
            *most += shown - total;
        }
        let rows = rows::rows(&merged, top, scale, &mut self.paths);
        let proven = proven(&merged, rows.len(), &sections, self.observer.delay_ms);
        let cpus = sections.iter().zip(&totals).map(|(s, total)| self.cpu_section(s, *total, top, scale)).collect();
        let lost = Lost {
            contended: sections.iter().map(|s| s.head.contended).sum(),
            no_memory: sections.iter().map(|s| s.head.unobjected).sum(),
            further: vec![("crowded".into(), sections.iter().map(|s| s.head.crowded).sum())],
        };
        let census: abi::inet_census = self.observer.census.read(0, 0);
        let at = sample as usize;
        let mut snapshot = Snapshot {
            time,
            sample: info.sample.to_owned(),
            table: info.name.to_owned(),
            kind: info.kind,
            unit: info.unit,
            value_name: info.value_name.to_owned(),
            period_ms: self.observer.period_ms,
            delay_ms: self.observer.delay_ms,
            top: self.observer.top,
            objects: census.begun[at].saturating_sub(census.ended[at]),
            total: totals.iter().sum::<u64>().saturating_mul(scale),
            other: 0,
            proven,
            filter: None,
            lost,
            settings: Settings {
                enabled: true,
                owner: info.sample.to_owned(),
                owner_enabled: true,
                topstat_enabled: true,
            },
            columns: rows::columns(),
            parts: vec!["rx".into(), "tx".into()],
            rows,
            cpus,
        };
        snapshot.settle().map_err(|fault| Error::Kernel {
            what: format!("take a snapshot of {}/{}", info.sample, info.name),
            why: format!("it does not add up ({fault})"),
        })?;
        Ok(snapshot)
    }

    fn cpu_section(&mut self, section: &Section, total: u64, top: usize, scale: u64) -> CpuSection {
        let wanted = if self.observer.cpu_rows { section.rows.as_slice() } else { &[] };
        let mut by_key: Vec<&abi::inet_row> = wanted.iter().filter(|r| r.key > 0).collect();
        by_key.sort_unstable_by(|a, b| b.key.cmp(&a.key).then(a.id.cmp(&b.id)));
        let rows = by_key
            .into_iter()
            .take(top)
            .map(|r| CpuRow { value: r.key.saturating_mul(scale), object: rows::describe(r, &mut self.paths) })
            .collect();
        CpuSection { cpu: section.cpu, total: total.saturating_mul(scale), stale: section.stale, rows }
    }
}

fn not_loaded(info: &TableInfo) -> Error {
    Error::NotLoaded(format!("{}/{}", info.sample, info.name))
}

/// How many of the shown rows are certain to be the true top: those at least as large as
/// anything that was ever turned away (T5 in the engine's `table.h`). With a delay, objects may
/// have grown unseen, and nothing is certain.
fn proven(merged: &[Merged<'_>], shown: usize, sections: &[Section], delay_ms: u32) -> u32 {
    if delay_ms > 0 {
        return 0;
    }
    let missed = sections.iter().map(|s| s.head.missed).max().unwrap_or(0);
    let certain = merged.iter().take(shown).take_while(|m| m.row.value >= missed && m.row.busy == 0).count();
    u32::try_from(certain).unwrap_or(u32::MAX)
}

impl Source for Reader {
    fn peek(&mut self, table: &TableInfo) -> Result<Snapshot, Error> {
        for _ in 0..SNAPSHOT_TRIES {
            if let Some(snapshot) = self.try_peek(table)? {
                return Ok(snapshot);
            }
        }
        Err(Error::Kernel {
            what: format!("take a snapshot of {}/{}", table.sample, table.name),
            why: "reading takes longer than a slide lasts; use a longer period".to_owned(),
        })
    }

    fn snapshot(&mut self, table: &TableInfo) -> Result<Snapshot, Error> {
        let snapshot = self.peek(table)?;
        let short = snapshot.rows.len() < self.observer.top as usize && snapshot.other > 0;
        if self.observer.delay_ms > 0 || (snapshot.is_proven() && !short) {
            return Ok(snapshot);
        }
        self.refill(table)?;
        self.peek(table)
    }

    fn refill(&mut self, table: &TableInfo) -> Result<u64, Error> {
        let (sample, number) = place(table).ok_or_else(|| not_loaded(table))?;
        let failed = |why: &dyn std::fmt::Display| Error::Kernel {
            what: format!("order the objects of {} again", table.sample),
            why: why.to_string(),
        };
        // What was turned away before is looked at again now; only what is turned away from
        // here on counts against the rows.
        for cpu in 0..self.observer.cpus {
            for word in 0..2 * abi::TS_MARKS as usize {
                let missed = self.observer.table_offset(number) + offset_of!(abi::ts_table, missed);
                self.observer.banks.write::<u64>(Observer::bank(cpu, sample), missed + word * 8, 0);
            }
        }
        self.refill.write(0, 0, abi::inet_refill { sample, table: number, objects: 0, skipped: 0 });
        let link = {
            use std::os::fd::AsFd as _;
            program(&self.object, "inet_refill")?.attach_iter(self.objects.as_fd()).map_err(|e| failed(&e))?
        };
        let mut nothing = Vec::new();
        Iter::new(&link).map_err(|e| failed(&e))?.read_to_end(&mut nothing).map_err(|e| failed(&e))?;
        Ok(self.refill.read::<abi::inet_refill>(0, 0).objects)
    }
}
