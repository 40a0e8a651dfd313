// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The last ten minutes of a table, in memory.
//!
//! Six hundred readings of 128 rows with names and paths in each are 40 MB, and there are dozens of tables. So an object is
//! in memory once for as long as a reading has it, and its rows have only their numbers: about 4 MB for a table whose
//! objects stay, or come back. [`Past::at`] puts a reading together again.

use std::borrow::{Borrow, Cow};
use std::collections::{HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use foldhash::fast::RandomState;
use topstat_model::{Field, Row, Snapshot};

/// How far back memory reaches.
pub const KEPT: Duration = Duration::from_secs(600);
/// No more than this many readings, however often a table is read: ten minutes, each second.
const MOST: usize = 601;

/// Objects of a table are not swept before there are so many: those of several readings of 128 rows.
const LEAST_SWEPT: usize = 1024;

/// Readings of a table, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct Past {
    readings: VecDeque<Reading>,
    /// The objects of all readings, each in memory once: where many share the top they come and go. All that describes each
    /// row is hashed at each reading, which takes the default hasher a twentieth of a refresh.
    objects: HashSet<Known, RandomState>,
    /// From how many objects on those that no reading has any more are forgotten.
    sweep_at: usize,
    last: Option<Arc<Snapshot>>,
    /// How many readings were added, ever.
    added: u64,
}

/// An object.
#[derive(Debug)]
struct Object {
    /// What describes it, without marks: an object that is marked later is the same.
    fields: Vec<Field>,
    /// The last reading that has it, as they are counted.
    seen: AtomicU64,
}

/// The one place that an object has in memory. It is found by what describes it.
#[derive(Clone, Debug)]
struct Known(Arc<Object>);

impl Borrow<[Field]> for Known {
    fn borrow(&self) -> &[Field] {
        &self.0.fields
    }
}

impl Hash for Known {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.fields.hash(state);
    }
}

impl PartialEq for Known {
    fn eq(&self, other: &Self) -> bool {
        self.0.fields == other.0.fields
    }
}

impl Eq for Known {}

fn unmarked(object: &[Field]) -> Cow<'_, [Field]> {
    if !object.contains(&Field::True) {
        return Cow::Borrowed(object);
    }
    let unmark = |field: &Field| if *field == Field::True { Field::None } else { field.clone() };
    Cow::Owned(object.iter().map(unmark).collect())
}

/// Rows whose objects a reading no longer has.
#[derive(Clone, Debug)]
pub struct Gone {
    /// The time of the reading before, which has them.
    pub last_seen: SystemTime,
    /// As they were in it.
    pub rows: Vec<Row>,
}

/// A reading whose rows are packed.
#[derive(Clone, Debug)]
struct Reading {
    /// All but the rows.
    head: Snapshot,
    rows: Vec<Packed>,
    /// The parts of all rows, one row's after the other's.
    parts: Vec<u64>,
    /// The CPUs of all rows, as their numbers in [`Packed::cpus`] say.
    cpus: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Packed {
    id: [u64; 2],
    object: Arc<Object>,
    /// Its marks: a bit for each of the first columns.
    marks: u32,
    rank: u32,
    /// How many CPUs it has.
    cpus: u32,
    value: u64,
}

/// What a reading comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// When it was taken.
    pub time: SystemTime,
    /// What all rows add up to.
    pub rows: u64,
    /// What is in no row.
    pub other: u64,
}

impl Past {
    /// Adds a reading, and says what is gone since the one before. What each CPU has ordered is left out: it is not shown,
    /// and would be most of it.
    pub fn add(&mut self, mut snapshot: Snapshot) -> Gone {
        for section in &mut snapshot.cpus {
            section.rows = Vec::new();
        }
        // A clock that was set back begins a past of its own.
        if self.last.as_ref().is_some_and(|last| last.time > snapshot.time) {
            self.readings.clear();
        }
        let oldest = snapshot.time.checked_sub(KEPT).unwrap_or(SystemTime::UNIX_EPOCH);
        self.added += 1;
        self.readings.push_back(Reading::pack(&snapshot, &mut self.objects, self.added));
        let time = snapshot.time;
        let before = self.last.replace(Arc::new(snapshot));
        let last_seen = before.as_ref().map_or(time, |before| before.time);
        // Rows of the reading before stand as it has packed them; where a clock was set back, it is no longer there.
        let packed = self.readings.len().checked_sub(2).map(|place| &self.readings[place].rows);
        let stays = |(place, row): (usize, &Row)| match packed.and_then(|packed| packed.get(place)) {
            Some(packed) => packed.object.seen.load(Ordering::Relaxed) == self.added,
            None => self.has_now(&row.object),
        };
        let rows = before.iter().flat_map(|before| before.rows.iter().enumerate());
        let rows = rows.filter(|row| !stays(*row)).map(|(_, row)| row.clone()).collect();
        while self.readings.len() > MOST || self.readings.front().is_some_and(|first| first.head.time < oldest) {
            self.readings.pop_front();
        }
        if self.objects.len() >= self.sweep_at {
            // One reference is the set's own.
            self.objects.retain(|known| Arc::strong_count(&known.0) > 1);
            self.sweep_at = (self.objects.len() * 2).max(LEAST_SWEPT);
        }
        Gone { last_seen, rows }
    }

    /// Whether the last reading has a row of this object.
    pub fn has_now(&self, object: &[Field]) -> bool {
        self.objects.get(&*unmarked(object)).is_some_and(|known| known.0.seen.load(Ordering::Relaxed) == self.added)
    }

