// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counters: changes, parts of CPUs, and properties that hold for all values.

use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use topstat_model::counters::{
    Amount, Choice, Counter, CounterKind, Counters, CountersLost, Order, Picture, Protocol, Scope, Shown, Source,
};
use topstat_model::text::TextOptions;
use topstat_model::{Format, Sink, Space};

fn amount(cpus: &[u64]) -> Amount {
    Amount { all: cpus.iter().copied().fold(0, u64::wrapping_add), cpus: cpus.to_vec() }
}

fn reading(counters: Vec<Counter>) -> Counters {
    Counters {
        time: UNIX_EPOCH + Duration::from_secs(1_795_248_000),
        elapsed: Some(Duration::from_millis(500)),
        source: Source::Arrays,
        cpus: vec![0, 1],
        scopes: vec![Scope {
            netns: 4_026_531_840,
            name: None,
            device: Some("ev\x1b[31mil\n".to_owned()),
            protocols: vec![Protocol { name: "tcp", counters }],
        }],
        lost: CountersLost::default(),
    }
}

fn count(name: &str, before: Option<[u64; 2]>, now: [u64; 2]) -> Counter {
    Counter { name: name.into(), kind: CounterKind::Count, now: amount(&now), before: before.map(|cpus| amount(&cpus)) }
}

fn choice(order: Order) -> Choice {
    Choice { shown: Shown::All, order, ..Choice::default() }
}

fn written(format: Format, picture: Picture, space: Space) -> String {
    let mut sink = Sink::new(format, TextOptions::default());
    String::from_utf8(sink.write(&[&picture], space).unwrap()).unwrap()
}

/// The names of counters in the order in which they are shown.
fn names(counters: &Counters, choice: &Choice) -> Vec<String> {
    let text = written(Format::Csv, Picture { counters, choice, cpus: false }, Space::default());
    text.lines().skip(1).map(|line| line.split(',').nth(6).unwrap().to_owned()).collect()
}

#[test]
fn rows_are_in_the_order_that_is_asked_for() {
    let counters = reading(vec![
        count("Small", Some([9, 9]), [10, 9]),
        count("New", None, [500, 0]),
        count("Large", Some([100, 100]), [200, 210]),
        Counter { kind: CounterKind::Gauge, ..count("Level", Some([7, 0]), [u64::MAX, 0]) },
    ]);
    assert_eq!(names(&counters, &choice(Order::Kernel)), ["Small", "New", "Large", "Level"]);
    assert_eq!(names(&counters, &choice(Order::Change)), ["New", "Large", "Small", "Level"]);
    assert_eq!(names(&counters, &choice(Order::Total)), ["New", "Large", "Small", "Level"]);
    assert_eq!(names(&counters, &choice(Order::Imbalance)), ["Small", "New", "Large", "Level"]);
    let two = Choice { rows: Some(2), ..choice(Order::Kernel) };
    assert_eq!(names(&counters, &two), ["Small", "New"]);
    assert_eq!(two.count(&counters), 2);
    let text = written(Format::Text, Picture { counters: &counters, choice: &two, cpus: false }, Space::default());
    assert!(text.contains("2 more not shown"), "{text}");
}

#[test]
fn what_has_not_changed_is_shown_only_if_asked_for() {
    let counters = reading(vec![
        count("Still", Some([5, 5]), [5, 5]),
        // It moved from one CPU to the other: the sum has not changed.
        Counter { kind: CounterKind::Gauge, ..count("Level", Some([5, 0]), [4, 1]) },
        count("Zero", None, [0, 0]),
        count("Moved", Some([5, 5]), [5, 6]),
    ]);
    let shown = |shown| names(&counters, &Choice { shown, ..choice(Order::Kernel) });
    assert_eq!(shown(Shown::Changed), ["Moved"]);
    assert_eq!(shown(Shown::NotZero), ["Still", "Level", "Moved"]);
    assert_eq!(shown(Shown::All).len(), 4);
}

