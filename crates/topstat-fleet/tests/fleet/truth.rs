// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The truth is never outside a bound, and a proven top is the top.

use std::collections::BTreeMap;

use proptest::prelude::*;
use topstat_fleet::bounds::{Host, HostRow, HostSums, HostTop, Top, top};
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

/// A snapshot of a host: its objects, the rows that it shows, how many of them are unproven, and amounts of the first object that
/// had no object.
type Snapshot = (Objects, usize, usize, u64);

/// The most snapshots of a host.
const SNAPSHOTS: usize = 4;
/// A mean of up to [`SNAPSHOTS`] whole numbers, multiplied by this, is whole.
const WHOLE: u64 = 12;

/// A fleet: the snapshots of each host. Hosts that do not report are in no list.
fn fleet() -> impl Strategy<Value = (Reach, Vec<Vec<Snapshot>>)> {
    let reach = prop_oneof![Just(Reach::Local), Just(Reach::Spanning), Just(Reach::Part)];
    let values = prop_oneof![0_u64..20, 0_u64..10_000];
    let object = (0..KEYS, proptest::bool::weighted(0.8), values);
    let objects = proptest::collection::vec(object, 0..40);
    let lost = prop_oneof![4 => Just(0_u64), 1 => 1_u64..500];
    let snapshot = (objects, 0_usize..16, prop_oneof![3 => Just(0_usize), 1 => 0_usize..16], lost);
    let host = proptest::collection::vec(snapshot, 1..=SNAPSHOTS);
    (reach, proptest::collection::vec(host, 0..12)).prop_map(|(reach, mut hosts)| {
        for (number, host) in (0..).zip(&mut hosts) {
            host.iter_mut().for_each(|(objects, ..)| one_of_each_key(objects, reach, number));
        }
        (reach, hosts)
    })
}

/// Gives the objects of a host keys as its table has them.
fn one_of_each_key(objects: &mut Objects, reach: Reach, host: u32) {
    if reach == Reach::Part {
        objects.iter_mut().for_each(|object| object.1 = true);
        return;
    }
    // A key is one object of a host; one that is on one host has a key that no other host has.
    let mut one = BTreeMap::new();
    for (key, spans, value) in objects.drain(..) {
        let spans = spans && reach == Reach::Spanning;
        one.insert(if spans { key } else { KEYS * (host + 1) + key }, (spans, value));
    }
    objects.extend(one.into_iter().map(|(key, (spans, value))| (key, spans, value)));
}

/// Verifies the top of these hosts. `of_host` gives what is known of a host by its snapshots.
fn check<H: Host>(
    reach: Reach,
    hosts: &[Vec<Snapshot>],
    of_host: impl Fn(&[HostTop]) -> H,
) -> Result<Top, TestCaseError> {
    // The means of the hosts, multiplied by WHOLE.
    let mut truth: BTreeMap<u32, u64> = BTreeMap::new();
    for snapshots in hosts {
        let share = WHOLE / snapshots.len() as u64;
        for (objects, _, _, without_object) in snapshots {
            for (key, _, value) in objects {
                *truth.entry(*key).or_default() += value * share;
            }
            // Pushes without an object belong to some object.
            if let Some((key, _, _)) = objects.first() {
                *truth.entry(*key).or_default() += without_object * share;
            }
        }
    }
    let shown = |(objects, rows, unproven, lost): &Snapshot| shown(objects, *rows, *unproven, *lost);
    let known: Vec<_> = hosts.iter().map(|host| of_host(&host.iter().map(shown).collect::<Vec<_>>())).collect();
    let top = top(reach, &known, KEYS as usize * (hosts.len() + 1), &|_| true, &|a, b| a.cmp(&b));
    for row in &top.rows {
        let true_value = truth.get(&row.object).copied().unwrap_or(0);
        let bounds = row.lower * WHOLE..=row.upper * WHOLE;
        prop_assert!(bounds.contains(&true_value), "{row:?} is truly {true_value}/{WHOLE}");
    }
    let is_shown = |key: &u32| top.rows.iter().any(|row| row.object == *key);
    for (key, value) in truth.iter().filter(|(key, _)| !is_shown(key)) {
        prop_assert!(*value <= top.unseen * WHOLE, "{key} is truly {value}/{WHOLE}, and unseen");
    }
    let proven = &top.rows[..top.proven_to];
    let least = proven.iter().map(|row| truth.get(&row.object).copied().unwrap_or(0)).min().unwrap_or(u64::MAX);
    let others = truth.iter().filter(|(key, _)| !proven.iter().any(|row| row.object == **key));
    for (key, value) in others {
        prop_assert!(*value <= least, "{key} is truly {value}/{WHOLE}, and one of the proven has {least}/{WHOLE}");
    }
    prop_assert_eq!(top.reported, hosts.len());
    Ok(top)
}

/// Verifies the top of the first snapshots.
fn check_first(reach: Reach, hosts: &[Vec<Snapshot>]) -> Result<Top, TestCaseError> {
    let first: Vec<_> = hosts.iter().map(|snapshots| snapshots[..1].to_vec()).collect();
    check(reach, &first, |tops| tops[0].clone())
}

/// Verifies the top of the means.
fn check_means(reach: Reach, hosts: &[Vec<Snapshot>]) -> Result<Top, TestCaseError> {
    check(reach, hosts, |tops| {
        let mut sums = HostSums::default();
        tops.iter().for_each(|top| sums.add(top, reach));
        sums.mean().expect("there is a snapshot")
    })
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
        check_first(reach, &hosts)?;
        check_means(reach, &hosts)?;
        // The mean of one snapshot is the snapshot.
        let one: Vec<_> = hosts.iter().map(|snapshots| snapshots[..1].to_vec()).collect();
        prop_assert_eq!(check_means(reach, &one)?, check_first(reach, &one)?);
    }
}

#[test]
fn the_rule_of_whole_keys_would_be_wrong_of_parts() {
    // Two objects of one key on a host, one of them without a row.
    let hosts = [vec![(vec![(0, true, 90), (0, true, 40), (1, true, 50)], 2, 0, 0)]];
    assert!(check_first(Reach::Part, &hosts).is_ok());
    assert!(check_first(Reach::Spanning, &hosts).is_err(), "this test finds a violated bound");
    assert!(check_means(Reach::Spanning, &hosts).is_err(), "this test finds a violated bound");
}
