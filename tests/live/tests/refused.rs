// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel refuses memory, at random or one call after the other: a load that fails is an error and leaves nothing behind,
//! a push without an object is counted as lost, and everything adds up.

use std::collections::{BTreeMap, BTreeSet};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use libbpf_rs::query::{LinkInfoIter, ProgInfoIter};
use topstat_kernel::pinned::{self, Pins};
use topstat_kernel::{Error, Options, Source};
use topstat_live::attached::maps;
use topstat_live::injected::{self, Nth, Settings};
use topstat_live::nest::inet;
use topstat_live::role::{say, told};
use topstat_live::watch::{endless, everything, table};
use topstat_live::{Case, Nest, Role, Watch, alone, eventually, limits, note};
use topstat_load::{Config, Load, Plan, Proto, UdpServer};

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Shared: sockets_without_storage_at_random, Root, FaultInjection; Checked),
        alone!(Shared: tasks_without_storage_at_random, Root, FaultInjection; Checked),
        alone!(Shared: a_load_without_memory, Root, FaultInjection; Checked),
        alone!(Shared: a_load_whose_system_calls_fail, Root, FaultInjection; Checked),
        alone!(Shared: pinning_without_memory, Root, FaultInjection; Checked),
        alone!(Shared: pinning_whose_system_calls_fail, Root, FaultInjection; Checked),
        alone!(Shared: nothing_is_leaked, Root, LeakDetector; Checked),
    ]
}

const PPS: &str = "udp_v4/conns_pps";
const BYTES: &str = "udp_v4/conns_bytes";
const CPU: &str = "tasks/cpu";

/// The slabs of local storage of sockets and tasks: objects, the small objects of threads, and the list of storages of a
/// socket or task, whose size depends on the kernel's checks.
const STORAGE: [&str; 4] = ["kmalloc-cg-1k", "kmalloc-cg-512", "kmalloc-cg-256", "kmalloc-cg-192"];
/// The percentage of allocations that are refused.
const PERCENT: u32 = 60;

/// Each packet of a socket without storage tries to allocate it again. Packets without storage are in the total, in `other`,
/// and counted as lost.
fn sockets_without_storage_at_random() {
    const SOCKETS: usize = 60;
    const TURNS: u64 = 8;
    let mut watch = Watch::load(&[PPS, BYTES], &everything());
    let report = {
        let _faults = Settings::slabs(&STORAGE, PERCENT);
        let config =
            Config { proto: Proto::Udp, udp_server: UdpServer::PerClient, connections: SOCKETS, ..Config::default() };
        let mut load = Load::open(config).unwrap();
        let report = load.run(&Plan::new(vec![TURNS; SOCKETS]), &limits()).unwrap();
        let packets = 4 * report.transactions;
        let bytes = 2 * (report.bytes_sent + report.bytes_received);
        for (path, counted) in [(PPS, packets), (BYTES, bytes)] {
            let view = watch.snapshot(path);
            let (lost, other) = (view.snapshot.lost.no_memory, view.snapshot.other);
            assert_eq!(view.snapshot.total, counted, "{path}: {}", view.summary());
            assert!(lost > 0 && lost < packets, "{path}: the test refuses nothing, or all: {}", view.summary());
            // All packets have the same size.
            assert_eq!(other * packets, lost * counted, "{path}: {}", view.summary());
            note(view.summary());
        }
        report
    };
    assert_eq!((report.lost, report.transactions), (0, TURNS * SOCKETS as u64));
}

/// The storage of a process is made once, when the process starts. The CPU time of a process without storage is in the total,
/// and counted as lost.
fn tasks_without_storage_at_random() {
    const PROCESSES: usize = 30;
    let mut watch = Watch::load(&[CPU], &endless());
    {
        let _faults = Settings::slabs(&STORAGE, PERCENT);
        for _ in 0..PROCESSES {
            let status = Command::new("sh").args(["-c", "i=0; while [ $i -lt 300 ]; do i=$((i+1)); done"]).status();
            assert!(status.expect("start a process").success());
        }
    }
    let snapshot = watch.source().snapshot(&table(CPU)).unwrap();
    snapshot.check().unwrap_or_else(|fault| panic!("{fault}"));
    assert!(snapshot.lost.no_memory > 0, "the test refuses nothing: {:?}", snapshot.lost);
    note(format!("{PROCESSES} processes, {:?}", snapshot.lost));
}