#[test]
fn errors_are_the_counters_of_trouble() {
    let counters = reading(vec![
        count("InSegs", Some([5, 5]), [9, 9]),
        count("RetransSegs", Some([5, 5]), [5, 6]),
        count("ListenDrops", Some([1, 1]), [1, 1]),
    ]);
    let shown = |shown| names(&counters, &Choice { shown, errors: true, ..choice(Order::Kernel) });
    assert_eq!(shown(Shown::Changed), ["RetransSegs"]);
    assert_eq!(shown(Shown::All), ["RetransSegs", "ListenDrops"]);
}

#[test]
fn no_name_reaches_the_terminal() {
    let counters = reading(vec![count("InSegs", Some([1, 1]), [2, 2])]);
    let picture = Picture { counters: &counters, choice: &Choice::default(), cpus: true };
    let text = written(Format::Text, picture, Space { cells: Some(60), lines: None });
    assert!(!text.contains('\x1b') && text.lines().all(|line| line.chars().count() <= 60), "{text}");
    let csv = written(Format::Csv, picture, Space::default());
    assert_eq!((csv.lines().count(), csv.contains('\x1b')), (2, false), "{csv}");
}

#[test]
fn no_more_lines_are_written_than_there_are() {
    let counters = reading((0..30_u64).map(|n| count(&format!("C{n}"), Some([0, 0]), [n + 1, 0])).collect());
    let two = Counters { scopes: [&counters.scopes[..], &counters.scopes[..]].concat(), ..counters.clone() };
    for (counters, scopes) in [(&counters, 1), (&two, 2)] {
        for lines in [12, 24, 200] {
            let picture = Picture { counters, choice: &choice(Order::Kernel), cpus: false };
            let text = written(Format::Text, picture, Space { lines: Some(lines), cells: None });
            assert!(text.lines().count() < lines, "{text}");
            assert_eq!(text.matches(" more not shown").count(), if lines == 200 { 0 } else { scopes }, "{text}");
        }
    }
}

#[test]
fn what_does_not_add_up_is_found() {
    let mut counters = reading(vec![count("InSegs", None, [1, 2])]);
    assert_eq!(counters.check(), Ok(()));
    counters.scopes[0].protocols[0].counters[0].now.all = 4;
    assert_eq!(counters.check().unwrap_err(), "tcp InSegs: 3 on the CPUs, 4 in all");
}

proptest! {
    /// Changes of CPUs add up to the change, also where counters overflow; and the largest part is 1 to n times the mean.
    #[test]
    fn changes_add_up(before in any::<[u64; 2]>(), came in any::<[u32; 2]>()) {
        let now = [0, 1].map(|cpu| before[cpu].wrapping_add(came[cpu].into()));
        let counter = count("Any", Some(before), now);
        prop_assert_eq!(counter.change(), Some(u64::from(came[0]) + u64::from(came[1])));
        let changes = counter.cpu_changes().unwrap();
        prop_assert_eq!(&changes, &came.map(u64::from).to_vec());
        match Counter::imbalance(&changes) {
            None => prop_assert_eq!(counter.change(), Some(0)),
            Some(uneven) => prop_assert!((1.0..=2.0).contains(&uneven), "{}", uneven),
        }
        let counters = reading(vec![counter]);
        prop_assert_eq!(counters.check(), Ok(()));
        let picture = Picture { counters: &counters, choice: &choice(Order::Kernel), cpus: true };
        let line = written(Format::Json, picture, Space::default());
        let document: serde_json::Value = serde_json::from_str(&line).unwrap();
        let shown = &document["scopes"][0]["samples"]["snmp_tcp"]["Any"];
        prop_assert_eq!(shown["total"].as_u64(), Some(now[0].wrapping_add(now[1])));
        prop_assert_eq!(&shown["cpu_changes"], &serde_json::json!(came));
    }
}
