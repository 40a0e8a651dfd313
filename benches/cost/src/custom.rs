// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an event costs in a table of the user's own, in CPU time here and in instructions in guests: beside an empty program, a
//! program that was written for the table, bpftrace, and a hist trigger of the kernel. Each event is a call of write(2).

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Args;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use topstat_families::custom::bench::{DEFINITIONS, add_by_hand};
use topstat_families::custom::{System, add};
use topstat_kernel::{Family, load};
use topstat_model::definition;
use topstat_vm::cache::Cache;
use topstat_vm::deps;
use topstat_vm::kernel::{self, Series};
use topstat_vm::qemu::{Flavour, Machine, Tier};

use crate::icount;
use crate::icount::hooks;
use crate::stats::spread;

#[derive(Args)]
pub struct Options {
    /// Rounds; each way has a turn in each round.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Calls of write(2) in a turn.
    #[arg(long, default_value_t = 300_000)]
    calls: u32,
    /// Count instructions in a guest of each of these kernels, too.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Series::V6_1])]
    kernels: Vec<Series>,
    /// In a guest: the time is the number of instructions.
    #[arg(long, hide = true)]
    guest: bool,
}

/// What is attached, as long as it is held.
type Watching = Box<dyn std::any::Any>;

/// A way to count the calls, for the definition of this index.
type Way = (&'static str, fn(usize) -> Result<Watching>);

const NOTHING: &str = "nothing";
const BY_HAND: &str = "a program by hand";
const WAYS: &[Way] = &[
    (NOTHING, |_| Ok(Box::new(()))),
    ("an empty program", |_| Ok(Box::new(hooks::attach("empty")?))),
    (BY_HAND, |which| Ok(Box::new(Loaded::of(which, "hand", add_by_hand)?))),
    ("topstat", |which| Ok(Box::new(Loaded::of(which, "own", add)?))),
    (BPFTRACE, |which| Ok(Box::new(Bpftrace::start(which)?))),
    (HIST, |which| Ok(Box::new(Hist::set(which)?))),
];
const BPFTRACE: &str = "bpftrace";
const HIST: &str = "a hist trigger";

/// What the tables have as keys.
const KEYS: [&str; 2] = ["numbers: by pid, fd", "a text: by comm, fd"];

/// A loaded table.
struct Loaded(#[expect(dead_code, reason = "held")] Box<dyn topstat_kernel::Source>);

type Add<E> = fn(&str, &str, &definition::Definition, &System) -> Result<std::sync::Arc<Family>, E>;

impl Loaded {
    fn of<E: std::fmt::Debug>(which: usize, sample: &str, add: Add<E>) -> Result<Self> {
        let sample = format!("{sample}_{which}");
        let tables = match topstat_families::catalogue().find(&sample, "table") {
            Some(table) => vec![table],
            None => {
                let definition = definition::parse(DEFINITIONS[which]).map_err(|fault| anyhow!("{fault}"))?;
                add(&sample, "table", &definition, &System::new()).map_err(|trouble| anyhow!("{trouble:?}"))?.tables()
            }
        };
        Ok(Self(load(&tables, &topstat_kernel::Options::default())?))
    }
}

/// bpftrace with the program for the table.
struct Bpftrace(Child);

impl Bpftrace {
    fn start(which: usize) -> Result<Self> {
        let keys = ["pid, args->fd", "comm, args->fd"][which];
        let program = format!("tracepoint:syscalls:sys_enter_write {{ @[{keys}] = sum(args->count); }}");
        let mut child = Command::new("bpftrace").args(["-e", &program]).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().context("its output")?).read_line(&mut line)?;
        ensure!(line.starts_with("Attach"), "bpftrace says {line:?}");
        // It says so before it attaches the program.
        thread::sleep(Duration::from_secs(1));
        Ok(Self(child))
    }
}

impl Drop for Bpftrace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const TRIGGER: &str = "/sys/kernel/tracing/events/syscalls/sys_enter_write/trigger";

/// A hist trigger, removed on drop.
struct Hist(String);

impl Hist {
    fn set(which: usize) -> Result<Self> {
        // A hist trigger of 6.1 has no key of a text: it keeps the pid, and shows the name that the process had.
        let keys = ["common_pid,fd", "common_pid.execname,fd"][which];
        let trigger = format!("hist:keys={keys}:vals=count");
        std::fs::write(TRIGGER, &trigger).context(TRIGGER)?;
        Ok(Self(trigger))
    }
}

impl Drop for Hist {
    fn drop(&mut self) {
        if let Err(e) = std::fs::write(TRIGGER, format!("!{}", self.0)) {
            eprintln!("cannot remove the trigger of {TRIGGER}: {e}");
        }
    }
}

/// Why a way can't be had here.
fn lacking(way: &str) -> Option<String> {
    match way {
        BPFTRACE if Command::new("bpftrace").arg("--version").output().is_err() => {
            Some("it is not installed".to_owned())
        }
        HIST => {
            let known = std::fs::read_to_string(Path::new(TRIGGER)).unwrap_or_default();
            (!known.contains("hist")).then(|| "this kernel has none".to_owned())
        }
        _ => None,
    }
}

/// CPU time of a call, in ns: the calling thread's own, without the first tenth.
fn turn(calls: u32) -> Result<f64> {
    let mut null = File::create("/dev/null")?;
    let mut call = |times: u32| -> Result<()> {
        for _ in 0..times {
            null.write_all(&[0])?;
        }
        Ok(())
    };
    call(calls / 10)?;
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
    };
    let begun = now();
    call(calls)?;
    Ok((now() - begun) / f64::from(calls))
}

