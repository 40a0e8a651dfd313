// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The past is found, whichever files hold it.

use std::time::{Duration, Instant, SystemTime};

use topstat_history::layout::{Kind, files};
use topstat_history::{Entry, Grain, History, Outlines, Peak, Privacy, Table};
use topstat_model::json;

use crate::fixtures::{OPTIONS, Scratch, at, place, shape, snapshot};

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

/// Records every 10 s (and, where `fine`, every second) from one ms to another.
fn record(table: &mut Table, (from, to): (u64, u64), fine: bool) {
    for ms in (from..to).step_by(1000) {
        let snapshot = snapshot(at(ms), 64);
        if fine {
            let mut document = Vec::new();
            json::write(&snapshot, &mut document).unwrap();
            table.fine(snapshot.time, &document).unwrap();
        }
        if ms % 10_000 == 0 {
            table.coarse(snapshot).unwrap();
        }
    }
    table.sync().unwrap();
}

fn open(scratch: &Scratch) -> Table {
    Table::open(&scratch.root(), place(), OPTIONS, Duration::ZERO).unwrap()
}

fn seal(table: &mut Table, now: SystemTime) {
    for file in table.to_seal(now).unwrap() {
        assert_eq!(table.seal(&file, &shape, &Privacy::default()).unwrap(), None);
    }
}

fn range(history: &History, from: u64, to: u64, grain: Grain) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut each = |entry| {
        entries.push(entry);
        true
    };
    history.range(&place(), (at(from), at(to)), grain, &shape, &mut each).unwrap();
    entries
}

fn times(entries: &[Entry]) -> Vec<(SystemTime, bool)> {
    entries.iter().map(|entry| (entry.time(), matches!(entry, Entry::Gap(_)))).collect()
}

#[test]
fn coarse_and_fine_records_are_one_past() {
    let scratch = Scratch::new("grains");
    let mut table = open(&scratch);
    record(&mut table, (50 * MINUTE_MS, HOUR_MS + 90_000), false);
    record(&mut table, (HOUR_MS + 90_000, HOUR_MS + 100_000), true);
    seal(&mut table, at(HOUR_MS + 100_000));
    let history = History::open(&scratch.0).unwrap();
    assert_eq!(history.places(), [place()]);
    assert_eq!(history.span(&place()).unwrap(), Some((at(0), at(2 * HOUR_MS))));
    let coarse = range(&history, 59 * MINUTE_MS, HOUR_MS + 95_000, Grain::Coarse);
    let expected = (59 * MINUTE_MS..=HOUR_MS + 90_000).step_by(10_000).map(|ms| (at(ms), false));
    assert_eq!(times(&coarse), expected.collect::<Vec<_>>());
    let fine = range(&history, HOUR_MS + 80_000, HOUR_MS + 93_000, Grain::Fine);
    let expected = [80, 90, 91, 92, 93].map(|second| (at(HOUR_MS + second * 1000), false));
    assert_eq!(times(&fine), expected);
    // Where there are both, the fine record has all rows.
    let rows = |entry: &Entry| entry.clone().snapshot().unwrap().rows.len();
    assert_eq!(fine.iter().map(rows).collect::<Vec<_>>(), [32, 64, 64, 64, 64]);
    let found = |ms| history.at(&place(), at(ms), &shape).unwrap().map(|entry| entry.time());
    assert_eq!(found(HOUR_MS + 92_700), Some(at(HOUR_MS + 92_000)));
    assert_eq!(found(55 * MINUTE_MS + 7), Some(at(55 * MINUTE_MS)));
    assert_eq!(found(50 * MINUTE_MS - 1), None);
    assert_eq!(found(9 * HOUR_MS), Some(at(HOUR_MS + 99_000)));
}

