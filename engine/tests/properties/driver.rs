// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applies operations to an engine and to the model, and compares both.

use crate::model::{Model, Push, SLIDES, Sums, Tick};
use crate::ops::{Op, PushOp, Setup};
use std::collections::BTreeMap;
use topstat_engine::abi::{TS_DYNAMIC, TS_STATIC};
use topstat_engine::sim::{Engine, Snapshot, TABLES};
use topstat_engine::{Value, config, proof};

/// The first epoch of an engine, so that the next epoch is a smaller number.
const EPOCH_MAX: u32 = 65_535;

/// Facts about a table that the model needs besides its pushes.
#[derive(Clone, Copy, Debug, Default)]
struct Facts {
    /// Pushes before this one belong to an earlier epoch.
    since: usize,
    /// When a delay may last have put off the ordering of a push.
    put_off: Option<u64>,
    /// Pushes that interrupted another push. With a delay, fewer of them were due.
    nested: u64,
    delayed: bool,
}

pub struct Driver {
    pub engine: Engine,
    model: Model,
    facts: [Facts; TABLES],
    setup: Setup,
    /// The CPU and kind of an object's latest ordering: the CPU, and whether the push was nested.
    last: BTreeMap<(usize, u64), (usize, bool)>,
    /// For each object, the tables (a bit for each) in which pushes have left it unordered.
    left: Vec<u32>,
    /// The CPU of the latest reader.
    reader: usize,
}

impl Driver {
    /// An engine with all objects alive.
    pub fn new(setup: &Setup) -> Self {
        let mut engine = Engine::new(setup.cpus, setup.top, setup.objects, setup.hz).unwrap();
        engine.quiet = setup.quiet;
        if setup.keeps {
            engine.keep();
        }
        for object in 0..setup.objects {
            engine.birth(object);
        }
        let mut facts = [Facts::default(); TABLES];
        for (table, settings) in setup.tables.iter().enumerate() {
            let Some((table_type, period, delay)) = *settings else { continue };
            engine.set_config(table, config(period, delay, table_type, true, EPOCH_MAX, setup.hz).unwrap());
            facts[table].delayed = delay != 0 && !setup.left;
        }
        let (last, left) = (BTreeMap::new(), vec![0; setup.objects]);
        Self { engine, model: Model::default(), facts, setup: setup.clone(), last, left, reader: 0 }
    }

    pub fn run(setup: &Setup, ops: &[Op]) -> Self {
        let mut driver = Self::new(setup);
        for op in ops {
            driver.apply(op);
        }
        for table in 0..TABLES {
            driver.snapshot(table);
        }
        driver
    }

    pub fn apply(&mut self, op: &Op) {
        let (cpus, objects) = (self.setup.cpus, self.setup.objects);
        match op {
            Op::Push(cpu, push) => {
                self.push(cpu % cpus, push, false);
                self.check_tables(cpu % cpus);
            }
            Op::Nested(cpu, pushes, kill) => {
                let cpu = cpu % cpus;
                self.nested(cpu, pushes, kill.map(|object| object % objects));
                self.check_tables(cpu);
            }
            Op::Wait(ns) => {
                let now = self.engine.now_ns() + ns;
                self.engine.set_time(now);
            }
            Op::Kill(cpu, object) => {
                self.kill(cpu % cpus, object % objects);
                self.check_tables(cpu % cpus);
            }
            Op::Birth(object) => {
                if self.engine.object(object % objects).id == 0 {
                    self.engine.birth(object % objects);
                }
            }
            Op::Set { table, period_ms, delay_ms, enabled } => {
                self.set(table % TABLES, *period_ms, *delay_ms, *enabled);
            }
            Op::Snapshot(table) => {
                self.snapshot(table % TABLES);
            }
        }
    }