    /// The last.
    pub fn last(&self) -> Option<&Arc<Snapshot>> {
        self.last.as_ref()
    }

    /// The last one that is not after this instant; none where memory does not reach as far back.
    pub fn at(&self, time: SystemTime) -> Option<Snapshot> {
        let after = self.readings.partition_point(|reading| reading.head.time <= time);
        after.checked_sub(1).map(|place| self.readings[place].unpack())
    }

    /// Whether memory reaches as far back.
    pub fn reaches(&self, time: SystemTime) -> bool {
        self.readings.front().is_some_and(|first| first.head.time <= time)
    }

    /// What each reading comes to, the oldest first.
    pub fn sums(&self) -> impl DoubleEndedIterator<Item = Sums> + ExactSizeIterator {
        self.readings.iter().map(|Reading { head, .. }| Sums {
            time: head.time,
            rows: head.total.saturating_sub(head.other),
            other: head.other,
        })
    }

    /// What each reading says of an object, the oldest first; none where it had no row.
    pub fn of(&self, object: &[Field]) -> impl Iterator<Item = (SystemTime, Option<Of<'_>>)> {
        let mut known = None;
        self.readings.iter().map(move |reading| {
            let of = reading.place(object, &mut known).map(|place| {
                let each = reading.head.parts.len();
                let parts = reading.parts.get(place * each..(place + 1) * each).unwrap_or_default();
                Of { value: reading.rows[place].value, parts }
            });
            (reading.head.time, of)
        })
    }
}

/// What a reading says of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Of<'a> {
    /// Its value.
    pub value: u64,
    /// The parts of it, as many as the table has.
    pub parts: &'a [u64],
}

impl Reading {
    /// Objects that are known are shared, and all are known then.
    #[allow(clippy::mutable_key_type)] // what changes is no part of what it is found by
    fn pack(snapshot: &Snapshot, known: &mut HashSet<Known, RandomState>, seen: u64) -> Self {
        let parts = snapshot.rows.first().map_or(0, |row| row.parts.len()) * snapshot.rows.len();
        let (mut parts, mut cpus) = (Vec::with_capacity(parts), Vec::with_capacity(snapshot.rows.len()));
        let mut pack = |row: &Row| {
            parts.extend(&row.parts);
            cpus.extend(&row.cpus);
            let fields = unmarked(&row.object);
            let marked = (0..u32::BITS).zip(&row.object).filter(|(_, field)| **field == Field::True);
            let marks = marked.map(|(place, _)| 1 << place).sum();
            let object = if let Some(Known(object)) = known.get(&*fields) {
                object.seen.store(seen, Ordering::Relaxed);
                Arc::clone(object)
            } else {
                let object = Arc::new(Object { fields: fields.into_owned(), seen: AtomicU64::new(seen) });
                known.insert(Known(Arc::clone(&object)));
                object
            };
            Packed {
                id: row.id,
                object,
                marks,
                rank: row.rank,
                cpus: u32::try_from(row.cpus.len()).unwrap_or(u32::MAX),
                value: row.value,
            }
        };
        let rows = snapshot.rows.iter().map(&mut pack).collect();
        // The rows are not cloned to be thrown away.
        let head = Snapshot {
            rows: Vec::new(),
            sample: snapshot.sample.clone(),
            table: snapshot.table.clone(),
            value_name: snapshot.value_name.clone(),
            filter: snapshot.filter.clone(),
            lost: snapshot.lost.clone(),
            lost_now: snapshot.lost_now.clone(),
            settings: snapshot.settings.clone(),
            columns: snapshot.columns.clone(),
            parts: snapshot.parts.clone(),
            cpus: snapshot.cpus.clone(),
            ..*snapshot
        };
        Self { head, rows, parts, cpus }
    }

    /// The place of an object's row. Where it is `known` in memory, which it is from reading to reading while it stays at the
    /// top, it is told by that: to compare all that describes objects, in hundreds of readings, takes as long as a frame.
    fn place(&self, object: &[Field], known: &mut Option<Arc<Object>>) -> Option<usize> {
        let same = known.as_ref().and_then(|known| self.rows.iter().position(|row| Arc::ptr_eq(&row.object, known)));
        same.or_else(|| {
            let place = self.rows.iter().position(|row| Field::same_object(&row.object.fields, object))?;
            *known = Some(Arc::clone(&self.rows[place].object));
            Some(place)
        })
    }

    fn unpack(&self) -> Snapshot {
        let parts_each = self.head.parts.len();
        let (mut parts, mut cpus) = (&self.parts[..], &self.cpus[..]);
        let rows = self.rows.iter().map(|row| {
            let (own_parts, other_parts) = parts.split_at(parts_each.min(parts.len()));
            let (own_cpus, other_cpus) = cpus.split_at(row.cpus as usize);
            (parts, cpus) = (other_parts, other_cpus);
            let mut object = row.object.fields.clone();
            for (_, field) in (0..u32::BITS).zip(&mut object).filter(|(place, _)| row.marks >> place & 1 == 1) {
                *field = Field::True;
            }
            Row {
                id: row.id,
                rank: row.rank,
                value: row.value,
                object,
                parts: own_parts.to_vec(),
                cpus: own_cpus.to_vec(),
            }
        });
        let rows = rows.collect();
        Snapshot { rows, ..self.head.clone() }
    }
}
