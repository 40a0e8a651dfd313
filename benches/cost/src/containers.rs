// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether topstat delays the creation of containers: the time to make the n-th network namespace with a veth pair, and to
//! read its link by RTM_GETLINK, with topstat reading all counters of all namespaces and devices every second, and without.
//! Reading counters item by item once doubled this time, before "net: Refactor SNMP statistics" in the kernel.

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use topstat_families::snmp::{Keep, Netns, Reader, Select, Which};

use crate::netlink::{Links, veth};
use crate::snmp::cpu_time;
use crate::stats::spread;

#[derive(Args)]
pub struct Options {
    /// Number of containers in a turn, made one after the other.
    #[arg(long, default_value_t = 1000)]
    containers: usize,
    /// Turns of each side, alternating.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Milliseconds between the beginnings of two containers, so that several readings fall into a turn.
    #[arg(long, default_value_t = 5)]
    every_ms: u64,
}

/// The interval of topstat's readings.
const READ_EVERY: Duration = Duration::from_secs(1);
/// The kernel removes namespaces one after the other when their last holders are closed: the maximum wait for it.
const PATIENCE: Duration = Duration::from_secs(60);
/// The number of containers before the first one of each row of the report.
const RANGES: [usize; 3] = [0, 100, 500];

pub fn run(options: &Options) -> Result<()> {
    let Options { containers, rounds, every_ms } = *options;
    println!("## containers: µs to make the n-th namespace with a veth pair and read its link\n");
    println!(
        "({rounds} turns of {containers} containers on each side, in turns, one each {every_ms} ms; median, quartiles)\n"
    );
    // By side and range: the elapsed time, and the CPU time of the creating thread, which other work on the host disturbs
    // less.
    let mut times = [const { [const { Vec::new() }; RANGES.len()] }; 2];
    let mut cpu = times.clone();
    let mut readings = 0;
    for round in 0..2 * rounds {
        // Both sides come first equally often.
        let side = (round + round / 2) % 2;
        let topstat = (side == 1).then(Topstat::start).transpose()?;
        let turn = turn(containers, Duration::from_millis(every_ms))?;
        if let Some(topstat) = topstat {
            readings += topstat.end()?;
        }
        for (n, (us, cpu_us)) in turn.into_iter().enumerate() {
            let range = RANGES.iter().rposition(|first| n >= *first).unwrap_or(0);
            times[side][range].push(us);
            cpu[side][range].push(cpu_us);
        }
    }
    ensure!(readings > 0, "topstat has not read while containers were made");
    println!("| n | without topstat | topstat reads every second | | CPU time without | with | |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for (range, first) in RANGES.iter().enumerate().filter(|(range, _)| !times[0][*range].is_empty()) {
        let last = RANGES.get(range + 1).copied().unwrap_or(containers).min(containers);
        let [all, cpu] = [&times, &cpu].map(|times| compare(&times[0][range], &times[1][range]));
        println!("| {}–{last} | {all} | {cpu} |", first + 1);
    }
    println!("\n{readings} readings of all namespaces and devices while containers were made.");
    Ok(())
}

/// Medians and quartiles of two sides, and the difference of the medians in percent.
fn compare(without: &[f64], with: &[f64]) -> String {
    let [without, with] = [without, with].map(quartiles);
    let show = |(low, median, high): (f64, f64, f64)| format!("{median:.0} ({low:.0}–{high:.0})");
    format!("{} | {} | {:+.1}%", show(without), show(with), (with.1 - without.1) / without.1 * 100.0)
}

fn quartiles(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |part: usize| sorted[(sorted.len() - 1) * part / 4];
    (at(1), spread(values).median, at(3))
}

/// The elapsed time and the CPU time of one container, in µs.
type Took = (f64, f64);

/// Makes this many containers; returns the time of each. They are gone when it returns.
fn turn(containers: usize, every: Duration) -> Result<Vec<Took>> {
    let before = namespaces()?;
    let work = move || -> Result<Vec<Took>> {
        // The other ends of the pairs are in a namespace of this turn, and not in the host's.
        let outside = unshare()?;
        let (mut times, mut held) = (Vec::new(), Vec::new());
        let begun = Instant::now();
        for n in 0..containers {
            let due = every * u32::try_from(n)?;
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
            let (from, used) = (Instant::now(), cpu_time());
            let namespace = unshare()?;
            veth("eth0", &format!("v{n}"), &outside)?;
            // lo, and one end of the pair.
            let links = Links::new()?.dump()?;
            let us = |time: Duration| time.as_secs_f64() * 1e6;
            times.push((us(from.elapsed()), us(cpu_time() - used)));
            ensure!(links == 2, "{links} links in a new container");
            held.push(namespace);
            move_into_link_name_space(outside.as_fd(), Some(LinkNameSpaceType::Network))?;
        }
        Ok(times)
    };
    // The thread that moves between namespaces ends with the turn.
    let times =
        std::thread::spawn(work).join().map_err(|_| anyhow!("the thread that makes containers has panicked"))??;
    let begun = Instant::now();
    while namespaces()? > before && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(times)
}

/// The number of network namespaces.
fn namespaces() -> Result<usize> {
    let which = Which { netns: Netns::All, ..Which::default() };
    Ok(Reader::open(&Select { which, keep: Keep::Sums, ..Select::default() })?.touch()?)
}

/// Moves this thread to a new network namespace.
fn unshare() -> Result<OwnedFd> {
    // SAFETY: the call changes the namespace of this thread, which ends with the turn.
    ensure!(unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0, "cannot make a network namespace");
    let namespace = File::open("/proc/thread-self/ns/net")?;
    ensure!(namespace.as_raw_fd() >= 0, "a namespace is a file");
    Ok(namespace.into())
}

/// topstat, which reads all counters every second.
struct Topstat {
    stop: Sender<()>,
    thread: JoinHandle<Result<usize>>,
}

impl Topstat {
    fn start() -> Result<Self> {
        let open = |devices| {
            let which = Which { netns: Netns::All, devices, device: None };
            Reader::open(&Select { which, ..Select::default() })
        };
        let (mut namespaces, mut devices) = (open(false)?, open(true)?);
        let (stop, stopped) = channel();
        let read = move || {
            let mut readings = 0;
            while stopped.recv_timeout(READ_EVERY) == Err(RecvTimeoutError::Timeout) {
                namespaces.read()?;
                devices.read()?;
                readings += 1;
            }
            Ok(readings)
        };
        Ok(Self { stop, thread: std::thread::spawn(read) })
    }

    fn end(self) -> Result<usize> {
        drop(self.stop);
        self.thread.join().map_err(|_| anyhow!("the thread that reads has panicked"))?
    }
}
