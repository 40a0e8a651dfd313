// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports objects that enter and leave the top of tables. The kernel ranks whether or not a table is read. A thread looks at the
//! top once per slide, the grain at which values change, and reports the differences.
//!
//! A look takes a snapshot, at a cost that does not depend on the number of objects. It reports at most two events per wanted
//! row. An object that is at the top only between two looks is not reported: an object that was pushed to counts for a period,
//! ten slides, so it has ended since, or others have overtaken it. A look that is due but not taken is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use topstat_consumer::consumer::now_ns;
use topstat_model::events::{Event, EventKind};
use topstat_model::{ColumnKind, Field, Snapshot, TableType};

use super::decode::Clock;
use super::pump::{Batch, Pump, Shared, Told};
use super::standing::{Change, Standing};
use super::streaming;
use crate::error::Error;
use crate::family::{FieldAt, RowColumn};
use crate::{Source, TableInfo, catalogue};

/// Looks per period of a dynamic table, unless the caller sets an interval: one per slide.
const LOOKS_IN_A_PERIOD: u32 = 10;
/// The shortest interval between looks: a snapshot takes some hundred µs of CPU time.
pub const SHORTEST: Duration = Duration::from_millis(10);
/// The interval between looks at running totals.
const OF_TOTALS: Duration = Duration::from_secs(1);
/// Looks in a row that may fail before the thread gives up: on a host without spare CPU time, a snapshot may take longer than a
/// slide lasts.
const FAILURES: u32 = 10;

/// Tables whose top is watched.
pub struct Top {
    pub(super) tables: Vec<Arc<TableInfo>>,
    source: Box<dyn Source>,
    rows: u32,
    every: Option<Duration>,
}

impl Top {
    /// Watches the first `rows` rows of each of these tables, which `source` has. `every` is the interval between looks; `None`:
    /// a look at each slide.
    pub fn new(tables: Vec<Arc<TableInfo>>, source: Box<dyn Source>, rows: u32, every: Option<Duration>) -> Self {
        Self { tables, source, rows, every: every.map(|every| every.max(SHORTEST)) }
    }

    /// The tables.
    pub fn tables(&self) -> &[Arc<TableInfo>] {
        &self.tables
    }
}

/// The two kinds of events of a table's top: an object enters, an object leaves.
pub fn kinds(table: &TableInfo) -> [streaming::EventKind; 2] {
    let family = catalogue::family_of(&table.sample);
    let sample = family.iter().flat_map(|family| &family.samples).find(|sample| sample.name == table.sample);
    let object = sample.map_or_else(Vec::new, |sample| sample.columns.clone());
    let told = |name, kind| RowColumn::new(name, kind, FieldAt::Told);
    let all = |more: Vec<RowColumn>| {
        let place = vec![told("rank", ColumnKind::Id), told("value", ColumnKind::Id)];
        [place, object.clone(), vec![told("proven", ColumnKind::Text)], more].concat()
    };
    let stayed = told("stayed_ns", ColumnKind::Id);
    [
        streaming::EventKind::new("enter", "an object is at the top", 0, all(Vec::new())),
        streaming::EventKind::new("leave", "an object is not at the top any more", 0, all(vec![stayed])),
    ]
}

/// State that the looking thread shares with the thread that started it.
pub struct State {
    /// When the look under way began, by the monotonic clock; [`IDLE`] between looks.
    looking_ns: AtomicU64,
    /// Looks that were due but not taken.
    skipped: AtomicU64,
    /// Events of each table.
    produced: Vec<AtomicU64>,
}

const IDLE: u64 = u64::MAX;

impl State {
    pub fn new(tables: usize) -> Self {
        let produced = (0..tables).map(|_| AtomicU64::new(0)).collect();
        // Until the first look is done, events of any moment from now on may follow.
        Self { looking_ns: AtomicU64::new(now_ns()), skipped: AtomicU64::new(0), produced }
    }

    /// The time until which all events are reported, once all batches that were sent by now are taken.
    pub fn told_ns(&self, now_ns: u64) -> u64 {
        now_ns.min(self.looking_ns.load(Ordering::SeqCst))
    }

    pub fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    pub fn produced(&self, table: usize) -> u64 {
        self.produced[table].load(Ordering::Acquire)
    }
}

/// Looks at tables until it is stopped. `first` is the number of the first table among all sources.
pub fn run(top: Top, first: usize, state: &State, shared: &Shared, to: &SyncSender<Batch>) {
    let watched = top.tables.iter().map(|table| Watched {
        kinds: kinds(table).map(|kind| Arc::new(kind.shown(&table.path()))),
        standing: Standing::new(top.rows as usize),
        seq: 0,
    });
    let mut looks = Looks { watched: watched.collect(), top, first, state, pump: Pump { shared, to } };
    let mut failed = looks.until_stopped().err();
    for table in 0..looks.watched.len() {
        looks.pump.send(Batch { failed: failed.take(), last: true, ..Batch::of(first + table) });
    }
}

