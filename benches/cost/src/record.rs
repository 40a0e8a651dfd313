// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of `topstat record` with default settings and all tables of a daemon, compared with the promised cost.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use topstat_history::layout::{self, HOUR};
use topstat_history::log::{self, Writer};
use topstat_history::{File, Kind, Place, Root};
use topstat_load::{Config, Limits, Load, Plan};

use crate::refresh::cpu_ns;
use crate::tree::Daemon;

#[derive(Args)]
pub struct Options {
    /// Seconds of the measurement.
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Connections of the load: with more than 128 the tables of connections are full.
    #[arg(long, default_value_t = 200)]
    connections: usize,
    /// Transactions per second.
    #[arg(long, default_value_t = 1000.0)]
    rate: f64,
    /// The topstat to measure [default: the one beside this program]
    #[arg(long)]
    topstat: Option<PathBuf>,
}

/// Percent of a CPU.
const CPU_PROMISED: f64 = 0.3;
/// Resident memory in MB, mapped files included.
const MEMORY_PROMISED: f64 = 40.0;
/// The time after the start when frames have begun anew, and each table has several records.
const WARM_UP: Duration = Duration::from_secs(15);
/// The default interval between two coarse records.
const INTERVAL: Duration = Duration::from_secs(10);
/// A log is sealed each second; a busy host may take several times as long.
const PATIENCE: Duration = Duration::from_secs(600);
/// The beginning of a document: the time, with milliseconds.
const TIME: &str = r#"{"time":"2026-11-21T08:00:00.000Z""#;

pub fn run(options: &Options) -> Result<()> {
    let topstat = match &options.topstat {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("topstat"),
    };
    ensure!(topstat.exists(), "{} is missing: build it first (make build)", topstat.display());
    let daemon = Daemon::start()?;
    let mut load = Load::open(Config { connections: options.connections, ..Config::default() })?;
    let stop = Arc::new(AtomicBool::new(false));
    let limits =
        Limits { rate: Some(options.rate), time: PATIENCE * 10, stop: Some(Arc::clone(&stop)), ..Limits::default() };
    std::thread::scope(|scope| {
        let running = scope.spawn(|| load.run(&Plan::endless(options.connections), &limits));
        let measured = all(options, &topstat, &daemon);
        stop.store(true, Ordering::Relaxed);
        let carried = running.join().expect("the load has panicked");
        measured.and(carried.map(drop).map_err(Into::into))
    })
}

fn all(options: &Options, topstat: &Path, daemon: &Daemon) -> Result<()> {
    let history = History(std::env::temp_dir().join(format!("topstat-bench-history-{}", std::process::id())));
    let window = Duration::from_secs(options.seconds);
    let alone = used(WARM_UP, || daemon.cpu())?;
    let recorder = Recorder::start(topstat, daemon, &history)?;
    std::thread::sleep(WARM_UP);
    let before = daemon.cpu()?;
    let cpu = used(window, || recorder.cpu())?;
    let of_daemon = (daemon.cpu()? - before).as_secs_f64() / window.as_secs_f64() * 100.0 - alone;
    let (memory, own) = (recorder.memory_mb("VmHWM:")?, recorder.memory_mb("RssAnon:")?);
    recorder.end()?;
    let root = Root::guarded(&history.0)?;
    let places = layout::places(&root)?;
    println!("## record: `topstat record` by default, all {} tables of a daemon\n", places.len());
    println!(
        "({} connections that carry {} transactions a second; {} s)\n",
        options.connections, options.rate, options.seconds
    );
    println!("| | measured | promised |\n|---|---:|---:|");
    println!("| CPU of the recorder, of one | {cpu:.2}% | {CPU_PROMISED}% |");
    println!("| resident memory, at most | {memory:.1} MB | {MEMORY_PROMISED} MB |");
    println!("| memory that is no file, at the end | {own:.1} MB | |");
    println!("| CPU of the daemon, for the recorder | {of_daemon:.2}% | |");
    println!("| bytes of records, a table and second | {:.0} | |", history.bytes(&root)? as f64 / recorded(&root)?);

    for place in &places {
        make_hour(&root, place)?;
    }
    let recorder = Recorder::start(topstat, daemon, &history)?;
    let (first, cpu_before) = wait_for_sealed(&root, &recorder, 1)?;
    let (last, cpu_after) = wait_for_sealed(&root, &recorder, places.len())?;
    let sealing = cpu_after.saturating_sub(cpu_before).as_secs_f64() - (last - first).as_secs_f64() * cpu / 100.0;
    let share = sealing / (places.len() - 1) as f64 * places.len() as f64 / HOUR.as_secs_f64() * 100.0;
    println!("| CPU of sealing the records of an hour, of that hour | {share:.2}% | |");
    println!(
        "| resident memory while it seals, at most | {:.1} MB | {MEMORY_PROMISED} MB |",
        recorder.memory_mb("VmHWM:")?
    );
    recorder.end()
}

