// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captured payloads, compared with the bytes that the test has written, sent, read and received.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use topstat_kernel::events::{Capture, Options};
use topstat_live::cgroup::Group;
use topstat_live::events::{Told, during_with, number, text};
use topstat_live::role::{Role, name, say, told as heard};
use topstat_live::{Case, case, note, pace};
use topstat_model::events::{Event, Payload};

pub fn cases() -> Vec<Case> {
    vec![
        case!(what_each_call_has_moved_is_captured, Root, Atomics; EveryKernel, Gate),
        case!(only_what_is_asked_for_is_captured, Root, Atomics; EveryKernel),
        case!(a_control_group_is_captured_with_all_below_it, Root, CgroupV2, Atomics; EveryKernel),
        case!(every_write_is_captured_or_counted, Root, Atomics; EveryKernel),
    ]
}

/// Plays the role "events-writer": does what the lines on its input say.
pub fn play(role: &str, _: &[String]) -> Option<ExitCode> {
    (role == "events-writer").then(|| {
        name("captured");
        say("ready");
        while let Some(line) = heard() {
            match line.split_once(' ') {
                Some(("calls", path)) => calls(path),
                Some(("many", count)) => many(count.parse().expect("a number")),
                other => panic!("{other:?}"),
            }
            say("done");
        }
        ExitCode::SUCCESS
    })
}

const TEXT: &[u8] = b"plain \x1b[31mred\x00\xff";

/// Makes one call of each kind.
fn calls(path: &str) {
    use std::os::unix::fs::FileExt as _;
    let mut file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path).expect("a file");
    file.write_all(TEXT).expect("write");
    file.write_all_at(&TEXT[1..], 0).expect("pwrite");
    let pieces = [IoSlice::new(b""), IoSlice::new(&TEXT[2..]), IoSlice::new(b"behind")];
    assert_eq!(file.write_vectored(&pieces).expect("writev"), TEXT.len() - 2 + 6);
    file.read_exact_at(&mut [0; 5], 0).expect("pread");
    let mut all = Vec::new();
    File::open(path).and_then(|mut file| file.read_to_end(&mut all)).expect("read");
    let (mut piece, mut other) = ([0; 3], [0; 4]);
    let mut again = File::open(path).expect("it is there");
    let read = again.read_vectored(&mut [IoSliceMut::new(&mut piece), IoSliceMut::new(&mut other)]).expect("readv");
    assert_eq!(read, piece.len() + other.len());
    let (mut one, two) = UnixStream::pair().expect("a pair");
    rustix::net::send(&one, &TEXT[3..], rustix::net::SendFlags::empty()).expect("send");
    let (mut buffer, flags) = ([0; 64], rustix::net::RecvFlags::empty());
    rustix::net::recv(&two, &mut buffer[..], flags).expect("recv");
    let mut none = rustix::net::SendAncillaryBuffer::default();
    let pieces = [IoSlice::new(&TEXT[4..])];
    rustix::net::sendmsg(&two, &pieces, &mut none, rustix::net::SendFlags::empty()).expect("sendmsg");
    let mut none = rustix::net::RecvAncillaryBuffer::default();
    rustix::net::recvmsg(&one, &mut [IoSliceMut::new(&mut buffer)], &mut none, flags).expect("recvmsg");
    // This call moves nothing.
    drop(two);
    assert_eq!(one.read(&mut buffer).expect("the end"), 0);
}

/// Writes numbers to /dev/null.
fn many(count: u64) {
    let mut null = OpenOptions::new().write(true).open("/dev/null").expect("/dev/null");
    for number in 0..count {
        null.write_all(&number.to_ne_bytes()).expect("write");
    }
}

fn capture(capture: Capture, work: impl FnOnce() + Send) -> Told {
    during_with(&["capture"], &Options { capture, ..Options::default() }, work).0
}

/// The only event of a call whose payload begins with these bytes.
fn only<'a>(told: &'a Told, call: &str, begins: &[u8]) -> (&'a Event, &'a Payload) {
    fn payload(event: &Event) -> &Payload {
        event.payload.as_ref().expect("all have one")
    }
    let is = |event: &&Event| text(event, "call") == call && payload(event).bytes.starts_with(begins);
    let found: Vec<_> = told.events.iter().filter(is).collect();
    assert_eq!(found.len(), 1, "{call} of {begins:?}: {:#?}", told.events);
    (found[0], payload(found[0]))
}

