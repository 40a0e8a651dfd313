// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several tables as one ranking, beside the objects that all of them have counted.

use std::cmp::Reverse;

use proptest::prelude::*;
use topstat_model::{Lost, Snapshot};

use crate::fixtures;

/// What a table has counted, and how many of its objects have a row.
#[derive(Clone, Debug)]
struct Counted {
    /// The values of all objects, the largest first.
    values: Vec<u64>,
    /// The first rows, which are proven.
    proven: usize,
    /// Whether each of the other objects has a row.
    seen: Vec<bool>,
}

fn counted() -> impl Strategy<Value = Counted> {
    let values = prop::collection::vec(1..40_u64, 0..12);
    (values, any::<prop::sample::Index>(), any::<[bool; 12]>(), any::<bool>()).prop_map(
        |(mut values, proven, seen, all)| {
            values.sort_by_key(|value| Reverse(*value));
            let proven = if all { values.len() } else { proven.index(values.len() + 1) };
            Counted { proven, seen: seen[proven..values.len()].to_vec(), values }
        },
    )
}

impl Counted {
    fn snapshot(&self, table: u16) -> Snapshot {
        let (first, rest) = self.values.split_at(self.proven);
        let seen = rest.iter().zip(&self.seen).filter(|(_, seen)| **seen).map(|(value, _)| value);
        let objects = (1..).zip(first.iter().chain(seen)).map(|(port, value)| {
            (*value, fixtures::connection("10.0.0.1", "10.0.0.2", table * 100 + port, "nginx", "/"))
        });
        let mut snapshot = fixtures::with_rows(objects.collect(), self.values.iter().sum());
        snapshot.proven = u32::try_from(self.proven).unwrap();
        snapshot
    }
}

proptest! {
    #[test]
    fn proven_rows_are_the_top_of_all_objects(tables in prop::collection::vec(counted(), 1..4), top in 1..40_u32) {
        let mut of: Vec<_> = (0..).zip(&tables).map(|(number, counted)| counted.snapshot(number)).collect();
        of.iter_mut().for_each(|snapshot| snapshot.top = top);
        of.iter_mut().for_each(|snapshot| snapshot.truncate(top as usize));
        let merged = Snapshot::merged("tcp", of.clone()).unwrap();
        prop_assert_eq!(merged.check(), Ok(()));
        prop_assert!(merged.rows.len() <= top as usize);
        let mut truth: Vec<_> = tables.iter().flat_map(|counted| counted.values.clone()).collect();
        truth.sort_by_key(|value| Reverse(*value));
        prop_assert_eq!(merged.total, truth.iter().sum::<u64>());
        let proven = merged.proven as usize;
        let shown: Vec<_> = merged.rows.iter().map(|row| row.value).collect();
        prop_assert_eq!(&shown[..proven], &truth[..proven]);
        prop_assert_eq!(merged.objects, of.iter().map(|snapshot| snapshot.objects).sum::<u64>());
        let objects: std::collections::HashSet<_> = merged.rows.iter().map(|row| format!("{:?}", row.object)).collect();
        prop_assert_eq!(objects.len(), merged.rows.len());
        // Rows of tables that are known in full, or up to the merged top, are proven.
        if tables.iter().all(|counted| counted.proven == counted.values.len()) && truth.len() <= top as usize {
            prop_assert_eq!(proven, truth.len());
        }
        if of.iter().all(|snapshot| snapshot.proven as usize == top as usize) {
            prop_assert_eq!(proven, top as usize);
        }
    }
}

/// Readings of `tcp_v4` and `tcp_v6`.
fn both() -> [Snapshot; 2] {
    let mut other = fixtures::v4();
    other.sample = "tcp_v6".into();
    other.settings.owner = "tcp_v6".into();
    [fixtures::v4(), other]
}

#[test]
fn losses_and_cpus_are_added_up() {
    let lost = |contended, cause: &'static str| Lost {
        contended,
        no_memory: 1,
        further: vec![("skipped".into(), 3), (cause.into(), 4)],
    };
    let mut of = both();
    (of[0].lost, of[1].lost) = (lost(1, "crowded"), lost(2, "opaque"));
    of[1].cpus[0].stale = true;
    let merged = Snapshot::merged("tcp", of.to_vec()).unwrap();
    let counters: Vec<_> = merged.lost.counters().collect();
    assert_eq!(counters, [("contended", 3), ("no_memory", 2), ("skipped", 6), ("crowded", 4), ("opaque", 4)]);
    assert_eq!(merged.total, of[0].total + of[1].total);
    assert_eq!(merged.stale_cpus().collect::<Vec<_>>(), [of[1].cpus[0].cpu]);
    for on in &merged.cpus {
        assert!(on.rows.is_sorted_by_key(|row| Reverse(row.value)));
    }
    assert_eq!((merged.sample.as_str(), merged.settings.owner.as_str()), ("tcp", "tcp"));
    assert_eq!(merged.check(), Ok(()));
}

#[test]
fn tables_that_can_not_be_compared_stay_apart() {
    for change in [
        |snapshot: &mut Snapshot| snapshot.period_ms += 1,
        |snapshot: &mut Snapshot| snapshot.settings.enabled = false,
        |snapshot: &mut Snapshot| drop(snapshot.columns.pop()),
        |snapshot: &mut Snapshot| snapshot.table.push('x'),
    ] {
        let mut of = both().to_vec();
        change(&mut of[1]);
        assert_eq!(Snapshot::merged("tcp", of.clone()), Err(of));
    }
    assert_eq!(Snapshot::merged("tcp", vec![]), Err(vec![]));
    assert_eq!(Snapshot::merged("tcp", vec![fixtures::v6()]), Ok(fixtures::v6()));
}
