// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost that watching tasks adds to every switch.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use topstat_families::account::{AccountOptions, Accountant};
use topstat_families::catalogue;
use topstat_families::tasks::bench::{Empty, Stopwatch};
use topstat_kernel::{TableInfo, load};

use crate::pinned::Pinned;
use crate::stats::spread;

#[derive(Args)]
pub struct Options {
    /// Rounds; each way has a turn in each round.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// How often two threads on one CPU wake each other in a turn.
    #[arg(long, default_value_t = 50_000)]
    trips: u32,
    /// Also run `perf bench sched pipe`, with this many operations per turn; 0: do not run it.
    #[arg(long, default_value_t = 100_000)]
    pipe: u32,
}

/// A way to watch switches, attached as long as it is held.
type Watching = Box<dyn std::any::Any>;
type Way = (&'static str, fn() -> Result<Watching>);

/// The kernel keeps this many characters of a program's name (BPF_OBJ_NAME_LEN, minus a zero).
const PROGRAM_NAME: usize = 15;

type Names = [(&'static str, &'static str)];

const CPU: &Names = &[("tasks", "cpu")];
const TASKS: &Names = &[("tasks", "cpu"), ("tasks", "cpu_total"), ("tasks", "switches"), ("tasks", "waits")];
const ALL: &Names =
    &[("tasks", "cpu"), ("tasks", "cpu_total"), ("tasks", "switches"), ("tasks", "waits"), ("cgroups", "cpu")];
const DELAYS: &Names = &[
    ("delays", "blkio"),
    ("delays", "swapin"),
    ("delays", "reclaim"),
    ("delays", "thrashing"),
    ("delays", "compact"),
    ("delays", "wpcopy"),
];

fn infos(names: &Names) -> Vec<Arc<TableInfo>> {
    names.iter().filter_map(|(sample, table)| catalogue().find(sample, table)).collect()
}

fn tables(names: &Names) -> Result<Watching> {
    Ok(Box::new(load(&infos(names), &topstat_kernel::Options::default())?))
}

/// Pinned tables, and their programs: the stopwatch reads the programs that this process has open.
struct Watched {
    _pinned: Pinned,
    _programs: Vec<OwnedFd>,
}

fn pinned(names: &Names) -> Result<Watching> {
    let pinned = Pinned::load(&[infos(names)])?;
    let programs = pinned.states().iter().flat_map(|state| state.programs());
    let programs = programs.map(|program| libbpf_rs::Program::fd_from_id(program.id)).collect::<Result<_, _>>()?;
    Ok(Box::new(Watched { _pinned: pinned, _programs: programs }))
}

fn account(interrupts: bool) -> Result<Watching> {
    Ok(Box::new(Accountant::load(&AccountOptions { interrupts })?))
}

/// The kernel's delay accounting, on until this is dropped. It covers tasks that start in this time.
struct Accounting(String);

impl Accounting {
    const SWITCH: &str = "/proc/sys/kernel/task_delayacct";

    fn on() -> Result<Self> {
        let before = std::fs::read_to_string(Self::SWITCH).context(Self::SWITCH)?;
        std::fs::write(Self::SWITCH, "1").context(Self::SWITCH)?;
        Ok(Self(before))
    }
}

impl Drop for Accounting {
    fn drop(&mut self) {
        if let Err(e) = std::fs::write(Self::SWITCH, &self.0) {
            eprintln!("cannot write {} to {}: {e}", self.0.trim(), Self::SWITCH);
        }
    }
}

/// Measures tasks that have an account and have waited before, as most tasks on a host with accounting. The kernel's own cost
/// of keeping accounts is not in the switch.
fn delays() -> Result<Watching> {
    let accounting = Accounting::on()?;
    Ok(Box::new((tables(DELAYS)?, accounting)))
}

const WAYS: &[Way] = &[
    ("nothing", || Ok(Box::new(()))),
    ("an empty program", || Ok(Box::new(Empty::load()?))),
    ("account", || account(false)),
    ("account, interrupts apart", || account(true)),
    ("tasks/cpu", || tables(CPU)),
    ("all tables of tasks", || tables(TASKS)),
    ("all tables of tasks and cgroups", || tables(ALL)),
    ("the same, pinned as the daemon has them", || pinned(ALL)),
    DELAYS_WAY,
];
/// The last way, since a kernel may lack delay accounting.
const DELAYS_WAY: Way = ("all tables of delays", delays);

fn cpu_ns() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// The cost of a run of the way's program minus the cost of an empty program at the same switches, in ns.
fn over_empty(way: &Way, trips: u32) -> Result<f64> {
    let _empty = Empty::load()?;
    let _watching = way.1()?;
    turn(trips / 10)?;
    let stopwatch = Stopwatch::start()?;
    let before = stopwatch.read();
    turn(trips)?;
    let after = stopwatch.read();
    let mean = |name: &str| {
        let name = &name[..name.len().min(PROGRAM_NAME)];
        let ((ns, runs), (ns_before, runs_before)) = (after.get(name)?, before.get(name)?);
        // The program behind a gate counts as a part of the gate, and not as a separate run.
        (runs > runs_before).then(|| (ns - ns_before) as f64 / (runs - runs_before) as f64)
    };
    let way = ["precise_switch", "top_switch_enter", "top_switch", "delays_switch"].into_iter().find_map(mean);
    way.zip(mean("bench_empty")).map(|(way, empty)| way - empty).context("the kernel has not timed the programs")
}

/// The number of times that this process has left a CPU.
fn switches() -> Result<u64> {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let Ok(text) = std::fs::read_to_string(task?.path().join("status")) else { continue };
        let count = |line: &str| line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
        sum += text.lines().filter(|l| l.contains("ctxt_switches")).filter_map(count).sum::<u64>();
    }
    Ok(sum)
}

