// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares the sample's waits with the kernel's own report by taskstats. The waits are real: for a disk and for memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use topstat_kernel::{Error, Options, Source};
use topstat_live::cgroup::Limited;
use topstat_live::daemon::Place;
use topstat_live::scratch::{OnDisk, SwapFile};
use topstat_live::taskstats::{Accounting, Taskstats, Waits};
use topstat_live::watch::{self, endless, table};
use topstat_live::{Case, Daemon, Role, Scratch, alone, eventually, harness, note};
use topstat_model::{Field, Snapshot};

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Shared: reads_from_a_disk_are_as_taskstats_says, Root, Delays, BlockDevice, TaskStorage; EveryKernel, Distribution, Gate),
        alone!(Shared: a_process_has_what_its_threads_waited, Root, Delays, BlockDevice, TaskStorage; EveryKernel),
        alone!(Shared: what_a_thread_waited_at_its_end_is_its_process_s, Root, Delays, BlockDevice, TaskStorage; EveryKernel),
        alone!(Shared: who_waits_most_comes_first, Root, Delays, BlockDevice, TaskStorage; EveryKernel),
        alone!(Shared: what_has_ended_is_in_the_total, Root, Delays, BlockDevice, TaskStorage; EveryKernel),
        alone!(Shared: pressed_for_memory_is_as_taskstats_says, Root, Delays, BlockDevice, MemoryLimit, TaskStorage; EveryKernel, Gate),
        alone!(Shared: copying_on_writing_is_as_taskstats_says, Root, Delays, TaskStorage; EveryKernel, Distribution, Gate),
        alone!(Shared: swapping_in_is_as_taskstats_says, Root, Delays, BlockDevice, MemoryLimit, TaskStorage; EveryKernel, Gate),
        alone!(Shared: a_long_wait_is_not_of_one_moment, Root, Delays, BlockDevice, Throttle, TaskStorage; EveryKernel),
        alone!(Shared: without_accounting_it_is_refused, Root, Delays, TaskStorage; EveryKernel),
        alone!(Shared: a_daemon_does_without_it_and_adopts_what_it_has_pinned, Root, Delays, Fuse, TaskStorage),
    ]
}

const BLKIO: &str = "delays/blkio";
const TABLES: [&str; 6] =
    [BLKIO, "delays/swapin", "delays/reclaim", "delays/thrashing", "delays/compact", "delays/wpcopy"];

fn load(options: &Options) -> Box<dyn Source> {
    watch::load(&TABLES, options)
}