#[test]
fn what_is_missing_is_a_gap() {
    let scratch = Scratch::new("gaps");
    let mut table = open(&scratch);
    record(&mut table, (0, 30_000), false);
    table.missed("cannot read the table: gone");
    record(&mut table, (3 * MINUTE_MS, 3 * MINUTE_MS + 20_000), false);
    drop(table);
    // Another recorder, hours later.
    let mut table = open(&scratch);
    record(&mut table, (5 * HOUR_MS, 5 * HOUR_MS + 20_000), false);
    for sealed in [false, true] {
        if sealed {
            seal(&mut table, at(9 * HOUR_MS));
        }
        let history = History::open(&scratch.0).unwrap();
        let gap = |ms| match history.at(&place(), at(ms), &shape).unwrap() {
            Some(Entry::Gap(gap)) => (gap.from, gap.time, gap.reason),
            other => panic!("{other:?}"),
        };
        let first = (at(20_000), at(3 * MINUTE_MS), "cannot read the table: gone".to_owned());
        assert_eq!(gap(MINUTE_MS), first);
        // A gap begins at the time of a record, which is found.
        for ms in [20_000, 3 * MINUTE_MS + 10_000] {
            let found = history.at(&place(), at(ms), &shape).unwrap().and_then(Entry::snapshot);
            assert_eq!(found.map(|snapshot| snapshot.time), Some(at(ms)));
        }
        let second = (at(3 * MINUTE_MS + 10_000), at(5 * HOUR_MS), "the recorder did not run".to_owned());
        assert_eq!(gap(2 * HOUR_MS), second);
        let all = range(&history, 0, 9 * HOUR_MS, Grain::Coarse);
        assert_eq!(all.len(), 3 + 1 + 2 + 1 + 2, "{:?}", times(&all));
        assert_eq!(all.iter().filter(|entry| matches!(entry, Entry::Gap(_))).count(), 2);
    }
}

#[test]
fn a_short_time_has_the_finest_records_and_only_gaps_that_they_have_too() {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    for (length, every, grain) in [
        (Duration::from_secs(5), None, Grain::Fine),
        (Duration::from_secs(5), Some(minutes(1)), Grain::Fine),
        (minutes(10), None, Grain::Fine),
        (minutes(11), None, Grain::Coarse),
        (minutes(60), Some(Duration::from_secs(10)), Grain::Coarse),
        (minutes(60), Some(Duration::from_secs(9)), Grain::Fine),
    ] {
        assert_eq!(Grain::of(length, every), grain, "{length:?} {every:?}");
    }
    let scratch = Scratch::new("seconds");
    let mut table = open(&scratch);
    record(&mut table, (0, 20_000), true);
    drop(table);
    // The recorder ended after second 19, and began again at second 31: the coarse records have a gap from second 10.
    let mut table = open(&scratch);
    let again = snapshot(at(31_000), 64);
    let mut document = Vec::new();
    json::write(&again, &mut document).unwrap();
    table.fine(again.time, &document).unwrap();
    table.coarse(again).unwrap();
    // The tree did not answer in seconds 35, 36, 40 and 50.
    for (from, to) in [(32_000, 35_000), (37_000, 40_000), (41_000, 50_000), (51_000, 65_000)] {
        record(&mut table, (from, to), true);
        table.missed("cannot read the table: gone");
    }
    let history = History::open(&scratch.0).unwrap();
    let gaps = |entries: Vec<Entry>| -> Vec<_> {
        let gap = |entry| if let Entry::Gap(gap) = entry { Some((gap.from, gap.time, gap.reason)) } else { None };
        entries.into_iter().filter_map(gap).collect()
    };
    let ended = "the recorder did not run".to_owned();
    let gone = "cannot read the table: gone".to_owned();
    let coarse = range(&history, 0, 64_000, Grain::Coarse);
    assert_eq!(
        gaps(coarse),
        [(at(10_000), at(31_000), ended.clone()), (at(31_000), at(60_000), gone.clone())],
        "this test has gaps in coarse records"
    );
    let fine = range(&history, 3_000, 38_000, Grain::Fine);
    let seconds = (3..20).chain([31]).chain(31..35).chain([37, 38]);
    let expected: Vec<_> = seconds.map(|second| at(second * 1000)).collect();
    assert_eq!(fine.iter().map(Entry::time).collect::<Vec<_>>(), expected);
    assert_eq!(gaps(fine), [(at(19_000), at(31_000), ended)]);
    // Of the gap that ends with the coarse record of second 60, fine records cover all but three parts.
    let parts = [(34_000, 37_000), (39_000, 41_000), (49_000, 51_000)];
    let parts = parts.map(|(from, to)| (at(from), at(to), gone.clone()));
    assert_eq!(gaps(range(&history, 32_000, 60_000, Grain::Fine)), parts);
}

#[test]
fn a_table_that_is_off_for_long_is_sealed_too() {
    let scratch = Scratch::new("off");
    let mut table = open(&scratch);
    record(&mut table, (0, 30_000), true);
    assert_eq!(table.to_seal(at(HOUR_MS - 1)).unwrap(), [], "its hour is not over");
    table.missed("the table was off");
    seal(&mut table, at(3 * HOUR_MS));
    record(&mut table, (3 * HOUR_MS, 3 * HOUR_MS + 20_000), false);
    let all = range(&History::open(&scratch.0).unwrap(), 0, 9 * HOUR_MS, Grain::Coarse);
    let gaps =
        all.iter().filter_map(|entry| if let Entry::Gap(gap) = entry { Some(gap.reason.as_str()) } else { None });
    assert_eq!((all.len(), gaps.collect::<Vec<_>>()), (3 + 1 + 2, vec!["the table was off"]));
}