    fn push(&mut self, cpu: usize, push: &PushOp, nested: bool) {
        let now = self.engine.now_ns();
        let object = push.object.map(|object| object % self.setup.objects);
        let id = object.map_or(0, |object| self.engine.object(object).id);
        if object.is_some() && id == 0 {
            return;
        }
        match object {
            Some(_) if push.refused => self.engine.push_refused(cpu, push.part & 1, &push.amounts),
            Some(object) if self.setup.left => {
                self.left[object] |= self.engine.push_left(cpu, object, push.part & 1, &push.amounts);
            }
            Some(object) => {
                let values = self.engine.push(cpu, object, push.part & 1, &push.amounts);
                assert!(values.iter().zip(&push.amounts).all(|(value, amount)| *value == 0 || value >= amount));
            }
            None => self.engine.push_total(cpu, push.part & 1, &push.amounts),
        }
        for (table, &amount) in push.amounts.iter().enumerate() {
            if amount == 0 || self.engine.config(table).enabled == 0 {
                continue;
            }
            let part = push.part as usize & 1;
            let refused = push.refused && object.is_some();
            self.model.pushes.push(Push { ns: now, table, id, refused, part, amount });
            if object.is_none() || refused {
                continue;
            }
            let facts = &mut self.facts[table];
            if facts.delayed {
                facts.put_off = Some(now);
            }
            facts.nested += u64::from(nested && !self.setup.left);
            self.last.insert((table, id), (cpu, nested));
        }
    }

    fn nested(&mut self, cpu: usize, pushes: &[PushOp], kill: Option<usize>) {
        // The closure needs all of self, so the engine is taken out of it.
        let spare = Engine::new(1, 1, 0, 100).unwrap();
        let mut engine = std::mem::replace(&mut self.engine, spare);
        engine.interrupted(cpu, |engine| {
            std::mem::swap(&mut self.engine, engine);
            for push in pushes {
                self.push(cpu, push, true);
            }
            if let Some(object) = kill {
                self.kill(cpu, object);
            }
            std::mem::swap(&mut self.engine, engine);
        });
        self.engine = engine;
    }

    fn kill(&mut self, cpu: usize, object: usize) {
        let id = self.engine.object(object).id;
        if id != 0 {
            self.engine.kill(cpu, object);
            self.left[object] = 0;
            // The copy is in this CPU's tables, or bounded by the objects that they have turned away, whichever CPU ordered it
            // last.
            for table in 0..TABLES {
                if self.setup.keeps && !self.is_static(table) {
                    self.last.insert((table, id), (cpu, false));
                }
            }
        }
    }

    /// A reader orders the objects that pushes have left, each reader on the next CPU.
    fn settle(&mut self) {
        self.reader = (self.reader + 1) % self.setup.cpus;
        for object in 0..self.setup.objects {
            let left = std::mem::take(&mut self.left[object]);
            if left == 0 {
                continue;
            }
            self.engine.order_left(self.reader, object, left);
            let id = self.engine.object(object).id;
            for table in (0..TABLES).filter(|table| left & 1 << table != 0) {
                self.last.insert((table, id), (self.reader, false));
            }
        }
        self.check_tables(self.reader);
    }

    fn set(&mut self, table: usize, period_ms: u32, delay_ms: u32, enabled: bool) {
        let Some((table_type, ..)) = self.setup.tables[table] else { return };
        let old = *self.engine.config(table);
        let mut epoch = old.epoch;
        if period_ms != old.period_ms {
            epoch = epoch % EPOCH_MAX + 1;
            if table_type == TS_DYNAMIC {
                self.facts[table].since = self.model.pushes.len();
            }
        }
        let new = config(period_ms, delay_ms, table_type, enabled, epoch, self.setup.hz).unwrap();
        self.engine.set_config(table, new);
        self.facts[table].delayed = delay_ms != 0 && !self.setup.left;
    }

    fn check_tables(&self, cpu: usize) {
        for table in 0..TABLES {
            self.engine.check(cpu, table).unwrap_or_else(|broken| panic!("CPU {cpu}, table {table}: {broken}"));
        }
    }

    fn is_alive(&self, id: u64) -> bool {
        (0..self.setup.objects).any(|object| self.engine.object(object).id == id)
    }

    fn is_static(&self, table: usize) -> bool {
        self.engine.config(table).type_ == TS_STATIC
    }

