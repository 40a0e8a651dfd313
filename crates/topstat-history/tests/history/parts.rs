// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of a part of an hour have the records that files of hours have.

use std::time::Duration;

use proptest::prelude::*;
use topstat_history::layout::{HOUR, Kind, files};
use topstat_history::{Entry, Grain, History, Privacy, Table, TableOptions};

use crate::fixtures::{OPTIONS, Scratch, at, place, shape, snapshot};

const MINUTE_MS: u64 = 60_000;

/// A recorder's run.
#[derive(Clone, Debug)]
struct Run {
    /// The span of sealed files, in minutes.
    minutes: u32,
    /// The time before its first record.
    pause_ms: u64,
    /// The number of records, 10 s apart.
    records: u64,
    /// After how many records it seals.
    seal_after: u64,
}

fn runs() -> impl Strategy<Value = Vec<Run>> {
    let run = (prop::sample::select(vec![1, 5, 15, 30, 60]), 0..40 * MINUTE_MS, 1..300_u64, 1..60_u64)
        .prop_map(|(minutes, pause_ms, records, seal_after)| Run { minutes, pause_ms, records, seal_after });
    prop::collection::vec(run, 1..5)
}

/// Records and seals, with files of each run's spans, or of hours. Returns the time of the end, in ms.
fn record(scratch: &Scratch, runs: &[Run], hours: bool) -> u64 {
    let mut now = 0;
    for run in runs {
        let seal_every = if hours { HOUR } else { Duration::from_secs(60) * run.minutes };
        let options = TableOptions { seal_every, ..OPTIONS };
        let mut table = Table::open(&scratch.root(), place(), options, Duration::ZERO).unwrap();
        now += run.pause_ms;
        for number in 0..run.records {
            table.coarse(snapshot(at(now), 2)).unwrap();
            now += 10_000;
            if number % run.seal_after == 0 {
                seal(&mut table, now);
            }
        }
        table.sync().unwrap();
    }
    now
}

fn seal(table: &mut Table, now: u64) {
    for file in table.to_seal(at(now)).unwrap() {
        assert_eq!(table.seal(&file, &shape, &Privacy::default()).unwrap(), None);
    }
}

fn range(history: &History, from: u64, to: u64) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut each = |entry| {
        entries.push(entry);
        true
    };
    history.range(&place(), (at(from), at(to)), Grain::Coarse, &shape, &mut each).unwrap();
    entries
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn parts_of_hours_are_read_as_hours_are(
        runs in runs(),
        looks in prop::collection::vec((0.0..1.1_f64, 0.0..1.1_f64), 12),
    ) {
        let (parts, hours) = (Scratch::new("parts"), Scratch::new("parts-hours"));
        let end = record(&parts, &runs, false);
        prop_assert_eq!(record(&hours, &runs, true), end);
        let (parts, hours) = (History::open(&parts.0).unwrap(), History::open(&hours.0).unwrap());
        prop_assert_eq!(range(&parts, 0, end), range(&hours, 0, end));
        prop_assert_eq!(parts.first(&place(), &shape).unwrap(), hours.first(&place(), &shape).unwrap());
        for (one, other) in looks {
            let ms = |share: f64| (share * end as f64) as u64;
            let (from, to) = (ms(one.min(other)), ms(one.max(other)));
            prop_assert_eq!(range(&parts, from, to), range(&hours, from, to));
            let around = |history: &History| history.around(&place(), at(from), &shape).unwrap();
            prop_assert_eq!(around(&parts), around(&hours));
        }
    }
}

/// Records for some minutes, in files of five, and seals those that are over.
fn sealed_by_five(scratch: &Scratch, minutes: u64) {
    let options = TableOptions { seal_every: Duration::from_secs(300), ..OPTIONS };
    let mut table = Table::open(&scratch.root(), place(), options, Duration::ZERO).unwrap();
    for ms in (0..minutes * MINUTE_MS).step_by(10_000) {
        table.coarse(snapshot(at(ms), 2)).unwrap();
    }
    seal(&mut table, minutes * MINUTE_MS);
}

/// Found by the test above: the last record was looked for in the file whose span begins last.
#[test]
fn the_gap_before_a_run_begins_with_the_last_record_of_any_file() {
    let scratch = Scratch::new("parts-gap");
    let run = |minutes, pause_ms, records, seal_after| Run { minutes, pause_ms, records, seal_after };
    let end = record(&scratch, &[run(1, 0, 7, 1), run(60, 0, 1, 1), run(1, 355_587, 1, 30)], false);
    let gap = |entry| if let Entry::Gap(gap) = entry { Some((gap.from, gap.time)) } else { None };
    let all = range(&History::open(&scratch.0).unwrap(), 0, end);
    assert_eq!(all.into_iter().filter_map(gap).collect::<Vec<_>>(), [(at(70_000), at(435_587))]);
}

#[test]
fn a_part_is_sealed_when_it_is_over_and_no_hour_is_waited_for() {
    let scratch = Scratch::new("parts-over");
    sealed_by_five(&scratch, 12);
    let found = files(&scratch.root(), &place()).unwrap();
    let name = |file: &topstat_history::File| file.path.file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(found.iter().map(name).collect::<Vec<_>>(), ["08-00.parquet", "08-05.parquet", "08-10.jsonl.zst"]);
    assert_eq!(found.iter().filter(|file| file.kind == Kind::Sealed).count(), 2);
}

#[test]
fn an_unreadable_part_is_a_gap_up_to_the_next_part() {
    let scratch = Scratch::new("parts-unreadable");
    sealed_by_five(&scratch, 15);
    let damaged = &files(&scratch.root(), &place()).unwrap()[1];
    std::fs::write(&damaged.path, b"damaged").unwrap();
    let all = range(&History::open(&scratch.0).unwrap(), 0, 15 * MINUTE_MS);
    let gaps: Vec<_> =
        all.iter().filter_map(|entry| if let Entry::Gap(gap) = entry { Some(gap) } else { None }).collect();
    assert_eq!((all.len(), gaps.len()), (30 + 30 + 1, 1), "{gaps:?}");
    assert_eq!((gaps[0].from, gaps[0].time), (at(5 * MINUTE_MS), at(10 * MINUTE_MS - 1)));
    assert_eq!(gaps[0].unread.as_ref(), Some(&damaged.path));
}