/// Percent of a CPU used in a window of time.
fn used(window: Duration, cpu: impl Fn() -> Result<Duration>) -> Result<f64> {
    let (before, begun) = (cpu()?, Instant::now());
    std::thread::sleep(window);
    Ok((cpu()? - before).as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0)
}

/// A directory of records, removed on drop.
struct History(PathBuf);

impl History {
    /// The bytes of the fine records, which are most of the records.
    fn bytes(&self, root: &Root) -> Result<u64> {
        let mut bytes = 0;
        for place in layout::places(root)? {
            for file in layout::files(root, &place)?.iter().filter(|file| file.kind == Kind::Fine) {
                bytes += fs::metadata(&file.path)?.len();
            }
        }
        Ok(bytes)
    }
}

impl Drop for History {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The number of fine records.
fn recorded(root: &Root) -> Result<f64> {
    let mut count = 0.0;
    for place in layout::places(root)? {
        for file in layout::files(root, &place)?.iter().filter(|file| file.kind == Kind::Fine) {
            log::lines(&root.read(&file.path)?, |_| {
                count += 1.0;
                true
            })?;
        }
    }
    Ok(count)
}

/// Makes the log of a table for the previous hour, from the records of this hour.
fn make_hour(root: &Root, place: &Place) -> Result<()> {
    let mut lines = Vec::new();
    for file in layout::files(root, place)?.iter().filter(|file| file.kind == Kind::Log) {
        log::lines(&root.read(&file.path)?, |line| {
            lines.extend(
                line.get(TIME.len()..)
                    .filter(|line| !line.windows(6).any(|part| part == b"\"gap\":"))
                    .map(<[u8]>::to_vec),
            );
            true
        })?;
    }
    ensure!(!lines.is_empty(), "there are no records of {place}");
    let from = layout::begin(SystemTime::now() - HOUR, HOUR);
    let path = File::of(root.path(), place, Kind::Log, from).path;
    let mut writer = Writer::open(root.create(&path)?, &path)?;
    let times = (0..).map(|number| from + INTERVAL * number).take_while(|time| *time < from + HOUR);
    for (time, line) in times.zip(lines.iter().cycle()) {
        let begin = format!(r#"{{"time":"{}""#, topstat_model::rfc3339(time));
        writer.append(&[begin.as_bytes(), line, b"\n"].concat())?;
    }
    Ok(writer.sync()?)
}

/// Waits until `count` hours are sealed. Returns that instant, and the CPU time of the recorder up to then.
fn wait_for_sealed(root: &Root, recorder: &Recorder, count: usize) -> Result<(Instant, Duration)> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let mut sealed = 0;
        for place in layout::places(root)? {
            sealed += layout::files(root, &place)?.iter().filter(|file| file.kind == Kind::Sealed).count();
        }
        if sealed >= count {
            return Ok((Instant::now(), recorder.cpu()?));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    bail!("no {count} hours were sealed within {PATIENCE:?}")
}

/// A running recorder, killed on drop unless it has ended.
struct Recorder(Child);

impl Recorder {
    fn start(topstat: &Path, daemon: &Daemon, history: &History) -> Result<Self> {
        let mut command = Command::new(topstat);
        command.arg("record").arg("--history").arg(&history.0).arg("--mount").arg(&daemon.mount);
        Ok(Self(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?))
    }

    /// The process that reads files for the recorder.
    fn reader(&self) -> Result<u32> {
        let parent = i32::try_from(self.0.id())?;
        let stats = procfs::process::all_processes()?.flatten().filter_map(|process| process.stat().ok());
        let child =
            stats.into_iter().find(|stat| stat.ppid == parent).context("the recorder has no process that reads")?;
        Ok(u32::try_from(child.pid)?)
    }

    /// CPU time of both processes.
    fn cpu(&self) -> Result<Duration> {
        match (cpu_ns(self.0.id()), cpu_ns(self.reader()?)) {
            (0, _) | (_, 0) => bail!("the recorder has ended"),
            (own, reader) => Ok(Duration::from_nanos(own + reader)),
        }
    }

    /// Memory of the recorder, plus the private memory of the reading process: both share the pages of the program.
    fn memory_mb(&self, name: &str) -> Result<f64> {
        Ok(status_mb(self.0.id(), name)? + status_mb(self.reader()?, "RssAnon:")?)
    }

    fn end(mut self) -> Result<()> {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw).context("no pid")?;
        kill_process(pid, Signal::TERM)?;
        ensure!(self.0.wait()?.success(), "the recorder has failed");
        Ok(())
    }
}

/// A line of /proc/PID/status, in MB; the file has kB.
fn status_mb(pid: u32, name: &str) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).context("the recorder has ended")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? * 1024.0 / 1e6)
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
