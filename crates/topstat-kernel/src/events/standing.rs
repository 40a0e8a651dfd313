// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tracks the objects at the top of a table from one look to the next: which enter, and which leave.
//!
//! - X1 After each look, the objects that have entered and not left are the objects of the first rows of its snapshot, as many as
//!   are wanted. So a reader of all events knows the exact top at each look.
//! - X2 Events of a look have its time. Leaving objects come first, then entering objects, each in the order of their ranks: the
//!   top never has more objects than are wanted.
//! - X3 For an entering object, `proven` says that no other object could be in its place; for a leaving object, that it could not
//!   have stayed. The snapshot provides the proof; see T5 and T6 in the engine's `table.h`.

use std::collections::{HashMap, HashSet};

use topstat_model::{Field, Row, Snapshot};

/// The objects at the top, as of the last look.
pub struct Standing {
    most: usize,
    /// In the order of their ranks.
    here: Vec<Here>,
}

struct Here {
    id: [u64; 2],
    /// Its latest description.
    object: Vec<Field>,
    since_ns: u64,
}

/// A change at the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// An object is at the top that was not there at the look before.
    Enter {
        /// The fields that describe it.
        object: Vec<Field>,
        /// Its rank and its value.
        at: (u32, u64),
        proven: bool,
    },
    /// An object has left the top.
    Leave {
        /// The fields that described it.
        object: Vec<Field>,
        /// Its rank and its value, if it still has a row.
        at: Option<(u32, u64)>,
        proven: bool,
        /// How long it was at the top, from look to look.
        stayed_ns: u64,
    },
}

impl Standing {
    /// An empty top for at most `most` objects.
    pub fn new(most: usize) -> Self {
        Self { most, here: Vec::new() }
    }

