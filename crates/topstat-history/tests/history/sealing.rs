// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An hour in Parquet has all that its log had.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use topstat_history::layout::{File, Kind, files};
use topstat_history::log::Writer;
use topstat_history::private::{Hide, Which};
use topstat_history::{Entry, Gap, Privacy, Root, sealed};
use topstat_model::{Column, ColumnKind, CpuSection, Field, Lost, Reach, Row, Snapshot, json};

use crate::fixtures::{Scratch, at, place, shape, snapshot};

/// Writes a log of the hour that `at(0)` begins.
fn write_log(root: &std::path::Path, entries: &[Entry]) -> File {
    let place = place();
    let log = File::of(root, &place, Kind::Log, at(0));
    let open = Root::guarded(root).unwrap().write(&log.path).unwrap();
    let mut writer = Writer::open(open, &log.path).unwrap();
    for entry in entries {
        let mut line = Vec::new();
        match entry {
            Entry::Snapshot(snapshot) => json::write(snapshot, &mut line).unwrap(),
            Entry::Gap(gap) => line = gap.line(&place.sample, &place.table),
        }
        writer.append(&line).unwrap();
    }
    writer.sync().unwrap();
    log
}

fn read(root: &std::path::Path) -> Vec<Entry> {
    let sealed = File::of(root, &place(), Kind::Sealed, at(0));
    let mut entries = Vec::new();
    let always = (UNIX_EPOCH, SystemTime::now() + Duration::from_secs(1 << 32));
    sealed::read(fs::File::open(&sealed.path).unwrap(), always, &shape, &mut |entry| entries.push(entry)).unwrap();
    entries
}

fn gap() -> Entry {
    Entry::Gap(Gap {
        time: at(30_000),
        from: at(10_000),
        reason: "the disk was \"full\"\n\u{1b}[31m".into(),
        unread: None,
    })
}

#[test]
fn a_sealed_hour_has_all_that_its_log_had_in_few_bytes() {
    let scratch = Scratch::new("sealed");
    // One snapshot has no rows, and a gap precedes another one.
    let mut entries: Vec<_> = (0..360)
        .map(|number| Entry::Snapshot(Box::new(snapshot(at(number * 10_000), if number == 7 { 0 } else { 32 }))))
        .collect();
    entries.insert(3, gap());
    let log = write_log(&scratch.0, &entries);
    sealed::seal(&scratch.root(), &place(), &log, &shape, &Privacy::default()).unwrap();
    assert!(!log.path.exists());
    assert_eq!(files(&scratch.root(), &place()).unwrap().len(), 1);
    let found = read(&scratch.0);
    assert_eq!(found.len(), entries.len());
    for (found, entry) in found.iter().zip(&entries) {
        assert_eq!(found, entry);
    }
    let sealed = File::of(&scratch.0, &place(), Kind::Sealed, at(0));
    let (bytes, rows) = (fs::metadata(&sealed.path).unwrap().len(), 359 * 32 + 2);
    println!("{bytes} bytes for {rows} rows: {:.1} each", bytes as f64 / rows as f64);
    assert!(bytes <= 25 * rows, "{bytes} bytes for {rows} rows");
    assert_eq!(sealed::last_time(fs::File::open(&sealed.path).unwrap()).unwrap(), Some(at(3_590_000)));
}

#[test]
fn an_hour_that_comes_again_is_sealed_with_what_it_had() {
    let scratch = Scratch::new("again");
    let of = |numbers: &[u64]| -> Vec<_> {
        numbers.iter().map(|number| Entry::Snapshot(Box::new(snapshot(at(number * 1000), 3)))).collect()
    };
    for numbers in [&[1, 2, 9][..], &[2, 3, 10]] {
        let log = write_log(&scratch.0, &of(numbers));
        sealed::seal(&scratch.root(), &place(), &log, &shape, &Privacy::default()).unwrap();
    }
    assert_eq!(read(&scratch.0), of(&[1, 2, 3, 9, 10]));
}

#[test]
fn a_log_that_can_not_be_sealed_stays() {
    let scratch = Scratch::new("stays");
    let log = write_log(&scratch.0, &[gap()]);
    // A directory has the name of the sealed file.
    let sealed = File::of(&scratch.0, &place(), Kind::Sealed, at(0));
    fs::create_dir(&sealed.path).unwrap();
    let error = sealed::seal(&scratch.root(), &place(), &log, &shape, &Privacy::default()).unwrap_err();
    assert!(error.to_string().starts_with("cannot "), "{error}");
    assert!(log.path.exists());
    assert_eq!(fs::read_dir(log.path.parent().unwrap()).unwrap().count(), 2, "nothing unfinished is left");
}

fn field() -> impl Strategy<Value = Field> {
    prop_oneof![
        Just(Field::None),
        any::<u64>().prop_map(Field::U64),
        any::<String>().prop_map(Field::Text),
        any::<std::net::IpAddr>().prop_map(Field::Ip),
    ]
}

