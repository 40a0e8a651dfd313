// SPDX-License-Identifier: Apache-2.0 OR MIT
//! fio's requests to a separate disk, compared with the counts of fio, /proc/diskstats and io.stat.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use topstat_kernel::Source;
use topstat_live::cgroup::Group;
use topstat_live::scratch::LoopDevice;
use topstat_live::watch::{everything, load, snapshot};
use topstat_live::{Case, alone, note};
use topstat_model::{Field, Row, Snapshot};

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Disk: a_process_has_what_fio_and_diskstats_say, Root, LoopDevice, Sample(BYTES); EveryKernel, Distribution, Gate),
        alone!(Disk: requests_wait_as_long_as_diskstats_says, Root, LoopDevice, Sample(BYTES); EveryKernel, Distribution),
        alone!(Disk: a_group_has_what_fio_says, Root, LoopDevice, CgroupV2, Sample(BYTES); EveryKernel),
        alone!(Disk: a_group_has_what_io_stat_says, Root, LoopDevice, IoStat, Sample(BYTES); EveryKernel),
        alone!(Disk: each_of_several_writers_is_named, Root, LoopDevice, Sample(BYTES); EveryKernel, Distribution),
        alone!(Disk: flushes_and_discards_are_no_writes, Root, LoopDevice, Sample(BYTES); EveryKernel, Distribution, Gate),
        alone!(Disk: more_users_than_there_are_places, Root, LoopDevice, Sample(BYTES)),
    ]
}

const BYTES: &str = "disk_procs/bytes";

/// Read and written, as in rows.
type Parts = [u64; 2];

/// The sum of this disk's rows whose column has the value. No row has a request in flight.
fn parts(snapshot: &Snapshot, disk: &LoopDevice, column: &str, value: &Field) -> Parts {
    let at = |name| snapshot.column(name).expect("a column");
    let (device, in_flight, column) = (at("device"), at("in_flight"), at(column));
    let ours = |row: &&Row| row.object[device] == Field::Text(disk.name.clone()) && row.object[column] == *value;
    let rows: Vec<_> = snapshot.rows.iter().filter(ours).collect();
    assert!(rows.iter().all(|row| row.object[in_flight] == Field::U64(0)), "all is done: {rows:?}");
    rows.iter().fold([0; 2], |sum, row| [sum[0] + row.parts[0], sum[1] + row.parts[1]])
}

/// Bytes and requests, as in fio and diskstats.
#[derive(Debug, PartialEq, Eq)]
struct Counted {
    bytes: Parts,
    ops: Parts,
}

/// Blocks of 4 KiB.
const SMALL: [&str; 2] = ["--bs=4k", "--size=8m"];

/// Blocks of 1 MiB.
const LARGE: [&str; 3] = ["--bs=1m", "--size=64m", "--loops=2"];

/// Runs fio: it reads and writes blocks past the page cache, at random, so that no requests are joined; in the group, if there is
/// one.
fn fio(disk: &LoopDevice, blocks: &[&str], group: Option<&Group>) -> Counted {
    let what = [&["--rw=randrw", "--ioengine=psync"], blocks].concat();
    let said = fio_said(start_fio(disk, &what, group));
    let number = |way: &str, what: &str| said[way][what].as_u64().expect("a number");
    let both = |what| [number("read", what), number("write", what)];
    Counted { bytes: both("io_bytes"), ops: both("total_ios") }
}

/// Starts fio, past the page cache.
fn start_fio(disk: &LoopDevice, what: &[&str], group: Option<&Group>) -> Child {
    let mut fio = Command::new("fio");
    fio.args(["--name=topstat", "--direct=1"]).args(what);
    fio.args(["--thread=0", "--output-format=json", "--filename"]).arg(&disk.path);
    if let Some(group) = group {
        let procs = group.folder().join("cgroup.procs");
        // SAFETY: a write to a file, from memory that exists already.
        unsafe { fio.pre_exec(move || fs::write(&procs, "0")) };
    }
    fio.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("fio")
}

