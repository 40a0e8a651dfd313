// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The BPF file system is unmounted under a daemon that has it open: the daemon reports it, and pins all state again where it
//! can.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use topstat_live::daemon::Place;
use topstat_live::tree::Document;
use topstat_live::{Case, Daemon, Scratch, alone, eventually, mounts, nest, note};

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Attached: what_is_unmounted_is_missed_and_pinned_again, Root, Fuse),
        alone!(Attached: the_usual_file_system_is_mounted_again, Root, Fuse),
    ]
}

const TABLE: &str = "udp_v4/conns_bytes";
const SOON: Duration = Duration::from_secs(10);

/// Mounts a BPF file system.
fn mount_bpf(at: &Path) {
    mount("bpf", at, "bpf", MountFlags::empty(), Some(c"mode=700")).expect("mount a BPF file system");
}

/// Unmounts the file system although it is open.
fn unmount_bpf(at: &Path) {
    unmount(at, UnmountFlags::DETACH).expect("unmount the BPF file system");
}

/// A socket that sends to itself, and the bytes that it has sent and received.
struct Sender(UdpSocket, u64);

impl Sender {
    fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(socket.local_addr().unwrap()).unwrap();
        Self(socket, 0)
    }

    fn send(&mut self) {
        for _ in 0..100 {
            self.0.send(&[0; 1000]).unwrap();
            self.0.recv(&mut [0; 1000]).unwrap();
            // Both directions count.
            self.1 += 2 * 1000;
        }
    }

    /// Whether a document shows these bytes. The headers of packets count, too, if packets are counted.
    fn is_shown(&self, document: &Document) {
        let port = self.0.local_addr().unwrap().port();
        let rows = document.value["rows"].as_array().unwrap();
        let of = |row: &&serde_json::Value| row["object"]["sport"] == port;
        let shown: u64 = rows.iter().filter(of).map(|row| row["value"].as_u64().unwrap()).sum();
        assert!(shown >= self.1 && shown < self.1 + self.1 / 5, "{shown} of {}", self.1);
    }
}

/// All files below a directory.
fn pinned(below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(below).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() { found.extend(pinned(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn what_is_unmounted_is_missed_and_pinned_again() {
    let scratch = Scratch::new("unmounted");
    let bpf = scratch.path().join("bpf");
    fs::create_dir(&bpf).unwrap();
    mount_bpf(&bpf);
    let mut place = Place::new();
    place.pins = bpf.join("topstat");
    let place = Arc::new(place);
    let mut daemon = Daemon::start_at(Arc::clone(&place), &[]);
    let mut sender = Sender::new();
    sender.send();
    let files = pinned(&place.pins);
    assert!(!files.is_empty() && daemon.own()["unpinned"].is_null());

    unmount_bpf(&bpf);
    let fault = |daemon: &Daemon| daemon.own()["unpinned"].as_str().map(str::to_owned);
    assert!(eventually(SOON, || fault(&daemon).is_some()), "{}", daemon.log());
    assert!(daemon.says("statistics are not pinned any more, and can't be pinned again"), "{}", daemon.log());
    assert!(fault(&daemon).unwrap().contains("it is not on a BPF file system"), "{:?}", fault(&daemon));
    sender.send();
    sender.is_shown(&daemon.json(TABLE));
    let check = topstat_live::role::command("topstat").args(["check", "udp"]).output().expect("topstat check");
    let check = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(check.contains("no path leads to the pins of "), "{check}");

    mount_bpf(&bpf);
    assert!(eventually(SOON, || fault(&daemon).is_none()), "{}", daemon.log());
    assert!(daemon.says("pinned again, without loss"), "{}", daemon.log());
    assert_eq!(pinned(&place.pins), files);
    sender.send();
    sender.is_shown(&daemon.json(TABLE));
    // Another process and the daemon set the same state.
    let pins = place.pins.to_str().unwrap();
    let set = |value| {
        let mut command = topstat_live::role::command("topstat");
        command.args(["set", "--mount", "/nonexistent", "--pins", pins, "udp_v4/enabled", value]);
        assert!(command.status().expect("topstat set").success());
    };
    set("0");
    assert_eq!(daemon.read("udp_v4/enabled"), "0\n");
    daemon.write("udp_v4/enabled", 1);
    // The state outlives the daemon again.
    daemon.kill();
    sender.send();
    let next = Daemon::start_at(Arc::clone(&place), &[]);
    assert!(next.says("inet: found pinned, and adopted"), "{}", next.log());
    sender.is_shown(&next.json(TABLE));
    note(format!("{} files pinned again", files.len()));
    drop(next);
    drop(daemon);
    let _ = fs::remove_dir_all(&place.pins);
    unmount_bpf(&bpf);
}

fn the_usual_file_system_is_mounted_again() {
    const USUAL: &str = "/sys/fs/bpf";
    mounts::keep_to_this_thread();
    while nest::mounted() {
        unmount_bpf(Path::new(USUAL));
    }
    mount_bpf(Path::new(USUAL));
    let mut daemon = Daemon::start();
    let mut sender = Sender::new();
    sender.send();
    let files = pinned(&daemon.place.pins);
    unmount_bpf(Path::new(USUAL));
    assert!(daemon.says("pinned again, without loss"), "{}", daemon.log());
    // The file system may be unmounted while the daemon looks at its states: then the next look pins the earlier ones.
    assert!(eventually(SOON, || pinned(&daemon.place.pins) == files), "{}", daemon.log());
    assert!(nest::mounted() && !files.is_empty());
    assert!(daemon.own()["unpinned"].is_null());
    let place = Arc::clone(&daemon.place);
    daemon.kill();
    sender.send();
    let next = Daemon::start_at(place, &[]);
    sender.is_shown(&next.json(TABLE));
}
