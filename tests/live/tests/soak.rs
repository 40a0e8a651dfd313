// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks that no resource grows: a daemon runs under load, is read and set all the time, and is killed again and again, for
//! `TOPSTAT_SOAK_SECONDS`: an hour in `make soak`, two minutes in .ci/run.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use topstat_live::attached::Ids;
use topstat_live::daemon::Place;
use topstat_live::need::SOAK_SECONDS;
use topstat_live::nest::COMES_AND_GOES;
use topstat_live::tree::{Document, Stat};
use topstat_live::{Busy, Case, Daemon, case, eventually, note};

pub fn cases() -> Vec<Case> {
    vec![case!(nothing_grows, Root, Fuse, Minutes)]
}

/// In a shorter time nothing settles.
const LEAST_SECONDS: u64 = 20;
/// The memory that a settled daemon may still add: allocators keep memory that they have once used.
const MORE_RSS_KB: u64 = 1024;
/// Each request takes descriptors for a while; at most this many are in use at once.
const MORE_FDS: usize = 4;
/// The time until all readers are made and all buffers have their size.
const SETTLE: Duration = Duration::from_secs(5);

fn length() -> Duration {
    let said = std::env::var(SOAK_SECONDS).expect("a test that needs Minutes");
    let seconds: u64 = said.parse().unwrap_or_else(|e| panic!("{SOAK_SECONDS}={said}: a number of seconds: {e}"));
    Duration::from_secs(seconds.max(LEAST_SECONDS))
}

/// The resources at one moment.
#[derive(Clone, Debug)]
struct Sample {
    rss_kb: u64,
    fds: usize,
    /// Programs, maps and links that the daemon has descriptors of.
    kernel: (usize, usize, usize),
    pins: usize,
}

fn sample(daemon: &Daemon) -> Sample {
    let ids = Ids::of_process(&daemon.pid().to_string());
    Sample {
        rss_kb: daemon.status_kb("VmRSS"),
        fds: daemon.fds(),
        kernel: (ids.programs.len(), ids.maps.len(), ids.links.len()),
        pins: pins(&daemon.place),
    }
}

fn pins(place: &Place) -> usize {
    fn count(folder: &std::path::Path) -> usize {
        let Ok(entries) = fs::read_dir(folder) else { return 0 };
        let number = |path: std::path::PathBuf| match path.is_dir() {
            true => count(&path),
            false => usize::from(!path.ends_with(Path::new("links").join(COMES_AND_GOES))),
        };
        entries.flatten().map(|entry| number(entry.path())).sum()
    }
    count(&place.pins)
}

