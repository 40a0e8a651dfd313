// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The truth is never outside a bound, and a proven top is the top.

use std::collections::BTreeMap;

use proptest::prelude::*;
use topstat_fleet::bounds::{HostRow, HostTop, Top, top};
use topstat_model::Reach;

/// The objects of a host: the key over hosts, whether it may be on several, and the value.
type Objects = Vec<(u32, bool, u64)>;

const KEYS: u32 = 60;

/// What a host shows of its objects. After the first `proven` rows an object may be missing that is larger than further rows.
fn shown(objects: &Objects, rows: usize, unproven: usize, without_object: u64) -> HostTop {
    let mut order: Vec<_> = objects.clone();
    order.sort_by_key(|(key, _, value)| (std::cmp::Reverse(*value), *key));
    let shown = rows.min(order.len());
    let proven = shown.saturating_sub(unproven);
    // The unproven rows are any of the remaining objects: here the last ones.
    let tail = order.split_off(proven);
    let others = tail.iter().rev().take(shown - proven).copied();
    let rows: Vec<_> = order.iter().copied().chain(others).collect();
    let values: u64 = rows.iter().map(|(_, _, value)| value).sum();
    let total = objects.iter().map(|(_, _, value)| value).sum::<u64>() + without_object;
    let row = |(rank, (object, spans, value)): (u32, (u32, bool, u64))| HostRow { object, rank, spans, value };
    HostTop {
        total,
        other: total - values,
        proven: proven as u64,
        doubt: without_object > 0,
        rows: (1..).zip(rows).map(row).collect(),
    }
}

/// A fleet: of each host its objects, the rows that it shows, how many of them are unproven, and amounts of the first object that
/// had no object. Hosts that do not report are in no list.
fn fleet() -> impl Strategy<Value = (Reach, Vec<(Objects, usize, usize, u64)>)> {
    let reach = prop_oneof![Just(Reach::Local), Just(Reach::Spanning), Just(Reach::Part)];
    let values = prop_oneof![0_u64..20, 0_u64..10_000];
    let object = (0..KEYS, proptest::bool::weighted(0.8), values);
    let objects = proptest::collection::vec(object, 0..40);
    let lost = prop_oneof![4 => Just(0_u64), 1 => 1_u64..500];
    let host = (objects, 0_usize..16, prop_oneof![3 => Just(0_usize), 1 => 0_usize..16], lost);
    (reach, proptest::collection::vec(host, 0..12)).prop_map(|(reach, mut hosts)| {
        for (number, (objects, ..)) in (0..).zip(&mut hosts) {
            match reach {
                Reach::Part => objects.iter_mut().for_each(|object| object.1 = true),
                Reach::Spanning | Reach::Local => {
                    // A key is one object of a host; one that is on one host has a key that no other host has.
                    let all = reach == Reach::Local;
                    let mut one = BTreeMap::new();
                    for (key, spans, value) in objects.drain(..) {
                        let spans = spans && !all;
                        one.insert(if spans { key } else { KEYS * (number + 1) + key }, (spans, value));
                    }
                    objects.extend(one.into_iter().map(|(key, (spans, value))| (key, spans, value)));
                }
            }
        }
        (reach, hosts)
    })
}

fn check(reach: Reach, hosts: &[(Objects, usize, usize, u64)]) -> Result<Top, TestCaseError> {
    let mut truth: BTreeMap<u32, u64> = BTreeMap::new();
    for (objects, _, _, without_object) in hosts {
        for (key, _, value) in objects {
            *truth.entry(*key).or_default() += value;
        }
        // Pushes without an object belong to some object.
        if let Some((key, _, _)) = objects.first() {
            *truth.entry(*key).or_default() += without_object;
        }
    }
    let tops: Vec<_> =
        hosts.iter().map(|(objects, rows, unproven, lost)| shown(objects, *rows, *unproven, *lost)).collect();
    let top = top(reach, &tops, KEYS as usize * (hosts.len() + 1), &|_| true, &|a, b| a.cmp(&b));
    for row in &top.rows {
        let true_value = truth.get(&row.object).copied().unwrap_or(0);
        prop_assert!((row.lower..=row.upper).contains(&true_value), "{row:?} is truly {true_value}");
    }
    let is_shown = |key: &u32| top.rows.iter().any(|row| row.object == *key);
    for (key, value) in truth.iter().filter(|(key, _)| !is_shown(key)) {
        prop_assert!(*value <= top.unseen, "{key} is truly {value}, and unseen");
    }
    let proven = &top.rows[..top.proven_to];
    let least = proven.iter().map(|row| truth.get(&row.object).copied().unwrap_or(0)).min().unwrap_or(u64::MAX);
    let others = truth.iter().filter(|(key, _)| !proven.iter().any(|row| row.object == **key));
    for (key, value) in others {
        prop_assert!(*value <= least, "{key} is truly {value}, and one of the proven has {least}");
    }
    prop_assert_eq!(top.reported, hosts.len());
    Ok(top)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1000,
        rng_seed: proptest::test_runner::RngSeed::Fixed(35),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn the_truth_is_never_outside_a_bound((reach, hosts) in fleet()) {
        check(reach, &hosts)?;
    }
}

#[test]
fn the_rule_of_whole_keys_would_be_wrong_of_parts() {
    // Two objects of one key on a host, one of them without a row.
    let hosts = [(vec![(0, true, 90), (0, true, 40), (1, true, 50)], 2, 0, 0)];
    assert!(check(Reach::Part, &hosts).is_ok());
    assert!(check(Reach::Spanning, &hosts).is_err(), "this test finds a violated bound");
}
