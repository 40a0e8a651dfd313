// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands on the state that a daemon has pinned: `get`, `set`, `top` and `ls`, without a mounted tree.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use topstat::Exit;
use topstat_kernel::TableSettings;
use topstat_kernel::pinned::Attached;

use crate::console::FakeConsole;
use crate::fake::Fake;
use crate::golden::compare;

/// There is no tree at this path, whatever the host has.
const NO_TREE: &str = "--mount /nonexistent/topstat";

fn get(path: &str, fake: &mut Fake) -> String {
    let mut console = FakeConsole::pipe();
    assert_eq!(console.run(&format!("get {path} {NO_TREE}"), fake), Exit::Done, "{}", console.notes);
    console.written()
}

/// The exit code and the notes.
fn set(arguments: &str, fake: &mut Fake) -> (Exit, String) {
    let mut console = FakeConsole::pipe();
    let exit = console.run(&format!("set {arguments} {NO_TREE}"), fake);
    assert_eq!(console.written(), "");
    (exit, console.notes)
}

fn done() -> (Exit, String) {
    (Exit::Done, String::new())
}

#[test]
fn what_is_set_is_there_for_all() {
    let mut fake = Fake::pinned(128);
    for (path, value, read) in [
        ("tcp_v4/conns_pps/period", "250", "250\n"),
        ("tcp_v4/conns_pps/period", "5s", "5000\n"),
        ("tcp_v4/conns_pps/delay", "100ms", "100\n"),
        ("/tcp_v4/conns_pps/sync", "0", "0\n"),
        ("tcp_v4/conns_pps/enabled", "0", "0\n"),
    ] {
        assert_eq!(set(&format!("{path} {value}"), &mut fake), done());
        assert_eq!(get(path, &mut fake), read, "{path}");
    }
    let changed = fake.set("tcp_v4/conns_pps");
    assert_eq!((changed.period_ms, changed.delay_ms, changed.sync, changed.enabled), (5000, 100, false, false));
    assert_eq!(fake.set("tcp_v4/conns_bps"), TableSettings::default(), "no other table");
}

/// Two commands run at once. Each one reads the settings, changes one of them, and writes them back.
#[test]
fn of_two_who_set_at_once_neither_undoes_what_the_other_has_set() {
    const TIMES: u32 = 300;
    let (fake, start) = (Fake::pinned(128), Barrier::new(2));
    let set_often = |name: &str| {
        let mut beside = Fake { pinned: fake.pinned.clone(), ..Fake::default() };
        start.wait();
        for value in 1..=TIMES {
            let path = format!("tcp_v4/conns_pps/{name}");
            assert_eq!(set(&format!("{path} {value}"), &mut beside), done());
            assert_eq!(get(&path, &mut beside), format!("{value}\n"), "{name} was undone");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| set_often("period"));
        scope.spawn(|| set_often("delay"));
    });
    let last = fake.set("tcp_v4/conns_pps");
    assert_eq!((last.period_ms, last.delay_ms), (TIMES, TIMES));
}

#[test]
fn switches_of_a_sample_and_of_all_are_of_all_their_tables() {
    let mut fake = Fake::pinned(128);
    assert_eq!(set("udp_v4/enabled 0", &mut fake), done());
    assert_eq!(get("udp_v4/enabled", &mut fake), "0\n");
    for sample in topstat_families::catalogue().samples() {
        for table in &sample.tables {
            let settings = fake.set(&format!("{}/{}", sample.name, table.name));
            assert_eq!(settings, TableSettings { sample_enabled: sample.name != "udp_v4", ..TableSettings::default() });
        }
    }
    assert_eq!((set("enabled 0", &mut fake), set("udp_v4/enabled 1", &mut fake)), (done(), done()));
    assert_eq!(get("enabled", &mut fake), "0\n");
    assert_eq!(get("udp_v4/conns_pps/enabled", &mut fake), "1\n", "its own switch stays on");
    for sample in topstat_families::catalogue().samples() {
        for table in &sample.tables {
            let settings = fake.set(&format!("{}/{}", sample.name, table.name));
            assert_eq!(settings, TableSettings { root_enabled: false, ..TableSettings::default() });
        }
    }
}

