// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The last ten minutes of a table, in memory.
//!
//! Six hundred readings of 128 rows, each row with names and paths, take 40 MB, and there are dozens of tables. So an object is
//! stored once for as long as a reading has it, and its rows keep only their numbers: about 4 MB for a table whose objects stay,
//! or come back. [`Past::at`] rebuilds a reading.

use std::borrow::{Borrow, Cow};
use std::collections::{HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use foldhash::fast::RandomState;
use topstat_model::{Field, Row, Snapshot};

/// How far back memory reaches.
pub const KEPT: Duration = Duration::from_secs(600);
/// The most readings, however often a table is read: ten minutes, with a reading each second.
const MOST: usize = 601;

/// The objects of a table are not swept below this number: it covers several readings of 128 rows.
const LEAST_SWEPT: usize = 1024;

/// Readings of a table, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct Past {
    readings: VecDeque<Reading>,
    /// The objects of all readings, each stored once: where many objects compete for the top, they come and go. The full
    /// description of each row is hashed at each reading. With the default hasher this takes a twentieth of a refresh.
    objects: HashSet<Known, RandomState>,
    /// The number of objects at which the objects that no reading has are removed.
    sweep_at: usize,
    last: Option<Arc<Snapshot>>,
    /// The number of readings that were ever added.
    added: u64,
}

/// An object, which readings share.
#[derive(Debug)]
struct Object {
    /// The description of the object, without marks: an object that is marked later is still one object.
    fields: Vec<Field>,
    /// The number of the last reading that has the object.
    seen: AtomicU64,
}

/// The stored copy of an object. It is found by the object's description.
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

/// Rows whose objects a new reading no longer has.
#[derive(Clone, Debug)]
pub struct Gone {
    /// The time of the reading before, which has the rows.
    pub last_seen: SystemTime,
    /// The rows of that reading.
    pub rows: Vec<Row>,
}

/// A reading whose rows are packed.
#[derive(Clone, Debug)]
struct Reading {
    /// All but the rows.
    head: Snapshot,
    rows: Vec<Packed>,
    /// The parts of all rows, row by row.
    parts: Vec<u64>,
    /// The CPUs of all rows, row by row: [`Packed::cpus`] has the number of each row's.
    cpus: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Packed {
    id: [u64; 2],
    object: Arc<Object>,
    /// The marks of the row: a bit for each of the first columns.
    marks: u32,
    rank: u32,
    /// The number of CPUs of the row.
    cpus: u32,
    value: u64,
}

/// The sums of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// The time of the reading.
    pub time: SystemTime,
    /// The sum of all rows.
    pub rows: u64,
    /// The part of the total that is in no row.
    pub other: u64,
}

impl Past {
    /// Adds a reading, and returns the rows that are gone since the reading before. The rows of each CPU are left out: they are
    /// not shown, and would be most of the memory.
    pub fn add(&mut self, mut snapshot: Snapshot) -> Gone {
        for section in &mut snapshot.cpus {
            section.rows = Vec::new();
        }
        // If the clock was set back, a new past begins.
        if self.last.as_ref().is_some_and(|last| last.time > snapshot.time) {
            self.readings.clear();
        }
        let oldest = snapshot.time.checked_sub(KEPT).unwrap_or(SystemTime::UNIX_EPOCH);
        self.added += 1;
        self.readings.push_back(Reading::pack(&snapshot, &mut self.objects, self.added));
        let time = snapshot.time;
        let before = self.last.replace(Arc::new(snapshot));
        let last_seen = before.as_ref().map_or(time, |before| before.time);
        // The reading before has packed its rows in this order. If the clock was set back, it is no longer there.
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
            // One reference belongs to the set.
            self.objects.retain(|known| Arc::strong_count(&known.0) > 1);
            self.sweep_at = (self.objects.len() * 2).max(LEAST_SWEPT);
        }
        Gone { last_seen, rows }
    }

    /// Whether the last reading has a row of this object.
    pub fn has_now(&self, object: &[Field]) -> bool {
        self.objects.get(&*unmarked(object)).is_some_and(|known| known.0.seen.load(Ordering::Relaxed) == self.added)
    }

    /// The last reading.
    pub fn last(&self) -> Option<&Arc<Snapshot>> {
        self.last.as_ref()
    }

    /// The value of an object in the reading before the last; `None` where that reading has no row of it.
    pub fn before(&self, object: &[Field]) -> Option<u64> {
        let known = self.objects.get(&*unmarked(object))?;
        let reading = self.readings.get(self.readings.len().checked_sub(2)?)?;
        reading.rows.iter().find(|row| Arc::ptr_eq(&row.object, &known.0)).map(|row| row.value)
    }

    /// The last reading that is not after this instant; `None` where memory does not reach as far back.
    pub fn at(&self, time: SystemTime) -> Option<Snapshot> {
        let after = self.readings.partition_point(|reading| reading.head.time <= time);
        after.checked_sub(1).map(|place| self.readings[place].unpack())
    }

    /// Whether memory reaches back to this instant.
    pub fn reaches(&self, time: SystemTime) -> bool {
        self.readings.front().is_some_and(|first| first.head.time <= time)
    }

    /// The sums of each reading, the oldest first.
    pub fn sums(&self) -> impl DoubleEndedIterator<Item = Sums> + ExactSizeIterator {
        self.readings.iter().map(|Reading { head, .. }| Sums {
            time: head.time,
            rows: head.total.saturating_sub(head.other),
            other: head.other,
        })
    }

    /// The values of an object in these readings, the oldest first; `None` for a reading without a row of the object.
    ///
    /// # Panics
    ///
    /// If there are fewer readings: [`sums`](Self::sums) has their number.
    pub fn of(&self, object: &[Field], readings: Range<usize>) -> impl Iterator<Item = (SystemTime, Option<Of<'_>>)> {
        // A reading that has the object has its stored copy, of which there is one while any reading refers to it.
        let known = self.objects.get(&*unmarked(object)).map(|known| Arc::clone(&known.0));
        self.readings.range(readings).map(move |reading| {
            let row = |known: &Arc<Object>| reading.rows.iter().position(|row| Arc::ptr_eq(&row.object, known));
            let of = known.as_ref().and_then(row).map(|place| {
                let each = reading.head.parts.len();
                let parts = reading.parts.get(place * each..(place + 1) * each).unwrap_or_default();
                Of { value: reading.rows[place].value, parts }
            });
            (reading.head.time, of)
        })
    }
}

/// The values of an object in a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Of<'a> {
    /// The value of the object.
    pub value: u64,
    /// The parts of the value, as many as the table has.
    pub parts: &'a [u64],
}

impl Reading {
    /// Packs a reading. Known objects are shared; new objects become known.
    #[allow(clippy::mutable_key_type)] // the field that changes is no part of the key
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
        // The rows are not cloned, since the clones would be thrown away.
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