/// Tables of an unknown sample, some of whose columns have the names of fixed ones.
fn unknown() -> impl Strategy<Value = Snapshot> {
    let names = ["addr", "type", "gap", "Value", "lost_contended", "x"];
    let rows = proptest::collection::vec((any::<u64>(), proptest::collection::vec(field(), names.len())), 0..5);
    (rows, any::<u64>(), any::<u64>()).prop_map(move |(rows, total, lost)| {
        let mut snapshot = snapshot(at(5000), 0);
        snapshot.sample = "unknown".into();
        snapshot.columns = names.map(|name| Column::optional(name, ColumnKind::Text)).to_vec();
        snapshot.columns[0].kind = ColumnKind::Address;
        snapshot.lost = Lost { contended: lost, no_memory: 1, further: vec![("other".into(), total)] };
        snapshot.rows = (1..)
            .zip(rows)
            .map(|(rank, (value, object))| Row {
                id: Row::NO_ID,
                rank,
                value,
                object,
                parts: vec![value, 1],
                cpus: vec![3, 9],
            })
            .collect();
        // Divided by 8, five rows of any values and the rest add up to less than 2^64.
        snapshot.rows.iter_mut().for_each(|row| row.value /= 8);
        snapshot.total = snapshot.rows.iter().map(|row| row.value).sum::<u64>() + total / 8;
        snapshot.settle().unwrap();
        snapshot.cpus = vec![CpuSection { cpu: 7, total: snapshot.total, stale: true, rows: vec![] }];
        snapshot
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_is_in_a_table_is_read_back(written in unknown()) {
        let scratch = Scratch::new("unknown");
        let place = place();
        let sealed = File::of(&scratch.0, &place, Kind::Sealed, at(0));
        let log = write_log(&scratch.0, &[Entry::Snapshot(Box::new(written.clone()))]);
        sealed::seal(&scratch.root(), &place, &log, &|_, _| None, &Privacy::default()).unwrap();
        let mut entries = Vec::new();
        sealed::read(fs::File::open(&sealed.path).unwrap(), (at(5000), at(5000)), &|_, _| None, &mut |entry| entries.push(entry)).unwrap();
        let Some(Entry::Snapshot(found)) = entries.pop() else { panic!("{entries:?}") };
        prop_assert_eq!((found.total, found.other, &found.lost), (written.total, written.other, &written.lost));
        prop_assert_eq!(&found.cpus, &written.cpus);
        prop_assert_eq!(found.rows.len(), written.rows.len());
        for (found_row, row) in found.rows.iter().zip(&written.rows) {
            prop_assert_eq!((found_row.rank, found_row.value, &found_row.cpus), (row.rank, row.value, &row.cpus));
            prop_assert_eq!(&found_row.parts, &row.parts);
            // The type of a column is inferred: only its text has to be equal, and a column without any cell is left out.
            for (column, field) in written.columns.iter().zip(&row.object) {
                let place = found.column(&column.name);
                let found_field = place.map_or(&Field::None, |place| &found_row.object[place]);
                prop_assert_eq!(found_field.to_string(), field.to_string(), "{}", column.name);
            }
        }
    }
}

#[test]
fn what_is_private_is_in_logs_alone() {
    let scratch = Scratch::new("private");
    let named = |name: &str| Which::Named(name.to_owned());
    let rules = vec![(Which::Addresses, Hide::Cut), (named("comm"), Hide::Hash), (named("pid"), Hide::Drop)];
    let privacy = Privacy::new(rules, b"key");
    let entries: Vec<_> = (0..2).map(|number| Entry::Snapshot(Box::new(snapshot(at(number * 1000), 8)))).collect();
    // The second seal merges the hour's file, which is not hidden a second time, with a log of a later record.
    for entry in &entries {
        let log = write_log(&scratch.0, std::slice::from_ref(entry));
        sealed::seal(&scratch.root(), &place(), &log, &shape, &privacy).unwrap();
    }
    let found = read(&scratch.0);
    assert_eq!(found.len(), entries.len());
    let mut hashes = std::collections::BTreeMap::new();
    for (found, entry) in found.iter().zip(&entries) {
        let (Entry::Snapshot(found), Entry::Snapshot(truth)) = (found, entry) else { panic!("no snapshot: {found:?}") };
        assert_eq!((found.total, found.other, found.proven), (truth.total, truth.other, truth.proven));
        for (found, truth) in found.rows.iter().zip(&truth.rows) {
            assert_eq!((found.rank, found.value, &found.parts), (truth.rank, truth.value, &truth.parts));
            let [sip, sport, dip, dport, pid, comm, ..] = &found.object[..] else { panic!("columns are missing") };
            assert_eq!((sip, dip), (&Field::from("10.0.0.0/24"), &Field::from("192.0.2.0/24")));
            assert_eq!((sport, dport), (&truth.object[1], &truth.object[3]));
            assert_eq!(*pid, Field::None);
            assert_eq!(found.object[6..], truth.object[6..]);
            let hash = hashes.entry(truth.object[5].to_string()).or_insert_with(|| comm.clone());
            assert_eq!((hash as &Field, comm.to_string().len()), (comm, 16));
        }
    }
    assert!(hashes.len() > 1, "{hashes:?}");
    let sealed = File::of(&scratch.0, &place(), Kind::Sealed, at(0));
    let sealed = sealed::Sealed::open(fs::File::open(&sealed.path).unwrap()).unwrap();
    // Two connections of one process to one network are one object there.
    assert_eq!(sealed.about().key.as_ref().map(|key| key.reach), Some(Reach::Part));
}
