// SPDX-License-Identifier: Apache-2.0 OR MIT
//! This version reads the files that each earlier one wrote.
//!
//! A folder of `tests/corpus` is named after the day on which its version was current. It has an hour in Parquet (with a gap and
//! a snapshot without rows), a log, fine records, and the records that this version itself read from them. A change of a format
//! adds a folder: `WRITE_CORPUS=2026-12-24 cargo test -p topstat-history versions`.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use topstat_history::{Entry, Grain, History, Privacy, Root, Table};
use topstat_model::json;

use crate::fixtures::{OPTIONS, Scratch, at, place, shape, snapshot};

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");

/// All records, as lines of a log.
fn lines(root: &Path, grain: Grain) -> String {
    let mut lines = Vec::new();
    let mut each = |entry: Entry| {
        match entry {
            Entry::Snapshot(snapshot) => json::write(&snapshot, &mut lines).unwrap(),
            Entry::Gap(gap) => lines.write_all(&gap.line(&place().sample, &place().table)).unwrap(),
        }
        true
    };
    History::open(root).unwrap().range(&place(), (at(0), at(1 << 30)), grain, &shape, &mut each).unwrap();
    String::from_utf8(lines).unwrap()
}

fn write(root: &Path) {
    fs::create_dir_all(root).unwrap();
    let mut table = Table::open(&Root::guarded(root).unwrap(), place(), OPTIONS, Duration::ZERO).unwrap();
    for second in (3000..3660).step_by(10).filter(|second| !(3100..3500).contains(second)) {
        table.coarse(snapshot(at(second * 1000), if second == 3050 { 0 } else { 3 })).unwrap();
    }
    for second in 3660..3670 {
        let snapshot = snapshot(at(second * 1000), 5);
        let mut document = Vec::new();
        json::write(&snapshot, &mut document).unwrap();
        table.fine(snapshot.time, &document).unwrap();
        if second == 3660 {
            table.coarse(snapshot).unwrap();
        }
    }
    for file in table.to_seal(at(3_700_000)).unwrap() {
        table.seal(&file, &shape, &Privacy::default()).unwrap();
    }
    drop(table);
    for (grain, name) in [(Grain::Coarse, "coarse.jsonl"), (Grain::Fine, "fine.jsonl")] {
        fs::write(root.join(name), lines(root, grain)).unwrap();
    }
}

#[test]
fn what_earlier_versions_wrote_is_read() {
    if let Some(name) = std::env::var_os("WRITE_CORPUS") {
        write(&Path::new(CORPUS).join(name));
    }
    let mut versions: Vec<_> = fs::read_dir(CORPUS).unwrap().map(|entry| entry.unwrap().path()).collect();
    versions.sort();
    assert!(versions.len() >= 2, "{versions:?}");
    for version in &versions {
        for (grain, name) in [(Grain::Coarse, "coarse.jsonl"), (Grain::Fine, "fine.jsonl")] {
            let expected = fs::read_to_string(version.join(name)).unwrap();
            assert!(lines(version, grain) == expected, "{} {name}", version.display());
        }
    }
}

#[test]
fn logs_of_earlier_versions_are_sealed_whole() {
    for version in fs::read_dir(CORPUS).unwrap().map(|entry| entry.unwrap().path()) {
        let scratch = Scratch::new("versions");
        let below = |root: &Path| place().dir(root).join("date=2026-11-21");
        let (from, to) = (below(&version), below(&scratch.0));
        fs::create_dir_all(&to).unwrap();
        for file in fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
            fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
        }
        let mut table = Table::open(&scratch.root(), place(), OPTIONS, Duration::ZERO).unwrap();
        let logs = table.to_seal(at(9_000_000)).unwrap();
        assert_eq!(logs.len(), 1, "{}", version.display());
        assert_eq!(table.seal(&logs[0], &shape, &Privacy::default()).unwrap(), None, "{}", version.display());
        let expected = fs::read_to_string(version.join("coarse.jsonl")).unwrap();
        assert!(lines(&scratch.0, Grain::Coarse) == expected, "{}", version.display());
    }
}