#[test]
fn where_one_table_can_not_be_set_none_is() {
    let mut fake = Fake::pinned(128);
    *fake.pinned["inet"].stubborn.lock().unwrap() = Some("udp_v6/conns_bytes");
    let (exit, notes) = set("enabled 0", &mut fake);
    assert_eq!((exit, notes.as_str()), (Exit::Failed, "topstat: cannot set udp_v6/conns_bytes: it is stubborn\n"));
    for sample in topstat_families::catalogue().samples() {
        for table in &sample.tables {
            assert_eq!(fake.set(&format!("{}/{}", sample.name, table.name)), TableSettings::default());
        }
    }
}

#[test]
fn what_get_and_set_print() {
    let lines = [
        "get tcp_v4/conns_pps",
        "get udp_v6",
        "get tcp_v4/conns_pps/type",
        "get tcp_v4/conns_bytes/type",
        "get /nonexistent/topstat/tcp_v4/enabled",
        "get self",
        "get tcp_v4/conn_pps",
        "get tcp_v4/conns_pps/perod",
        "get tcp_v4/enabled/x",
        "set tcp_v4/conns_pps/period 0",
        "set tcp_v4/conns_pps/period 3600001",
        "set tcp_v4/conns_pps/period -1",
        "set tcp_v4/conns_pps/period abc",
        "set tcp_v4/conns_pps/delay 2h",
        "set tcp_v4/conns_pps/enabled 2",
        "set tcp_v4/conns_pps/sync on",
        "set tcp_v4/conns_pps/stat 1",
        "set tcp_v4/conns_pps 1",
        "set / 1",
        "set tpc_v4/enabled 1",
    ];
    let mut text = String::new();
    for line in lines {
        let mut console = FakeConsole::pipe();
        let exit = console.run(&format!("{line} {NO_TREE}"), &mut Fake::pinned(128));
        text += &format!("$ topstat {line}\n{}{}[{}]\n\n", console.written(), console.notes, exit as u8);
    }
    compare("get-set.txt", &text);
}

#[test]
fn the_files_of_a_table() {
    let mut text = String::new();
    for file in ["stat", "dump", "json"] {
        let path = format!("tcp_v4/conns_pps/{file}");
        text += &format!("$ topstat get {path}\n{}\n", get(&path, &mut Fake::pinned(2)));
    }
    compare("files.txt", &text);
    let mut console = FakeConsole::pipe();
    console.run("top tcp_v4/conns_pps -o json", &mut Fake::pinned(2));
    assert_eq!(get("tcp_v4/conns_pps/json", &mut Fake::pinned(2)), console.written(), "the same document as top's");
}

/// Only `stat` shows them.
#[test]
fn a_document_is_made_without_the_rows_of_every_cpu() {
    let mut fake = Fake::pinned(2);
    let cpu_rows = Arc::clone(&fake.pinned["inet"].cpu_rows);
    for (path, wanted) in [("tcp_v4/conns_pps/stat", true), ("tcp_v4/conns_pps/json", false), ("tcp_v4/json", false)] {
        cpu_rows.store(!wanted, Ordering::SeqCst);
        get(path, &mut fake);
        assert_eq!(cpu_rows.load(Ordering::SeqCst), wanted, "{path}");
    }
}

#[test]
fn the_file_of_a_sample_has_the_documents_of_its_tables_that_are_on() {
    let mut fake = Fake::pinned(2);
    assert_eq!(set("tcp_v4/conns_bps/enabled 0", &mut fake), done());
    let documents = get("tcp_v4/json", &mut fake);
    let document = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("a document");
    let tables: Vec<_> = documents.lines().map(|line| document(line)["table"].as_str().unwrap().to_owned()).collect();
    assert_eq!(tables, ["conns_pps", "conns_bytes", "conns_retrans"]);
    // The first reading of each: the made-up daemon's values grow with each reading.
    assert_eq!(documents.split_inclusive('\n').next(), Some(&*get("tcp_v4/conns_pps/json", &mut Fake::pinned(2))));
}

