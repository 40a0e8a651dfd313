// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares the tables of control groups with the files of the groups, which are read around each reading.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use topstat_kernel::{Options, Source};
use topstat_live::cgroup::{Group, Limited};
use topstat_live::watch::{ENDLESS_MS, everything, load, snapshot, table};
use topstat_live::{Case, Scratch, alone, case, eventually, note, pace};
use topstat_model::{Field, Snapshot};

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Cpu: throttling_is_that_of_cpu_stat, Root, CpuLimit, Sample(THROTTLED); EveryKernel, Gate),
        alone!(Cpu: waits_for_cpus_are_those_of_cpu_pressure, Root, CgroupV2, Sample(CPU_SOME)),
        alone!(Cpu: a_group_on_a_level_has_all_below_it, Root, CgroupV2, Sample(CPU_SOME); EveryKernel),
        case!(waits_for_a_disk_are_those_of_io_pressure, Root, CgroupV2, BlockDevice, Sample(IO_SOME); EveryKernel),
        case!(waits_for_memory_are_those_of_memory_pressure, Root, CgroupV2, BlockDevice, MemoryLimit, Sample(MEM_SOME); EveryKernel),
        case!(memory_is_that_of_its_file, Root, MemoryLimit, Sample(MEMORY); EveryKernel, Gate),
        case!(a_killed_process_is_counted, Root, MemoryLimit, Sample(OOM_KILL); EveryKernel, Gate),
        case!(groups_may_come_and_go, Root, CgroupV2, Sample(CPU_SOME); ComeAndGo),
        alone!(Cpu: a_thousand_groups_take_a_reading_this_long, Root, CgroupV2, Sample(CPU_SOME)),
    ]
}

const THROTTLED: &str = "cgroup_limits/throttled";
const PERIODS: &str = "cgroup_limits/throttled_periods";
const MAX: &str = "cgroup_limits/max";
const OOM: &str = "cgroup_limits/oom";
const OOM_KILL: &str = "cgroup_limits/oom_kill";
const CPU_SOME: &str = "cgroup_pressure/cpu_some";
const CPU_FULL: &str = "cgroup_pressure/cpu_full";
const MEM_SOME: &str = "cgroup_pressure/mem_some";
const MEM_FULL: &str = "cgroup_pressure/mem_full";
const IO_SOME: &str = "cgroup_pressure/io_some";
const IO_FULL: &str = "cgroup_pressure/io_full";
const MEMORY: &str = "cgroup_memory/bytes";

/// The tables of a refresh share a reading of at most this age.
const SHARED: Duration = Duration::from_millis(60);
/// The most time since the moment of a reading: a tick of the slowest kernel clock.
const TICK_NS: u64 = 10_000_000;

/// A process in a group, which is killed when this is dropped.
struct Busy(Child);

impl Busy {
    fn new(folder: &Path, command: &str) -> Self {
        let procs = folder.join("cgroup.procs");
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: a write to a file, from memory that exists already.
        unsafe { shell.pre_exec(move || fs::write(&procs, "0")) };
        // The shell leads a group of processes, so that its children end with it.
        Self(shell.process_group(0).spawn().expect("sh"))
    }

