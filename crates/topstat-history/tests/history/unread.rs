// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that can't be read whole: no byte of them is lost, and the missing time becomes a gap.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use topstat_history::layout::{File, Kind};
use topstat_history::log::Writer;
use topstat_history::{Entry, Gap, Grain, History, Keep, Outlines, Privacy, Table};
use topstat_model::json;

use crate::fixtures::{OPTIONS, Scratch, at, place, shape, snapshot};

const HOUR_MS: u64 = 3_600_000;
/// The number of snapshots that were lost once.
const SNAPSHOTS: u64 = 582;
/// The time from one snapshot to the next.
const STEP_MS: u64 = 6000;

fn line(number: u64) -> String {
    let mut line = Vec::new();
    json::write(&snapshot(at(number * STEP_MS), 3), &mut line).unwrap();
    String::from_utf8(line).unwrap()
}

/// A log of these lines, ten in each frame.
fn write_log(scratch: &Scratch, lines: impl Iterator<Item = String>) -> File {
    let log = File::of(&scratch.0, &place(), Kind::Log, at(0));
    let mut writer = Writer::open(scratch.root().write(&log.path).unwrap(), &log.path).unwrap();
    for (number, line) in lines.enumerate() {
        writer.append(line.as_bytes()).unwrap();
        if number % 10 == 9 {
            writer.sync().unwrap();
        }
    }
    writer.sync().unwrap();
    log
}

/// Damages ten bytes of the log from this one on, and returns all bytes of the damaged log.
fn damage(log: &File, spot: usize) -> Vec<u8> {
    let mut bytes = fs::read(&log.path).unwrap();
    bytes[spot..spot + 10].fill(0xff);
    fs::write(&log.path, &bytes).unwrap();
    bytes
}

fn range(scratch: &Scratch) -> (Vec<u64>, Vec<Gap>) {
    range_from(scratch, 0)
}

/// From the record with this number on.
fn range_from(scratch: &Scratch, number: u64) -> (Vec<u64>, Vec<Gap>) {
    let (mut numbers, mut gaps) = (Vec::new(), Vec::new());
    let mut each = |entry: Entry| {
        match entry {
            Entry::Snapshot(found) => {
                let ms = found.time.duration_since(at(0)).unwrap().as_millis() as u64;
                assert_eq!(found.rows, snapshot(found.time, 3).rows);
                numbers.push(ms / STEP_MS);
            }
            Entry::Gap(gap) => gaps.push(gap),
        }
        true
    };
    let history = History::open(&scratch.0).unwrap();
    history.range(&place(), (at(number * STEP_MS), at(9 * HOUR_MS)), Grain::Coarse, &shape, &mut each).unwrap();
    (numbers, gaps)
}

fn seal(scratch: &Scratch, log: &File) -> Option<PathBuf> {
    let table = Table::open(&scratch.root(), place(), OPTIONS, Duration::ZERO).unwrap();
    table.seal(log, &shape, &Privacy::default()).unwrap()
}

#[test]
fn a_log_of_another_version_is_kept_when_its_hour_is_sealed() {
    let scratch = Scratch::new("other-version");
    let log = write_log(&scratch, (0..SNAPSHOTS).map(|number| line(number).replace("\"unit\"", "\"measure\"")));
    let bytes = fs::read(&log.path).unwrap();
    let kept = seal(&scratch, &log).unwrap();
    assert!(kept.ends_with("date=2026-11-21/08.jsonl.zst.unread"), "{}", kept.display());
    assert!(!log.path.exists() && fs::read(&kept).unwrap() == bytes);
    let (numbers, gaps) = range(&scratch);
    assert_eq!(numbers, [0; 0]);
    // A gap of the hour, up to the last snapshot. It gives the number of missing lines, the reason, and the file.
    let [gap] = &gaps[..] else { panic!("{gaps:?}") };
    assert_eq!((gap.from, gap.time), (at(0), at((SNAPSHOTS - 1) * STEP_MS)));
    for part in ["08.jsonl.zst.unread: 582 lines are no records of this version (", "`unit`"] {
        assert!(gap.reason.contains(part), "{}", gap.reason);
    }
    // A second log of that hour gets another name. Both count as files, and both become too old.
    let log = write_log(&scratch, (0..1).map(|number| line(number).replace("\"unit\"", "\"measure\"")));
    let second = seal(&scratch, &log).unwrap();
    assert!(second.ends_with("08.jsonl.zst.unread.2") && fs::read(&kept).unwrap() == bytes);
    let keep = |age| Keep { age: Duration::from_secs(age), fine_age: Duration::ZERO, bytes: 1 << 30 };
    assert_eq!(keep(3600).apply(&scratch.root(), at(2 * HOUR_MS - 1)).unwrap().removed.len(), 0);
    assert_eq!(keep(3600).apply(&scratch.root(), at(2 * HOUR_MS)).unwrap().removed.len(), 3);
}

