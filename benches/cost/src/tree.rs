// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of the daemon's file tree, for processes that read and write its files.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};
use topstat_load::{Config, Limits, Load, Plan};

use crate::stats::spread;

#[derive(Args)]
pub struct Options {
    /// Number of settings that are set and read, and of snapshots that are read.
    #[arg(long, default_value_t = 2000)]
    reads: usize,
    /// Concurrent readers.
    #[arg(long, default_value_t = 8)]
    readers: u32,
    /// Snapshots that all readers read per second.
    #[arg(long, default_value_t = 1000)]
    rate: u32,
    /// Seconds of this load, and seconds in which the idle daemon is watched.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Rounds with and without readers, in turn.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

#[derive(Args)]
pub struct Topstat {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    line: Vec<String>,
}

pub fn topstat(topstat: Topstat) -> Result<()> {
    let line = std::iter::once("topstat".to_owned()).chain(topstat.line).map(Into::into);
    match topstat::run(line, &mut topstat::Kernel, &mut topstat::SystemConsole::default()) {
        topstat::Exit::Done => Ok(()),
        _ => bail!("topstat has failed"),
    }
}

/// Connections of the load: more than the 128 rows of a table, at both ends.
const CONNECTIONS: usize = 200;
/// Long enough for a whole load to stay in a table.
const PERIOD_MS: u32 = 3_600_000;
/// Rows that a table keeps.
const ROWS: usize = topstat_kernel::DEFAULT_TOP as usize;

const PPS: &str = "tcp_v4/conns_pps";
const BYTES: &str = "tcp_v4/conns_bytes";

/// A daemon in a separate place.
pub struct Daemon {
    child: Child,
    pub mount: PathBuf,
    pub pins: PathBuf,
}

impl Daemon {
    pub fn start() -> Result<Self> {
        let name = format!("topstat-bench-{}", std::process::id());
        let (mount, pins) = (std::env::temp_dir().join(&name), Path::new("/sys/fs/bpf").join(&name));
        let child = Command::new(std::env::current_exe()?)
            .args(["topstat", "daemon", "--unload", "--log-level", "warn", "--mount"])
            .arg(&mount)
            .arg("--pins")
            .arg(&pins)
            .arg("--pid-file")
            .arg(mount.with_extension("pid"))
            .stdin(Stdio::null())
            .spawn()?;
        let mut daemon = Self { child, mount, pins };
        let begun = Instant::now();
        while fs::read(daemon.path("enabled")).is_err() {
            ensure!(daemon.child.try_wait()?.is_none(), "the daemon has failed");
            ensure!(begun.elapsed() < Duration::from_secs(60), "the daemon has no tree");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(daemon)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.mount.join(file)
    }

    fn write(&self, file: &str, value: u32) -> Result<()> {
        let path = self.path(file);
        let mut file = OpenOptions::new().write(true).open(&path)?;
        file.write_all(format!("{value}\n").as_bytes()).with_context(|| path.display().to_string())
    }

    /// CPU time of all its living threads.
    pub fn cpu(&self) -> Result<Duration> {
        let mut ns = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let text = fs::read_to_string(thread?.path().join("schedstat"))?;
            ns += text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).context("schedstat")?;
        }
        Ok(Duration::from_nanos(ns))
    }

    fn resident_kb(&self) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.child.wait();
        // The rest of a daemon that has failed.
        let _ = rustix::mount::unmount(&self.mount, UnmountFlags::DETACH);
        let _ = fs::remove_dir(&self.mount);
        let _ = fs::remove_dir_all(&self.pins);
    }
}

/// Reads a file as `cat` does.
fn cat(path: &Path, buffer: &mut Vec<u8>) -> Result<()> {
    buffer.clear();
    File::open(path)?.read_to_end(buffer)?;
    Ok(())
}