    fn ticks<'a>(&'a self, table: usize, pushes: impl IntoIterator<Item = &'a Push>) -> Sums {
        let ticks = pushes.into_iter().map(|push| Tick {
            ticks: self.engine.ticks_at(table, push.ns),
            part: push.part,
            amount: push.amount,
        });
        Sums::of(ticks, self.engine.config(table), self.engine.ticks(table))
    }

    /// The rows that a table should show now, by id: objects that are alive or kept, and have a value.
    fn truth(&self, table: usize) -> BTreeMap<u64, Value> {
        self.values(table, false)
    }

    /// The unknown parts of living objects, by id: the amounts that were refused.
    fn unknown(&self, table: usize) -> BTreeMap<u64, Value> {
        self.values(table, true)
    }

    fn values(&self, table: usize, refused: bool) -> BTreeMap<u64, Value> {
        let shown = |id| self.setup.keeps && !self.is_static(table) || self.is_alive(id);
        let (config, now) = (self.engine.config(table), self.engine.ticks(table));
        let mut truth = BTreeMap::new();
        for (id, pushes) in self.model.by_object(table, self.facts[table].since, refused) {
            if id == 0 || !shown(id) {
                continue;
            }
            let value =
                if self.is_static(table) { Model::sum(&pushes) } else { self.ticks(table, &pushes).value(config, now) };
            if value.value != 0 {
                truth.insert(id, value);
            }
        }
        truth
    }

    /// Whether every push that counts now was ordered.
    fn all_ordered(&self, table: usize) -> bool {
        let Some(ns) = self.facts[table].put_off else { return !self.facts[table].delayed };
        let slide = self.engine.config(table).slide;
        let slides = self.engine.ticks(table) / slide - self.engine.ticks_at(table, ns) / slide;
        !self.facts[table].delayed && !self.is_static(table) && slides > SLIDES
    }

    /// T4 and T5 between pushes: an object's key, on the CPU that it was last pushed on, is not below its value; without a key,
    /// missed[] is not below its value.
    fn check_bounds(&self, table: usize, truth: &BTreeMap<u64, Value>) {
        for object in 0..self.setup.objects {
            let id = self.engine.object(object).id;
            let (Some(value), Some(&(cpu, nested))) = (truth.get(&id), self.last.get(&(table, id))) else { continue };
            let missed = self.engine.missed(cpu, table);
            let bound = match self.engine.key(cpu, table, object) {
                Some(key) if nested => key.max(missed),
                Some(key) => key,
                None => missed,
            };
            let what = format!("object {id} of table {table} on CPU {cpu}");
            assert!(value.value <= bound, "T5: {what} has {}, and {bound} bounds it", value.value);
        }
        for (id, value) in truth.iter().filter(|(id, _)| !self.is_alive(**id)) {
            let (cpu, _) = self.last[&(table, *id)];
            let missed = self.engine.missed_ended(cpu, table);
            let bound = self.engine.kept_key(cpu, table, *id).unwrap_or(missed);
            let what = format!("object {id}, which has ended, of table {table} on CPU {cpu}");
            assert!(value.value <= bound, "T8: {what} has {}, and {bound} bounds it", value.value);
        }
    }

    /// Take a snapshot and compare all of it.
    pub fn snapshot(&mut self, table: usize) -> Snapshot {
        if self.engine.config(table).epoch == 0 {
            return Snapshot::default();
        }
        self.settle();
        let (truth, all_ordered) = (self.truth(table), self.all_ordered(table));
        let unknown = self.unknown(table);
        if all_ordered {
            self.check_bounds(table, &truth);
        }
        let snapshot = self.engine.snapshot(table);
        for cpu in 0..self.setup.cpus {
            self.check_tables(cpu);
        }
        self.check_rows(&snapshot, &truth);
        self.check_total(table, &snapshot);
        for (id, value) in &unknown {
            assert!(value.value <= snapshot.refused, "T6: {} of object {id}, not {}", value.value, snapshot.refused);
        }
        if all_ordered {
            check_proof(&snapshot, &truth);
            self.check_proof_of_all(table, snapshot.missed, &snapshot, &truth, &unknown);
            self.check_bounds(table, &truth);
        }
        self.check_proof_of_all(table, u64::MAX, &snapshot, &truth, &unknown);
        let facts = &self.facts[table];
        assert!(snapshot.contended <= facts.nested);
        let undelayed = self.setup.tables[table].is_some_and(|(_, _, delay)| delay == 0);
        if undelayed && facts.put_off.is_none() && !self.setup.left {
            assert_eq!(snapshot.contended, facts.nested, "nested pushes are counted");
        }
        snapshot
    }

    /// Each object is there once (ids are a map's keys in the simulation), is alive, and has its true value.
    fn check_rows(&self, snapshot: &Snapshot, truth: &BTreeMap<u64, Value>) {
        assert!(snapshot.rows.is_sorted_by(|a, b| a.value.value >= b.value.value));
        for row in &snapshot.rows {
            assert_eq!(Some(&row.value), truth.get(&row.id), "object {}", row.id);
            assert_eq!(row.ended, !self.is_alive(row.id), "object {}", row.id);
        }
    }

    fn check_total(&self, table: usize, snapshot: &Snapshot) {
        let pushes: Vec<_> =
            self.model.pushes[self.facts[table].since..].iter().filter(|push| push.table == table).collect();
        let shown: u64 = snapshot.rows.iter().map(|row| row.value.value).sum();
        if self.is_static(table) {
            assert_eq!(snapshot.counted, Model::sum(pushes));
            assert!(shown <= snapshot.counted.value, "rows of {shown}, total of {:?}", snapshot.counted);
        } else {
            let sums = self.ticks(table, pushes);
            let counted = snapshot.counted.value;
            assert!((sums.least()..=sums.most()).contains(&counted), "total of {counted}, {sums:?}");
        }
        assert_eq!(snapshot.total, shown.max(snapshot.counted.value));
    }

    /// For every number of shown rows: no object without a row is larger than a proven row, even with the amounts of it that were
    /// refused. `missed` is `u64::MAX` where pushes were not ordered; in a static table rows may still be proven.
    fn check_proof_of_all(
        &self,
        table: usize,
        missed: u64,
        snapshot: &Snapshot,
        truth: &BTreeMap<u64, Value>,
        unknown: &BTreeMap<u64, Value>,
    ) {
        let of = |values: &BTreeMap<u64, Value>, id| values.get(id).map_or(0, |value| value.value);
        for shown in 0..=snapshot.rows.len() {
            let (rows, hidden) = snapshot.rows.split_at(shown);
            let other = || snapshot.counted.value - rows.iter().map(|row| row.value.value).sum::<u64>();
            let absent = if self.is_static(table) { other() } else { u64::MAX };
            let hidden = hidden.first().map_or(0, |row| row.value.value);
            let least = proof(missed, absent, hidden, snapshot.refused);
            let proven = rows.iter().rfind(|row| row.value.value >= least);
            let Some(smallest) = proven.map(|row| row.value.value) else { continue };
            for id in truth.keys().chain(unknown.keys()).filter(|id| !rows.iter().any(|row| row.id == **id)) {
                let all = of(truth, id) + of(unknown, id);
                assert!(all <= smallest, "object {id} of {all} has no row, and one of {smallest} of {shown} is proven");
            }
        }
    }
}

/// Rows that are marked proven are the true top.
fn check_proof(snapshot: &Snapshot, truth: &BTreeMap<u64, Value>) {
    let proven: Vec<_> = snapshot.rows.iter().take_while(|row| row.proven).collect();
    let mut best: Vec<u64> = truth.values().map(|value| value.value).collect();
    best.sort_unstable_by(|a, b| b.cmp(a));
    for (rank, row) in proven.iter().enumerate() {
        assert_eq!(row.value.value, best[rank], "rank {rank}, missed {}", snapshot.missed);
    }
    assert!(snapshot.rows.iter().skip(proven.len()).all(|row| !row.proven));
    for (id, value) in truth {
        let seen = snapshot.rows.iter().any(|row| row.id == *id);
        assert!(seen || value.value <= snapshot.missed, "object {id} of {} isn't seen", value.value);
    }
}
