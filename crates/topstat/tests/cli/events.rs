// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat events`: the choice and the form of events, the accounts of events that are not shown, and the end of the command.

use std::path::PathBuf;

use serde_json::Value;
use topstat::{Exit, Wake};

use crate::console::FakeConsole;
use crate::fake::Fake;
use crate::golden::compare;

/// The output of `topstat events` with these arguments in three seconds, on a pipe.
fn written(arguments: &[&str], fake: &mut Fake) -> String {
    let mut console = FakeConsole::pipe();
    let line = ["topstat", "events", "--for", "3"].into_iter().chain(arguments.iter().copied());
    let exit = topstat::run(line.map(Into::into), fake, &mut console);
    assert_eq!(exit, Exit::Done, "{arguments:?}: {}", console.notes);
    console.written()
}

fn documents(arguments: &[&str]) -> Vec<Value> {
    let all = [arguments, &["-o", "json"]].concat();
    written(&all, &mut Fake::default()).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn events_are_lines_and_an_account_comes_last() {
    compare("events.txt", &written(&["tcp", "tasks"], &mut Fake::default()));
    compare("events-lossy.txt", &written(&["tcp", "tasks"], &mut Fake { lossy: true, ..Fake::default() }));
    let text = written(&["tcp", "tasks", "-o", "json"], &mut Fake { lossy: true, ..Fake::default() });
    compare("events.jsonl", &text);
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn accounts_add_up() {
    let documents = documents(&[]);
    let number = |document: &Value, key: &str| document[key].as_u64().unwrap();
    let (accounts, events): (Vec<_>, Vec<_>) = documents.iter().partition(|document| document["event"] == "account");
    // Sources that have to be named are not read.
    let sources = topstat_kernel::events::sources(topstat_families::catalogue());
    assert_eq!(accounts.len(), sources.iter().filter(|source| !source.asked).count());
    for account in accounts {
        let of = events.iter().filter(|event| event["source"] == account["source"]).count() as u64;
        assert_eq!((number(account, "delivered"), number(account, "shown")), (of, of));
        let sum = number(account, "delivered") + number(account, "dropped") + number(account, "under_way");
        assert_eq!(number(account, "produced"), sum);
    }
}

#[test]
fn json_has_an_account_every_ten_seconds() {
    let mut console = FakeConsole::pipe();
    assert_eq!(console.run("events tcp --for 25 -o json", &mut Fake::default()), Exit::Done);
    let accounts = |text: &str| text.lines().filter(|line| line.contains("\"event\":\"account\"")).count();
    assert_eq!(accounts(&console.written()), 3);
    let mut console = FakeConsole::pipe();
    assert_eq!(console.run("events tcp --for 25", &mut Fake { lossy: true, ..Fake::default() }), Exit::Done);
    // No further event was lost since the first account.
    assert_eq!(console.written().matches(" account tcp: ").count(), 2);
}

#[test]
fn filters_choose_and_are_counted() {
    for (filter, shown) in [
        ("port:442", 3),
        ("event:close", 3),
        ("event:close port>=442", 2),
        ("source:tcp,tasks !event:close", 6),
        ("cgroup:/system.slice", 9),
        ("ip:10.0.0.0/8 lived_ns<1500ns", 2),
        ("nothing-has-this", 0),
    ] {
        let documents = documents(&["tcp", "-f", filter]);
        let (accounts, events): (Vec<_>, Vec<_>) = documents.iter().partition(|d| d["event"] == "account");
        assert_eq!((events.len(), &accounts[0]["shown"]), (shown, &shown.into()), "{filter}");
        assert_eq!(accounts[0]["delivered"], 9, "{filter}");
    }
    // An event has to match all filters.
    let both = documents(&["tcp", "--filter", "event:close", "--filter", "port:441"]);
    assert_eq!(both.len(), 2);
}

#[test]
fn wrong_usage_says_what_is_right() {
    for (arguments, says) in [
        (vec!["tcp", "udp2"], "there are no events of 'udp2', but of"),
        (
            vec!["tcp", "-f", "prt:1"],
            "cannot use the filter 'prt:1': at character 1: there is no column \"prt\"; there are: ",
        ),
        (vec!["tcp", "-f", "port:"], "cannot use the filter 'port:': at character 6: a value is missing here"),
        (vec!["tasks", "-f", "rx_bytes>1"], "at character 1: there is no column \"rx_bytes\""),
    ] {
        let mut console = FakeConsole::pipe();
        let line = ["topstat", "events"].into_iter().chain(arguments.iter().copied());
        let exit = topstat::run(line.map(Into::into), &mut Fake::default(), &mut console);
        assert_eq!(exit, Exit::Usage, "{arguments:?}");
        assert!(console.notes.contains(says), "{arguments:?}: {}", console.notes);
    }
}

#[test]
fn the_top_of_a_table_is_a_source() {
    let sources = |arguments: &[&str]| -> Vec<String> {
        let documents = documents(arguments);
        let (accounts, events): (Vec<_>, Vec<_>) = documents.iter().partition(|d| d["event"] == "account");
        for event in events.iter().filter(|event| event["source"].as_str().unwrap().contains('/')) {
            assert!(event["cpu"].is_null() && event["rank"].is_u64() && event["value"].is_u64(), "{event}");
            assert_eq!((event["event"] == "leave", event["event"] == "enter"), {
                let stayed = event["stayed_ns"].is_u64();
                (stayed, !stayed)
            });
        }
        accounts.iter().map(|account| account["source"].as_str().unwrap().to_owned()).collect()
    };
    // Where only tables are named, no other source is read. Each table is read once.
    assert_eq!(sources(&["tcp/conns_pps", "tcp_v4/conns_pps"]), ["tcp_v4/conns_pps", "tcp_v6/conns_pps"]);
    assert_eq!(sources(&["tcp", "tasks/cpu", "tcp_v4/conns_bps"]), ["tcp", "tasks/cpu", "tcp_v4/conns_bps"]);
    let text = written(&["tcp_v4/conns_pps", "-n", "1"], &mut Fake::default());
    assert!(text.contains(" tcp_v4/conns_pps enter rank=1007 value=1007 sip=10.0.0.1 "), "{text}");
    // A filter may name columns of both kinds, also by their other names.
    let filtered = documents(&["tcp_v4/conns_pps", "-f", "port:441 stayed_ns>0"]);
    assert_eq!(filtered.len(), 2, "{filtered:?}");
}

#[test]
fn tables_are_the_daemons_unless_told_otherwise() {
    let run = |line: &str, fake: &mut Fake| {
        let mut console = FakeConsole::pipe();
        let exit = console.run(&format!("events --for 3 {line}"), fake);
        (exit, console.notes)
    };
    let mut fake = Fake::default();
    assert_eq!(run("tcp/conns_pps --rows 500", &mut fake).0, Exit::Done);
    assert_eq!(fake.options.map(|options| options.top), Some(500));
    assert_eq!(fake.loaded.load(std::sync::atomic::Ordering::SeqCst), 0, "what was loaded is gone");
    let mut fake = Fake::pinned(128);
    assert_eq!(run("tcp/conns_pps", &mut fake).0, Exit::Done);
    assert!(fake.options.is_none(), "the daemon's are read");
    let (exit, notes) = run("tcp/conns_pps --rows 129", &mut fake);
    let says =
        "--rows 129 is more than the 128 rows that the daemon's tables keep: use --private for tables of your own";
    assert!(exit == Exit::Usage && notes.contains(says), "{notes}");
    assert_eq!(run("tcp/conns_pps --rows 129 --private", &mut fake).0, Exit::Done);
    assert_eq!(fake.options.map(|options| options.top), Some(129));
    for (line, says) in [
        ("tcp --rows 5", "--rows, --every and --private are of the top of a table: name one (SAMPLE/TABLE), too"),
        ("tcp/conns", "unknown table tcp/conns"),
        ("tcp_v4/conns_pps --rows 2000", "not a number from 1 to 1024"),
    ] {
        let (exit, notes) = run(line, &mut Fake::default());
        assert!(exit == Exit::Usage && notes.contains(says), "{line}: {notes}");
    }
}

#[test]
fn it_ends_when_there_are_enough_and_nothing_stays_loaded() {
    let count = documents(&["tcp", "-n", "4"]);
    assert_eq!(count.len(), 5);
    assert_eq!(count[4]["shown"], 4);
    let mut fake = Fake::default();
    for wake in [Wake::Stop, Wake::Closed] {
        let mut console = FakeConsole::pipe();
        console.wakes.push_back(wake);
        assert_eq!(console.run("events tcp", &mut fake), Exit::Done);
        // A reader that has closed the output gets no account.
        assert_eq!(console.written().contains("account"), wake == Wake::Stop);
        assert_eq!(fake.loaded.load(std::sync::atomic::Ordering::SeqCst), 0);
    }
    let mut console = FakeConsole::pipe();
    assert_eq!(console.run("events tcp", &mut Fake { refuse: true, ..Fake::default() }), Exit::Failed);
    console.broken = Some((0, std::io::ErrorKind::StorageFull));
    assert_eq!(console.run("events tcp", &mut Fake::default()), Exit::Failed);
}

/// A folder that is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("topstat-events-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The output of `topstat replay` with these arguments, its exit code, and its notes.
fn replayed(arguments: &[&str]) -> (String, Exit, String) {
    let mut console = FakeConsole::pipe();
    let line = ["topstat", "replay"].into_iter().chain(arguments.iter().copied());
    let exit = topstat::run(line.map(Into::into), &mut Fake::default(), &mut console);
    (console.written(), exit, console.notes)
}

#[test]
fn what_was_recorded_is_replayed_as_it_was() {
    let folder = Folder::new("replay");
    for (name, lossy) in [("whole", false), ("lossy", true)] {
        let file = folder.file(name);
        let mut fake = Fake { lossy, ..Fake::default() };
        let text = written(&["tcp", "tasks", "capture", "tasks/cpu", "--record", &file], &mut fake);
        assert_eq!(replayed(&[&file]), (text, Exit::Done, String::new()));
        // With `--quiet`, recorded events are not shown.
        let quiet = folder.file(&format!("{name}.quiet"));
        let line = ["tcp", "tasks", "capture", "tasks/cpu", "-o", "json", "--quiet", "--record", &quiet];
        assert_eq!(written(&line, &mut fake), "");
        let json = written(&line[..6], &mut fake);
        assert_eq!(replayed(&[&quiet, "-o", "json"]).0, json);
    }
    let file = folder.file("whole");
    let (text, ..) = replayed(&[&file, "-f", "event:close port:442"]);
    assert_eq!(text.lines().filter(|line| line.contains(" tcp close ")).count(), 1, "{text}");
    let (text, ..) = replayed(&[&file, "-n", "2"]);
    assert_eq!(text.lines().count(), 2);
    let (both, ..) = replayed(&[&file, &folder.file("lossy")]);
    assert_eq!(both.matches(" account tcp: ").count(), 2);
    let (_, exit, notes) = replayed(&[&file, "-f", "prt:1"]);
    assert_eq!((exit, notes.contains("there is no column \"prt\"")), (Exit::Usage, true), "{notes}");
    let (text, ..) = replayed(&[&file, "--from", "2026-11-21T08:00:01Z"]);
    assert_eq!(text, "", "all of it was before");
    for from in ["yesterday", "+", "+1x"] {
        assert_eq!(replayed(&[&file, "--from", from]).1, Exit::Usage, "{from}");
    }
}

#[test]
fn a_recording_is_never_written_over_and_never_misread() {
    let folder = Folder::new("wrong");
    let file = folder.file("events");
    written(&["tcp", "--record", &file], &mut Fake::default());
    let mut console = FakeConsole::pipe();
    assert_eq!(console.run(&format!("events tcp --record {file}"), &mut Fake::default()), Exit::Failed);
    assert!(console.notes.contains("a recording is not written over"), "{}", console.notes);
    assert_eq!(console.run("events tcp --record /nonexistent/file", &mut Fake::default()), Exit::Failed);
    assert_eq!(console.run("events tcp --keep 3", &mut Fake::default()), Exit::Usage);
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() - 3]).unwrap();
    let (_, exit, notes) = replayed(&[&file]);
    assert_eq!(exit, Exit::Failed);
    assert!(notes.contains(": it is damaged or cut off at byte "), "{notes}");
    std::fs::write(&file, b"hello").unwrap();
    let (_, exit, notes) = replayed(&[&file]);
    assert_eq!((exit, notes.contains("it is no recording of topstat's events")), (Exit::Failed, true), "{notes}");
    assert_eq!(replayed(&[&folder.file("none")]).1, Exit::Failed);
}

#[test]
fn a_replay_takes_as_long_as_it_took() {
    let folder = Folder::new("speed");
    let file = folder.file("events");
    written(&["tcp", "--record", &file], &mut Fake::default());
    let mut console = FakeConsole::pipe();
    let line = format!("replay {file} --speed 0.001 -n 9");
    assert_eq!(console.run(&line, &mut Fake::default()), Exit::Done);
    // The time from the first event to the last is 8 microseconds and 2 ns.
    let took = console.waited.last().unwrap().as_micros();
    assert!((8000..9000).contains(&took), "{took}");
}
