// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What processes wait for, against what the kernel tells of them by taskstats. The waits are real ones, for a disk and
//! for memory.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use topstat_kernel::{Error, Options, Source};
use topstat_live::cgroup::Limited;
use topstat_live::daemon::Place;
use topstat_live::scratch::SwapFile;
use topstat_live::taskstats::{Accounting, Taskstats, Waits};
use topstat_live::watch::{ENDLESS_MS, table};
use topstat_live::{Case, Daemon, Role, Scratch, case, harness, note};
use topstat_model::{Field, Snapshot};

pub fn cases() -> Vec<Case> {
    vec![
        case!(reads_from_a_disk_are_as_taskstats_says, Root, Delays, BlockDevice, TaskStorage; OuterKernels, Distribution),
        case!(a_process_has_what_its_threads_waited, Root, Delays, BlockDevice, TaskStorage; OuterKernels),
        case!(what_a_thread_waited_at_its_end_is_its_process_s, Root, Delays, BlockDevice, TaskStorage; OuterKernels),
        case!(who_waits_most_comes_first, Root, Delays, BlockDevice, TaskStorage; OuterKernels),
        case!(what_has_ended_is_in_the_total, Root, Delays, BlockDevice, TaskStorage; OuterKernels),
        case!(pressed_for_memory_is_as_taskstats_says, Root, Delays, BlockDevice, MemoryLimit, TaskStorage; OuterKernels),
        case!(copying_on_writing_is_as_taskstats_says, Root, Delays, TaskStorage; OuterKernels, Distribution),
        case!(swapping_in_is_as_taskstats_says, Root, Delays, BlockDevice, MemoryLimit, TaskStorage; OuterKernels),
        case!(a_long_wait_is_not_of_one_moment, Root, Delays, BlockDevice, Throttle, TaskStorage; OuterKernels),
        case!(without_accounting_it_is_refused, Root, Delays, TaskStorage; OuterKernels),
        case!(a_daemon_does_without_it_and_adopts_what_it_has_pinned, Root, Delays, Fuse, TaskStorage),
    ]
}

const TABLES: [&str; 6] =
    ["delays/blkio", "delays/swapin", "delays/reclaim", "delays/thrashing", "delays/compact", "delays/wpcopy"];

/// A file on a block device, which is not in memory.
struct OnDisk {
    path: PathBuf,
    _scratch: Scratch,
}

impl OnDisk {
    fn new(mebibytes: usize) -> Self {
        let scratch = Scratch::new("delays");
        let path = scratch.path().join("data");
        let mut file = File::create(&path).expect("make a file");
        let piece: Vec<u8> = (0..1_u32 << 20).map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
        for _ in 0..mebibytes {
            file.write_all(&piece).expect("write to the disk");
        }
        file.sync_all().expect("write to the disk");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("drop it from memory");
        Self { path, _scratch: scratch }
    }

    fn path(&self) -> &str {
        self.path.to_str().expect("a path in UTF-8")
    }
}

fn load(options: &Options) -> Box<dyn Source> {
    let tables = TABLES.map(table);
    topstat_kernel::load(&tables, options).unwrap_or_else(|e| panic!("{e}"))
}

fn endless() -> Options {
    Options { period_ms: ENDLESS_MS, ..Options::default() }
}

