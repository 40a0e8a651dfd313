// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of a CPU that goes offline and comes back. (A test of tasks covers the account of tasks without that CPU.)

use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use topstat_live::truth;
use topstat_live::watch::everything;
use topstat_live::{Case, Daemon, Offline, View, Watch, alone, limits, note, pace, two_cpus};
use topstat_load::{Config, Load, Plan};

use crate::inet::right::assert_right;

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Shared: its_tables_are_as_they_were, Root, SpareCpu; Daemon),
        alone!(Shared: the_tree_tells_it, Root, Fuse, SpareCpu; Daemon),
    ]
}

const PPS: &str = "tcp_v4/conns_pps";
const BYTES: &str = "tcp_v4/conns_bytes";
const CONNECTIONS: usize = 20;
/// The maximum time of an answer, also while the CPU is offline.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs `what`, and the threads that it starts, on one CPU.
fn on<T>(cpu: usize, what: impl FnOnce() -> T) -> T {
    let before = rustix::thread::sched_getaffinity(None).expect("the CPUs of this thread");
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).unwrap_or_else(|e| panic!("run on CPU {cpu}: {e}"));
    let result = what();
    sched_setaffinity(None, &before).expect("run on all CPUs");
    result
}

fn connections() -> Load {
    Load::open(Config { connections: CONNECTIONS, ..Config::default() }).expect("connections")
}

fn speak(load: &mut Load) {
    let turns = pace::work(200, 20);
    let report = load.run(&Plan::new(vec![turns; CONNECTIONS]), &limits()).expect("the load");
    assert_eq!(report.transactions, turns * CONNECTIONS as u64);
}

/// Whether this CPU is stale in the snapshot. It must have counted something, and no other CPU may be stale.
fn stale(view: &View, cpu: usize) -> bool {
    let cpus = &view.snapshot.cpus;
    let own = cpus.iter().find(|c| c.cpu as usize == cpu).unwrap_or_else(|| panic!("no CPU {cpu}: {}", view.summary()));
    assert!(own.total > 0, "nothing was counted on CPU {cpu}: {}", view.summary());
    assert!(cpus.iter().all(|c| !c.stale || c.cpu as usize == cpu), "{}", view.summary());
    own.stale
}

fn its_tables_are_as_they_were() {
    let (stays, goes) = two_cpus().expect("two CPUs");
    let mut load = connections();
    let begin = truth::settled(&load);
    let mut watch = Watch::load(&[PPS, BYTES], &everything());
    let look = |watch: &mut Watch, load: &Load| {
        let end = truth::settled(load);
        let begun = Instant::now();
        let shown = (watch.snapshot(PPS), watch.snapshot(BYTES));
        let took = begun.elapsed();
        assert!(took < pace::patience(PATIENCE), "two snapshots took {took:?}");
        assert_right(&shown.0, &shown.1, &truth::difference(&begin, &end));
        (stale(&shown.0, goes), stale(&shown.1, goes), took)
    };
    // The running total of a connection is counted on the CPU of its reader, and windows where the newest record was made.
    let counted = on(goes, || {
        speak(&mut load);
        (watch.snapshot(PPS), watch.snapshot(BYTES))
    });
    assert!(!stale(&counted.0, goes) && !stale(&counted.1, goes));
    on(stays, || speak(&mut load));
    let before = look(&mut watch, &load);
    assert_eq!((before.0, before.1), (false, false));
    let offline = Offline::take(goes);
    let alone = look(&mut watch, &load);
    assert_eq!((alone.0, alone.1), (true, true), "a CPU that is offline can't be brought to the instant");
    // The threads that ran on it continue on the other CPU: their objects are in the tables of both.
    speak(&mut load);
    let later = look(&mut watch, &load);
    assert_eq!((later.0, later.1), (true, true));
    drop(offline);
    on(goes, || speak(&mut load));
    let back = look(&mut watch, &load);
    assert_eq!((back.0, back.1), (false, false), "it is back");
    note(format!("two snapshots took {:?}, with a CPU offline {:?} and {:?}", before.2, alone.2, later.2));
}

fn the_tree_tells_it() {
    let (_, goes) = two_cpus().expect("two CPUs");
    let daemon = Daemon::start();
    let mut load = connections();
    on(goes, || speak(&mut load));
    // A window counts on the CPU of its newest record; a running total would count on the CPU where the daemon happens to read.
    let told = |daemon: &Daemon| {
        let further = daemon.stat(PPS).further;
        further.into_iter().find(|(key, _)| key == "stale cpus").map(|(_, cpus)| cpus)
    };
    assert_eq!(told(&daemon), None);
    let offline = Offline::take(goes);
    assert_eq!(told(&daemon), Some(goes.to_string()));
    let begun = Instant::now();
    let json = daemon.json(PPS);
    assert!(begun.elapsed() < pace::patience(PATIENCE), "{:?}", begun.elapsed());
    assert_eq!(json.value["stale_cpus"], serde_json::json!([goes]));
    // A setting takes effect while the CPU is offline, and when it is back.
    daemon.write("tcp_v4/conns_pps/period", 2000);
    speak(&mut load);
    drop(offline);
    on(goes, || speak(&mut load));
    assert_eq!(told(&daemon), None);
    assert_eq!(daemon.stat(PPS).get("period"), "2000");
}