/// Checks that a `stat` is complete and adds up; returns the number of rows of each CPU, and of all.
fn check(stat: &[u8]) -> Result<(Vec<usize>, usize)> {
    let text = std::str::from_utf8(stat)?;
    let paragraphs: Vec<Vec<&str>> = text.split("\n\n").map(|part| part.lines().collect()).collect();
    let [_, cpus @ .., all, sums] = &paragraphs[..] else { bail!("not a stat: {text}") };
    let last = |line: &&str| line.rsplit('\t').next().and_then(|cell| cell.parse::<u64>().ok()).unwrap_or(0);
    let named = |line: usize, name: &str| -> Result<u64> {
        sums[line].strip_prefix(name).and_then(|value| value.trim().parse().ok()).with_context(|| format!("no {name}"))
    };
    ensure!(text.ends_with('\n') && all[0] == "all:", "cut off: {text}");
    let rows: u64 = all[2..].iter().map(last).sum();
    ensure!(rows + named(1, "other")? == named(0, "total")?, "it does not add up: {text}");
    Ok((cpus.iter().map(|section| section.len() - 2).collect(), all.len() - 2))
}

fn micros(times: &[f64]) -> String {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted.get((sorted.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN);
    format!("{:.0} | {:.0}", at(0.5), at(0.99))
}

fn timed(count: usize, mut turn: impl FnMut(usize) -> Result<()>) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(count);
    for number in 0..count {
        let begun = Instant::now();
        turn(number)?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(times)
}

pub fn run(options: &Options) -> Result<()> {
    let daemon = Daemon::start()?;
    let window = Duration::from_secs(options.seconds);
    // By then the work of the start is done.
    std::thread::sleep(Duration::from_secs(3));
    let (cpu, begun) = (daemon.cpu()?, Instant::now());
    std::thread::sleep(window);
    let idle = 100.0 * (daemon.cpu()? - cpu).as_secs_f64() / begun.elapsed().as_secs_f64();
    println!("## tree: the daemon's files\n");
    println!("| daemon | |\n|---|---:|");
    println!("| CPU without readers, of one | {idle:.4}% |");
    println!("| resident memory at start | {:.1} MB |", daemon.resident_kb()? as f64 / 1000.0);

    daemon.write(&format!("{PPS}/period"), PERIOD_MS)?;
    let cpus = |cpu: usize| (rustix::thread::sched_getaffinity(None).is_ok_and(|set| set.is_set(cpu))).then_some(cpu);
    let config = Config { connections: CONNECTIONS, client_cpu: cpus(0), server_cpu: cpus(1), ..Config::default() };
    let mut load = Load::open(config)?;
    load.run(&Plan::new(vec![50; CONNECTIONS]), &Limits::default())?;
    let mut times = Vec::new();
    let delay = format!("{PPS}/delay");
    let path = daemon.path(&delay);
    let mut buffer = Vec::new();
    times.push((
        "set a value and get it back",
        timed(options.reads, |number| {
            let value = u32::try_from(number % 2)?;
            daemon.write(&delay, value)?;
            cat(&path, &mut buffer)?;
            ensure!(buffer == format!("{value}\n").into_bytes(), "set {value}, got {buffer:?}");
            Ok(())
        })?,
    ));
    daemon.write(&delay, 0)?;
    for (label, table, file) in [
        ("read `stat`, dynamic", PPS, "stat"),
        ("read `stat`, static", BYTES, "stat"),
        ("read `json`, dynamic", PPS, "json"),
    ] {
        let path = daemon.path(&format!("{table}/{file}"));
        times.push((label, timed(options.reads, |_| cat(&path, &mut buffer))?));
        if file == "stat" {
            let (cpus, all) = check(&buffer)?;
            ensure!(all == ROWS && cpus.iter().all(|rows| *rows == ROWS), "rows of {label}: {cpus:?}, {all}");
        }
    }
    let stat = daemon.path(&format!("{PPS}/stat"));
    for (label, file) in [("process `cat stat`", stat.as_path()), ("process `cat /dev/null`", Path::new("/dev/null"))] {
        times.push((
            label,
            timed(options.reads / 10, |_| {
                ensure!(Command::new("cat").arg(file).stdout(Stdio::null()).status()?.success(), "cat has failed");
                Ok(())
            })?,
        ));
    }
    println!(
        "| resident memory after {} reads | {:.1} MB |\n",
        4 * options.reads,
        daemon.resident_kb()? as f64 / 1000.0
    );
    println!("| {ROWS} rows × {} CPUs, microseconds | median | 99% |\n|---|---:|---:|", check_cpus(&stat)?);
    for (label, times) in &times {
        println!("| {label} | {} |", micros(times));
    }
    drop(buffer);
    many(options, &daemon, &mut load)
}

fn check_cpus(stat: &Path) -> Result<usize> {
    Ok(check(&fs::read(stat)?)?.0.len())
}

/// Many concurrent readers, and their cost to the load that they watch.
fn many(options: &Options, daemon: &Daemon, load: &mut Load) -> Result<()> {
    let window = Duration::from_secs(options.seconds);
    let (mut with, mut without, mut rates, mut latencies, mut cpu) = (vec![], vec![], vec![], vec![], vec![]);
    // A load that leaves CPU time: a load that takes all of both CPUs would be slowed down by any other work.
    let rate = 5000.0;
    for _ in 0..options.rounds {
        for readers in [0, options.readers] {
            let stop = Arc::new(AtomicBool::new(false));
            let limits = Limits { rate: Some(rate), stop: Some(Arc::clone(&stop)), ..Limits::default() };
            let used = daemon.cpu()?;
            let begun = Instant::now();
            let (report, read) = std::thread::scope(|scope| -> Result<_> {
                let load = &mut *load;
                let running = scope.spawn(move || load.run(&Plan::endless(CONNECTIONS), &limits));
                let reading: Vec<_> = (0..readers).map(|_| scope.spawn(|| reader(daemon, options, window))).collect();
                std::thread::sleep(window);
                let read: Result<Vec<_>> =
                    reading.into_iter().map(|reader| reader.join().expect("a reader has panicked")).collect();
                stop.store(true, Ordering::Relaxed);
                Ok((running.join().expect("the load has panicked")?, read?))
            })?;
            let took = begun.elapsed().as_secs_f64();
            if readers == 0 {
                without.push(report.rate);
                continue;
            }
            with.push(report.rate);
            rates.push(read.iter().map(Vec::len).sum::<usize>() as f64 / took);
            cpu.push(100.0 * (daemon.cpu()? - used).as_secs_f64() / took);
            latencies.extend(read.concat());
        }
    }
    println!("\n| {} readers of `stat` at once, {} a second | |\n|---|---:|", options.readers, options.rate);
    let median = |rounds: &[f64]| spread(rounds).median;
    println!("| snapshots a second, every one whole and additive | {:.0} |", median(&rates));
    println!("| microseconds to read one, median \\| 99% | {} |", micros(&latencies).replace('|', "\\|"));
    println!("| CPU of the daemon, of one | {:.0}% |", median(&cpu));
    println!(
        "| transactions a second of the load, without and with readers | {:.0}, {:.0} |",
        median(&without),
        median(&with)
    );
    Ok(())
}

/// Reads in turn, and checks every text. Returns the duration of each read.
fn reader(daemon: &Daemon, options: &Options, window: Duration) -> Result<Vec<f64>> {
    let path = daemon.path(&format!("{PPS}/stat"));
    let every = Duration::from_secs(1) * options.readers / options.rate.max(1);
    let (begun, mut buffer, mut times) = (Instant::now(), Vec::new(), Vec::new());
    for turn in 0.. {
        let due = every * turn;
        if due >= window || begun.elapsed() >= window {
            return Ok(times);
        }
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        let asked = Instant::now();
        cat(&path, &mut buffer)?;
        times.push(asked.elapsed().as_secs_f64() * 1e6);
        let (_, all) = check(&buffer)?;
        ensure!(all == ROWS, "{all} rows");
    }
    unreachable!("turns don't end")
}