fn snapshot(source: &mut dyn Source, path: &str) -> Snapshot {
    let snapshot = watch::snapshot(source, path);
    // Where two tasks are made at once the kernel may have no storage for one. The snapshot reports that, and the task is none of
    // the test's.
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

/// Has a role read until the kernel has counted `times` more waits for the disk. How often a read waits depends on the disk: a
/// fast disk may answer before the reader waits. If it nearly always does, there is nothing to test.
fn read_until_it_waited(reader: &mut Role, stats: &Taskstats, times: u64) {
    /// Blocks of a round, and rounds: a disk on which reads do not wait finishes them in seconds.
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

/// Gives a role that has answered time to leave its CPU.
fn settle() {
    std::thread::sleep(Duration::from_millis(50));
}

/// Waits that were longer, by the kernel's report, than the time there was for them: see delays/logic.h.
fn impossible(snapshot: &Snapshot) -> u64 {
    snapshot.lost.further.iter().filter(|(name, _)| name == "impossible").map(|(_, count)| *count).sum()
}

/// Attempts at a test in which the kernel has recorded a wait for a device wrongly, of any task.
const TRIES: usize = 20;

/// Compares a process's value in each table with its waits by taskstats, turn by turn and to the nanosecond. If the kernel has
/// recorded a wait for a device wrongly in a turn, of any task, the turn shows nothing about the table of block I/O. The tests
/// assert that there are other turns.
struct Turns<'a> {
    stats: &'a Taskstats,
    pid: u32,
    source: Box<dyn Source>,
    before: Look,
    /// For each table: the number of compared turns with waits, and their ns.
    compared: [(usize, u64); TABLES.len()],
}

#[derive(Clone)]
struct Look {
    truth: [u64; TABLES.len()],
    found: [u64; TABLES.len()],
    impossible: u64,
}

impl<'a> Turns<'a> {
    fn new(stats: &'a Taskstats, pid: u32) -> Self {
        settle();
        let zero = Look { truth: [0; TABLES.len()], found: [0; TABLES.len()], impossible: 0 };
        let mut new = Self { stats, pid, source: load(&endless()), before: zero, compared: [(0, 0); TABLES.len()] };
        new.before = new.look();
        new
    }

    fn look(&mut self) -> Look {
        settle();
        let truth = self.stats.of_process(self.pid).by_table().map(|(_, ns)| ns);
        let snapshots = TABLES.map(|path| snapshot(&mut *self.source, path));
        let found = snapshots.each_ref().map(|snapshot| sum_of(snapshot, "pid", self.pid));
        Look { truth, found, impossible: impossible(&snapshots[0]) }
    }

    /// Ends a turn. Returns whether all of the wanted tables had waits and were compared.
    fn turn(&mut self, wanted: &[&str]) -> bool {
        let after = self.look();
        let wrong = after.impossible - self.before.impossible;
        let mut all = true;
        for (index, path) in TABLES.into_iter().enumerate() {
            let truth = after.truth[index] - self.before.truth[index];
            let found = after.found[index] - self.before.found[index];
            if path == BLKIO && wrong > 0 {
                note(format!("{path}: {found} ns, taskstats {truth} ns, {wrong} impossible waits on the host"));
                assert!(found <= truth, "{path}: {found} ns, taskstats {truth} ns");
            } else {
                assert_eq!(found, truth, "{path}: ns, and what taskstats says");
                let (turns, ns) = &mut self.compared[index];
                (*turns, *ns) = (*turns + usize::from(truth > 0), *ns + truth);
            }
            all &= !wanted.contains(&path) || (truth > 0 && (path != BLKIO || wrong == 0));
        }
        self.before = after;
        all
    }

    /// For a table: the number of compared turns with waits, and their ns.
    fn compared(&self, path: &str) -> (usize, u64) {
        self.compared[TABLES.iter().position(|table| *table == path).expect("a table")]
    }
}

impl Drop for Turns<'_> {
    fn drop(&mut self) {
        for (path, (turns, ns)) in TABLES.into_iter().zip(self.compared).filter(|(_, (turns, _))| *turns > 0) {
            note(format!("{path}: {ns} ns in {turns} turns, as taskstats says"));
        }
    }
}

/// Has a role read the given blocks each turn, until enough turns with waits were compared. Turns must be short, and the role
/// must have no more threads than there are CPUs: with four threads on two busy CPUs nearly every turn has an impossible wait.
fn compare_reads(reader: &mut Role, turns: &mut Turns, blocks: &str) {
    const COMPARED: usize = 20;
    /// Some turns have no waits, because of a fast disk, and some have an impossible wait: on a busy host half of them.
    const TURNS: usize = 600;
    let waits = turns.stats.of_process(turns.pid).blkio.1;
    for _ in 0..TURNS {
        reader.tell(blocks);
        reader.expect("read");
        turns.turn(&[BLKIO]);
        if turns.compared(BLKIO).0 == COMPARED {
            return;
        }
    }
    let waits = turns.stats.of_process(turns.pid).blkio.1 - waits;
    if waits < COMPARED as u64 {
        harness::skip(format!("needs a disk that is waited for: in {TURNS} turns it was {waits} times"));
    }
    // On CPUs that are busy with other tasks nearly every turn has an impossible wait.
    let compared = turns.compared(BLKIO).0;
    harness::disturbed(format!("no more than {compared} turns of {TURNS} were without impossible waits"));
}

fn reads_from_a_disk_are_as_taskstats_says() {
    let _accounting = Accounting::set(true);
    let (file, stats) = (OnDisk::new(16), Taskstats::connect().expect("taskstats"));
    let mut reader = Role::start("disk-reader", &[file.path(), "1"]);
    reader.expect("ready");
    // Waits before the source is loaded do not count.
    read_until_it_waited(&mut reader, &stats, 1);
    let mut turns = Turns::new(&stats, reader.pid());
    compare_reads(&mut reader, &mut turns, "10");
}