/// Makes the calling thread wait for an event of delay accounting: the copy of a page on a write.
fn wait_for_a_copy() -> Result<()> {
    let program = std::fs::File::open("/proc/self/exe")?;
    // SAFETY: a private mapping, which no other process sees.
    let mut page = unsafe { memmap2::MmapOptions::new().len(1).map_copy(&program)? };
    let byte = std::hint::black_box(page[0]);
    page[0] = std::hint::black_box(!byte);
    Ok(())
}

/// CPU time per switch, in ns, of two threads on one CPU that wake each other; other threads on that CPU do not count. Both
/// threads start here, so that the way has its effect on new threads.
fn turn(trips: u32) -> Result<f64> {
    thread::spawn(move || turn_here(trips)).join().map_err(|_| anyhow::anyhow!("a thread has failed"))?
}

fn turn_here(trips: u32) -> Result<f64> {
    let (mut here, mut there) = UnixStream::pair()?;
    wait_for_a_copy()?;
    let echo = thread::spawn(move || -> Result<()> {
        wait_for_a_copy()?;
        let mut byte = [0];
        while there.read(&mut byte)? > 0 {
            there.write_all(&byte)?;
        }
        Ok(())
    });
    let mut trip = |times: u32| -> Result<()> {
        let mut byte = [0];
        for _ in 0..times {
            here.write_all(&byte)?;
            here.read_exact(&mut byte)?;
        }
        Ok(())
    };
    trip(trips / 10)?;
    let (ns, before) = (cpu_ns(), switches()?);
    trip(trips)?;
    let (ns, switched) = (cpu_ns() - ns, switches()? - before);
    drop(here);
    echo.join().map_err(|_| anyhow::anyhow!("the other thread has failed"))??;
    Ok(ns / switched.max(1) as f64)
}

/// Microseconds per operation of `perf bench sched pipe`.
fn pipe(operations: u32) -> Result<f64> {
    let output = Command::new("perf")
        .args(["bench", "-f", "simple", "sched", "pipe", "-l", &operations.to_string()])
        .output()
        .context("run perf")?;
    if !output.status.success() {
        bail!("perf bench sched pipe: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let seconds: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().context("what perf bench says")?;
    Ok(seconds * 1e6 / f64::from(operations))
}

pub fn run(options: &Options) -> Result<()> {
    let with_pipe = options.pipe > 0 && Command::new("perf").arg("--version").output().is_ok();
    if options.pipe > 0 && !with_pipe {
        println!("(perf is not installed: perf bench sched pipe is left out)\n");
    }
    let mut ways = WAYS;
    if !Path::new(Accounting::SWITCH).exists() {
        println!("(this kernel has no delay accounting: {} are left out)\n", DELAYS_WAY.0);
        ways = &WAYS[..WAYS.len() - 1];
    }
    let mut ns = vec![Vec::new(); ways.len()];
    let mut us = vec![Vec::new(); ways.len()];
    let mut timed = vec![Vec::new(); ways.len()];
    let all = rustix::thread::sched_getaffinity(None)?;
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).context("no CPU to run on")?);
    for round in 0..options.rounds {
        for i in 0..ways.len() {
            // Each round begins with another way.
            let i = (i + round) % ways.len();
            sched_setaffinity(None, &one)?;
            if i > 1 {
                timed[i].push(over_empty(&ways[i], options.trips)?);
            }
            let watching = ways[i].1()?;
            let took = turn(options.trips);
            sched_setaffinity(None, &all)?;
            ns[i].push(took?);
            if with_pipe {
                us[i].push(pipe(options.pipe)?);
            }
            drop(watching);
        }
    }
    println!("## switch: what a switch takes ({} rounds, interleaved; median, least and most)\n", options.rounds);
    println!(
        "Timed: by the kernel, beside an empty program at the same switches. CPU time: of two threads on one CPU.\n"
    );
    println!(
        "| way | timed, over an empty program, ns | CPU time to a switch, ns | over an empty program | perf bench sched pipe, \
         µs | more than without |"
    );
    println!("|---|---:|---:|---:|---:|---:|");
    let between = |rounds: &[f64], than: &[f64], f: fn(f64, f64) -> f64| {
        let each: Vec<f64> = rounds.iter().zip(than).map(|(r, t)| f(*r, *t)).collect();
        spread(&each)
    };
    for (i, (label, _)) in ways.iter().enumerate() {
        let taken = spread(&ns[i]);
        let over = between(&ns[i], &ns[1], |r, t| r - t);
        let by_kernel = spread(&timed[i]);
        match timed[i].is_empty() {
            true => print!("| {label} | "),
            false => print!("| {label} | {:.0} ({:.0}–{:.0})", by_kernel.median, by_kernel.low, by_kernel.high),
        }
        print!(" | {:.0} | {:.0} ({:.0}–{:.0}) |", taken.median, over.median, over.low, over.high);
        if with_pipe {
            let more = between(&us[i], &us[0], |r, t| (r / t - 1.0) * 100.0);
            let median = spread(&us[i]).median;
            println!(" {median:.2} | {:.1}% ({:.1}–{:.1}) |", more.median, more.low, more.high);
        } else {
            println!(" | |");
        }
    }
    Ok(())
}