/// fio's report on its job, after its end.
fn fio_said(fio: Child) -> Value {
    let output = fio.wait_with_output().expect("fio");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "fio: {said} {}", String::from_utf8_lossy(&output.stderr));
    // fio may print notes before the report.
    let mut said: Value = serde_json::from_str(&said[said.find('{').expect("a document")..]).expect("JSON");
    said["jobs"][0].take()
}

/// The counters of a disk in /proc/diskstats, in their order there (Documentation/admin-guide/iostats.rst).
fn counters(disk: &LoopDevice) -> Vec<u64> {
    let text = fs::read_to_string("/proc/diskstats").expect("/proc/diskstats");
    let line = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).find(|words| words[2] == disk.name);
    line.expect("the disk")[3..].iter().map(|word| word.parse().expect("a number")).collect()
}

/// The counts of a disk, and the milliseconds that its requests took.
fn diskstats(disk: &LoopDevice) -> (Counted, Parts) {
    let words = counters(disk);
    let counted = Counted { bytes: [words[2] * 512, words[6] * 512], ops: [words[0], words[4]] };
    (counted, [words[3], words[7]])
}

fn less(after: Parts, before: Parts) -> Parts {
    [after[0] - before[0], after[1] - before[1]]
}

/// Some virtual machines run no tracing program while a process of the hypervisor is on the CPU, and do not count these
/// omissions. This affects a few of ten thousand requests. So a round may lack requests that no observer sees. No round has too
/// many, and one round must have all: also those that topstat has counted as skipped, where the kernel preempts programs.
fn all_in_one_round(mut round: impl FnMut() -> (Counted, Counted, u64)) {
    const ROUNDS: usize = 5;
    let mut rounds = Vec::new();
    while rounds.len() < ROUNDS {
        let (shown, truth, skipped) = round();
        let more = |shown: Parts, truth: Parts| shown[0] > truth[0] || shown[1] > truth[1];
        assert!(!more(shown.bytes, truth.bytes) && !more(shown.ops, truth.ops), "{shown:?} is shown, of {truth:?}");
        let ops = |counted: &Counted| counted.ops.iter().sum::<u64>();
        let is_all = shown == truth || (skipped > 0 && ops(&shown) + skipped >= ops(&truth));
        rounds.push(format!("{shown:?} of {truth:?}, {skipped} skipped"));
        if is_all {
            return note(rounds.join("; "));
        }
    }
    panic!("some is missing in each round: {rounds:?}");
}

/// The counts in both tables of a sample, for this disk's rows whose column has the value; and the number of runs that the kernel
/// has skipped.
fn shown(source: &mut dyn Source, sample: &str, disk: &LoopDevice, column: &str, value: &Field) -> (Counted, u64) {
    let mut skipped = 0;
    let mut of = |table| {
        let found = snapshot(source, &format!("{sample}/{table}"));
        skipped = found.lost.count("skipped");
        parts(&found, disk, column, value)
    };
    (Counted { bytes: of("bytes"), ops: of("ops") }, skipped)
}

fn a_process_has_what_fio_and_diskstats_say() {
    let comm = Field::Text("fio".to_owned());
    all_in_one_round(|| {
        let disk = LoopDevice::new(16).expect("a loop device");
        let mut source = load(&["disk_procs/bytes", "disk_procs/ops"], &everything());
        let (before, _) = diskstats(&disk);
        let truth = fio(&disk, &SMALL, None);
        let (after, _) = diskstats(&disk);
        // No other process uses this disk. fio reads it through the page cache before it begins.
        let kernel = Counted { bytes: less(after.bytes, before.bytes), ops: less(after.ops, before.ops) };
        assert_eq!((kernel.bytes[1], kernel.ops[1]), (truth.bytes[1], truth.ops[1]), "written is what fio has written");
        assert!(kernel.bytes[0] >= truth.bytes[0] && kernel.ops[0] >= truth.ops[0], "{kernel:?}, fio: {truth:?}");
        let (shown, skipped) = shown(&mut *source, "disk_procs", &disk, "comm", &comm);
        (shown, kernel, skipped)
    });
}

