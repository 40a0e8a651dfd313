// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One turn: a load, a way to consume it, and the results of both. The account must add up exactly.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use topstat_consumer::writes::Writes;
use topstat_consumer::{Account, Options, Woken};

use super::strategy::Strategy;

/// The CPUs of both ends.
pub struct Cpus {
    pub producer: usize,
    pub consumer: usize,
}

impl Cpus {
    pub fn choose() -> Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
        let two = cpus.next().zip(cpus.next());
        let (producer, consumer) = two.context("needs two CPUs: one for the producer, one for the consumer")?;
        Ok(Self { producer, consumer })
    }
}

fn stay_on(cpu: usize) -> Result<()> {
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).with_context(|| format!("stay on CPU {cpu}"))
}

/// A way to consume.
#[derive(Clone, Copy)]
pub struct Way {
    pub strategy: Strategy,
    /// Whether payloads are cut when the ring is nearly full.
    pub cut: bool,
    pub ring_bytes: u32,
    pub real_time: Option<i32>,
}

impl Way {
    pub fn name(&self) -> String {
        format!("{}{}", self.strategy.name(), if self.cut { ", cut" } else { "" })
    }
}

/// The writes to /dev/null.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// 10 KB at a time, at full speed.
    Large,
    /// 80 bytes at a time, at full speed.
    Small,
    /// 10 KB at a time, so slowly that every strategy gets all events, which makes the producer's costs comparable.
    Paced,
    /// 20 MB in events of 10 KB each, then a gap.
    Bursts,
    /// An event now and then.
    Idle,
}

const BURST_BYTES: usize = 20_000_000;
const GAP: Duration = Duration::from_millis(5);
const PACED_EVENTS: usize = 50;
const PACE: Duration = Duration::from_millis(1);
const NOW_AND_THEN: Duration = Duration::from_millis(250);
/// The number of events between two looks at the clock.
const AT_ONCE: usize = 256;

impl Load {
    pub const ALL: [Load; 5] = [Load::Large, Load::Small, Load::Bursts, Load::Paced, Load::Idle];

    pub fn name(self) -> &'static str {
        match self {
            Load::Large => "large",
            Load::Small => "small",
            Load::Bursts => "bursts",
            Load::Paced => "paced",
            Load::Idle => "idle",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Load::Large => "10 KB at a time at full speed",
            Load::Small => "80 bytes at a time at full speed",
            Load::Bursts => "bursts of 20 MB, 10 KB at a time, with gaps of 5 ms",
            Load::Paced => "10 KB at a time, 50,000 a second: no strategy drops any, so costs compare",
            Load::Idle => "an event every 250 ms",
        }
    }

    fn bytes(self) -> usize {
        match self {
            Load::Large | Load::Bursts | Load::Paced => 10_000,
            Load::Small | Load::Idle => 80,
        }
    }

    pub fn has_payload_to_cut(self) -> bool {
        matches!(self, Load::Large | Load::Bursts)
    }

    /// The number of events before a pause, and the length of the pause.
    fn pause(self) -> Option<(usize, Duration)> {
        match self {
            Load::Large | Load::Small => None,
            Load::Paced => Some((PACED_EVENTS, PACE)),
            Load::Bursts => Some((BURST_BYTES / self.bytes(), GAP)),
            Load::Idle => Some((1, NOW_AND_THEN)),
        }
    }
}

/// The result of a turn.
#[derive(Clone, Default)]
pub struct Turn {
    pub account: Account,
    /// The duration of the producer, and the CPU time of both ends, in seconds.
    pub seconds: f64,
    pub producer_cpu: f64,
    pub consumer_cpu: f64,
    pub wakes: u64,
    /// The delays of the consumer's wakeups, in ns.
    pub late_ns: Vec<u64>,
    /// The age of the oldest event at each wakeup of the consumer, in ns.
    pub waited_ns: Vec<u64>,
}