    fn spinning(folder: &Path) -> Self {
        Self::new(folder, "while :; do :; done")
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0.id().cast_signed()) {
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

/// A number in a file of a group, behind a word: `throttled_usec 7`, or `total=7` in a line that begins with `some`.
fn number(folder: &Path, file: &str, line: &str, word: &str) -> Option<u64> {
    let text = fs::read_to_string(folder.join(file)).ok()?;
    let line = text.lines().find(|found| found.starts_with(line))?;
    line.split([' ', '=']).skip_while(|found| *found != word).nth(1)?.parse().ok()
}

/// The total of a pressure file, in ns. The file has µs.
fn pressure(folder: &Path, file: &str, line: &str) -> u64 {
    number(folder, file, line, "total").expect("a total") * 1000
}

/// A row's growth between the first and the last reading, without scale.
fn growth(snapshot: &Snapshot, path: &str) -> u64 {
    let column = snapshot.column("cgroup").expect("a column");
    let row = snapshot.rows.iter().find(|row| row.object[column] == Field::from(path));
    let elapsed_ns = snapshot.elapsed.expect("two readings").as_nanos();
    let period_ns = u128::from(ENDLESS_MS) * 1_000_000;
    row.map_or(0, |row| ((u128::from(row.value) * elapsed_ns + period_ns / 2) / period_ns) as u64)
}

/// The path of a folder in its hierarchy.
fn path_of(folder: &Path) -> String {
    format!("/{}", folder.file_name().and_then(|name| name.to_str()).expect("a name"))
}

/// Reads numbers before and after each of two readings of the tables, while `work` is done between the readings. Asserts that the
/// growth in each table is that in the files: at least from after the first reading to before the second, at most from before the
/// first to after the second. `slack_ns`: how far a reading may lie from its moment.
fn compare(
    path: &str,
    tables: &[(&str, &dyn Fn() -> u64)],
    options: &Options,
    slack: u64,
    work: impl FnOnce(),
) -> Vec<u64> {
    let paths: Vec<&str> = tables.iter().map(|(table, _)| *table).collect();
    let read = || tables.iter().map(|(_, read)| read()).collect::<Vec<_>>();
    let first = read();
    let mut source = load(&paths, options);
    let begun = read();
    work();
    std::thread::sleep(SHARED);
    let ending = read();
    let found: Vec<u64> = paths.iter().map(|table| growth(&snapshot(&mut *source, table), path)).collect();
    let last = read();
    for (place, table) in paths.iter().enumerate() {
        let least = (ending[place] - begun[place]).saturating_sub(slack);
        let most = last[place] - first[place] + slack;
        // The growth was scaled to a period and back.
        let (least, most) = (least - least / 1_000_000, most + most / 1_000_000 + 1);
        assert!((least..=most).contains(&found[place]), "{table} of {path}: {}, not {least} to {most}", found[place]);
    }
    note(format!("{path}: {:?}", paths.iter().zip(&found).collect::<Vec<_>>()));
    found
}

fn throttling_is_that_of_cpu_stat() {
    let group = Limited::cpu("throttled", 20).expect("a cgroup");
    let folder = group.folder().to_owned();
    let time = || {
        let v2 = number(&folder, "cpu.stat", "throttled_usec", "throttled_usec").map(|us| us * 1000);
        v2.or_else(|| number(&folder, "cpu.stat", "throttled_time", "throttled_time")).expect("throttled time")
    };
    let periods = || number(&folder, "cpu.stat", "nr_throttled", "nr_throttled").expect("periods");
    let _busy = Busy::spinning(&folder);
    // Microseconds are rounded down.
    let tables: [(&str, &dyn Fn() -> u64); 2] = [(THROTTLED, &time), (PERIODS, &periods)];
    let work = || {
        // The time is counted where throttling ends: after several periods, if a slow CPU has let the group overrun its quota by much.
        let (before, since) = (periods(), time());
        let grown = || periods() > before + 4 && time() > since;
        assert!(eventually(pace::patience(Duration::from_secs(20)), grown), "nothing is throttled");
    };
    let found = compare(&path_of(&folder), &tables, &everything(), 1000, work);
    assert!(found[0] > 0 && found[1] > 0, "{found:?}");
}

/// A group of v2 with spinning processes that have to share CPUs.
fn crowd(folder: &Path) -> Vec<Busy> {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (0..=cpus).map(|_| Busy::spinning(folder)).collect()
}

fn waits_for_cpus_are_those_of_cpu_pressure() {
    let group = Group::below_root("crowd").expect("a cgroup");
    let some = || pressure(group.folder(), "cpu.pressure", "some");
    let full = || pressure(group.folder(), "cpu.pressure", "full");
    let _busy = crowd(group.folder());
    for _ in 0..pace::work(3, 1) {
        // Less than the time after which the kernel sums up by itself, and more.
        for ms in [300, 2500] {
            let tables: [(&str, &dyn Fn() -> u64); 2] = [(CPU_SOME, &some), (CPU_FULL, &full)];
            let work = || std::thread::sleep(Duration::from_millis(ms));
            let found = compare(&group.path, &tables, &everything(), TICK_NS, work);
            assert!(found[0] > 0, "{found:?}");
        }
    }
}

fn a_group_on_a_level_has_all_below_it() {
    let group = Group::below_root("above").expect("a cgroup");
    let children = ["one", "two"].map(|name| group.child(name).expect("a cgroup"));
    let some = |of: &Group| pressure(of.folder(), "cpu.pressure", "some");
    let busy = children.each_ref().map(|child| crowd(child.folder()));
    let work = || std::thread::sleep(Duration::from_secs(1));
    let above = || some(&group);
    let level = Options { depth: Some(1), ..everything() };
    assert!(compare(&group.path, &[(CPU_SOME, &above)], &level, TICK_NS, work)[0] > 0);
    for child in &children {
        let of_child = || some(child);
        assert!(compare(&child.path, &[(CPU_SOME, &of_child)], &everything(), TICK_NS, work)[0] > 0);
        // With a level, the groups below it have no rows. Without a level, the group above has no row.
        let mut source = load(&[CPU_SOME], &level);
        work();
        let cut = snapshot(&mut *source, CPU_SOME);
        assert!(growth(&cut, &group.path) > 0);
        assert_eq!(growth(&cut, &child.path), 0);
    }
    let mut source = load(&[CPU_SOME], &everything());
    work();
    assert_eq!(growth(&snapshot(&mut *source, CPU_SOME), &group.path), 0);
    drop(busy);
    drop(children);
}

/// A file on a block device, which is not in memory: pages that are there already are charged to the group that read them.
fn file_of(mebibytes: u32) -> (Scratch, PathBuf) {
    let scratch = Scratch::new("pressure");
    let path = scratch.path().join("data");
    let made = Command::new("dd")
        .args(["if=/dev/zero", "bs=1M", "conv=fsync", "status=none"])
        .arg(format!("of={}", path.display()))
        .arg(format!("count={mebibytes}"))
        .status();
    assert!(made.expect("dd").success());
    let file = fs::File::open(&path).expect("the file");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("drop it from memory");
    (scratch, path)
}

fn waits_for_a_disk_are_those_of_io_pressure() {
    let group = Group::below_root("disk").expect("a cgroup");
    let (_scratch, file) = file_of(16);
    let some = || pressure(group.folder(), "io.pressure", "some");
    let full = || pressure(group.folder(), "io.pressure", "full");
    let reads = format!("while :; do dd if={} of=/dev/null bs=4k iflag=direct status=none; done", file.display());
    let _busy = Busy::new(group.folder(), &reads);
    let work = || {
        let before = some();
        assert!(eventually(pace::patience(Duration::from_secs(20)), || some() > before + 1_000_000), "no waits");
    };
    let tables: [(&str, &dyn Fn() -> u64); 2] = [(IO_SOME, &some), (IO_FULL, &full)];
    assert!(compare(&group.path, &tables, &everything(), TICK_NS, work)[0] > 0);
}

fn waits_for_memory_are_those_of_memory_pressure() {
    // Too small for the file: each read has to make room. If v1 has the memory, a group of v2 has the pressure.
    let limited = Limited::memory("pressed", 16 << 20).expect("a cgroup");
    let (_scratch, file) = file_of(64);
    let is_v2 = limited.folder().join("memory.pressure").exists();
    let own = (!is_v2).then(|| Group::below_root("pressed-v2").expect("a cgroup"));
    let folder = own.as_ref().map_or_else(|| limited.folder().to_owned(), |group| group.folder().to_owned());
    let some = || pressure(&folder, "memory.pressure", "some");
    let full = || pressure(&folder, "memory.pressure", "full");
    // In both groups before the first page is read.
    let moved = limited.folder().join("cgroup.procs");
    let reads = format!("echo $$ > {}; while :; do cat {} > /dev/null; done", moved.display(), file.display());
    let _busy = Busy::new(&folder, &reads);
    let work = || {
        let before = some();
        assert!(eventually(pace::patience(Duration::from_secs(30)), || some() > before + 100_000), "no waits");
    };
    let tables: [(&str, &dyn Fn() -> u64); 2] = [(MEM_SOME, &some), (MEM_FULL, &full)];
    let found = compare(&path_of(&folder), &tables, &everything(), TICK_NS, work);
    assert!(found[0] > 0, "{found:?}");
}

/// The bytes of a group in a file of v2 or v1.
fn bytes(folder: &Path) -> u64 {
    let text = fs::read_to_string(folder.join("memory.current"));
    let text = text.or_else(|_| fs::read_to_string(folder.join("memory.usage_in_bytes")));
    text.expect("memory").trim().parse().expect("a number")
}

/// A kernel may charge and free pages at any time, so the number of the table is compared only where the file has the same number before and after
/// the reading.
fn memory_is_that_of_its_file() {
    let group = Limited::memory("holds", 256 << 20).expect("a cgroup");
    let path = path_of(group.folder());
    let held = 48 << 20;
    // Backed by memory of the group.
    let scratch = Path::new("/dev/shm").join(format!("topstat-live-{}-holds", std::process::id()));
    let hold = format!("head -c {held} /dev/zero > {}; sleep 600", scratch.display());
    let _busy = Busy::new(group.folder(), &hold);
    assert!(eventually(pace::patience(Duration::from_secs(20)), || bytes(group.folder()) >= held), "no memory is held");
    let mut source = load(&[MEMORY], &everything());
    let agreed = eventually(pace::patience(Duration::from_secs(20)), || {
        std::thread::sleep(SHARED);
        let before = bytes(group.folder());
        let snapshot = snapshot(&mut *source, MEMORY);
        let column = snapshot.column("cgroup").expect("a column");
        let row = snapshot.rows.iter().find(|row| row.object[column] == Field::from(path.as_str()));
        let found = row.map_or(0, |row| row.value);
        note(format!("{found} bytes, {before} before"));
        before == bytes(group.folder()) && found == before
    });
    let _ = fs::remove_file(&scratch);
    assert!(agreed, "the table never has what the file has");
}

fn a_killed_process_is_counted() {
    let group = Limited::memory("killed", 24 << 20).expect("a cgroup");
    let folder = group.folder().to_owned();
    let event = |word: &'static str| {
        let folder = &folder;
        // v1 has only the processes that were killed.
        move || {
            let v2 = number(folder, "memory.events.local", &format!("{word} "), word);
            v2.or_else(|| number(folder, "memory.oom_control", &format!("{word} "), word)).unwrap_or(0)
        }
    };
    let (kills, ooms, maxes) = (event("oom_kill"), event("oom"), event("max"));
    let work = || {
        let mut busy = Busy::new(&folder, "exec tail /dev/zero");
        let ended =
            eventually(pace::patience(Duration::from_secs(30)), || busy.0.try_wait().is_ok_and(|end| end.is_some()));
        assert!(ended, "the process was not killed");
    };
    let v2 = folder.join("memory.events.local").exists();
    let tables: [(&str, &dyn Fn() -> u64); 3] = [(OOM_KILL, &kills), (OOM, &ooms), (MAX, &maxes)];
    let found = compare(&path_of(&folder), if v2 { &tables } else { &tables[..1] }, &everything(), 0, work);
    assert!(found[0] >= 1, "{found:?}");
}

fn groups_may_come_and_go() {
    let group = Group::below_root("storm").expect("a cgroup");
    let tables = [CPU_SOME, IO_FULL, THROTTLED, MEMORY];
    let is_there = |path: &&str| topstat_kernel::load(&[table(path)], &Options::default()).is_ok();
    let there: Vec<&str> = tables.into_iter().filter(is_there).collect();
    let mut source: Box<dyn Source> = load(&there, &everything());
    let done = AtomicBool::new(false);
    let made = std::thread::scope(|scope| {
        let storm = scope.spawn(|| {
            let mut made = 0_u64;
            while !done.load(Ordering::Relaxed) {
                let groups: Vec<Group> = (0..20).filter_map(|n| group.child(&format!("{n}")).ok()).collect();
                let busy: Vec<Busy> = groups.iter().take(2).map(|group| Busy::new(group.folder(), "exit")).collect();
                made += groups.len() as u64;
                drop(busy);
            }
            made
        });
        let until = Instant::now() + Duration::from_secs(4);
        while Instant::now() < until {
            for path in &there {
                // Each snapshot is checked.
                snapshot(&mut *source, path);
            }
            std::thread::sleep(SHARED);
        }
        done.store(true, Ordering::Relaxed);
        storm.join().expect("the storm")
    });
    note(format!("{made} groups were made and removed"));
    assert!(made > 0);
}

/// States the cost; no assertion is about time.
fn a_thousand_groups_take_a_reading_this_long() {
    const GROUPS: usize = 1000;
    let group = Group::below_root("many").expect("a cgroup");
    let children: Vec<Group> = (0..GROUPS).map(|n| group.child(&format!("{n}")).expect("a cgroup")).collect();
    let busy = crowd(children[0].folder());
    let mut source = load(&[CPU_SOME, CPU_FULL], &everything());
    let mut used = Vec::new();
    for _ in 0..10 {
        std::thread::sleep(SHARED);
        let before = topstat_live::own_cpu_time();
        snapshot(&mut *source, CPU_SOME);
        used.push(topstat_live::own_cpu_time() - before);
    }
    used.sort_unstable();
    let before = topstat_live::own_cpu_time();
    let read: u64 = children.iter().map(|child| pressure(child.folder(), "cpu.pressure", "some")).sum();
    let files = topstat_live::own_cpu_time() - before;
    note(format!(
        "{GROUPS} groups: {:?} of CPU time for a reading, {files:?} for one file of each",
        used[used.len() / 2]
    ));
    assert!(read > 0 && growth(&snapshot(&mut *source, CPU_SOME), &children[0].path) > 0);
    drop(busy);
    drop(children);
}