fn what_each_call_has_moved_is_captured() {
    let scratch = topstat_live::Scratch::new("capture");
    let path = scratch.path().join("file");
    let mut role = Role::start("events-writer", &[]);
    role.expect("ready");
    let pid = role.pid();
    let told = capture(Capture { pids: vec![pid], snaplen: 1000, ..Capture::default() }, || {
        role.tell(&format!("calls {}", path.display()));
        role.expect("done");
    });
    for (call, direction, payload, moved) in [
        ("write", "out", TEXT, TEXT.len()),
        ("pwrite64", "out", &TEXT[1..], TEXT.len() - 1),
        ("writev", "out", &TEXT[2..], TEXT.len() - 2 + 6),
        ("sendto", "out", &TEXT[3..], TEXT.len() - 3),
        ("sendmsg", "out", &TEXT[4..], TEXT.len() - 4),
        ("recvfrom", "in", &TEXT[3..], TEXT.len() - 3),
        ("recvmsg", "in", &TEXT[4..], TEXT.len() - 4),
        ("pread64", "in", &TEXT[1..6], 5),
        ("readv", "in", &TEXT[1..4], 7),
    ] {
        let (event, found) = only(&told, call, payload);
        assert_eq!(found.bytes, payload, "{event:?}");
        assert_eq!((number(event, "bytes"), found.whole), (moved as u64, moved as u64), "{event:?}");
        assert_eq!(text(event, "direction"), direction, "{event:?}");
        assert_eq!((number(event, "pid"), text(event, "comm")), (pid.into(), "captured".to_owned()), "{event:?}");
        assert!(!found.cut && !found.fault);
        let mut written = Vec::new();
        topstat_model::events::text::event(event, &mut written);
        assert!(
            !written[..written.len() - 1].iter().any(u8::is_ascii_control),
            "{:?}",
            String::from_utf8_lossy(&written)
        );
    }
    assert!(told.events.iter().all(|event| number(event, "pid") == u64::from(pid) && number(event, "bytes") > 0));
}

fn only_what_is_asked_for_is_captured() {
    let scratch = topstat_live::Scratch::new("capture");
    let path = scratch.path().join("file");
    let mut role = Role::start("events-writer", &[]);
    role.expect("ready");
    let pid = role.pid();
    let mut of = |wanted: Capture| {
        let wanted = Capture { pids: vec![pid], ..wanted };
        capture(wanted, || {
            role.tell(&format!("calls {}", path.display()));
            role.expect("done");
        })
    };
    let told = of(Capture { calls: vec!["sendto".into(), "readv".into()], snaplen: 2, ..Capture::default() });
    let mut calls: Vec<_> = told.events.iter().map(|event| text(event, "call")).collect();
    calls.sort();
    assert_eq!(calls, ["readv", "sendto"]);
    assert!(told.events.iter().all(|event| event.payload.as_ref().is_some_and(|p| p.bytes.len() == 2)));
    let told = of(Capture { out: Some(true), ..Capture::default() });
    assert!(told.events.iter().all(|event| text(event, "direction") == "out") && told.events.len() >= 5);
    let told = of(Capture { comm: Some("captured".into()), out: Some(false), ..Capture::default() });
    assert!(told.events.iter().all(|event| text(event, "direction") == "in") && told.events.len() >= 4);
    // A prefix of the role's name is another name.
    let told = of(Capture { comm: Some("capture".into()), ..Capture::default() });
    assert!(told.events.is_empty(), "{:?}", told.events);
}

fn a_control_group_is_captured_with_all_below_it() {
    let outer = Group::new("capture").expect("a group");
    let inner = outer.child("inner").expect("a group below it");
    let mut roles = [(); 2].map(|()| Role::start("events-writer", &[]));
    roles.iter_mut().for_each(|role| drop(role.expect("ready")));
    let pids = [roles[0].pid(), roles[1].pid()];
    inner.take(pids[0]);
    let wanted = Capture { cgroup: Some(outer.path.clone()), calls: vec!["write".into()], ..Capture::default() };
    let told = capture(wanted, || {
        for role in &mut roles {
            role.tell("many 10");
            role.expect("done");
        }
    });
    // Ten numbers, and the role's answer.
    assert_eq!(told.events.len(), 11, "{:#?}", told.events);
    assert!(told.events.iter().all(|event| number(event, "pid") == u64::from(pids[0])), "{pids:?}: {:#?}", told.events);
    // A group can be removed when its processes have ended.
    drop(roles);
}

fn every_write_is_captured_or_counted() {
    let count = pace::work(300_000, 5000);
    let mut role = Role::start("events-writer", &[]);
    role.expect("ready");
    let wanted = Capture { pids: vec![role.pid()], calls: vec!["write".into()], ..Capture::default() };
    let told = capture(wanted, || {
        role.tell(&format!("many {count}"));
        role.expect("done");
    });
    let account = &told.accounts["capture"];
    // The numbers, and the role's answer, which is one write or several. A kernel that preempts tasks within a program skips the
    // program for another task of this CPU until the first task goes on, and counts the skipped runs.
    assert!(account.produced <= count + 2 && account.produced + account.skipped > count, "{account:?}");
    let mut last = None;
    let mut numbers = 0;
    for event in &told.events {
        let bytes = &event.payload.as_ref().expect("it has one").bytes;
        let Ok(eight) = <[u8; 8]>::try_from(bytes.as_slice()) else { continue };
        let number = u64::from_ne_bytes(eight);
        assert!(last < Some(number), "{number} comes after {last:?}");
        last = Some(number);
        numbers += 1;
    }
    // All other events belong to the answer.
    let events = told.events.len() as u64;
    assert!(events - numbers <= account.produced + account.skipped - count, "{account:?}");
    assert_eq!(events + account.dropped, account.produced, "{account:?}");
    note(format!("{count} writes: {account:?}"));
}