/// Both count from the same moment. The kernel counts until it has ended a request, after it has woken the waiting process. That
/// takes microseconds, or longer if other tasks want the CPU. So no shown wait is longer than the kernel's. For large requests,
/// where microseconds do not matter, it is about as long, unless every round is disturbed.
fn requests_wait_as_long_as_diskstats_says() {
    const ROUNDS: usize = 10;
    const ROUNDING_MS: u64 = 1;
    let disk = LoopDevice::new(64).expect("a loop device");
    let comm = Field::Text("fio".to_owned());
    let mut shares = Vec::new();
    while shares.len() < ROUNDS && !shares.iter().any(|share| *share > 0.8) {
        let mut source = load(&["disk_procs/wait"], &everything());
        let (_, before) = diskstats(&disk);
        fio(&disk, &LARGE, None);
        let (_, after) = diskstats(&disk);
        let took_ms: u64 = less(after, before).iter().sum();
        let wait_ns: u64 = parts(&snapshot(&mut *source, "disk_procs/wait"), &disk, "comm", &comm).iter().sum();
        // The milliseconds of each part are rounded down.
        assert!(wait_ns <= (took_ms + 4 * ROUNDING_MS) * 1_000_000, "{wait_ns} ns, but {took_ms} ms");
        shares.push(wait_ns as f64 / (took_ms as f64 * 1e6));
    }
    note(format!("shares of diskstats' time: {shares:.3?}"));
    assert!(shares.iter().any(|share| *share > 0.8), "{shares:?} of what diskstats says");
}

fn a_group_has_what_fio_says() {
    let group = Group::new("disks").expect("a cgroup");
    let path = Field::Text(group.path.clone());
    all_in_one_round(|| {
        let disk = LoopDevice::new(16).expect("a loop device");
        let mut source = load(&["disk_cgroups/bytes", "disk_cgroups/ops"], &everything());
        let mut truth = fio(&disk, &SMALL, Some(&group));
        let (shown, skipped) = shown(&mut *source, "disk_cgroups", &disk, "cgroup", &path);
        // fio reads the disk before it begins, and does not count that.
        truth.bytes[0] = truth.bytes[0].max(shown.bytes[0]);
        truth.ops[0] = truth.ops[0].max(shown.ops[0]);
        (shown, truth, skipped)
    });
}

/// The kernel's own counts of the group, where it has them.
fn a_group_has_what_io_stat_says() {
    all_in_one_round(|| {
        let disk = LoopDevice::new(16).expect("a loop device");
        let group = Group::new("disks").expect("a cgroup");
        let mut source = load(&["disk_cgroups/bytes", "disk_cgroups/ops"], &everything());
        fio(&disk, &SMALL, Some(&group));
        let path = Field::Text(group.path.clone());
        let (shown, skipped) = shown(&mut *source, "disk_cgroups", &disk, "cgroup", &path);
        (shown, io_stat(&group, &disk), skipped)
    });
}

/// The counts of a disk in the controller `io`.
fn io_stat(group: &Group, disk: &LoopDevice) -> Counted {
    let stat = fs::read_to_string(group.folder().join("io.stat")).expect("io.stat");
    let device = fs::read_to_string(format!("/sys/block/{}/dev", disk.name)).expect("its number");
    let line =
        stat.lines().find(|line| line.starts_with(device.trim())).unwrap_or_else(|| panic!("no {device}: {stat}"));
    let number = |name: &str| -> u64 {
        let word = line.split(' ').find_map(|word| word.strip_prefix(name)).expect("a key");
        word.parse().expect("a number")
    };
    Counted { bytes: [number("rbytes="), number("wbytes=")], ops: [number("rios="), number("wios=")] }
}