#[test]
fn without_a_daemon_there_is_nothing_to_get_or_set() {
    for line in ["get tcp_v4/enabled", "set tcp_v4/enabled 1"] {
        let mut console = FakeConsole::pipe();
        let exit = console.run(&format!("{line} {NO_TREE} --pins /pins"), &mut Fake::default());
        assert_eq!(exit, Exit::Failed);
        assert_eq!(
            console.notes,
            "topstat: no daemon has its tree at /nonexistent/topstat, and none has pinned anything at /pins: start one \
             with topstat daemon\n"
        );
    }
    let mut console = FakeConsole::pipe();
    let mut refusing = Fake { unpinnable: Some("Permission denied"), ..Fake::default() };
    assert_eq!(console.run(&format!("get enabled {NO_TREE} --pins /pins"), &mut refusing), Exit::Failed);
    assert_eq!(console.notes, "topstat: cannot use /pins for pinned state: Permission denied; run as root\n");
}

#[test]
fn top_shows_the_daemons_table_at_once() {
    let mut console = FakeConsole::terminal(24, 120);
    let mut fake = Fake::pinned(7);
    assert_eq!(console.run("top tcp/conns_pps 1 2 -n 3", &mut fake), Exit::Done);
    assert_eq!(console.waited, [Duration::ZERO, Duration::from_secs(1)]);
    assert_eq!(console.notes, "", "nobody has to wait");
    assert!(fake.options.is_none(), "nothing was loaded");
    assert_eq!(fake.pinned["inet"].readers.load(Ordering::SeqCst), 0, "the reader is gone");
}

#[test]
fn top_does_not_change_what_is_everybodys() {
    let mut text = String::new();
    for options in ["--period 5s", "--delay 10", "--top 64", "-n 200"] {
        let (mut console, mut fake) = (FakeConsole::pipe(), Fake::pinned(128));
        let line = format!("top tcp_v4/conns_pps {options}");
        let exit = console.run(&line, &mut fake);
        assert_eq!((exit, console.written()), (Exit::Usage, String::new()));
        text += &format!("$ topstat {line}\n{}\n", console.notes);
        assert_eq!(console.run(&format!("{line} --private"), &mut fake), Exit::Done, "{}", console.notes);
        assert!(fake.options.is_some(), "a table of one's own");
        assert_eq!(fake.set("tcp_v4/conns_pps"), TableSettings::default());
    }
    let (mut console, mut fake) = (FakeConsole::pipe(), Fake::pinned(128));
    assert_eq!(console.run("top tasks/cpu --threads", &mut fake), Exit::Usage);
    text += &format!("$ topstat top tasks/cpu --threads\n{}\n", console.notes);
    for switch in ["enabled", "tcp_v4/enabled", "tcp_v4/conns_pps/enabled"] {
        let (mut console, mut fake) = (FakeConsole::pipe(), Fake::pinned(1));
        assert_eq!(set(&format!("{switch} 0"), &mut fake), done());
        assert_eq!(console.run("top tcp_v4/conns_pps", &mut fake), Exit::Done);
        text += &console.notes;
    }
    compare("top-pinned.txt", &text);
}

#[test]
fn a_daemon_that_ranks_threads_may_be_asked_for_them() {
    let mut fake = Fake::pinned(128);
    let tasks = Arc::get_mut(fake.pinned.get_mut("tasks").unwrap()).unwrap();
    tasks.threads = true;
    for line in ["top tasks/cpu", "top tasks/cpu --threads"] {
        let mut console = FakeConsole::pipe();
        assert_eq!(console.run(line, &mut fake), Exit::Done, "{}", console.notes);
        assert!(fake.options.is_none(), "nothing was loaded");
    }
}

#[test]
fn ls_says_how_the_daemons_tables_are_set() {
    let mut fake = Fake::pinned(128);
    for line in ["tcp_v4/conns_bps/period 5s", "tcp_v4/conns_bytes/delay 10", "tcp_v4/conns_retrans/enabled 0"] {
        assert_eq!(set(line, &mut fake), done());
    }
    assert_eq!((set("udp_v4/enabled 0", &mut fake), set("tcp_v4/conns_pps/sync 0", &mut fake)), (done(), done()));
    let mut text = String::new();
    for line in ["ls tcp_v4", "ls udp_v4", "ls udp_v4 -o json"] {
        let mut console = FakeConsole::pipe();
        assert_eq!(console.run(line, &mut fake), Exit::Done);
        text += &format!("$ topstat {line}\n{}\n", console.written());
    }
    compare("ls-pinned.txt", &text);
    // A user without the right to read the settings still sees the list of tables.
    let (mut refused, mut plain) = (FakeConsole::pipe(), FakeConsole::pipe());
    let mut refusing = Fake { unpinnable: Some("Permission denied"), ..Fake::default() };
    assert_eq!((refused.run("ls", &mut refusing), plain.run("ls", &mut Fake::default())), (Exit::Done, Exit::Done));
    assert_eq!((refused.written(), refused.notes.as_str()), (plain.written(), ""));
}

