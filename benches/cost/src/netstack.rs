// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The throughput that sampling of stacks takes from a connection; the share of classified samples in each experiment of
//! `topstat lab`; and whether the measurements show the shapes of the study.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use topstat_families::netstack::{DEFAULT_HZ, Options as Sampling, Sampler};
use topstat_model::histograms::Subject;

use crate::stats::spread;

#[derive(Args)]
pub struct Options {
    /// Rounds; each way has a turn in each round.
    #[arg(long, default_value_t = 60)]
    rounds: usize,
    /// Length of a turn, in milliseconds.
    #[arg(long, default_value_t = 500)]
    turn_ms: u64,
    /// Length of each run of an experiment, in seconds; 0: no runs.
    #[arg(long, default_value_t = 3)]
    lab_seconds: u64,
}

/// The requirements: the maximum loss of throughput, in percent; the minimum share of classified samples, by name, and by
/// name or stack.
const MOST_COST: f64 = 0.5;
const LEAST_CLASSIFIED: [f64; 2] = [90.0, 97.0];
const EXPERIMENTS: [&str; 9] =
    ["single-flow", "buffers", "one-to-one", "incast", "outcast", "all-to-all", "loss", "short-flows", "mixed"];
/// Bytes per call.
const CALL: usize = 128 * 1024;

/// A connection over loopback, whose ends are threads on separate CPUs.
struct Flow {
    received: AtomicU64,
    stop: AtomicBool,
}

fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn run_on(cpu: usize) -> Result<()> {
    let mut only = CpuSet::new();
    only.set(cpu);
    Ok(sched_setaffinity(None, &only)?)
}

fn cpus() -> Result<Vec<usize>> {
    let all = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).collect())
}