/// The rows of a disk, after all its requests are completed.
fn rows<'a>(snapshot: &'a Snapshot, disk: &LoopDevice) -> Vec<&'a Row> {
    let (device, in_flight) =
        (snapshot.column("device").expect("a column"), snapshot.column("in_flight").expect("a column"));
    let is_ours = |row: &&Row| row.object[device] == Field::Text(disk.name.clone());
    let rows: Vec<_> = snapshot.rows.iter().filter(is_ours).collect();
    assert!(rows.iter().all(|row| row.object[in_flight] == Field::U64(0)), "all is done: {rows:?}");
    rows
}

/// The bytes that each process has written to a disk, in ascending order.
fn written(snapshot: &Snapshot, disk: &LoopDevice) -> Vec<u64> {
    let mut written: Vec<_> = rows(snapshot, disk).iter().map(|row| row.parts[1]).filter(|bytes| *bytes > 0).collect();
    written.sort_unstable();
    written
}

/// Several processes write at once, in different ways, each to a part of the disk: single requests, requests with a flush after
/// each, and many requests at a time, which an elevator joins. A thousandth may be missing, for the reason in `all_in_one_round`.
fn each_of_several_writers_is_named() {
    const ROUNDS: usize = 5;
    const ELEVATORS: [&str; 2] = ["none", "mq-deadline"];
    let ways: [&[&str]; 4] = [
        &["--rw=randwrite", "--ioengine=psync", "--bs=4k", "--size=8m"],
        &["--rw=randwrite", "--ioengine=psync", "--bs=4k", "--size=3m", "--offset=8m", "--sync=dsync"],
        &[
            "--rw=write",
            "--ioengine=libaio",
            "--iodepth=16",
            "--iodepth_batch=8",
            "--bs=4k",
            "--size=12m",
            "--offset=11m",
        ],
        &["--rw=randwrite", "--ioengine=libaio", "--iodepth=32", "--bs=512", "--size=2m", "--offset=23m"],
    ];
    for elevator in ELEVATORS {
        let mut rounds = Vec::new();
        while rounds.len() < ROUNDS {
            let disk = LoopDevice::new(32).expect("a loop device");
            if fs::write(format!("/sys/block/{}/queue/scheduler", disk.name), elevator).is_err() {
                note(format!("the kernel has no {elevator}"));
                break;
            }
            let mut source = load(&["disk_procs/bytes", "disk_procs/ops", "disk_procs/flushes"], &everything());
            let before = counters(&disk);
            let started = ways.map(|what| start_fio(&disk, what, None));
            let mut truth = started.map(|fio| fio_said(fio)["write"]["io_bytes"].as_u64().expect("a number"));
            truth.sort_unstable();
            let after = counters(&disk);
            let carried = (after[0] - before[0]) + (after[4] - before[4]);
            let found = snapshot(&mut *source, "disk_procs/bytes");
            let (bytes, skipped) = (written(&found, &disk), found.lost.count("skipped"));
            let mut named =
                |table| -> u64 { rows(&snapshot(&mut *source, table), &disk).iter().map(|row| row.value).sum() };
            let named = named("disk_procs/ops") + named("disk_procs/flushes");
            rounds.push(format!(
                "{elevator}: {named} of {carried} requests, {skipped} skipped, {bytes:?} of {truth:?} bytes"
            ));
            assert!(named <= carried, "{rounds:?}");
            // Where the kernel preempts a program, it skips the program's other runs on that CPU. Topstat counts them.
            let is_whole = skipped <= carried / 1000;
            let is_enough = |shown: u64, truth: u64| shown <= truth && (shown >= truth - truth / 1000 || !is_whole);
            let all =
                bytes.len() == truth.len() && bytes.iter().zip(&truth).all(|(shown, truth)| is_enough(*shown, *truth));
            if all && named + skipped + carried / 1000 >= carried {
                note(rounds.join("; "));
                break;
            }
        }
        assert!(rounds.len() < ROUNDS, "some is missing in each round: {rounds:?}");
    }
}