/// The waits of ended threads count to their process; with `threads`, each thread has its own row.
fn a_process_has_what_its_threads_waited() {
    let _accounting = Accounting::set(true);
    let (file, stats) = (OnDisk::new(16), Taskstats::connect().expect("taskstats"));
    let mut reader = Role::start("disk-reader", &[file.path(), "2"]);
    reader.expect("ready");
    let mut turns = Turns::new(&stats, reader.pid());
    let mut by_thread = load(&Options { threads: true, ..endless() });
    let pid = reader.pid();
    let of_main = || stats.of_thread(pid).blkio.1;
    let before = of_main();
    compare_reads(&mut reader, &mut turns, "2");
    // Objects of ended threads count in the total only. The kernel wakes the thread that joins them before they have ended for
    // good. The main thread still exists, and seldom waits for the disk itself.
    let mut last = snapshot(&mut *by_thread, BLKIO);
    let ended = eventually(Duration::from_secs(5), || {
        last = snapshot(&mut *by_thread, BLKIO);
        sum_of(&last, "pid", pid) == of_main() - before
    });
    // taskstats also has waits that are impossible, such as of 1 ns. topstat counts these separately.
    if !ended && last.lost.count("impossible") > 0 {
        harness::disturbed("some waits were impossible");
    }
    assert!(
        ended,
        "rows of threads that have ended, or the main thread has not waited {} ns: {last:?}",
        of_main() - before
    );
    let (_, waited) = turns.compared(BLKIO);
    assert!(last.total >= waited, "the total is {} ns, the threads waited {waited} ns", last.total);
}

/// The threads end as soon as their wait is over: they may have been reaped when they leave their CPU.
fn what_a_thread_waited_at_its_end_is_its_process_s() {
    let _accounting = Accounting::set(true);
    let (file, stats) = (OnDisk::new(16), Taskstats::connect().expect("taskstats"));
    let mut reader = Role::start("disk-reader", &[file.path(), "2"]);
    reader.expect("ready");
    let mut turns = Turns::new(&stats, reader.pid());
    compare_reads(&mut reader, &mut turns, "1");
}

fn who_waits_most_comes_first() {
    assert!((0..TRIES).any(|_| who_waits_most()), "impossible waits {TRIES} times");
}

/// False: the kernel has recorded a wait wrongly, so this run shows nothing.
fn who_waits_most() -> bool {
    let _accounting = Accounting::set(true);
    let file = OnDisk::new(16);
    let mut readers: Vec<_> = (0..4).map(|_| Role::start("disk-reader", &[file.path(), "1"])).collect();
    for reader in &mut readers {
        reader.expect("ready");
    }
    let stats = Taskstats::connect().expect("taskstats");
    settle();
    let before: Vec<_> = readers.iter().map(|reader| stats.of_process(reader.pid()).blkio.0).collect();
    let mut source = load(&endless());
    for (reader, times) in readers.iter_mut().zip([10, 80, 40, 20]) {
        read_until_it_waited(reader, &stats, times);
    }
    settle();
    let mut truth: Vec<_> = readers
        .iter()
        .zip(before)
        .map(|(reader, before)| (stats.of_process(reader.pid()).blkio.0 - before, u64::from(reader.pid())))
        .collect();
    truth.sort_unstable_by(|a, b| b.cmp(a));
    let snapshot = snapshot(&mut *source, BLKIO);
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
    assert!(shown.len() == truth.len() && shown.is_sorted_by(|a, b| a >= b), "{shown:?}, but {truth:?}");
    if impossible(&snapshot) > 0 {
        return false;
    }
    assert_eq!(shown, truth);
    true
}

/// A process that ends leaves the rows, and its waits stay: rows + other = total.
fn what_has_ended_is_in_the_total() {
    assert!((0..TRIES).any(|_| what_has_ended()), "impossible waits {TRIES} times");
}

/// False: the kernel has recorded a wait wrongly, so this run shows nothing.
fn what_has_ended() -> bool {
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
    let snapshot = snapshot(&mut *source, BLKIO);
    assert_eq!(sum_of(&snapshot, "pid", pid), 0);
    if impossible(&snapshot) > 0 {
        return false;
    }
    assert!(snapshot.other >= waited, "other is {} ns, it has waited {waited} ns", snapshot.other);
    true
}

