// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of the user's own in a daemon's configuration: they outlive it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::Value;
use topstat_live::daemon::{Daemon, Place};
use topstat_live::{Case, case, eventually, note, role};

pub fn cases() -> Vec<Case> {
    vec![
        case!(a_configured_table_outlives_its_daemon, Root, Fuse, Tracefs; Daemon),
        case!(nothing_is_lost_while_daemons_are_killed, Root, Fuse, Tracefs; Slow),
    ]
}

/// A definition that counts calls of this process, for longer than the test runs.
fn calls() -> String {
    format!("syscalls:sys_enter_getppid by pid where pid = {} period 10m", std::process::id())
}

fn call() {
    // SAFETY: it takes no arguments, and writes nothing.
    unsafe { libc::syscall(libc::SYS_getppid) };
}

fn configured(path: &str, definition: &str) -> String {
    format!("[tables]\n{path:?} = {definition:?}\n")
}

fn value(daemon: &Daemon, table: &str) -> u64 {
    let document: Value = serde_json::from_str(&daemon.read(&format!("{table}/json"))).expect("JSON");
    let total = document["total"].as_u64().expect("a total");
    let rows: u64 = document["rows"].as_array().expect("rows").iter().filter_map(|row| row["value"].as_u64()).sum();
    assert_eq!(rows, total, "{document}");
    total
}

fn a_configured_table_outlives_its_daemon() {
    let place = Arc::new(Place::configured(&configured("trial/calls", &calls())));
    let mut daemon = Daemon::start_at(Arc::clone(&place), &[]);
    for _ in 0..1000 {
        call();
    }
    assert_eq!(value(&daemon, "trial/calls"), 1000);
    // Another command finds it by its name, and reads it by its pins.
    let mut top = role::command("topstat");
    let shown = top.args(["top", "trial/calls", "1", "1", "-o", "json", "--pins"]).arg(&place.pins).output();
    let shown = shown.expect("topstat");
    let document: Value = serde_json::from_slice(&shown.stdout).unwrap_or_else(|e| panic!("{e}: {shown:?}"));
    assert_eq!(document["rows"][0]["value"], 1000, "{document}");
    daemon.kill();
    for _ in 0..500 {
        call();
    }
    let mut daemon = Daemon::start_at(Arc::clone(&place), &[]);
    assert!(daemon.says("custom_trial: found pinned, and adopted"), "{}", daemon.log());
    for _ in 0..7 {
        call();
    }
    assert_eq!(value(&daemon, "trial/calls"), 1507);
    daemon.stop();
    // Another definition under its name is refused, with both texts.
    place.configure(&configured("trial/calls", "sched:sched_process_exec by comm"));
    let mut daemon = Daemon::start_at(Arc::clone(&place), &[]);
    let refused =
        format!("it counts '{}', and the table of this name is 'sched:sched_process_exec by comm' now", calls());
    assert!(daemon.says(&refused), "{}", daemon.log());
    daemon.stop();
    // The library's definitions change with its versions.
    place.configure(&configured("trial/calls", "@small-writes"));
    let mut daemon = Daemon::start_at(Arc::clone(&place), &[]);
    assert!(daemon.says("trial/calls: begun anew, for its definition in the library has changed"), "{}", daemon.log());
    assert!(daemon.read("trial/calls/json").contains("\"fd\""), "rows of the other definition");
    daemon.stop();
    // A table that the configuration does not have any more ends.
    place.configure("");
    let mut daemon = Daemon::start_at(Arc::clone(&place), &["--unload"]);
    assert!(daemon.says("trial/calls: removed, for the configuration does not have it any more"), "{}", daemon.log());
    daemon.stop();
}

fn nothing_is_lost_while_daemons_are_killed() {
    const TABLES: usize = 10;
    const KILLS: u32 = 100;
    let tables: String = (0..TABLES).map(|i| format!("\"trial_{i}/calls\" = {:?}\n", calls())).collect();
    let place = Arc::new(Place::configured(&format!("[tables]\n{tables}")));
    let mut daemon = Daemon::start_at(Arc::clone(&place), &[]);
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..100 {
                    call();
                }
                done.fetch_add(100, Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        for _ in 0..KILLS {
            daemon.kill();
            daemon = Daemon::start_at(Arc::clone(&place), &[]);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let done = done.load(Ordering::Relaxed);
    for i in 0..TABLES {
        assert_eq!(value(&daemon, &format!("trial_{i}/calls")), done, "table {i}");
    }
    note(format!("{done} calls in each of {TABLES} tables, over {KILLS} kills"));
    daemon.stop();
    assert!(eventually(std::time::Duration::from_secs(5), || daemon.ended().is_some()));
    let mut daemon = Daemon::start_at(place, &["--unload"]);
    daemon.stop();
}
