// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recordings of events on a full disk: the recording ends, and its content so far is complete; the stream goes on.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::Value;
use topstat::{Exit, Kernel, SystemConsole};
use topstat_live::{Case, Scratch, case, eventually, note, pace};

pub fn cases() -> Vec<Case> {
    vec![case!(a_full_disk_ends_the_recording_and_not_the_stream, Root, Atomics; Daemon)]
}

/// The size of the file system, as it is mounted.
const DISK_BYTES: usize = 64 << 10;
/// No architecture has smaller pages, and a file system in memory has whole pages.
const PAGE_BYTES: usize = 4096;

/// A file system of this size; dropping it unmounts it.
struct Small(Scratch);

impl Small {
    fn new() -> Self {
        let scratch = Scratch::new("small-disk");
        mount("tmpfs", scratch.path(), "tmpfs", MountFlags::empty(), Some(c"size=64k")).expect("mount a tmpfs");
        Self(scratch)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = unmount(self.path(), UnmountFlags::DETACH);
    }
}

/// Runs `topstat` with these arguments. Returns its output, and how it ended.
fn run(arguments: &[String], read: &Read) -> (Vec<Value>, Exit) {
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    let line: Vec<_> = std::iter::once("topstat".into()).chain(arguments.iter().map(Into::into)).collect();
    let program = std::thread::spawn(move || {
        topstat::run(line, &mut Kernel, &mut SystemConsole::with_output(File::from(writer)))
    });
    let lines = BufReader::new(File::from(reader)).lines();
    let documents = lines.map(|line| {
        read.lines.fetch_add(1, Ordering::AcqRel);
        serde_json::from_str(&line.expect("a line")).expect("a document")
    });
    let documents = documents.collect();
    read.ended.store(true, Ordering::Release);
    (documents, program.join().expect("the program"))
}

/// The lines read from the program so far, and whether it has ended.
#[derive(Default)]
struct Read {
    lines: AtomicU64,
    ended: AtomicBool,
}

/// Runs a child that begins and ends.
fn one_more() {
    let status = Command::new("true").status().expect("run true");
    assert!(status.success(), "{status}");
}

/// The number of lines of a recording, with the header. 0 if it is being written at the moment.
fn lines_in(file: &Path) -> usize {
    let text = File::open(file).and_then(zstd::decode_all).unwrap_or_default();
    text.iter().filter(|byte| **byte == b'\n').count()
}

/// Leaves no page of the file system free.
fn fill(disk: &Small) {
    let mut filler = File::create(disk.path().join("filler")).expect("a file");
    let error = (0..=DISK_BYTES / PAGE_BYTES).find_map(|_| filler.write_all(&[b'x'; PAGE_BYTES]).err());
    let error = error.expect("it has a size").kind();
    assert_eq!(error, std::io::ErrorKind::StorageFull);
}

/// Events that are recorded before the disk is full.
const BEFORE: usize = 20;

/// The disk becomes full during a recording. All that was recorded until then can be read, all events are shown, and the
/// program's exit status says that the recording is incomplete.
fn a_full_disk_ends_the_recording_and_not_the_stream() {
    // The times, pids and clocks of these events take more than a page, however well they are compressed: the file may use the
    // rest of its last page.
    let events = pace::work(2000, 600);
    let disk = Small::new();
    let file = disk.path().join("events.zst");
    let own = std::process::id();
    let line = ["events", "tasks", "-o", "json", "-n", &events.to_string(), "-f", &format!("event:exit ppid:{own}")];
    // The program ends after this time, even if it shows too few events.
    let most = format!("{}s", pace::patience(Duration::from_secs(100)).as_secs());
    let path = file.to_str().expect("a text");
    let line: Vec<_> = line.into_iter().chain(["--for", &most, "--record", path]).map(str::to_owned).collect();
    let read = Read::default();
    let (documents, exit) = std::thread::scope(|scope| {
        let program = scope.spawn(|| run(&line, &read));
        let is_over = || read.ended.load(Ordering::Acquire);
        while read.lines.load(Ordering::Acquire) < BEFORE as u64 {
            assert!(!is_over(), "it ends before there is anything");
            one_more();
        }
        // An event is written a second after it has happened.
        assert!(eventually(Duration::from_secs(50), || lines_in(&file) > BEFORE), "{} lines", lines_in(&file));
        fill(&disk);
        while !is_over() {
            one_more();
        }
        program.join().expect("the program")
    });
    assert_eq!(exit, Exit::Failed, "what is not recorded is missing in the file");
    let replay = ["replay", path, "-o", "json"].map(str::to_owned);
    let (recorded, exit) = run(&replay, &Read::default());
    assert_eq!(exit, Exit::Done, "it is whole as far as it goes");
    let (accounts, shown): (Vec<_>, Vec<_>) = documents.iter().partition(|document| document["event"] == "account");
    assert_eq!(shown.len() as u64, events, "the stream goes on: {:?}", accounts.last());
    let in_file: Vec<_> = recorded.iter().filter(|document| document["event"] != "account").collect();
    assert!(in_file.len() >= BEFORE, "{} are left of those before the disk was full", in_file.len());
    assert!(in_file.len() < shown.len(), "there was no space for all {}", shown.len());
    assert_eq!(in_file, shown[..in_file.len()], "it is the same, from the beginning");
    let bytes = std::fs::metadata(&file).expect("the recording").len();
    assert!(bytes < DISK_BYTES as u64, "{bytes} bytes");
    note(format!("{} of {} events were recorded, in {bytes} bytes", in_file.len(), shown.len()));
}
