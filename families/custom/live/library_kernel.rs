// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of the library about interrupts, timers and locks, beside the kernel's counters.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use topstat_live::{Case, case, note};

use super::library::{Known, Worker, ns};

pub fn cases() -> Vec<Case> {
    vec![
        case!(interrupts_and_soft_interrupts, Root, Tracefs; EveryKernel),
        case!(timers_of_sleeping_threads, Root, Tracefs; EveryKernel),
        case!(cpus_are_idle_or_busy, Root, Tracefs; EveryKernel),
        case!(threads_wait_for_a_lock, Root, Tracefs, TwoCpus; EveryKernel),
    ]
}

/// The sums over CPUs of the numbered lines of /proc/interrupts, or of the lines of /proc/softirqs, by name.
fn sums(file: &str) -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string(file).expect(file);
    let lines = text.lines().skip(1).filter_map(|line| line.split_once(':'));
    let sum = |rest: &str| rest.split_whitespace().map_while(|number| number.parse::<u64>().ok()).sum();
    lines.map(|(name, rest)| (name.trim().to_owned(), sum(rest))).collect()
}

/// Each kind has as many events as the kernel has counted between the first readings, and at most as many as between the last.
fn interrupts_and_soft_interrupts() {
    let read = || [sums("/proc/interrupts"), sums("/proc/softirqs")];
    let outer = read();
    let mut tables = ["interrupt-time", "softirq-time"].map(Known::load);
    let inner = read();
    let begun = Instant::now();
    // A write to the disk has an interrupt, where there is a disk; timers and the scheduler have soft interrupts.
    for _ in 0..20 {
        let file = tempfile();
        std::fs::write(&file, vec![1; 1 << 16]).expect("a file");
        std::fs::File::open(&file).and_then(|file| file.sync_all()).expect("the file is on the disk");
        std::fs::remove_file(&file).expect("remove the file");
        std::thread::sleep(Duration::from_millis(10));
    }
    let inner_end = read();
    let mut found = Vec::new();
    for number in inner_end[0].keys().filter_map(|name| name.parse::<u64>().ok()) {
        found.push((0, number.to_string(), tables[0].sum(&[("irq", number.into())])));
    }
    for name in inner_end[1].keys() {
        found.push((1, name.clone(), tables[1].sum(&[("vec", name.as_str().into())])));
    }
    let elapsed = ns(begun.elapsed());
    let outer_end = read();
    let mut seen = 0;
    for (of, name, sum) in found {
        let between = |from: &[BTreeMap<String, u64>; 2], to: &[BTreeMap<String, u64>; 2]| {
            to[of].get(&name).unwrap_or(&0) - from[of].get(&name).unwrap_or(&0)
        };
        // One on each CPU may have begun and not ended.
        let (least, most) = (between(&inner, &inner_end).saturating_sub(CPUS), between(&outer, &outer_end));
        let right = (least..=most).contains(&sum.events) && sum.value <= elapsed * CPUS;
        assert!(right, "{name}: {sum:?}, not {least} to {most} in {elapsed} ns");
        seen += sum.events;
    }
    note(format!("{seen} events in {elapsed} ns"));
    assert!(seen > 0);
}

/// More than any host of these tests has.
const CPUS: u64 = 64;

fn tempfile() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("topstat-interrupts-{}", std::process::id()))
}

/// A sleep has a timer of high resolution, and poll(2) with a limit as well.
fn timers_of_sleeping_threads() {
    const TIMES: u64 = 50;
    let mut tables = ["precise-timer-time", "timer-time"].map(Known::load);
    let begun = Instant::now();
    for _ in 0..TIMES {
        std::thread::sleep(Duration::from_millis(2));
    }
    let elapsed = ns(begun.elapsed());
    // The kernel's function serves the timers of all processes.
    let found = tables[0].sum(&[("function", "hrtimer_wakeup".into())]);
    let others = tables[1].sum(&[]);
    note(format!("{found:?} and {others:?} in {elapsed} ns"));
    assert!(found.events >= TIMES && found.value < elapsed * CPUS, "{found:?}");
    assert!(others.value < elapsed * CPUS && others.longest <= others.value, "{others:?}");
}

/// Idle times of all CPUs, beside /proc/stat.
fn cpus_are_idle_or_busy() {
    let mut table = Known::load("idle-time");
    let idle = || {
        let text = std::fs::read_to_string("/proc/stat").expect("stat");
        let line = text.lines().next().expect("all CPUs");
        let numbers: Vec<u64> = line.split_whitespace().skip(1).map(|n| n.parse().expect("a number")).collect();
        // In 1/100 s.
        (numbers[3] + numbers[4]) * 10_000_000
    };
    let (before, begun) = (idle(), Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    let (truth, elapsed) = (idle() - before, ns(begun.elapsed()));
    let found = table.sum(&[]);
    note(format!("{found:?}, {truth} ns in /proc/stat"));
    // /proc/stat counts whole hundredths of each CPU; the table has no time of CPUs that are idle now, and some before `before`.
    assert!(found.value <= truth + elapsed / 2 + found.longest, "{found:?}, {truth} ns in /proc/stat");
}

/// Two threads change the memory of their process, which one lock protects.
fn threads_wait_for_a_lock() {
    let mut tables = ["lock-contention", "lock-contention-by-lock"].map(Known::load);
    let begun = Instant::now();
    let mut workers = ["locker", "locked"].map(Worker::new);
    std::thread::scope(|scope| {
        for worker in &mut workers {
            scope.spawn(move || {
                worker.run(|| {
                    for _ in 0..20_000 {
                        drop(std::hint::black_box(
                            memmap2::MmapOptions::new().len(1 << 16).map_anon().expect("memory"),
                        ));
                    }
                });
            });
        }
    });
    let elapsed = ns(begun.elapsed());
    let sums = workers.each_ref().map(|worker| tables[0].sum(&[worker.comm()]));
    let all = tables[1].sum(&[]);
    note(format!("{sums:?}, {all:?} of all locks in {elapsed} ns"));
    let events: u64 = sums.iter().map(|sum| sum.events).sum();
    assert!(events > 0, "two threads on one lock never waited");
    for sum in sums {
        assert!(sum.value <= elapsed && sum.longest <= sum.value, "{sum:?} in {elapsed} ns");
    }
    assert!(all.events >= events, "{all:?}");
}