fn thread_cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Produces the load for this time, or this many events. Returns the number of events, the elapsed time and the CPU time.
fn produce(load: Load, mut null: &File, ms: u64, events: Option<u64>) -> Result<(u64, f64, f64)> {
    let buffer = vec![b'x'; load.bytes()];
    let (begun, cpu) = (Instant::now(), thread_cpu());
    let (at_once, pause) = load.pause().map_or((AT_ONCE, None), |(events, pause)| (events, Some(pause)));
    let mut made = 0;
    while events.map_or_else(|| begun.elapsed().as_millis() < u128::from(ms), |events| made < events) {
        for _ in 0..at_once {
            null.write_all(&buffer)?;
        }
        made += at_once as u64;
        if let Some(pause) = pause {
            thread::sleep(pause);
        }
    }
    Ok((made, begun.elapsed().as_secs_f64(), thread_cpu() - cpu))
}

/// Consumes until `stop`, and then the rest.
fn consume(source: &Writes, way: &Way, stop: &AtomicBool, ready: &mpsc::Sender<()>) -> Result<Turn> {
    let cut_percent = way.cut.then_some(Options::default().cut_percent).flatten();
    let options = Options { cut_percent, real_time: way.real_time, ..Options::default() };
    let mut consumer = way.strategy.open(&source.maps()?, &options, way.ring_bytes)?;
    let mut turn = Turn::default();
    let _ = ready.send(());
    let cpu = thread_cpu();
    let mut woken = Woken::Not;
    loop {
        let last = stop.load(Ordering::Acquire);
        let mut oldest = None;
        while consumer.drain(AT_ONCE, |record| {
            oldest.get_or_insert_with(|| now_ns().saturating_sub(record.head().time));
        })? == AT_ONCE
        {}
        turn.waited_ns.extend(oldest);
        match woken {
            // An event wakes this consumer, so its delay is the age of the first event.
            Woken::Producer { .. } if way.strategy == Strategy::Epoll => turn.late_ns.extend(oldest),
            Woken::Timer { late_ns } | Woken::Producer { late_ns } => turn.late_ns.push(late_ns),
            Woken::Not | Woken::Signal => {}
        }
        if last {
            break;
        }
        woken = consumer.wait()?;
        turn.wakes += u64::from(matches!(woken, Woken::Timer { .. } | Woken::Producer { .. }));
    }
    turn.consumer_cpu = thread_cpu() - cpu;
    turn.account = consumer.account();
    Ok(turn)
}

/// Runs without waiting, on the consumer's CPU.
fn compete(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..AT_ONCE {
            std::hint::black_box(0);
        }
    }
}

/// Runs a turn of this many ms, or this many events.
pub fn take(way: &Way, load: Load, busy: bool, ms: u64, events: Option<u64>, cpus: &Cpus) -> Result<Turn> {
    let source = Writes::load(way.ring_bytes, load.bytes() as u32)?;
    let null = OpenOptions::new().write(true).open("/dev/null").context("/dev/null")?;
    let (stop, stop_competing) = (AtomicBool::new(false), AtomicBool::new(false));
    let (mut turn, (made, seconds, producer_cpu)) = thread::scope(|scope| -> Result<_> {
        let (ready, awaited) = mpsc::channel();
        let (source, stop, null) = (&source, &stop, &null);
        let consumer = scope.spawn(move || {
            stay_on(cpus.consumer)?;
            consume(source, way, stop, &ready)
        });
        if busy {
            scope.spawn(|| stay_on(cpus.consumer).map(|()| compete(&stop_competing)));
        }
        let producer = scope.spawn(move || {
            stay_on(cpus.producer)?;
            // This fails if the consumer has failed; the consumer's error gives the reason.
            awaited.recv().ok();
            source.watch(gettid().as_raw_nonzero().get() as u64, null.as_raw_fd() as u64)?;
            produce(load, null, ms, events)
        });
        let made = producer.join().map_err(|_| anyhow!("the producer has panicked"));
        stop.store(true, Ordering::Release);
        let turn = consumer.join().map_err(|_| anyhow!("the consumer has panicked"));
        stop_competing.store(true, Ordering::Relaxed);
        Ok((turn??, made??))
    })?;
    let account = turn.account;
    ensure!(account.produced == made, "{made} events were made, and {} counted", account.produced);
    ensure!(account.under_way() == 0, "the account does not add up: {account:?}");
    (turn.seconds, turn.producer_cpu) = (seconds, producer_cpu);
    Ok(turn)
}