pub fn run(options: &Options) -> Result<()> {
    if options.guest {
        return measure(options, "instructions");
    }
    println!("## custom: what an event costs ({} rounds, interleaved; median, least and most)\n", options.rounds);
    println!("An event is a call of write(2), whose bytes the table adds up.\n");
    measure(options, "CPU time, ns")?;
    let (tools, cache) = (deps::tools()?, Cache::from_env());
    for series in &options.kernels {
        let kernel = kernel::fetch(&cache, *series, Flavour::CloudAmd64, false)?;
        let machine = Machine { tier: Tier::Icount, cpus: 1, memory_mib: 2048, append: vec![] };
        let argv = ["custom", "--guest", "--rounds", "3", "--calls", "5000"].map(OsString::from);
        println!("\nLinux {}:\n", kernel.release);
        icount::in_guest(&tools, &kernel, &machine, &argv)?.iter().for_each(|line| println!("{line}"));
    }
    Ok(())
}

/// The ways that this host has, with their results of each round.
fn measure(options: &Options, unit: &str) -> Result<()> {
    let mut ways = Vec::new();
    for way in WAYS {
        match lacking(way.0) {
            Some(why) => println!("({} is left out: {why})", way.0),
            None => ways.push(way),
        }
    }
    let all = rustix::thread::sched_getaffinity(None)?;
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).context("no CPU to run on")?);
    for (which, keys) in KEYS.iter().enumerate() {
        let mut rounds = vec![Vec::new(); ways.len()];
        for round in 0..options.rounds {
            for i in 0..ways.len() {
                // Each round begins with another way.
                let i = (i + round) % ways.len();
                let watching = ways[i].1(which).with_context(|| ways[i].0)?;
                sched_setaffinity(None, &one)?;
                let took = turn(options.calls);
                sched_setaffinity(None, &all)?;
                rounds[i].push(took?);
                drop(watching);
            }
        }
        let place = |label: &str| ways.iter().position(|way| way.0 == label).context("a way");
        let (nothing, by_hand) = (place(NOTHING)?, place(BY_HAND)?);
        // What the way costs in each round.
        let cost =
            |i: usize| -> Vec<f64> { rounds[i].iter().zip(&rounds[nothing]).map(|(way, no)| way - no).collect() };
        println!("\n| {keys} | a call: {unit} | more than nothing | of the program by hand |\n|---|---:|---:|---:|");
        for (i, way) in ways.iter().enumerate() {
            let ratio: Vec<f64> = cost(i).iter().zip(cost(by_hand)).map(|(way, hand)| way / hand).collect();
            let (call, more, ratio) = (spread(&rounds[i]), spread(&cost(i)), spread(&ratio));
            let more = format!("{:.0} ({:.0}–{:.0})", more.median, more.low, more.high);
            println!(
                "| {} | {:.0} | {more} | {:.2} ({:.2}–{:.2}) |",
                way.0, call.median, ratio.median, ratio.low, ratio.high
            );
        }
    }
    Ok(())
}