/// The number of calls of each kind that are tried, spread from the first to the last call; all calls, if there are fewer.
/// `TOPSTAT_FAULT_ROUNDS` sets another number.
fn rounds() -> u32 {
    // On the debug kernel, which this test needs, each call takes some seconds.
    const USUAL: u32 = 10;
    match std::env::var("TOPSTAT_FAULT_ROUNDS") {
        Ok(text) => text.parse().expect("TOPSTAT_FAULT_ROUNDS is a number"),
        Err(_) => USUAL,
    }
}

fn a_load_without_memory() {
    each_fails("load", PPS, &Settings::memory());
}

fn a_load_whose_system_calls_fail() {
    each_fails("load", PPS, &Settings::system_call("bpf"));
}

fn pinning_without_memory() {
    each_fails("adopt", PPS, &Settings::memory());
}

fn pinning_whose_system_calls_fail() {
    each_fails("adopt", PPS, &Settings::system_call("bpf"));
}

/// All programs, maps and links in the kernel, of every owner: a guest of tests has no others.
fn in_the_kernel() -> [BTreeSet<u32>; 3] {
    [ProgInfoIter::default().map(|p| p.id).collect(), maps(), LinkInfoIter::default().map(|l| l.id).collect()]
}

/// The pins of a nest, complete or partial; empty directories do not count.
fn pins(nest: &Nest) -> Vec<PathBuf> {
    let partial = |path: &PathBuf| path.to_string_lossy().ends_with("-partial");
    nest.files().into_iter().filter(|path| !path.is_dir() || partial(path)).collect()
}

/// Numbers from 1 to `last`, at most `rounds` of them: all, or at distances that double from either end to the middle.
/// Between the first calls, which make maps, and the last, which attach, the verifier makes all its allocations.
fn spread(last: u32, rounds: u32) -> BTreeSet<u32> {
    if last <= rounds {
        return (1..=last).collect();
    }
    let (middle, steps) = (f64::from(last) / 2.0, rounds / 2);
    let distance = |i: u32| middle.powf(f64::from(i) / f64::from(steps)) as u32;
    (0..steps).flat_map(|i| [distance(i), last + 1 - distance(i)]).collect()
}

/// A process loads, and in each round another of its calls fails. topstat must either return a clear error, or compensate and
/// count everything; nothing may stay behind.
fn each_fails(way: &str, path: &str, _faults: &Settings) {
    let nest = Nest::new("faults");
    let before = in_the_kernel();
    let start = || {
        let mut role = Role::start("faulty", &[way, path, &nest.dir.to_string_lossy()]);
        let calls: u32 = role.expect("calls").parse().expect("a number");
        (role, calls)
    };
    let (mut role, calls) = start();
    assert!(calls > 0, "nothing can fail: the test does not see what is called");
    let mut outcomes: BTreeMap<&str, u32> = BTreeMap::new();
    let mut errors: BTreeMap<String, u32> = BTreeMap::new();
    let chosen = spread(calls, rounds());
    for nth in &chosen {
        role.tell(&nth.to_string());
        let outcome = match role.hear_or_end() {
            // The program's own allocator was refused memory, and has ended the program.
            None => {
                role = start().0;
                "ended"
            }
            Some(line) => match line.split_once(' ').expect("an outcome") {
                ("error", error) => {
                    assert!(error.starts_with("cannot "), "call {nth} of {calls}: {error}");
                    // The reason, in the kernel's own words.
                    assert!(error.contains("(os error "), "call {nth} of {calls}: {error}");
                    *errors.entry(error.to_owned()).or_default() += 1;
                    "refused"
                }
                ("counts", _) => "made up for",
                ("unreached", _) => "not reached",
                _ => panic!("call {nth} of {calls}: {line}"),
            },
        };
        *outcomes.entry(outcome).or_default() += 1;
        if outcome != "ended" {
            assert_eq!(pins(&nest), Vec::<PathBuf>::new(), "call {nth} of {calls}: left");
        }
    }
    role.finish();
    let mut left = in_the_kernel();
    let gone = || {
        left = in_the_kernel();
        left.iter().zip(&before).all(|(now, before)| now.is_subset(before))
    };
    assert!(eventually(Duration::from_secs(5), gone), "left: {left:?}, there before: {before:?}");
    note(format!("{} of {calls} calls failed: {outcomes:?}", chosen.len()));
    for (error, count) in errors {
        note(format!("{count} × {error}"));
    }
}

