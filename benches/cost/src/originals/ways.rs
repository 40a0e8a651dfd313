// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ptop's table: five ways to find the tasks that have used the CPUs in the last two seconds, while nearly all tasks sleep.

use std::collections::HashMap;
use std::fs;
use std::io::Read as _;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libbpf_rs::{Iter, Link, Object, ObjectBuilder};
use rustix::time::{ClockId, clock_gettime};
use topstat_families::account::{self, AccountOptions, Precise};
use topstat_families::tasks::bench::Stopwatch;
use topstat_model::interval::{Each, Interval};

use super::Options;
use crate::netlink::Taskstats;
use crate::refresh::{self, Output, Sleepers};
use crate::stats::spread;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tasks.bpf.o"));
/// The interval at which ptop was measured.
pub const EVERY: Duration = Duration::from_secs(2);
/// A refresh shows an interval, which the first refresh lacks; the second is the first usual one.
const WARM_UP: u32 = 2;

/// The CPU time of each task at the last look, by number, in nanoseconds.
#[derive(Default)]
struct Seen(HashMap<u32, u64>);

impl Seen {
    /// The CPU time since the last look; the whole time if the number now belongs to another task.
    fn more(&mut self, task: u32, now: u64) -> u64 {
        let before = self.0.insert(task, now).unwrap_or(0);
        now.checked_sub(before).unwrap_or(now)
    }
}

/// The result of a refresh: the number of rows to show, and their sum.
#[derive(Clone, Copy, Default)]
pub struct Found {
    pub rows: usize,
    pub sum_ns: u64,
}

impl Found {
    fn add(&mut self, ns: u64) {
        self.rows += usize::from(ns > 0);
        self.sum_ns += ns;
    }
}

/// A way to refresh.
pub trait Way {
    fn name(&self) -> &'static str;
    fn refresh(&mut self) -> Result<Found>;
}

/// Reads all processes, from /proc/PID/stat or by taskstats.
struct Procfs {
    seen: Seen,
    text: Vec<u8>,
    tick_ns: u64,
    taskstats: Option<Taskstats>,
}

impl Procfs {
    fn new(taskstats: Option<Taskstats>) -> Self {
        Self {
            seen: Seen::default(),
            text: Vec::new(),
            tick_ns: 1_000_000_000 / rustix::param::clock_ticks_per_second(),
            taskstats,
        }
    }

    /// The CPU time of the process so far; `None`: it has ended.
    fn used_ns(&mut self, pid: u32) -> Result<Option<u64>> {
        if let Some(taskstats) = &mut self.taskstats {
            return taskstats.run_ns(pid);
        }
        self.text.clear();
        // A process may end after the listing of the folder; this is no error.
        let Ok(mut file) = fs::File::open(format!("/proc/{pid}/stat")) else { return Ok(None) };
        if file.read_to_end(&mut self.text).is_err() {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&self.text);
        // The fields after the name, which may hold any characters: the state, …, utime and stime.
        let fields = text.rsplit_once(") ").context("/proc/PID/stat has no name")?.1;
        let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>()?;
        Ok(Some(ticks * self.tick_ns))
    }
}

impl Way for Procfs {
    fn name(&self) -> &'static str {
        if self.taskstats.is_some() { "procfs, and taskstats by netlink for each pid" } else { "scanning procfs" }
    }

    fn refresh(&mut self) -> Result<Found> {
        let mut found = Found::default();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            if let Some(ns) = self.used_ns(pid)? {
                found.add(self.seen.more(pid, ns));
            }
        }
        Ok(found)
    }
}

/// An iterator of `tasks.bpf.c`.
struct Iterator {
    name: &'static str,
    seen: Seen,
    bytes: Vec<u8>,
    link: Link,
    _object: Object,
}

impl Iterator {
    fn new(name: &'static str, program: &str) -> Result<Self> {
        let mut object = ObjectBuilder::default().open_memory(OBJECT)?;
        for mut each in object.progs_mut() {
            let wanted = each.name() == program;
            each.set_autoload(wanted);
        }
        let object = object.load().with_context(|| format!("cannot load {program}"))?;
        let found = object.progs_mut().find(|each| each.name() == program);
        let link = found.with_context(|| format!("there is no {program}"))?.attach()?;
        Ok(Self { name, seen: Seen::default(), bytes: Vec::new(), link, _object: object })
    }
}

impl Way for Iterator {
    fn name(&self) -> &'static str {
        self.name
    }

    fn refresh(&mut self) -> Result<Found> {
        self.bytes.clear();
        Iter::new(&self.link)?.read_to_end(&mut self.bytes)?;
        let (records, rest) = self.bytes.as_chunks::<16>();
        ensure!(rest.is_empty(), "a record is cut off");
        let mut found = Found::default();
        for [a, b, c, d, _, _, _, _, ns @ ..] in records {
            found.add(self.seen.more(u32::from_ne_bytes([*a, *b, *c, *d]), u64::from_ne_bytes(*ns)));
        }
        Ok(found)
    }
}

