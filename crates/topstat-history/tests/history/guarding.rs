// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recorder that runs as root writes only below its directory, and only its user reads the files.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use topstat_history::layout::{File, Kind, places};
use topstat_history::{Keep, Privacy, Root, Table};

use crate::fixtures::{OPTIONS, Scratch, at, place, shape, snapshot};

fn record(root: &Root) -> Result<(), topstat_history::Error> {
    let mut table = Table::open(root, place(), OPTIONS, Duration::ZERO)?;
    table.coarse(snapshot(at(0), 3))?;
    table.fine(at(0), b"{}\n")?;
    table.pause()?;
    for log in table.to_seal(at(9_000_000))? {
        table.seal(&log, &shape, &Privacy::default())?;
    }
    // The next hour stays a log.
    table.coarse(snapshot(at(3_600_000), 3))
}

fn modes(dir: &Path, found: &mut Vec<(bool, u32)>) {
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
        let stat = entry.metadata().unwrap();
        found.push((stat.is_dir(), stat.mode() & 0o777));
        if stat.is_dir() {
            modes(&entry.path(), found);
        }
    }
}

#[test]
fn only_the_owner_reads_records() {
    let scratch = Scratch::new("modes");
    let root = Root::make(&scratch.0.join("made/history")).unwrap();
    record(&root).unwrap();
    let mut found = Vec::new();
    modes(&scratch.0, &mut found);
    assert_eq!(found.iter().filter(|(is_dir, _)| !is_dir).count(), 3, "a sealed hour and two logs");
    for (is_dir, mode) in found {
        assert_eq!(mode, if is_dir { 0o700 } else { 0o600 });
    }
}

#[test]
fn no_link_is_followed() {
    let log = File::of(Path::new("/h"), &place(), Kind::Log, at(0)).path;
    let mut below = log.strip_prefix("/h").unwrap().to_owned();
    let mut names = vec![below.clone()];
    while below.pop() && !below.as_os_str().is_empty() {
        names.push(below.clone());
    }
    assert_eq!(names.len(), 4, "{names:?}");
    for name in names {
        let scratch = Scratch::new("links");
        let (root, other) = (scratch.0.join("history"), scratch.0.join("other"));
        fs::create_dir_all(root.join(&name).parent().unwrap()).unwrap();
        // The target of the link, which must stay unchanged.
        let is_log = name.extension().is_some();
        if is_log {
            fs::write(&other, b"precious").unwrap();
        } else {
            fs::create_dir(&other).unwrap();
        }
        symlink(&other, root.join(&name)).unwrap();
        let root = Root::make(&root).unwrap();
        let error = record(&root).unwrap_err();
        let why = std::error::Error::source(&error).unwrap().to_string();
        assert!(why.contains("symbolic link"), "{}: {why}", name.display());
        match is_log {
            true => assert_eq!(fs::read(&other).unwrap(), b"precious"),
            false => assert_eq!(fs::read_dir(&other).unwrap().count(), 0),
        }
        // No file is listed or removed through it either.
        if !is_log {
            let below = other.join("table=tcp_v4.conns_bps/date=2026-11-21");
            fs::create_dir_all(&below).unwrap();
            fs::write(below.join("08.parquet"), b"precious").unwrap();
            let keep = Keep { age: Duration::ZERO, fine_age: Duration::ZERO, bytes: 1 };
            keep.apply(&root, at(1 << 40)).unwrap();
            assert!(below.join("08.parquet").exists());
        }
    }
}

#[test]
fn others_places_are_refused() {
    let scratch = Scratch::new("others");
    let dir = scratch.0.join("history");
    fs::create_dir(&dir).unwrap();
    let refused = |path: &Path| Root::make(path).err().map(|error| format!("{error}: {}", error.source));
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o770)).unwrap();
    let why = refused(&dir).unwrap();
    assert!(why.contains("others than its owner may write to it (mode 0770)"), "{why}");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(refused(&dir), None);
    // A directory on the path: as in /tmp, the sticky bit lets only the owner of an entry exchange it.
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o777)).unwrap();
    let why = refused(&dir).unwrap();
    assert!(why.contains("exchange what is below"), "{why}");
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o1777)).unwrap();
    assert_eq!(refused(&dir), None);
    symlink(&dir, scratch.0.join("link")).unwrap();
    let why = refused(&scratch.0.join("link/deeper")).unwrap();
    assert!(why.contains("it is a symbolic link, and none is followed"), "{why}");
    // A file that others can write, and a FIFO, which a reader does not wait for.
    let root = Root::make(&dir).unwrap();
    record(&root).unwrap();
    let log = File::of(&dir, &place(), Kind::Log, at(3_600_000)).path;
    fs::set_permissions(&log, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(record(&root).unwrap_err().source.to_string().contains("(mode 0666)"));
    fs::remove_file(&log).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &log, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    assert!(record(&root).unwrap_err().source.to_string().contains("it is not a regular file"));
    if rustix::process::geteuid().is_root() {
        fs::remove_file(&log).unwrap();
        std::os::unix::fs::chown(log.parent().unwrap(), Some(12345), None).unwrap();
        assert!(record(&root).unwrap_err().source.to_string().contains("it belongs to uid 12345, and not to root"));
        assert_eq!(places(&root).unwrap(), [place()]);
        std::os::unix::fs::chown(&dir, Some(12345), None).unwrap();
        assert!(refused(&dir).unwrap().contains("it belongs to uid 12345"));
    }
}