    /// The changes since the look before. This look is at `now_ns`.
    pub fn look(&mut self, snapshot: &Snapshot, now_ns: u64) -> Vec<Change> {
        let top = &snapshot.rows[..snapshot.rows.len().min(self.most)];
        let ids: HashSet<_> = top.iter().map(|row| row.id).collect();
        let below: HashMap<_, _> = snapshot.rows[top.len()..].iter().map(|row| (row.id, row)).collect();
        // If all objects at the top are proven to belong there, all others are proven not to.
        let all_proven = snapshot.proven as usize >= top.len();
        let mut before = HashMap::with_capacity(self.here.len());
        let mut changes = Vec::new();
        for here in self.here.drain(..) {
            if ids.contains(&here.id) {
                before.insert(here.id, here.since_ns);
                continue;
            }
            let row = below.get(&here.id);
            changes.push(Change::Leave {
                object: row.map_or(here.object, |row| row.object.clone()),
                at: row.map(|row| (row.rank, row.value)),
                proven: all_proven,
                stayed_ns: now_ns.saturating_sub(here.since_ns),
            });
        }
        for row in top {
            if !before.contains_key(&row.id) {
                changes.push(Change::Enter {
                    object: row.object.clone(),
                    at: (row.rank, row.value),
                    proven: row.rank <= snapshot.proven,
                });
            }
        }
        let here = |row: &Row| Here {
            id: row.id,
            object: row.object.clone(),
            since_ns: before.get(&row.id).copied().unwrap_or(now_ns),
        };
        self.here = top.iter().map(here).collect();
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use proptest::prelude::*;
    use topstat_model::{Lost, Settings, TableType, Unit};

    use super::*;

    /// A snapshot of objects with these ids and values, the largest first. The description of an object is its id, by which the
    /// model tells objects apart, and the number of the look.
    fn snapshot(objects: &[(u64, u64)], proven: u32, look: u64) -> Snapshot {
        let row = |(rank, (id, value)): (u32, &(u64, u64))| Row {
            id: [*id, 0],
            rank,
            value: *value,
            object: vec![Field::U64(*id), Field::U64(look)],
            parts: Vec::new(),
            cpus: Vec::new(),
        };
        Snapshot {
            time: UNIX_EPOCH,
            sample: "s".into(),
            table: "t".into(),
            kind: TableType::Dynamic,
            unit: Unit::Count,
            value_name: "count".into(),
            period_ms: 1000,
            delay_ms: 0,
            elapsed: None,
            top: 128,
            objects: 0,
            total: 0,
            shared: 0,
            other: 0,
            proven,
            filter: None,
            lost: Lost::default(),
            lost_now: Lost::default(),
            settings: Settings { enabled: true, owner: "s".into(), owner_enabled: true, topstat_enabled: true },
            columns: Vec::new(),
            parts: Vec::new(),
            rows: (1..).zip(objects).map(row).collect(),
            cpus: Vec::new(),
        }
    }

    fn id(object: &[Field]) -> u64 {
        match object[0] {
            Field::U64(id) => id,
            ref other => panic!("{other}"),
        }
    }

    /// Looks at objects with these values: each object has one row, larger values come first.
    fn looks() -> impl Strategy<Value = Vec<(Vec<(u64, u64)>, u32)>> {
        let objects = prop::collection::btree_map(0..12_u64, 1..50_u64, 0..10).prop_map(|values| {
            let mut rows: Vec<_> = values.into_iter().collect();
            rows.sort_by_key(|(id, value)| (std::cmp::Reverse(*value), *id));
            rows
        });
        prop::collection::vec((objects, 0..10_u32), 1..30)
    }

    proptest! {
        /// X1 to X3, against a model that keeps the look since which each object is among the first rows.
        #[test]
        fn it_is_what_a_plain_model_says(looks in looks(), most in 1..6_usize) {
            let mut standing = Standing::new(most);
            let mut since: HashMap<u64, u64> = HashMap::new();
            let mut replayed: HashSet<u64> = HashSet::new();
            for (now, (objects, proven)) in (1..).zip(looks) {
                let proven = proven.min(objects.len() as u32);
                let place = |id: u64| objects.iter().position(|(other, _)| *other == id);
                let is_top = |id: u64| place(id).is_some_and(|place| place < most);
                let changes = standing.look(&snapshot(&objects, proven, now), now);
                let (mut entered, mut left, mut began_to_enter) = (0, 0, false);
                for change in &changes {
                    match change {
                        Change::Leave { object, at, proven: sure, stayed_ns } => {
                            let id = id(object);
                            prop_assert!(!began_to_enter && replayed.remove(&id) && !is_top(id));
                            prop_assert_eq!(*stayed_ns, now - since.remove(&id).unwrap());
                            prop_assert_eq!(*at, place(id).map(|place| (place as u32 + 1, objects[place].1)));
                            // An object that still has a row is described by that row.
                            prop_assert_eq!(object[1] == Field::U64(now), at.is_some());
                            prop_assert_eq!(*sure, (0..objects.len().min(most)).all(|place| (place as u32) < proven));
                            left += 1;
                        }
                        Change::Enter { object, at: (rank, value), proven: sure } => {
                            let id = id(object);
                            prop_assert!(replayed.insert(id) && is_top(id));
                            prop_assert_eq!((id, *value), objects[*rank as usize - 1]);
                            prop_assert_eq!(*sure, *rank <= proven);
                            since.insert(id, now);
                            began_to_enter = true;
                            entered += 1;
                        }
                    }
                    prop_assert!(replayed.len() <= most);
                }
                let top: HashSet<u64> = objects.iter().take(most).map(|(id, _)| *id).collect();
                prop_assert_eq!(&replayed, &top);
                prop_assert_eq!(entered + left, changes.len());
            }
        }
    }

    #[test]
    fn an_object_that_is_described_otherwise_is_the_same() {
        let mut standing = Standing::new(2);
        assert_eq!(standing.look(&snapshot(&[(7, 10)], 1, 1), 1).len(), 1);
        assert_eq!(standing.look(&snapshot(&[(7, 9)], 1, 2), 2), [], "it has executed another program");
        let left = standing.look(&snapshot(&[], 0, 3), 3);
        let object = vec![Field::U64(7), Field::U64(2)];
        assert_eq!(left, [Change::Leave { object, at: None, proven: true, stayed_ns: 2 }]);
    }
}