#[test]
fn of_a_damaged_log_all_that_can_be_read_is_sealed_and_the_log_is_kept() {
    // Damage in the header of the first block; and amid the block, where zstd may find no fault.
    for (spot, reopened) in [(6, false), (6, true), (200, false)] {
        let scratch = Scratch::new(&format!("damaged-{spot}-{reopened}"));
        let log = write_log(&scratch, (0..SNAPSHOTS).map(line));
        let bytes = damage(&log, spot);
        let (mut end, mut kept) = (SNAPSHOTS, None);
        if reopened {
            // The recorder is started again within the hour, and goes on with this log.
            let mut table = Table::open(&scratch.root(), place(), OPTIONS, Duration::ZERO).unwrap();
            table.coarse(snapshot(at(end * STEP_MS), 3)).unwrap();
            table.sync().unwrap();
            kept = Some(log.path.with_file_name("08.jsonl.zst.unread"));
            end += 1;
        } else {
            // Readers find as much in the log itself.
            let (numbers, gaps) = range(&scratch);
            assert_eq!(numbers, (10..SNAPSHOTS).collect::<Vec<_>>());
            assert!(gaps.len() == 1 && gaps[0].unread.as_ref() == Some(&log.path), "{gaps:?}");
        }
        let sealed = seal(&scratch, &log);
        assert_eq!(sealed.is_some(), !reopened, "what replaced it is whole");
        let kept = kept.or(sealed).unwrap();
        assert_eq!(fs::read(&kept).unwrap(), bytes);
        let (numbers, gaps) = range(&scratch);
        assert_eq!(numbers, (10..end).collect::<Vec<_>>());
        let [gap] = &gaps[..] else { panic!("{gaps:?}") };
        assert_eq!((gap.from, gap.time), (at(0), at(10 * STEP_MS)));
        let why = if spot == 6 { "damaged in the frame at byte 0: " } else { "" };
        assert!(gap.reason.starts_with(&format!("{}: {why}", kept.display())), "{}", gap.reason);
    }
}

#[test]
fn a_range_behind_what_is_missing_has_no_gap() {
    let scratch = Scratch::new("behind");
    let log = write_log(&scratch, (0..SNAPSHOTS).map(line));
    damage(&log, 6);
    // Ten records are missing: the gap ends with the record after them.
    for (from, gap_count) in [(9, 1), (10, 1), (11, 0), (20, 0)] {
        let (numbers, gaps) = range_from(&scratch, from);
        assert_eq!(numbers, (from.max(10)..SNAPSHOTS).collect::<Vec<_>>());
        assert_eq!(gaps.len(), gap_count, "from {from}: {gaps:?}");
        assert!(gaps.iter().all(|gap| (gap.from, gap.time) == (at(0), at(10 * STEP_MS))), "{gaps:?}");
    }
}

#[test]
fn a_line_that_is_too_long_is_kept_and_does_not_hide_the_others() {
    let scratch = Scratch::new("long");
    let long = format!("{{\"time\":\"{}\n", "x".repeat(9 << 20));
    let log = write_log(&scratch, (0..30).map(|number| if number == 15 { long.clone() } else { line(number) }));
    assert!(seal(&scratch, &log).is_some());
    let (numbers, gaps) = range(&scratch);
    assert_eq!(numbers, (0..30).filter(|number| !(15..20).contains(number)).collect::<Vec<_>>());
    assert!(gaps.len() == 1 && gaps[0].reason.contains("a line has more than 8388608 bytes"), "{gaps:?}");
}