/// Two processes: one flushes after each of its writes, the other discards.
fn flushes_and_discards_are_no_writes() {
    const TABLES: [&str; 4] = ["disk_procs/bytes", "disk_procs/ops", "disk_procs/flushes", "disk_procs/discards"];
    all_in_one_round(|| {
        let disk = LoopDevice::new(16).expect("a loop device");
        let mut source = load(&TABLES, &everything());
        let before = counters(&disk);
        let flushes = ["--rw=randwrite", "--ioengine=psync", "--bs=4k", "--size=2m", "--fsync=1"];
        let said = fio_said(start_fio(&disk, &flushes, None));
        let number = |way: &str, what: &str| said[way][what].as_u64().expect("a number");
        let (writes, bytes, syncs) =
            (number("write", "total_ios"), number("write", "io_bytes"), number("sync", "total_ios"));
        fio_said(start_fio(&disk, &["--rw=trim", "--ioengine=psync", "--bs=64k", "--size=4m"], None));
        let after = counters(&disk);
        let grown = |counter: usize| after[counter] - before[counter];
        let mut skipped = 0;
        let mut sum = |table: &str| -> u64 {
            let found = snapshot(&mut *source, table);
            skipped = found.lost.count("skipped");
            rows(&found, &disk).iter().map(|row| row.parts[1]).sum()
        };
        let shown = TABLES.map(&mut sum);
        // For the kernel a flush is a write without bytes.
        assert_eq!(grown(4) - writes, grown(4) - grown(6) * 512 / 4096, "fio's writes are all that the disk had");
        assert!(grown(4) - writes >= syncs && grown(13) > 0, "{syncs} times flushed, {after:?}");
        let truth = [bytes, writes, grown(4) - writes, grown(13) * 512];
        let pairs = |of: [u64; 4]| Counted { bytes: [of[0], of[3]], ops: [of[1], of[2]] };
        (pairs(shown), pairs(truth), skipped)
    });
}

/// Each of `USERS` processes reads once within a period. Requests without a place, a fifth of all, are in `other`, and counted.
/// The few requests that no observer sees (see `all_in_one_round`) do not hide this.
fn more_users_than_there_are_places() {
    const USERS: u64 = 4500;
    const BLOCK: u64 = 4096;
    /// The objects of both samples: KEYED_BUCKETS of logic.h by KEYED_WAYS.
    const PLACES: u64 = 3584;
    const KEPT_MOST: u64 = USERS / 500 * BLOCK;
    let disk = LoopDevice::new(32).expect("a loop device");
    let mut source = load(&["disk_procs/bytes"], &everything());
    let before = diskstats(&disk).0.bytes[0];
    // One process after the other; each reads a different block, past the page cache.
    let read = r#"i=0; while [ $i -lt $2 ]; do dd if=$1 of=/dev/null bs=4096 count=1 skip=$i iflag=direct status=none || exit 1; i=$((i + 1)); done"#;
    let users = USERS.to_string();
    let read = Command::new("sh").args(["-c", read, "sh"]).arg(&disk.path).arg(&users).status().expect("sh");
    assert!(read.success(), "dd: {read}");
    let carried = diskstats(&disk).0.bytes[0] - before;
    assert!(carried >= USERS * BLOCK);
    let snapshot = snapshot(&mut *source, "disk_procs/bytes");
    note(format!("{} objects, {:?} of {USERS}", snapshot.objects, snapshot.lost));
    let least = carried - KEPT_MOST;
    assert!(snapshot.total >= least, "{} bytes are in the total, {carried} were read", snapshot.total);
    assert!(snapshot.objects < USERS / 10, "{} objects: those that have ended are none", snapshot.objects);
    assert!(
        snapshot.closed() > snapshot.rows.len() as u64 / 2,
        "{} of {} rows",
        snapshot.closed(),
        snapshot.rows.len()
    );
    let (kept, full) = (KEPT_MOST / BLOCK, snapshot.lost.count("full"));
    assert!(full + kept >= USERS - PLACES, "{full} were refused");
    assert_eq!(snapshot.lost.no_memory, 0, "there is memory");
    assert!(snapshot.proven < snapshot.rows.len() as u32, "what was refused might be larger than a row");
}