struct Looks<'a> {
    top: Top,
    watched: Vec<Watched>,
    first: usize,
    state: &'a State,
    pump: Pump<'a>,
}

/// A watched table.
struct Watched {
    kinds: [Arc<EventKind>; 2],
    standing: Standing,
    seq: u64,
}

impl Looks<'_> {
    fn until_stopped(&mut self) -> Result<(), Error> {
        let mut due = Instant::now();
        let mut failures = 0;
        let mut every = self.top.every.unwrap_or(OF_TOTALS);
        while !self.pump.is_to_stop() {
            match self.look() {
                Ok(Some(next)) => (failures, every) = (0, next),
                Ok(None) => return Ok(()),
                Err(error) if failures == FAILURES => return Err(error),
                Err(_) => {
                    failures += 1;
                    self.state.skipped.fetch_add(1, Ordering::Relaxed);
                }
            }
            let missed;
            (due, missed) = next_due(due, every, Instant::now());
            self.state.skipped.fetch_add(missed.into(), Ordering::Relaxed);
            self.sleep_until(due);
        }
        Ok(())
    }

    /// Sleeps until `due`. The thread that stops this one wakes it.
    fn sleep_until(&self, due: Instant) {
        while !self.pump.is_to_stop() {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::park_timeout(left);
        }
    }

    /// Looks once, and sends the changes. Returns the interval to the next look; `None`: the receiver is gone.
    fn look(&mut self) -> Result<Option<Duration>, Error> {
        // A thread that does not see this store has read its clock before this thread reads the clock here (EO1).
        self.state.looking_ns.store(now_ns(), Ordering::SeqCst);
        let looked = self.look_now();
        self.state.looking_ns.store(IDLE, Ordering::SeqCst);
        looked
    }

    fn look_now(&mut self) -> Result<Option<Duration>, Error> {
        let now_ns = now_ns();
        let clock = Clock::now();
        let snapshots = self.top.source.snapshots(&self.top.tables)?;
        let every = self.top.every.unwrap_or_else(|| snapshots.iter().map(grain).min().unwrap_or(OF_TOTALS));
        for (table, (watched, snapshot)) in self.watched.iter_mut().zip(&snapshots).enumerate() {
            let time = clock.of(now_ns);
            let events = watched.standing.look(snapshot, now_ns);
            let events: Vec<_> = events.into_iter().map(|change| (now_ns, watched.event(change, time))).collect();
            if events.is_empty() {
                continue;
            }
            // E1 holds for all sources: an event is counted before it can be taken.
            self.state.produced[table].fetch_add(events.len() as u64, Ordering::Release);
            if !self.pump.send(Batch { told: Told::Events(events), ..Batch::of(self.first + table) }) {
                return Ok(None);
            }
        }
        Ok(Some(every))
    }
}

impl Watched {
    fn event(&mut self, change: Change, time: std::time::SystemTime) -> Event {
        let proven = |proven| Field::from(if proven { "yes" } else { "no" });
        let number = |number: Option<u64>| Field::from(number);
        let (kind, fields) = match change {
            Change::Enter { object, at: (rank, value), proven: sure } => {
                (&self.kinds[0], [vec![rank.into(), value.into()], object, vec![proven(sure)]].concat())
            }
            Change::Leave { object, at, proven: sure, stayed_ns } => {
                let place = vec![number(at.map(|at| at.0.into())), number(at.map(|at| at.1))];
                (&self.kinds[1], [place, object, vec![proven(sure), stayed_ns.into()]].concat())
            }
        };
        let seq = self.seq;
        self.seq += 1;
        Event { time, cpu: None, seq, kind: Arc::clone(kind), fields, payload: None, late: false }
    }
}

/// The interval between looks at a table.
fn grain(snapshot: &Snapshot) -> Duration {
    match snapshot.kind {
        TableType::Dynamic => {
            (Duration::from_millis(snapshot.period_ms.into()) / LOOKS_IN_A_PERIOD).clamp(SHORTEST, OF_TOTALS)
        }
        TableType::Static => OF_TOTALS,
    }
}

/// The time of the next look after the one at `due`, and the number of looks that were missed since. The last look that is
/// already due is taken at once.
fn next_due(due: Instant, every: Duration, now: Instant) -> (Instant, u32) {
    let due = due + every;
    let late = now.saturating_duration_since(due).as_nanos() / every.as_nanos().max(1);
    let missed = u32::try_from(late).unwrap_or(u32::MAX);
    (due + every * missed, missed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_were_missed_are_counted_and_not_made_up_for() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let every = Duration::from_millis(100);
        for (now, due, missed) in [(1, 100, 0), (100, 100, 0), (199, 100, 0), (200, 200, 1), (1050, 1000, 9)] {
            assert_eq!(next_due(begun, every, at(now)), (at(due), missed), "{now}");
        }
    }
}