#[test]
fn a_parquet_file_that_can_not_be_read_is_named_and_hides_no_other() {
    type Spoil = fn(&[u8]) -> Vec<u8>;
    let spoil: [(&str, Spoil); 4] = [
        ("foreign", |_| b"PAR1 is no Parquet file PAR1".to_vec()),
        ("cut", |bytes| bytes[..bytes.len() / 2].to_vec()),
        ("empty", |_| vec![]),
        ("damaged", |bytes| {
            let mut bytes = bytes.to_vec();
            bytes[500..900].fill(0x55);
            bytes
        }),
    ];
    for (name, spoil) in spoil {
        let scratch = Scratch::new(&format!("parquet-{name}"));
        let mut table = Table::open(&scratch.root(), place(), OPTIONS, Duration::ZERO).unwrap();
        for number in 0..1800 {
            table.coarse(snapshot(at(number * STEP_MS), 3)).unwrap();
        }
        table.pause().unwrap();
        let logs = table.to_seal(at(9 * HOUR_MS)).unwrap();
        assert_eq!(logs.len(), 3);
        for log in logs {
            assert_eq!(table.seal(&log, &shape, &Privacy::default()).unwrap(), None);
        }
        let sealed = File::of(&scratch.0, &place(), Kind::Sealed, at(HOUR_MS)).path;
        fs::write(&sealed, spoil(&fs::read(&sealed).unwrap())).unwrap();
        let (numbers, gaps) = range(&scratch);
        let others = (0..1800).filter(|number| !(600..1200).contains(number));
        let [gap] = &gaps[..] else { panic!("{name}: {gaps:?}") };
        assert!(others.eq(numbers.iter().copied().filter(|number| !(600..1200).contains(number))), "{name}");
        assert!(gap.time == at(2 * HOUR_MS - 1) && gap.from >= at(HOUR_MS), "{name}: {gap:?}");
        assert!(gap.reason.starts_with(&format!("cannot read {}: ", sealed.display())), "{name}: {}", gap.reason);
        assert_eq!(gap.unread, Some(sealed.clone()));
        let history = History::open(&scratch.0).unwrap();
        // An instant in the gap, and instants beside it.
        assert!(matches!(history.at(&place(), at(2 * HOUR_MS - 2), &shape).unwrap(), Some(Entry::Gap(_))), "{name}");
        for ms in [HOUR_MS - STEP_MS, 2 * HOUR_MS] {
            let found = history.at(&place(), at(ms), &shape).unwrap().unwrap();
            assert_eq!(found.time(), at(ms), "{name}");
        }
        // The outline has all other hours, and a recorder goes on.
        assert!(Outlines::default().of(&history, &place(), &shape).unwrap().len() >= 120, "{name}");
        drop(table);
        let mut table = Table::open(&scratch.root(), place(), OPTIONS, Duration::ZERO).unwrap();
        table.coarse(snapshot(at(3 * HOUR_MS), 3)).unwrap();
    }
}

#[test]
fn whatever_a_file_has_its_reader_goes_on() {
    let scratch = Scratch::new("mutated");
    let log = write_log(&scratch, (0..60).map(line));
    let text = fs::read(&log.path).unwrap();
    let sealed = File::of(&scratch.0, &place(), Kind::Sealed, at(0)).path;
    seal(&scratch, &log);
    let parquet = fs::read(&sealed).unwrap();
    let mut chance = crate::fixtures::Chance(7);
    let history = History::open(&scratch.0).unwrap();
    for _ in 0..1500 {
        for (path, bytes) in [(&sealed, &parquet), (&log.path, &text)] {
            let mut bytes = bytes.clone();
            for _ in 0..1 + chance.below(4) {
                let at = chance.below(bytes.len() as u64) as usize;
                bytes[at] = chance.below(256) as u8;
            }
            fs::write(path, bytes).unwrap();
        }
        // No panic, no error, and no wait.
        let mut each = |_| true;
        history.range(&place(), (at(0), at(HOUR_MS)), Grain::Coarse, &|_, _| None, &mut each).unwrap();
    }
}