/// The process that loads: prints how many of its calls can fail, and makes the requested ones fail.
pub fn faulty(way: &str, path: &str, dir: &str) {
    const ENDLESS: u32 = 1 << 30;
    let nth = Nth::own();
    // A first attempt fills caches (the features of the kernel), so that the number of calls is the number without them.
    drop(attempt(way, path, dir).expect("without faults"));
    clean(way, dir);
    nth.set(ENDLESS);
    let done = attempt(way, path, dir);
    let left = nth.left();
    nth.set(0);
    drop(done.expect("without faults"));
    clean(way, dir);
    say(format!("calls {}", ENDLESS - left));
    while let Some(line) = told() {
        nth.set(line.parse().expect("a number"));
        let done = attempt(way, path, dir);
        let left = nth.left();
        nth.set(0);
        let outcome = match done {
            Err(e) => format!("error {}", e.to_string().replace('\n', " ")),
            Ok(source) => match counts(source, path) {
                _ if left > 0 => "unreached .".to_owned(),
                Ok(()) => "counts .".to_owned(),
                Err(why) => format!("wrong {why}"),
            },
        };
        clean(way, dir);
        say(outcome);
    }
}

fn attempt(way: &str, path: &str, dir: &str) -> Result<Box<dyn Source>, Error> {
    let options = Options::default();
    match way {
        "adopt" => pinned::adopt(&Pins::at(Path::new(dir)), inet(), &[table(path)], &options)?.0.reader(),
        _ => topstat_kernel::load(&[table(path)], &options),
    }
}

/// Whether a new packet is counted.
fn counts(mut source: Box<dyn Source>, path: &str) -> Result<(), String> {
    let (one, other) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    one.send_to(&[1], other.local_addr().unwrap()).unwrap();
    let snapshot = source.snapshot(&table(path)).map_err(|e| e.to_string())?;
    snapshot.check().map_err(|fault| fault.to_string())?;
    if snapshot.total > 0 { Ok(()) } else { Err("nothing is counted".to_owned()) }
}

/// Removes the state if the way was to pin it. In the other ways nothing may be pinned.
fn clean(way: &str, dir: &str) {
    if way == "adopt" && Path::new(dir).join(format!("abi-{}", inet().abi)).join(&inet().name).exists() {
        pinned::remove(&Pins::at(Path::new(dir))).expect("remove what is pinned");
    }
}

/// Attaching, pushing, reading and detaching return all memory to the kernel.
fn nothing_is_leaked() {
    const ROUNDS: usize = 3;
    let round = || {
        let mut watch = Watch::load(&[PPS, BYTES, "tcp_v4/conns_bytes"], &everything());
        let config = Config { proto: Proto::Udp, connections: 20, ..Config::default() };
        Load::open(config).unwrap().run(&Plan::new(vec![3; 20]), &limits()).unwrap();
        watch.snapshot(PPS);
        watch.source().refill(&table(PPS)).unwrap();
        let mut tasks = Watch::load(&[CPU], &endless());
        assert!(Command::new("true").status().unwrap().success());
        tasks.source().snapshot(&table(CPU)).unwrap();
    };
    round();
    injected::forget_leaks();
    for _ in 0..ROUNDS {
        round();
    }
    let found = injected::leaks();
    assert_eq!(found, "", "the kernel has lost memory");
    note(format!("{ROUNDS} rounds, nothing lost"));
}