/// Reads and sets files until it is dropped, with or without a running daemon.
struct Users {
    stop: Arc<AtomicBool>,
    reads: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Users {
    fn new(place: &Arc<Place>) -> Self {
        let (stop, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let start = |work: fn(&Place, u64) -> bool| {
            let (stop, reads, place) = (Arc::clone(&stop), Arc::clone(&reads), Arc::clone(place));
            std::thread::spawn(move || {
                for round in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    if work(&place, round) {
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
            })
        };
        // Each read is checked; a killed daemon answers with an error, never with half a table.
        let threads = vec![
            start(|place, _| match fs::read_to_string(place.mount.join("tcp_v4/conns_pps/stat")) {
                Ok(text) => !Stat::of(&text).header.is_empty(),
                Err(_) => false,
            }),
            start(|place, _| match fs::read_to_string(place.mount.join("tcp_v4/conns_bytes/json")) {
                Ok(text) => Document::of(&text).total > 0,
                Err(_) => false,
            }),
            start(|place, _| fs::read_to_string(place.mount.join("self")).is_ok()),
            start(|place, _| fs::read_to_string(place.mount.join("tcp_v4/conns_pps/dump")).is_ok()),
            start(|place, round| {
                let set = |path: &str, value: u64| fs::write(place.mount.join(path), format!("{value}\n")).is_ok();
                set("tcp_v4/conns_pps/delay", round % 7 * 10)
                    && set("tcp_v4/conns_bps/period", 500 + round % 3 * 500)
                    && set("udp_v4/enabled", round % 2)
                    // A refused value must leave nothing behind, either.
                    && !set("tcp_v4/conns_pps/period", 0)
            }),
        ];
        Self { stop, reads, threads }
    }

    /// Ends the threads, and returns the number of reads.
    fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("a read or a write went wrong");
        }
        self.reads.load(Ordering::Relaxed)
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

fn nothing_grows() {
    let length = length();
    let place = Arc::new(Place::new());
    // With a budget, so that the daemon measures and raises delays, too.
    let start = || Daemon::start_at(Arc::clone(&place), &["--overhead-budget", "0.05%"]);
    let mut daemon = start();
    let busy = Busy::new(50);
    let users = Users::new(&place);

    // First half: one daemon.
    std::thread::sleep(SETTLE);
    let begun = Instant::now();
    let every = (length / 2 / 40).max(Duration::from_millis(200));
    let mut samples = Vec::new();
    while begun.elapsed() < length / 2 {
        samples.push(sample(&daemon));
        std::thread::sleep(every);
    }
    let quarter = samples.len() / 4;
    let (first, last) = (&samples[..quarter], &samples[samples.len() - quarter..]);
    let rss = |samples: &[Sample]| median(samples.iter().map(|sample| sample.rss_kb).collect());
    let most_fds = |samples: &[Sample]| samples.iter().map(|sample| sample.fds).max().unwrap_or(0);
    note(format!(
        "{} s with one daemon: {} kB resident, then {} kB; {} descriptors at most, then {}",
        begun.elapsed().as_secs(),
        rss(first),
        rss(last),
        most_fds(first),
        most_fds(last)
    ));
    assert!(rss(last) <= rss(first) + MORE_RSS_KB, "memory grows: {samples:?}");
    assert!(most_fds(last) <= most_fds(first) + MORE_FDS, "descriptors grow: {samples:?}");
    let least = |samples: &[Sample]| samples.iter().map(|sample| sample.kernel).min();
    assert_eq!(least(last), least(first), "objects in the kernel grow: {samples:?}");
    assert!(samples[0].pins > 0, "nothing is pinned");
    assert!(samples.iter().all(|sample| sample.pins == samples[0].pins), "pins grow: {samples:?}");

    // Second half: one daemon after the other, each killed while it serves.
    let begun = Instant::now();
    let mut after = Vec::new();
    while begun.elapsed() < length / 2 {
        daemon.kill();
        assert_eq!(pins(&place), samples[0].pins, "a kill leaves what was pinned");
        daemon = start();
        std::thread::sleep(Duration::from_secs(1));
        after.push(sample(&daemon));
    }
    assert!(after.len() >= 3, "{} daemons only", after.len());
    let restarts = after.len();
    for later in &after[1..] {
        assert!(later.rss_kb <= after[0].rss_kb + MORE_RSS_KB, "memory grows with restarts: {after:?}");
        assert!(later.pins == samples[0].pins, "pins grow with restarts: {after:?}");
    }
    let used = users.end();
    let transactions = busy.end();
    assert!(used > 500 && transactions > 1000, "{used} reads and sets, {transactions} transactions");
    drop(daemon);
    // Without the pins everything is gone: no forgotten reference holds an object in the kernel.
    let mut daemon = Daemon::start_at(Arc::clone(&place), &["--unload"]);
    let ids = Ids::of_process(&daemon.pid().to_string());
    assert_eq!(daemon.stop().code(), Some(0), "{}", daemon.log());
    assert_eq!(pins(&place), 0);
    assert!(eventually(Duration::from_secs(10), || ids.left().is_empty()), "left in the kernel: {:?}", ids.left());
    note(format!("{restarts} kills, {used} reads and sets, {transactions} transactions"));
}