fn snapshot(source: &mut dyn Source, path: &str) -> Snapshot {
    let snapshot = source.snapshot(&table(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    assert_eq!(snapshot.check(), Ok(()));
    // Where two tasks are made at once the kernel may have no storage for one: it is said, and it is no test's task.
    if snapshot.lost.no_memory > 0 {
        note(format!("{path}: {} pushes without an object", snapshot.lost.no_memory));
    }
    snapshot
}

/// The sum of the rows in which a column has this value.
fn sum_of(snapshot: &Snapshot, column: &str, value: u32) -> u64 {
    let column = snapshot.column(column).expect("a column");
    snapshot.rows.iter().filter(|row| row.object[column] == Field::from(value)).map(|row| row.value).sum()
}

/// Has a role read until it has waited for the disk so many times more, by the kernel's own count. How often a read waits
/// is up to the disk: a fast one may answer before anybody waits. Where it nearly always does there is nothing to test.
fn read_until_it_waited(reader: &mut Role, stats: &Taskstats, times: u64) {
    /// So much is read at a time, and so often: a disk that lets nobody wait is done with it in seconds.
    const BLOCKS: u64 = 100;
    const ROUNDS: u64 = 300;
    let count = |reader: &Role| stats.of_process(reader.pid()).blkio.1;
    let before = count(reader);
    for _ in 0..ROUNDS {
        reader.tell(&BLOCKS.to_string());
        reader.expect("read");
        if count(reader) >= before + times {
            return;
        }
    }
    let waited = count(reader) - before;
    harness::skip(format!("needs a disk that is waited for: {} reads waited {waited} times", BLOCKS * ROUNDS));
}

/// Time for whoever has just said something to leave its CPU.
fn settle() {
    std::thread::sleep(Duration::from_millis(50));
}

/// Waits that the kernel says were longer than there was time for: see delays/logic.h.
fn impossible(snapshot: &Snapshot) -> u64 {
    snapshot.lost.further.iter().filter(|(name, _)| name == "impossible").map(|(_, count)| *count).sum()
}

/// That a process has in each table, to the nanosecond, what it has waited between two answers of the kernel's. Only
/// what is looked for must have been waited for. Where the kernel's own figure is impossible topstat's is less.
fn compare(source: &mut dyn Source, pid: u32, before: &Waits, after: &Waits, waited: &[&str]) {
    for ((path, before), (_, after)) in before.by_table().into_iter().zip(after.by_table()) {
        let (snapshot, truth) = (snapshot(source, path), after - before);
        let found = sum_of(&snapshot, "pid", pid);
        let wrong = impossible(&snapshot);
        if truth > 0 || wrong > 0 {
            note(format!("{path}: {found} ns, taskstats {truth} ns; {wrong} impossible waits on the host"));
        }
        assert!(found == truth || (wrong > 0 && found < truth), "{path}: {found} ns, taskstats {truth} ns");
        assert!(found > 0 || !waited.contains(&path), "nobody waited: {path}");
    }
}

fn reads_from_a_disk_are_as_taskstats_says() {
    let _accounting = Accounting::set(true);
    let (file, stats) = (OnDisk::new(16), Taskstats::connect().expect("taskstats"));
    let mut reader = Role::start("disk-reader", &[file.path(), "1"]);
    reader.expect("ready");
    // What it has waited for before does not count.
    read_until_it_waited(&mut reader, &stats, 1);
    settle();
    let before = stats.of_process(reader.pid());
    let mut source = load(&endless());
    read_until_it_waited(&mut reader, &stats, 100);
    settle();
    let after = stats.of_process(reader.pid());
    note(format!("{} waits", after.blkio.1 - before.blkio.1));
    compare(&mut *source, reader.pid(), &before, &after, &["delays/blkio"]);
}

/// Threads that have ended are their process's, and with `threads` each has a row of its own.
fn a_process_has_what_its_threads_waited() {
    let _accounting = Accounting::set(true);
    let (file, stats) = (OnDisk::new(16), Taskstats::connect().expect("taskstats"));
    let mut reader = Role::start("disk-reader", &[file.path(), "4"]);
    reader.expect("ready");
    settle();
    let before = stats.of_process(reader.pid());
    let mut source = load(&endless());
    let mut by_thread = load(&Options { threads: true, ..endless() });
    read_until_it_waited(&mut reader, &stats, 100);
    settle();
    let after = stats.of_process(reader.pid());
    compare(&mut *source, reader.pid(), &before, &after, &["delays/blkio"]);
    // They have ended: as objects of their own they are in the total alone.
    let snapshot = snapshot(&mut *by_thread, "delays/blkio");
    let waited = after.blkio.0 - before.blkio.0;
    assert_eq!(sum_of(&snapshot, "pid", reader.pid()), 0);
    assert!(
        snapshot.total >= waited || impossible(&snapshot) > 0,
        "the total is {} ns, the threads waited {waited} ns",
        snapshot.total
    );
}

/// Threads that end as soon as they have what they waited for: when they leave their CPU they may have been reaped.
fn what_a_thread_waited_at_its_end_is_its_process_s() {
    /// So many turns are compared. Not all can be: one impossible wait, of whomever, and a turn proves nothing; nor does
    /// one in which the disk was so fast that nobody waited.
    const COMPARED: usize = 20;
    const TURNS: usize = 600;
    let _accounting = Accounting::set(true);
    let (file, stats) = (OnDisk::new(16), Taskstats::connect().expect("taskstats"));
    let mut reader = Role::start("disk-reader", &[file.path(), "2"]);
    reader.expect("ready");
    let pid = reader.pid();
    settle();
    let mut source = load(&endless());
    let mut look = || {
        let snapshot = snapshot(&mut *source, "delays/blkio");
        (stats.of_process(pid).blkio.0, sum_of(&snapshot, "pid", pid), impossible(&snapshot))
    };
    let (mut before, mut turns, mut compared, mut waited, mut ns) = (look(), 0, 0, 0, 0);
    while compared < COMPARED {
        if turns == TURNS && waited < COMPARED {
            harness::skip(format!("needs a disk that is waited for: in {turns} turns it was {waited} times"));
        }
        assert!(turns < TURNS, "no more than {compared} turns of {turns} without impossible waits");
        turns += 1;
        reader.tell("1");
        reader.expect("read");
        settle();
        let after = look();
        let (truth, found) = (after.0 - before.0, after.1 - before.1);
        waited += usize::from(truth > 0);
        if after.2 == before.2 {
            assert_eq!(found, truth, "in turn {turns}");
            compared += usize::from(truth > 0);
            ns += truth;
        }
        before = after;
    }
    note(format!("{compared} turns of {turns} with waits, none impossible: {ns} ns, as taskstats says"));
}

fn who_waits_most_comes_first() {
    let _accounting = Accounting::set(true);
    let file = OnDisk::new(16);
    let mut readers: Vec<_> = (0..4).map(|_| Role::start("disk-reader", &[file.path(), "1"])).collect();
    for reader in &mut readers {
        reader.expect("ready");
    }
    let stats = Taskstats::connect().expect("taskstats");
    let before: Vec<_> = readers.iter().map(|reader| stats.of_process(reader.pid()).blkio.0).collect();
    let mut source = load(&endless());
    for (reader, times) in readers.iter_mut().zip([10, 80, 40, 20]) {
        read_until_it_waited(reader, &stats, times);
    }
    settle();
    let truth: Vec<_> = readers
        .iter()
        .zip(before)
        .map(|(reader, before)| (stats.of_process(reader.pid()).blkio.0 - before, u64::from(reader.pid())))
        .collect();
    let snapshot = snapshot(&mut *source, "delays/blkio");
    let pid = snapshot.column("pid").expect("a column");
    let shown: Vec<_> = snapshot
        .rows
        .iter()
        .filter_map(|row| match row.object[pid] {
            Field::U64(pid) => Some((row.value, pid)),
            _ => None,
        })
        .filter(|(_, pid)| truth.iter().any(|(_, own)| own == pid))
        .collect();
    let mut sorted = truth;
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    if impossible(&snapshot) == 0 {
        assert_eq!(shown, sorted);
    }
    assert!(shown.len() == sorted.len() && shown.is_sorted_by(|a, b| a >= b), "{shown:?}");
}

/// Who ends leaves the rows, and what it has waited stays: rows + other = total.
fn what_has_ended_is_in_the_total() {
    let _accounting = Accounting::set(true);
    let (file, stats) = (OnDisk::new(16), Taskstats::connect().expect("taskstats"));
    let mut reader = Role::start("disk-reader", &[file.path(), "1"]);
    reader.expect("ready");
    settle();
    let before = stats.of_process(reader.pid());
    let mut source = load(&endless());
    read_until_it_waited(&mut reader, &stats, 50);
    settle();
    let waited = stats.of_process(reader.pid()).blkio.0 - before.blkio.0;
    let pid = reader.pid();
    reader.finish();
    let snapshot = snapshot(&mut *source, "delays/blkio");
    assert_eq!(sum_of(&snapshot, "pid", pid), 0);
    assert!(
        snapshot.other >= waited || impossible(&snapshot) > 0,
        "other is {} ns, it has waited {waited} ns",
        snapshot.other
    );
}

/// A file of twice what may be in memory, used all over: pages come back that were thrown out too early.
fn pressed_for_memory_is_as_taskstats_says() {
    const MEBIBYTES: usize = 16;
    let _accounting = Accounting::set(true);
    let (file, stats) = (OnDisk::new(MEBIBYTES), Taskstats::connect().expect("taskstats"));
    let group = Limited::memory("pressed", (MEBIBYTES as u64 / 2) << 20).expect("make a cgroup");
    let mut presser = Role::start("presser", &[file.path()]);
    presser.expect("ready");
    group.take(presser.pid());
    settle();
    let before = stats.of_process(presser.pid());
    let mut source = load(&endless());
    let after = press_until_it_waited(&mut presser, &stats, &before);
    compare(&mut *source, presser.pid(), &before, &after, &["delays/blkio", "delays/reclaim", "delays/thrashing"]);
    presser.finish();
}

/// Has it press for as long as it takes until it has waited for each of what there is to wait for. A fast disk may give
/// pages back before anybody waits for them.
fn press_until_it_waited(presser: &mut Role, stats: &Taskstats, before: &Waits) -> Waits {
    const ROUNDS: u32 = 20;
    for _ in 0..ROUNDS {
        presser.tell("1000");
        presser.expect("pressed");
        settle();
        let after = stats.of_process(presser.pid());
        let more = |now: (u64, u64), then: (u64, u64)| now.0 > then.0;
        if more(after.blkio, before.blkio)
            && more(after.reclaim, before.reclaim)
            && more(after.thrashing, before.thrashing)
        {
            return after;
        }
    }
    harness::skip(format!("needs memory that is waited for: not in {ROUNDS} seconds of pressing"))
}

fn copying_on_writing_is_as_taskstats_says() {
    let _accounting = Accounting::set(true);
    let stats = Taskstats::connect().expect("taskstats");
    let mut copier = Role::start("copier", &[]);
    copier.expect("ready");
    settle();
    let before = stats.of_process(copier.pid());
    let mut source = load(&endless());
    copier.tell("2000");
    copier.expect("copied");
    settle();
    let after = stats.of_process(copier.pid());
    // Some pages it has written to before, or kernels copy along.
    assert!(after.wpcopy.1 - before.wpcopy.1 >= 1500, "{after:?}");
    compare(&mut *source, copier.pid(), &before, &after, &["delays/wpcopy"]);
}

fn swapping_in_is_as_taskstats_says() {
    const MEBIBYTES: usize = 32;
    let _accounting = Accounting::set(true);
    let stats = Taskstats::connect().expect("taskstats");
    let group = Limited::memory("swapped", (MEBIBYTES as u64 / 2) << 20).expect("make a cgroup");
    let mut swapper = Role::start("swapper", &[]);
    // After whoever is swapped to it: it can be switched off only when that has ended, or has its memory back.
    let _swap = SwapFile::new(2 * MEBIBYTES);
    swapper.expect("ready");
    group.take(swapper.pid());
    settle();
    let before = stats.of_process(swapper.pid());
    let mut source = load(&endless());
    swapper.tell(&(MEBIBYTES * 256).to_string());
    swapper.expect("swapped");
    settle();
    let after = stats.of_process(swapper.pid());
    compare(&mut *source, swapper.pid(), &before, &after, &["delays/swapin", "delays/reclaim"]);
    swapper.finish();
}

/// One wait of some seconds is over at once. What is shown per second stays a second, but for the grain of the window.
///
/// Where the kernel has taken down the wait wrongly (see [`impossible`]), or the test came too late to look while it was
/// shown, there is nothing to see: another one is made.
fn a_long_wait_is_not_of_one_moment() {
    const TRIES: u32 = 5;
    assert!((0..TRIES).any(|_| long_wait()), "the kernel's own figure was wrong, or the test too late, {TRIES} times");
}

fn long_wait() -> bool {
    const BLOCK: u64 = 64 << 10;
    /// Of ten slides that are in the period and one that fades.
    const GRAIN: f64 = 1.11;
    let _accounting = Accounting::set(true);
    let (file, stats) = (OnDisk::new(1), Taskstats::connect().expect("taskstats"));
    let mut reader = Role::start("disk-reader", &[file.path(), "1"]);
    reader.expect("ready");
    let group = Limited::reads("slow", BLOCK / 3).expect("make a cgroup");
    group.take(reader.pid());
    let before = stats.of_process(reader.pid()).blkio.0;
    let mut source = load(&Options::default());
    reader.tell("1");
    /// A look within so long of the end of the wait finds at least half a second of it.
    const SOON: Duration = Duration::from_millis(400);
    let (mut found, mut wrong) = (Vec::new(), 0);
    let begun = Instant::now();
    let (mut answered, mut looked, mut longest) = (None, begun, Duration::ZERO);
    while answered.is_none_or(|at: Instant| at.elapsed() < Duration::from_millis(1300)) {
        assert!(begun.elapsed() < Duration::from_secs(30), "a read takes for ever");
        std::thread::sleep(Duration::from_millis(50));
        if answered.is_none() && stats.of_process(reader.pid()).blkio.0 > before {
            reader.expect("read");
            settle();
            answered = Some(Instant::now());
        }
        let snapshot = snapshot(&mut *source, "delays/blkio");
        found.push(sum_of(&snapshot, "pid", reader.pid()));
        wrong = impossible(&snapshot);
        longest = longest.max(looked.elapsed());
        looked = Instant::now();
    }
    let waited = stats.of_process(reader.pid()).blkio.0 - before;
    let most = found.iter().copied().max().expect("snapshots");
    note(format!("one wait of {waited} ns; at most {most} ns per second were shown"));
    reader.finish();
    if (wrong > 0 && most == 0) || longest > SOON {
        return false;
    }
    assert!(waited > 2_000_000_000, "the read was not throttled: {waited} ns");
    // It fades from the moment in which the wait is over; the first look is some time later.
    assert!((0.5e9..=1e9 * GRAIN).contains(&(most as f64)), "{found:?}");
    assert_eq!(found.last(), Some(&0), "it has not faded: {found:?}");
    true
}

/// It says what to do; and tasks that were started before have no account, for nobody.
fn without_accounting_it_is_refused() {
    let accounting = Accounting::set(false);
    let refused = topstat_kernel::load(&[table("delays/blkio")], &Options::default()).err();
    let text = refused.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(matches!(refused, Some(Error::SwitchedOff { sample: "delays", .. })), "{refused:?}");
    assert!(text.contains("sysctl -w kernel.task_delayacct=1"), "{text}");
    let mut copier = Role::start("copier", &[]);
    copier.expect("ready");
    drop(accounting);
    let _accounting = Accounting::set(true);
    let mut source = load(&endless());
    copier.tell("100");
    copier.expect("copied");
    settle();
    let stats = Taskstats::connect().expect("taskstats").of_process(copier.pid());
    assert_eq!(stats, Waits::default(), "the kernel has an account");
    assert_eq!(sum_of(&snapshot(&mut *source, "delays/wpcopy"), "pid", copier.pid()), 0);
}

/// While it is off the rest is served. Once it was on, what is pinned is kept. By configuration, threads are ranked.
fn a_daemon_does_without_it_and_adopts_what_it_has_pinned() {
    let off = Accounting::set(false);
    let scratch = Scratch::new("delays-config");
    let config = scratch.path().join("topstat.toml");
    std::fs::write(&config, "[samples.delays]\nthreads = true\n[samples.delays.blkio]\nperiod = 5000\n").unwrap();
    let options = ["--config", config.to_str().expect("a path in UTF-8")];
    let place = Arc::new(Place::new());
    let mut daemon = Daemon::start_at(Arc::clone(&place), &options);
    assert!(daemon.path("tasks/cpu").exists() && !daemon.path("delays").exists());
    assert!(daemon.says("delays: cannot load sample delays: the kernel's delay accounting is off; switch it on with"));
    assert_eq!(daemon.stop().code(), Some(0));
    drop(off);
    let on = Accounting::set(true);
    let mut daemon = Daemon::start_at(Arc::clone(&place), &options);
    assert_eq!(daemon.read("delays/blkio/period"), "5000\n");
    let mut copier = Role::start("copier", &[]);
    copier.expect("ready");
    copier.tell("2000");
    copier.expect("copied");
    let document = daemon.json("delays/wpcopy").value;
    let rows = document["rows"].as_array().expect("rows").clone();
    let own = rows.iter().find(|row| row["object"]["pid"] == copier.pid()).expect("a row of who has copied");
    assert_eq!(own["object"]["tid"], copier.pid(), "{own}");
    assert_eq!(daemon.stop().code(), Some(0));
    drop(on);
    let _off = Accounting::set(false);
    let mut daemon = Daemon::start_at(place, &["--unload"]);
    assert!(daemon.says("delays: found pinned, and adopted"), "{}", daemon.log());
    assert!(daemon.says("delays: the pinned tables rank threads, not processes"), "{}", daemon.log());
    assert_eq!(daemon.read("delays/blkio/period"), "5000\n");
    assert_eq!(daemon.stop().code(), Some(0));
}