impl Flow {
    fn send(&self, mut to: TcpStream, cpu: usize) -> Result<()> {
        run_on(cpu)?;
        let bytes = vec![0; CALL];
        while to.write_all(&bytes).is_ok() {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }

    fn receive(&self, mut from: TcpStream, cpu: usize) -> Result<()> {
        run_on(cpu)?;
        let mut bytes = vec![0; CALL];
        loop {
            let read = from.read(&mut bytes)?;
            if read == 0 {
                return Ok(());
            }
            self.received.fetch_add(read as u64, Ordering::Relaxed);
        }
    }

    /// Gigabits in a turn, per time and per CPU time of both ends: the latter does not depend on other processes.
    fn turn(&self, length: Duration) -> [f64; 2] {
        let (bytes, cpu, begun) = (self.received.load(Ordering::Relaxed), cpu_seconds(), std::time::Instant::now());
        std::thread::sleep(length);
        let gigabits = (self.received.load(Ordering::Relaxed) - bytes) as f64 * 8e-9;
        [gigabits / begun.elapsed().as_secs_f64(), gigabits / (cpu_seconds() - cpu)]
    }
}

/// A way to sample, active as long as the returned value lives.
type Way = (&'static str, fn() -> Result<Option<Box<dyn std::any::Any>>>);

const WAYS: [Way; 4] = [
    ("nothing", || Ok(None)),
    ("sampling at 99 Hz", || Ok(Some(Box::new(Sampler::open(&Sampling { hz: DEFAULT_HZ, ..Sampling::default() })?)))),
    ("histogram skb", || counter(Subject::Skb)),
    ("histogram latency", || counter(Subject::Latency)),
];

fn counter(subject: Subject) -> Result<Option<Box<dyn std::any::Any>>> {
    Ok(Some(Box::new(topstat_families::netstack::Counter::open(
        subject,
        &topstat_families::netstack::Chosen::default(),
    )?)))
}

pub fn run(options: &Options) -> Result<()> {
    cost(options)?;
    if options.lab_seconds > 0 {
        let folder = std::env::temp_dir().join(format!("topstat-bench-netstack-{}", std::process::id()));
        let measured = experiments(options, &folder);
        let _ = std::fs::remove_dir_all(&folder);
        measured?;
    }
    Ok(())
}

fn cost(options: &Options) -> Result<()> {
    let cpus = cpus()?;
    let (first, last) = (cpus.first().context("no CPU")?, cpus.last().context("no CPU")?);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let to = TcpStream::connect(listener.local_addr()?)?;
    let (from, _) = listener.accept()?;
    let flow = Flow { received: AtomicU64::new(0), stop: AtomicBool::new(false) };
    let turn = Duration::from_millis(options.turn_ms);
    let mut carried = vec![[Vec::new(), Vec::new()]; WAYS.len()];
    let done = std::thread::scope(|scope| {
        let (sender, receiver) = (scope.spawn(|| flow.send(to, *first)), scope.spawn(|| flow.receive(from, *last)));
        let mut rounds = || -> Result<()> {
            for round in 0..options.rounds {
                for i in 0..WAYS.len() {
                    // Each round begins with another way.
                    let i = (i + round) % WAYS.len();
                    let held = WAYS[i].1()?;
                    flow.turn(turn / 5);
                    let [by_time, by_cpu] = flow.turn(turn);
                    carried[i][0].push(by_time);
                    carried[i][1].push(by_cpu);
                    drop(held);
                }
            }
            Ok(())
        };
        let done = rounds();
        flow.stop.store(true, Ordering::Relaxed);
        for end in [sender, receiver] {
            end.join().map_err(|_| anyhow::anyhow!("an end has failed"))??;
        }
        done
    });
    done?;
    println!(
        "## netstack: what a connection over loopback carries ({} rounds of {} ms, interleaved; median, half of the rounds, \
         least and most)\n",
        options.rounds, options.turn_ms
    );
    println!(
        "| way | Gbit/s | Gbit/s per core | less per core than with nothing | asked for |\n|---|---:|---:|---:|---:|"
    );
    for (i, (name, _)) in WAYS.iter().enumerate() {
        let [by_time, by_cpu] = &carried[i];
        let (time, cpu) = (spread(by_time), spread(by_cpu));
        print!("| {name} | {:.2} | {:.2} ", time.median, cpu.median);
        if i == 0 {
            println!("({:.2}–{:.2}) | | |", cpu.low, cpu.high);
            continue;
        }
        let mut less: Vec<f64> =
            by_cpu.iter().zip(&carried[0][1]).map(|(with, without)| (1.0 - with / without) * 100.0).collect();
        less.sort_by(f64::total_cmp);
        let (all, middle) = (spread(&less), &less[less.len() / 4..less.len() - less.len() / 4]);
        let half = spread(middle);
        let asked = if i == 1 { format!("at most {MOST_COST}%") } else { String::new() };
        println!(
            "| {:.2}% (half: {:.2} – {:.2}; {:.1} – {:.1}) | {asked} |",
            all.median, half.low, half.high, all.low, all.high
        );
    }
    println!();
    Ok(())
}

/// Runs an experiment; returns its documents and its output.
fn experiment(name: &str, options: &Options, folder: &Path) -> Result<(Vec<Value>, String)> {
    let folder = folder.join(name);
    let seconds = format!("{}s", options.lab_seconds);
    let output = Command::new(std::env::current_exe()?)
        .args(["topstat", "lab", name, "--config", "no-opts,tsogro+jumbo", "--runs", "1", "--hz", "997"])
        .args(["--time", &seconds, "--out"])
        .arg(&folder)
        .output()?;
    ensure!(output.status.success(), "lab {name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    let entries = std::fs::read_dir(&folder)?.flatten().map(|entry| entry.path());
    let is_run = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("run-"));
    let read = |path: PathBuf| Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?);
    let documents = entries.filter(is_run).map(read).collect::<Result<Vec<Value>>>()?;
    Ok((documents, String::from_utf8_lossy(&output.stdout).into_owned()))
}

fn experiments(options: &Options, folder: &Path) -> Result<()> {
    let [name, stack] = LEAST_CLASSIFIED;
    println!(
        "Samples of each experiment that are classified, in percent (asked for: {name:.0} by name, {stack:.0} by name or stack)\n"
    );
    println!("| experiment | samples | by name | by name or stack | |\n|---|---:|---:|---:|---|");
    let mut shapes = String::new();
    for experiment in EXPERIMENTS {
        let (runs, text) = self::experiment(experiment, options, folder)?;
        let sum = |part: &str| runs.iter().filter_map(|run| run["classified"][part].as_u64()).sum::<u64>();
        let (all, by_name, by_caller) = (sum("samples"), sum("by_name"), sum("by_caller"));
        let share = |part: u64| part as f64 * 100.0 / all.max(1) as f64;
        let (named, known) = (share(by_name), share(by_name + by_caller));
        let reached = if named >= name && known >= stack { "reached" } else { "not reached" };
        println!("| {experiment} | {all} | {named:.1} | {known:.1} | {reached} |");
        if experiment == "single-flow" {
            let found = text.split("shapes of the study\n").nth(1).unwrap_or_default();
            shapes = found.lines().take_while(|line| !line.starts_with("drawn")).collect::<Vec<_>>().join("\n");
        }
    }
    println!("\n```\n{shapes}\n```");
    Ok(())
}