#[test]
fn ls_fails_where_it_could_not_see_how_tables_are_set_and_lists_the_others() {
    let (mut console, mut whole) = (FakeConsole::pipe(), FakeConsole::pipe());
    let mut broken = Fake { broken: Some("delays"), ..Fake::pinned(128) };
    assert_eq!(console.run("ls -o json --pins /pins", &mut broken), Exit::Failed);
    let why = "cannot use /pins/delays for pinned state: Too many open files (os error 24)";
    assert_eq!(console.notes, format!("topstat: {why}; look at what is there, or remove it\n"));
    assert_eq!(whole.run("ls -o json", &mut Fake::pinned(128)), Exit::Done);
    let (listed, all) = (console.written(), whole.written());
    assert_eq!(listed.lines().count(), all.lines().count());
    let differ: Vec<_> = listed.lines().zip(all.lines()).filter(|(one, other)| one != other).collect();
    assert!(matches!(&differ[..], [(line, _)] if line.contains(r#""sample":"delays""#)), "{differ:?}");
}

#[test]
fn unload_removes_what_is_pinned_and_says_what() {
    let pid_file = std::env::temp_dir().join(format!("topstat-unload-{}.pid", std::process::id()));
    let line = format!("unload --pins /pins --pid-file {}", pid_file.display());
    let mut fake = Fake::pinned(128);
    let families = fake.pinned.len();
    let mut console = FakeConsole::pipe();
    assert_eq!(console.run(&line, &mut fake), Exit::Done, "{}", console.notes);
    assert_eq!(console.written().lines().filter(|line| line.starts_with("/pins/")).count(), families);
    let mut console = FakeConsole::pipe();
    assert_eq!(console.run(&line, &mut fake), Exit::Done);
    assert_eq!((console.written().as_str(), console.notes.as_str()), ("", "topstat: nothing is pinned at /pins\n"));
    assert!(!pid_file.exists());
    // Remaining links are distinguished: links of another daemon are in order, and so are links that a process holds.
    let link = |program: &str, link, at: Option<&str>, holders: &[u32]| Attached {
        program: program.into(),
        link,
        at: at.map(Into::into),
        holders: holders.into(),
    };
    let elsewhere = link("inet_egress", 1, Some("/bpf/others/abi-1/inet/links/inet_egress"), &[]);
    let held = link("inet_egress", 2, None, &[77]);
    let moved = link("inet_ingress", 3, Some("/bpf/pins/away/inet/links/inet_ingress"), &[]);
    let unseen = link("inet_state_ente", 4, None, &[]);
    for (attached, exit, said) in [
        (vec![elsewhere.clone(), held], Exit::Done, vec!["another topstat counts on, pinned at /bpf/others (1 links)"]),
        (
            vec![moved.clone(), elsewhere],
            Exit::Failed,
            vec!["still attached, by links in /bpf/pins/away/inet/links", "inet_ingress (link 3)", "another topstat"],
        ),
        (vec![moved, unseen], Exit::Failed, vec!["(link 3)", "inet_state_ente (link 4)", "other mount namespaces"]),
    ] {
        let mut console = FakeConsole::pipe();
        assert_eq!(console.run(&line, &mut Fake { attached, ..Fake::default() }), exit, "{}", console.notes);
        assert!(said.iter().all(|said| console.notes.contains(said)), "{}", console.notes);
    }
    // The command is refused while a daemon runs.
    let file = std::fs::File::create(&pid_file).unwrap();
    std::fs::write(&pid_file, "77\n").unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let (mut console, mut fake) = (FakeConsole::pipe(), Fake::pinned(128));
    assert_eq!(console.run(&line, &mut fake), Exit::Failed);
    assert!(console.notes.starts_with("topstat: a daemon runs, pid 77; stop it first"), "{}", console.notes);
    assert_eq!(fake.pinned.len(), families);
    std::fs::remove_file(&pid_file).unwrap();
}
