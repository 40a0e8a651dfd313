// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flushed records are never lost: by SIGKILL at any moment, and on full disks.
//!
//! The recorder that is killed is this program, started again. It records one snapshot after the other, and prints the number of
//! each on its standard output once it is flushed.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use topstat_history::{Entry, Grain, History, Keep, Privacy, Root, Table};
use topstat_model::json;

use crate::fixtures::{Chance, OPTIONS, Scratch, at, place, shape, snapshot};

/// The directory that the recorder writes to; set for the program that is started again.
const ROOT: &str = "TOPSTAT_TEST_RECORD_TO";
/// The number of the first snapshot that the recorder makes.
const FIRST: &str = "TOPSTAT_TEST_RECORD_FROM";
/// How many times the recorder is killed.
const KILLS: u32 = 200;

/// The recorder. It runs only where a test has started it. It seals an hour as soon as the hour is over; an hour has 60
/// snapshots.
#[test]
fn recorder_that_is_killed() {
    let (Some(root), Some(first)) = (std::env::var_os(ROOT), std::env::var(FIRST).ok()) else { return };
    let mut table = Table::open(&Root::guarded(Path::new(&root)).unwrap(), place(), OPTIONS, Duration::ZERO).unwrap();
    let mut out = std::io::stdout();
    for number in first.parse::<u64>().unwrap().. {
        let time = at(number * 60_000);
        for file in table.to_seal(time).unwrap() {
            // The disk may be full.
            let _ = table.seal(&file, &shape, &Privacy::default());
        }
        let snapshot = snapshot(time, 20);
        let mut document = Vec::new();
        json::write(&snapshot, &mut document).unwrap();
        let fine = table.fine(time, &document).is_ok();
        let said = if table.coarse(snapshot).is_ok() { "flushed" } else { "refused" };
        writeln!(out, "{said} {number} {fine}").unwrap();
        out.flush().unwrap();
    }
}

fn recorder(root: &Path, first: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["surviving::recorder_that_is_killed", "--exact", "--nocapture"]);
    command.env(ROOT, root).env(FIRST, first.to_string()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// The numbers of the snapshots that are read back whole, at this grain.
fn read_back(root: &Path, grain: Grain) -> Vec<u64> {
    let history = History::open(root).unwrap();
    let mut numbers = Vec::new();
    let forever = (at(0), at(1 << 40));
    let mut each = |entry: Entry| {
        if let Entry::Snapshot(found) = entry {
            let number = found.time.duration_since(at(0)).unwrap().as_secs() / 60;
            let written = snapshot(found.time, 20);
            assert_eq!((&found.rows, found.total), (&written.rows, written.total), "{number}");
            assert_eq!(found.check(), Ok(()));
            numbers.push(number);
        }
        true
    };
    history.range(&place(), forever, grain, &shape, &mut each).unwrap();
    numbers
}

#[test]
fn killed_at_random_moments_it_loses_nothing_that_was_flushed() {
    let scratch = Scratch::new("killed");
    let mut chance = Chance(u64::from(std::process::id()));
    let (mut flushed, mut next) = (Vec::new(), 0);
    for _ in 0..KILLS {
        let mut child = recorder(&scratch.0, next).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The recorder has begun. From then on it is killed at any moment, in a snapshot or in sealing.
        let numbers = |line: std::io::Result<String>| {
            let line = line.ok()?;
            line.split_once("flushed ")?.1.split(' ').next()?.parse::<u64>().ok()
        };
        let first = lines.by_ref().find_map(numbers).expect("it records");
        std::thread::sleep(Duration::from_micros(chance.below(30_000)));
        child.kill().unwrap();
        flushed.push(first);
        flushed.extend(lines.filter_map(numbers));
        child.wait().unwrap();
        // The last snapshot may be there although its number was not printed.
        next = flushed.last().unwrap() + 2;
    }
    let found = read_back(&scratch.0, Grain::Coarse);
    let missing: Vec<_> = flushed.iter().filter(|number| found.binary_search(number).is_err()).collect();
    assert!(missing.is_empty(), "{missing:?} of {}", flushed.len());
    assert!(found.len() - flushed.len() <= KILLS as usize, "{} {}", found.len(), flushed.len());
    let fine = read_back(&scratch.0, Grain::Fine);
    assert!(flushed.iter().all(|number| fine.binary_search(number).is_ok()));
    println!("{} snapshots in {KILLS} lives", flushed.len());
}

/// The test runs itself in a separate mount namespace, with a small disk.
#[test]
fn on_a_full_disk_it_loses_nothing_that_was_flushed_and_goes_on() {
    let scratch = Scratch::new("full");
    let disk = scratch.0.join("disk");
    std::fs::create_dir(&disk).unwrap();
    let (from, to) = (scratch.0.join("copy"), 400);
    let script = format!(
        "mount -t tmpfs -o size=160k,mode=700 none '{disk}' || exit 77; '{exe}' surviving::recorder_that_is_killed --exact \
         --nocapture | head -n {to} >'{said}'; cp -r '{disk}' '{copy}'",
        disk = disk.display(),
        exe = std::env::current_exe().unwrap().display(),
        said = scratch.0.join("said").display(),
        copy = from.display(),
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    command.env(ROOT, &disk).env(FIRST, "0").stderr(Stdio::piped());
    let output = command.output().unwrap();
    if !from.exists() {
        println!("skipped: no mount namespace: {}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let mut said = String::new();
    std::fs::File::open(scratch.0.join("said")).unwrap().read_to_string(&mut said).unwrap();
    let numbers = |what: &str| -> Vec<u64> {
        let after = |line: &str| line.split_once(what)?.1.split(' ').nth(1)?.parse().ok();
        said.lines().filter_map(after).collect()
    };
    let (flushed, refused) = (numbers("flushed"), numbers("refused"));
    assert!(!flushed.is_empty() && !refused.is_empty(), "{} {}", flushed.len(), refused.len());
    let found = read_back(&from, Grain::Coarse);
    let missing: Vec<_> = flushed.iter().filter(|number| found.binary_search(number).is_err()).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // Each time is in one gap at most, however often a record was refused.
    let mut gaps = Vec::new();
    let mut each = |entry: Entry| {
        if let Entry::Gap(gap) = entry {
            gaps.push((gap.from, gap.time));
        }
        true
    };
    History::open(&from).unwrap().range(&place(), (at(0), at(1 << 40)), Grain::Coarse, &shape, &mut each).unwrap();
    assert!(gaps.windows(2).all(|two| two[0].1 <= two[1].0), "{gaps:?}");
    // Once there is room the recorder goes on, and reports the gap.
    let last = flushed.iter().chain(&refused).max().unwrap() + 10;
    let root = Root::guarded(&from).unwrap();
    let mut table = Table::open(&root, place(), OPTIONS, Duration::ZERO).unwrap();
    table.coarse(snapshot(at(last * 60_000), 20)).unwrap();
    let entry = History::open(&from).unwrap().at(&place(), at(last * 60_000 - 1), &shape).unwrap();
    assert!(matches!(entry, Some(Entry::Gap(_))), "{entry:?}");
    // Files that take too many bytes are removed.
    let keep = Keep { age: Duration::MAX, fine_age: Duration::ZERO, bytes: 1 << 30 };
    assert!(!keep.apply(&root, at(last * 60_000)).unwrap().removed.is_empty());
    println!("{} flushed, {} refused", flushed.len(), refused.len());
}