/// A file of twice the size of the allowed memory is read at random: pages that were evicted too early are read again.
fn pressed_for_memory_is_as_taskstats_says() {
    const MEBIBYTES: usize = 16;
    let _accounting = Accounting::set(true);
    let (file, stats) = (OnDisk::new(MEBIBYTES), Taskstats::connect().expect("taskstats"));
    let group = Limited::memory("pressed", (MEBIBYTES as u64 / 2) << 20).expect("make a cgroup");
    let mut presser = Role::start("presser", &[file.path()]);
    presser.expect("ready");
    group.take(presser.pid());
    let mut turns = Turns::new(&stats, presser.pid());
    // Repeats until the process has waited for each table. A fast disk may return pages before a reader waits for them.
    for _ in 0..TRIES {
        presser.tell("1000");
        presser.expect("pressed");
        if turns.turn(&[BLKIO, "delays/reclaim", "delays/thrashing"]) {
            presser.finish();
            return;
        }
    }
    harness::skip(format!("needs memory that is waited for: not in {TRIES} seconds of pressing"))
}

fn copying_on_writing_is_as_taskstats_says() {
    let _accounting = Accounting::set(true);
    let stats = Taskstats::connect().expect("taskstats");
    let mut copier = Role::start("copier", &[]);
    copier.expect("ready");
    let before = stats.of_process(copier.pid());
    let mut turns = Turns::new(&stats, copier.pid());
    copier.tell("2000");
    copier.expect("copied");
    assert!(turns.turn(&["delays/wpcopy"]), "nobody waited");
    let after = stats.of_process(copier.pid());
    // The process has written to some pages before, and a kernel may copy several pages at once.
    assert!(after.wpcopy.1 - before.wpcopy.1 >= 1500, "{after:?}");
}

fn swapping_in_is_as_taskstats_says() {
    const MEBIBYTES: usize = 32;
    let _accounting = Accounting::set(true);
    let stats = Taskstats::connect().expect("taskstats");
    let group = Limited::memory("swapped", (MEBIBYTES as u64 / 2) << 20).expect("make a cgroup");
    let mut swapper = Role::start("swapper", &[]);
    // Dropped after the role that is swapped to it: it can be switched off only when the role has ended, or has its memory back.
    let _swap = SwapFile::new(2 * MEBIBYTES);
    swapper.expect("ready");
    group.take(swapper.pid());
    let mut turns = Turns::new(&stats, swapper.pid());
    swapper.tell(&((MEBIBYTES << 20) / rustix::param::page_size()).to_string());
    swapper.expect("swapped");
    assert!(turns.turn(&["delays/swapin", "delays/reclaim"]), "nobody waited");
    drop(turns);
    swapper.finish();
}

/// A wait of some seconds ends in one moment. The value per second stays at one second, but for the grain of the window.
///
/// The test is repeated if the kernel has recorded the wait wrongly (see [`impossible`]), or if the test came too late to see the
/// value.
fn a_long_wait_is_not_of_one_moment() {
    const TRIES: u32 = 5;
    assert!((0..TRIES).any(|_| long_wait()), "the kernel's own figure was wrong, or the test too late, {TRIES} times");
}

fn long_wait() -> bool {
    const BLOCK: u64 = 64 << 10;
    /// The period has ten slides, and one more fades.
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
    /// A snapshot within this time after the end of the wait finds at least half a second of it.
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
    // The value fades from the end of the wait on; the first snapshot is some time later.
    assert!((0.5e9..=1e9 * GRAIN).contains(&(most as f64)), "{found:?}");
    assert_eq!(found.last(), Some(&0), "it has not faded: {found:?}");
    true
}

/// The error contains the advice. Tasks that were started before have no account, in taskstats either.
fn without_accounting_it_is_refused() {
    let accounting = Accounting::set(false);
    let refused = topstat_kernel::load(&[table("delays/blkio")], &Options::default()).err();
    let text = refused.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(matches!(&refused, Some(Error::SwitchedOff { sample, .. }) if sample == "delays"), "{refused:?}");
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

/// While delay accounting is off, the daemon serves the other samples. Once it was on, the daemon keeps the pinned state. The
/// configuration makes it rank threads.
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
