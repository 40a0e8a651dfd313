// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that are too old, or that take too many bytes, are removed, and no others.

use std::fs;
use std::time::Duration;

use topstat_history::layout::{File, Kind};
use topstat_history::{Keep, keep};

use crate::fixtures::{Scratch, at, place};

const HOUR_MS: u64 = 3_600_000;
/// Bytes of each file.
const SIZE: u64 = 64 * 1024;

fn fill(scratch: &Scratch, files: &[(Kind, u64)]) -> Vec<File> {
    let files = files.iter().map(|(kind, ms)| File::of(&scratch.0, &place(), *kind, at(*ms)));
    let files: Vec<_> = files.collect();
    for file in &files {
        fs::create_dir_all(file.path.parent().unwrap()).unwrap();
        fs::write(&file.path, vec![7; SIZE as usize]).unwrap();
    }
    files
}

fn left(files: &[File]) -> Vec<usize> {
    files.iter().enumerate().filter(|(_, file)| file.path.exists()).map(|(number, _)| number).collect()
}

#[test]
fn what_is_too_old_goes() {
    let scratch = Scratch::new("old");
    let files =
        fill(&scratch, &[(Kind::Sealed, 0), (Kind::Fine, 0), (Kind::Log, 30 * HOUR_MS), (Kind::Fine, 30 * HOUR_MS)]);
    let keep = Keep { age: Duration::from_secs(24 * 3600), fine_age: Duration::from_secs(2 * 3600), bytes: 1 << 30 };
    let kept = keep.apply(&scratch.root(), at(24 * HOUR_MS)).unwrap();
    assert_eq!((left(&files), kept.removed.len()), (vec![0, 2, 3], 1));
    keep.apply(&scratch.root(), at(25 * HOUR_MS)).unwrap();
    assert_eq!(left(&files), [2, 3]);
    assert!(!files[0].path.parent().unwrap().exists(), "the empty directory of the date goes, too");
}

#[test]
fn of_what_is_too_much_the_oldest_goes_and_fine_records_take_half() {
    let scratch = Scratch::new("much");
    let hours: Vec<_> = (0..6).map(|hour| (Kind::Sealed, hour * HOUR_MS)).collect();
    let pieces: Vec<_> = (0..6).map(|piece| (Kind::Fine, 5 * HOUR_MS + piece * 600_000)).collect();
    let files = fill(&scratch, &[hours, pieces].concat());
    let keep = |files: u64| Keep {
        age: Duration::from_secs(1 << 30),
        fine_age: Duration::from_secs(1 << 30),
        bytes: files * SIZE,
    };
    let now = at(7 * HOUR_MS);
    assert_eq!(keep(12).apply(&scratch.root(), now).unwrap().removed.len(), 0);
    let kept = keep(8).apply(&scratch.root(), now).unwrap();
    assert_eq!((kept.bytes, kept.fine_bytes), (8 * SIZE, 4 * SIZE));
    // The two oldest fine files, and the two oldest hours.
    assert_eq!(left(&files), [2, 3, 4, 5, 8, 9, 10, 11]);
    // A file that is being written stays, however large it is.
    let kept = keep(1).apply(&scratch.root(), at(5 * HOUR_MS + 3_599_999)).unwrap();
    assert_eq!((left(&files).last(), kept.bytes > SIZE), (Some(&11), true));
}

#[test]
fn what_was_left_unfinished_goes() {
    let scratch = Scratch::new("unfinished");
    let files = fill(&scratch, &[(Kind::Sealed, 0)]);
    let unfinished = files[0].path.with_extension("parquet.unfinished");
    fs::write(&unfinished, b"x").unwrap();
    keep::remove_unfinished(&scratch.root()).unwrap();
    assert!(!unfinished.exists() && files[0].path.exists());
}