/// The recorder asks for logs to seal once an hour, at any second between two records.
#[test]
fn an_hour_is_sealed_before_the_first_record_of_the_next() {
    let scratch = Scratch::new("over");
    let mut table = open(&scratch);
    let record = |table: &mut Table, ms| table.coarse(snapshot(at(ms), 5)).unwrap();
    record(&mut table, HOUR_MS - 12_000);
    record(&mut table, HOUR_MS - 2_000);
    seal(&mut table, at(HOUR_MS));
    let kinds = || files(&scratch.root(), &place()).unwrap().into_iter().map(|file| file.kind).collect::<Vec<_>>();
    assert_eq!(kinds(), [Kind::Sealed]);
    // A snapshot that began in the old hour comes late.
    record(&mut table, HOUR_MS - 1);
    record(&mut table, HOUR_MS + 8_000);
    seal(&mut table, at(2 * HOUR_MS));
    assert_eq!(kinds(), [Kind::Sealed, Kind::Sealed]);
    let all = range(&History::open(&scratch.0).unwrap(), 0, 2 * HOUR_MS, Grain::Coarse);
    let expected = [HOUR_MS - 12_000, HOUR_MS - 2_000, HOUR_MS - 1, HOUR_MS + 8_000].map(|ms| (at(ms), false));
    assert_eq!(times(&all), expected);
}

#[test]
fn any_minute_of_a_week_is_near() {
    let scratch = Scratch::new("week");
    let mut table = open(&scratch);
    // An hour like all others, on each of seven days: a look-up reads one file of many.
    for day in 0..7 {
        record(&mut table, (day * 24 * HOUR_MS, day * 24 * HOUR_MS + HOUR_MS), false);
        seal(&mut table, at(day * 24 * HOUR_MS + HOUR_MS));
    }
    let history = History::open(&scratch.0).unwrap();
    let begin = Instant::now();
    for day in 0..7 {
        let ms = day * 24 * HOUR_MS + 34 * MINUTE_MS;
        let entry = history.at(&place(), at(ms), &shape).unwrap().unwrap();
        assert_eq!(entry.time(), at(ms));
    }
    println!("{} ms for each look", begin.elapsed().as_millis() / 7);
}

/// The largest total of each minute, from all records one by one.
fn peaks_of(history: &History) -> Vec<Peak> {
    let mut peaks: Vec<Peak> = Vec::new();
    let minute = |peak: &Peak| peak.time.duration_since(at(0)).unwrap().as_secs() / 60;
    for entry in range(history, 0, 99 * HOUR_MS, Grain::Coarse) {
        let Some(snapshot) = entry.snapshot() else { continue };
        let peak = Peak { time: snapshot.time, total: snapshot.total };
        match peaks.last_mut() {
            Some(last) if minute(last) == minute(&peak) && last.total >= peak.total => {}
            Some(last) if minute(last) == minute(&peak) => *last = peak,
            _ => peaks.push(peak),
        }
    }
    peaks
}

#[test]
fn an_outline_has_the_peak_of_each_minute() {
    let scratch = Scratch::new("outline");
    let mut table = open(&scratch);
    let mut outlines = Outlines::default();
    let history = History::open(&scratch.0).unwrap();
    assert_eq!(outlines.of(&history, &place(), &shape).unwrap(), [], "nothing was recorded");
    record(&mut table, (50 * MINUTE_MS, 55 * MINUTE_MS), false);
    table.missed("the table was off");
    table.coarse(snapshot(at(58 * MINUTE_MS), 0)).unwrap();
    record(&mut table, (HOUR_MS, HOUR_MS + 3 * MINUTE_MS), true);
    for sealed in [false, true, true] {
        if sealed {
            seal(&mut table, at(HOUR_MS + 3 * MINUTE_MS));
        }
        let peaks = outlines.of(&history, &place(), &shape).unwrap();
        assert_eq!(peaks, peaks_of(&history), "sealed: {sealed}");
        // A minute without records has no peak; a minute with a snapshot without rows has one.
        assert_eq!(peaks.len(), 5 + 1 + 3);
    }
    // Removed files are forgotten.
    let date = place().dir(&scratch.0).join("date=2026-11-21");
    std::fs::remove_file(date.join("08.parquet")).unwrap();
    assert_eq!(outlines.of(&history, &place(), &shape).unwrap().len(), 3);
}
