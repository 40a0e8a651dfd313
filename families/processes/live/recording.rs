// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recordings of events on a disk that is full: the recording ends, and is whole as far as it goes; the stream goes on.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::Value;
use topstat::{Exit, Kernel, SystemConsole};
use topstat_live::role::Role;
use topstat_live::{Case, Scratch, case, note};

/// A sample that needs what events need of the kernel, too: atomics that return a value.
const ATOMICS: &str = "net_ports/pps";

pub fn cases() -> Vec<Case> {
    vec![case!(a_full_disk_ends_the_recording_and_not_the_stream, Root, Sample(ATOMICS); Daemon)]
}

/// A file system of this size, which goes with it.
struct Small(Scratch);

impl Small {
    fn new() -> Self {
        let scratch = Scratch::new("small-disk");
        mount("tmpfs", scratch.path(), "tmpfs", MountFlags::empty(), Some(c"size=16k")).expect("mount a tmpfs");
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

/// What `topstat` with these arguments writes, and how it ends; meanwhile something is done.
fn run(arguments: &str, meanwhile: impl FnOnce()) -> (Vec<Value>, Exit) {
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    let line: Vec<_> = format!("topstat {arguments}").split_whitespace().map(Into::into).collect();
    let program = std::thread::spawn(move || {
        topstat::run(line, &mut Kernel, &mut SystemConsole::with_output(File::from(writer)))
    });
    let read = std::thread::spawn(move || {
        let lines = BufReader::new(File::from(reader)).lines();
        lines.map(|line| serde_json::from_str(&line.expect("a line")).expect("a document")).collect()
    });
    meanwhile();
    let documents = read.join().expect("the reader");
    (documents, program.join().expect("the program"))
}

fn a_full_disk_ends_the_recording_and_not_the_stream() {
    const FORKS: u64 = 3000;
    let disk = Small::new();
    let file = disk.path().join("events.zst");
    let mut parent = 0;
    let (documents, exit) = run(&format!("events tasks -o json --for 8s --record {}", file.display()), || {
        // The programs are attached by then.
        std::thread::sleep(std::time::Duration::from_secs(2));
        let mut role = Role::start("events-forks", &[&FORKS.to_string()]);
        parent = role.pid();
        role.expect("ready");
        role.tell("go");
        while role.hear() != "done" {}
        role.finish();
    });
    assert_eq!(exit, Exit::Failed, "what is not recorded is missing in the file");
    let of = |documents: &[Value], event: &str| {
        documents.iter().filter(|d| d["event"] == event && d["ppid"] == parent).count() as u64
    };
    let account = documents.last().expect("an account");
    let shown = of(&documents, "exit");
    assert!(shown + account["skipped"].as_u64().expect("a number") >= FORKS, "{shown} were shown: {account}");
    let (replayed, exit) = run(&format!("replay {} -o json", file.display()), || ());
    assert_eq!(exit, Exit::Done, "it is whole as far as it goes");
    assert!(!replayed.is_empty() && replayed.len() < documents.len(), "{} of {}", replayed.len(), documents.len());
    assert_eq!(replayed, documents[..replayed.len()], "it is the same, from the beginning");
    note(format!("{} of {} lines were recorded", replayed.len(), documents.len()));
}