/// topstat's account.
pub struct Ours {
    reader: Precise,
    /// The latest interval.
    pub latest: Option<Interval>,
}

impl Ours {
    pub fn new() -> Result<Self> {
        Ok(Self { reader: account::load(&AccountOptions::default(), &[])?, latest: None })
    }
}

impl Way for Ours {
    fn name(&self) -> &'static str {
        "topstat's account"
    }

    fn refresh(&mut self) -> Result<Found> {
        let interval = self.reader.interval(Each::Process)?;
        let totals = interval.totals();
        // The rows of `topstat tasks`: the tasks, and below them the rows of the CPUs.
        let cpus = totals.cpus;
        let own_ns = cpus.idle_ns + cpus.idle_irq_ns + cpus.idle_softirq_ns + cpus.idle_steal_ns + cpus.unowned_ns;
        let sum_ns = totals.live.run_ns + totals.ended.run_ns + own_ns;
        let found = Found { rows: interval.tasks.len(), sum_ns };
        self.latest = Some(interval);
        Ok(found)
    }
}

/// The other ways, in ptop's order.
pub fn others() -> Result<Vec<Box<dyn Way>>> {
    Ok(vec![
        Box::new(Procfs::new(None)),
        Box::new(Procfs::new(Some(Taskstats::new()?))),
        Box::new(Iterator::new("an iterator over all tasks", "tasks_all")?),
        Box::new(Iterator::new("the same, which gives only those that ran", "tasks_ran")?),
    ])
}

/// CPU time of this process, in seconds.
fn cpu_s() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// The time of the account's hooks, in seconds, by the kernel's stopwatch.
fn at_switches_s(stopwatch: &Stopwatch) -> f64 {
    let attached = ["precise_new", "precise_exit", "precise_switch"];
    let programs = stopwatch.read();
    attached.iter().filter_map(|name| programs.get(*name)).map(|(ns, _)| *ns as f64 / 1e9).sum()
}

pub fn run(options: &Options) -> Result<()> {
    let _sleepers = Sleepers::new(options.sleepers)?;
    let mut ways = others()?;
    ways.push(Box::new(Ours::new()?));
    let mut percent = vec![Vec::new(); ways.len()];
    let mut rows = vec![0; ways.len()];
    let count = u32::try_from(ways.len())?;
    // The ways pause between each other: otherwise the second one would find all data in the caches.
    let (begun, mut turn) = (Instant::now(), 0);
    let stopwatch = Stopwatch::start()?;
    let hooks_before = at_switches_s(&stopwatch);
    for round in 0..WARM_UP + options.refreshes {
        for (index, way) in ways.iter_mut().enumerate() {
            sleep((EVERY / count * turn).saturating_sub(begun.elapsed()));
            turn += 1;
            let before = cpu_s();
            rows[index] = way.refresh()?.rows;
            if round >= WARM_UP {
                percent[index].push((cpu_s() - before) / EVERY.as_secs_f64() * 100.0);
            }
        }
    }
    let hooks = (at_switches_s(&stopwatch) - hooks_before) / begun.elapsed().as_secs_f64() * 100.0;
    drop(stopwatch);
    println!(
        "{} sleeping processes, looked at every {} s: CPU that it takes ({} refreshes; median, least and most)\n",
        options.sleepers,
        EVERY.as_secs(),
        options.refreshes
    );
    println!("| way | ptop's figure | CPU | rows |\n|---|---:|---:|---:|");
    for ((way, percent), rows) in ways.iter().zip(&percent).zip(&rows) {
        let s = spread(percent);
        println!("| {} | n/a | {:.4}% ({:.4}–{:.4}) | {rows} |", way.name(), s.median, s.low, s.high);
    }
    drop(ways);
    println!("| topstat's account, at all switches of this host | n/a | {hooks:.4}% | |");
    let seconds = u32::try_from(EVERY.as_secs())? * options.refreshes;
    let topstat = std::env::current_exe()?.with_file_name("topstat");
    let mut programs = vec![(topstat.as_path(), "topstat", ["tasks", "2"].as_slice(), Output::Begins("tasks  "))];
    if refresh::installed("top") {
        programs.push(("top".as_ref(), "top", &["-b", "-d", "2"], Output::Begins("top - ")));
    }
    for (program, name, arguments, output) in programs {
        let mut command = Command::new(program);
        command.args(arguments);
        let ms = refresh::measured(command, name, output, seconds)?;
        let of_cpu = ms / 1e3 / EVERY.as_secs_f64() * 100.0;
        println!("| the program `{name} {}`, with its text | n/a | {of_cpu:.4}% | |", arguments.join(" "));
    }
    println!();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_used_again_counts_from_nothing() {
        let mut seen = Seen::default();
        assert_eq!([seen.more(7, 100), seen.more(7, 130), seen.more(7, 20)], [100, 30, 20]);
    }
}
