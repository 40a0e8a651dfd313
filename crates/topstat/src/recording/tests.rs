// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use topstat_model::events::record::Line;
use topstat_model::events::{Event, EventKind, json};
use topstat_model::{Column, ColumnKind, Field};

use super::*;

fn kind() -> Arc<EventKind> {
    Arc::new(EventKind {
        source: "test".into(),
        event: "one".into(),
        columns: vec![Column::new("number", ColumnKind::Id)],
        aliases: vec![None],
        payload: None,
    })
}

fn line(number: u64) -> Vec<u8> {
    let event = Event {
        time: UNIX_EPOCH + Duration::from_nanos(number),
        cpu: Some(0),
        seq: number,
        kind: kind(),
        fields: vec![Field::U64(number)],
        payload: None,
        late: false,
    };
    let mut line = Vec::new();
    json::event(&event, &mut line).unwrap();
    line
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("topstat-recording-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const UNLIMITED: Limits = Limits { bytes: None, age: None, keep: 3 };

/// Three frames of ten events each.
fn recorded(folder: &Folder) -> Vec<u8> {
    let (path, now) = (folder.0.join("events"), Instant::now());
    let mut recorder = Recorder::create(&path, vec![kind()], UNLIMITED, now).unwrap();
    for number in 0..30 {
        let time = now + Duration::from_secs(number / 10);
        recorder.tick(time).unwrap();
        recorder.put(&line(number), time).unwrap();
    }
    recorder.finish().unwrap();
    fs::read(&path).unwrap()
}

/// The numbers of the events that were read, and the damage after them.
fn read(bytes: &[u8]) -> (Vec<u64>, Option<Damage>) {
    let mut reading = Reading::new(bytes).unwrap();
    let mut numbers = Vec::new();
    loop {
        match reading.next() {
            Ok(Some(Line::Event(event))) => numbers.push(event.seq),
            Ok(Some(other)) => panic!("{other:?}"),
            Ok(None) => return (numbers, None),
            Err(damage) => return (numbers, Some(damage)),
        }
    }
}

#[test]
fn what_is_recorded_is_read() {
    let folder = Folder::new("read");
    assert_eq!(read(&recorded(&folder)), ((0..30).collect(), None));
}

/// RF2, RF3: wherever a file is cut off, all whole frames are read, and nothing else.
#[test]
fn a_file_that_is_cut_off_is_read_up_to_there() {
    let folder = Folder::new("cut");
    let bytes = recorded(&folder);
    let mut ends = 0;
    for length in 1..bytes.len() {
        match Reading::new(&bytes[..length]) {
            Err(why) => assert!(why.to_string().starts_with("it is no recording of topstat's events ("), "{why}"),
            Ok(_) => {
                let (numbers, damage) = read(&bytes[..length]);
                assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
                assert!(numbers.len().is_multiple_of(10), "a part of a frame is shown: {numbers:?}");
                ends += usize::from(damage.is_none());
                assert!(damage.is_none_or(|damage| damage.at < length as u64));
            }
        }
    }
    // A cut between two frames can't be noticed: after the frame of the header, and after two more.
    assert_eq!(ends, 3);
}

/// Whichever byte was changed, all data that is read is right, and it is read up to the damage.
#[test]
fn a_damaged_file_is_read_up_to_the_damage() {
    let folder = Folder::new("damaged");
    let bytes = recorded(&folder);
    for at in 0..bytes.len() {
        for bit in [0, 3, 7] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            if Reading::new(&damaged[..]).is_err() {
                continue;
            }
            let (numbers, damage) = read(&damaged);
            assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>(), "byte {at}, bit {bit}");
            assert!(numbers.len() == 30 || damage.is_some(), "byte {at}, bit {bit}: nobody says what is missing");
        }
    }
}

#[test]
fn what_is_no_recording_is_refused() {
    for bytes in [&b""[..], b"hello", b"\x28\xb5\x2f\xfd"] {
        let why = Reading::new(bytes).unwrap_err().to_string();
        assert!(why.starts_with("it is no recording of topstat's events ("), "{why}");
    }
    let other = zstd::encode_all(&b"{\"topstat_events\":9}\n"[..], 1).unwrap();
    let why = Reading::new(&other[..]).unwrap_err().to_string();
    assert_eq!(why, "it is of version 9, and this topstat reads version 1");
    // A small file that decompresses to gigabytes of zeroes takes no gigabytes of memory.
    let zeroes = zstd::encode_all(std::io::Read::take(std::io::repeat(0), 1 << 26), 1).unwrap();
    let why = Reading::new(&zeroes[..]).unwrap_err().to_string();
    assert!(why.contains("a frame has more than"), "{why}");
}

#[test]
fn files_are_rotated_by_size_and_by_age() {
    let folder = Folder::new("rotated");
    let (path, now) = (folder.0.join("events"), Instant::now());
    let limits = Limits { bytes: None, age: Some(Duration::from_secs(10)), keep: 2 };
    let mut recorder = Recorder::create(&path, vec![kind()], limits, now).unwrap();
    for second in 0..45 {
        let time = now + Duration::from_secs(second);
        recorder.tick(time).unwrap();
        recorder.put(&line(second), time).unwrap();
    }
    recorder.finish().unwrap();
    let numbers = |name: &str| read(&fs::read(folder.0.join(name)).unwrap());
    assert_eq!(numbers("events"), ((40..45).collect(), None));
    assert_eq!(numbers("events.1"), ((30..40).collect(), None));
    assert_eq!(numbers("events.2"), ((20..30).collect(), None));
    assert!(!folder.0.join("events.3").exists());
    // An existing file is not overwritten.
    let again = Recorder::create(&path, vec![kind()], limits, now).err().unwrap();
    assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
    let path = folder.0.join("small");
    let limits = Limits { bytes: Some(600), age: None, keep: 50 };
    let mut recorder = Recorder::create(&path, vec![kind()], limits, now).unwrap();
    for second in 0..45 {
        let time = now + 2 * Duration::from_secs(second);
        recorder.put(&line(second), time).unwrap();
        recorder.tick(time + Duration::from_secs(1)).unwrap();
    }
    recorder.finish().unwrap();
    let mut all = Vec::new();
    for entry in
        fs::read_dir(&folder.0).unwrap().flatten().filter(|e| e.file_name().to_string_lossy().starts_with("small"))
    {
        assert!(entry.metadata().unwrap().len() < 1200, "{entry:?}");
        let (numbers, damage) = read(&fs::read(entry.path()).unwrap());
        assert_eq!(damage, None);
        all.extend(numbers);
    }
    all.sort_unstable();
    assert_eq!(all, (0..45).collect::<Vec<_>>(), "none is lost between two files");
}

#[test]
fn only_the_owner_reads_a_recording() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new("private");
    let (path, now) = (folder.0.join("events"), Instant::now());
    let limits = Limits { bytes: Some(1), ..UNLIMITED };
    let mut recorder = Recorder::create(&path, vec![kind()], limits, now).unwrap();
    for number in 0..3 {
        recorder.put(&line(number), now).unwrap();
        recorder.tick(now + Duration::from_secs(number + 1)).unwrap();
    }
    recorder.finish().unwrap();
    let files: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|file| file.unwrap()).collect();
    assert!(files.len() > 1, "it begins another file");
    for file in files {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.file_name());
    }
}
