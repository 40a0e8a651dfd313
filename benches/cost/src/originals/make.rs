// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ptop's second table: `make -j5` beside one spinning process for each CPU. No CPU is idle, so the rows of an interval must
//! add up to all CPUs; but most of the processes that used them have ended by the end of the interval.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use topstat_model::interval::Interval;

use super::ways::{Ours, Way, others};
use crate::refresh::{Running, installed};

/// Until make is busy, and each way has made its first look.
const WARM_UP: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_secs(10);
/// More than are compiled in the interval.
const TARGETS: u32 = 100_000;

/// A folder with targets to make; dropping it removes the folder.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("topstat-bench-make-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        let folder = Self(path);
        let mut unit = String::new();
        for i in 0..50 {
            writeln!(unit, "int f{i}(int n) {{ int s = {i}; while (n--) s = s * 3 + n; return s; }}")?;
        }
        fs::write(folder.0.join("unit.c"), unit)?;
        let rule = "%.o:\n\t@cc -O1 -c unit.c -o /dev/null\n";
        let mut makefile = format!(".PHONY: all\n{rule}all:");
        for i in 0..TARGETS {
            write!(makefile, " {i}.o")?;
        }
        fs::write(folder.0.join("Makefile"), makefile + "\n")?;
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {e}", self.0.display());
        }
    }
}

fn start(program: &str, arguments: &[&str], folder: &Path) -> Result<Running> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
    Ok(Running(command.spawn().with_context(|| format!("cannot run {program}"))?))
}

/// The CPU time of a process and its descendants, in nanoseconds: ended ones count to the process that inherited their time.
fn with_children(interval: &Interval, pid: u32) -> u64 {
    let living = || interval.tasks.iter().filter(|task| task.counts());
    let of = |pid: u32| living().filter(move |task| task.pid == pid).map(|task| task.total().run_ns).sum::<u64>();
    let mut family = vec![pid];
    let mut at = 0;
    while let Some(&parent) = family.get(at) {
        let children: Vec<u32> = living().filter(|task| task.ppid == parent).map(|task| task.pid).collect();
        family.extend(children.into_iter().filter(|child| !family.contains(child)).collect::<Vec<_>>());
        at += 1;
    }
    family.into_iter().map(of).sum()
}

pub fn run() -> Result<()> {
    ensure!(installed("make") && installed("cc"), "make and cc are needed (on Debian: apt-get install make gcc)");
    let cpus = std::thread::available_parallelism().context("cannot tell how many CPUs there are")?.get();
    let folder = Folder::new()?;
    let spinners: Vec<Running> =
        (0..cpus).map(|_| start("sh", &["-c", "while :; do :; done"], &folder.0)).collect::<Result<_>>()?;
    let mut ways = others()?;
    let mut ours = Ours::new()?;
    let make = start("make", &["-j5", "all"], &folder.0)?;
    sleep(WARM_UP);
    let mut from = Vec::new();
    for way in &mut ways {
        way.refresh()?;
        from.push(Instant::now());
    }
    ours.refresh()?;
    sleep(INTERVAL);
    println!("make -j5 beside {cpus} spinning processes, {} s: what the rows add up to\n", INTERVAL.as_secs());
    println!("| way | ptop's figure | rows | of {cpus} CPUs × 100% |\n|---|---:|---:|---:|");
    for (way, from) in ways.iter_mut().zip(from) {
        let found = way.refresh()?;
        let percent = found.sum_ns as f64 / from.elapsed().as_nanos() as f64 * 100.0;
        println!("| {} | n/a | {} | {percent:.3}% |", way.name(), found.rows);
    }
    let found = ours.refresh()?;
    let interval = ours.latest.take().context("no interval")?;
    let wall = interval.wall_ns() as f64;
    println!("| {} | n/a | {} | {:.7}% |", ours.name(), found.rows, found.sum_ns as f64 / wall * 100.0);
    let share = |ns: u64| ns as f64 / wall * 100.0;
    let made = share(with_children(&interval, make.0.id()));
    let spun: Vec<f64> = spinners.iter().map(|one| share(with_children(&interval, one.0.id()))).collect();
    let each: Vec<String> = spun.iter().map(|percent| format!("{percent:.1}%")).collect();
    let ended = share(interval.totals().ended.run_ns);
    let rest = share(found.sum_ns) - made - spun.iter().sum::<f64>();
    println!(
        "\n(of the last: make with all that it has begun {made:.1}%, the spinning ones {}, everything else {rest:.1}%; {ended:.1}% \
         was used by processes that had ended)\n",
        each.join(" and ")
    );
    Ok(())
}
