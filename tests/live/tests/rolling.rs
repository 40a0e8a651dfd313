// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Dynamic tables: the pushes of the last period, for every length of period.

use std::io::Write as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use topstat_kernel::Options;
use topstat_live::watch::{load, snapshot};
use topstat_live::{Case, Key, View, Watch, alone, case, limits, note, pace};
use topstat_load::{Config, Limits, Load, Order, Plan, Proto, UdpServer};
use topstat_model::Field;

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Totals: a_steady_flow_is_its_rate, Root; Slow),
        alone!(Totals: a_steady_flow_in_a_short_period, Root),
        case!(a_sender_has_what_it_has_sent, Root),
        case!(reads_may_take_longer_than_slides, Root),
        alone!(Totals: a_burst_is_whole_for_a_period_and_then_gone, Root; Computed, Slow),
    ]
}

const PPS: &str = "udp_v4/conns_pps";
const BPS: &str = "udp_v4/conns_bps";
const CONNECTIONS_BPS: &str = "tcp_v4/conns_bps";
const PROCESSES_BPS: &str = "net_procs/bps";
const CONNECTIONS: usize = 20;
const SIZE: usize = 500;

fn open() -> Load {
    let config = Config {
        proto: Proto::Udp,
        udp_server: UdpServer::PerClient,
        connections: CONNECTIONS,
        request_size: SIZE,
        ..Config::default()
    };
    Load::open(config).unwrap()
}

/// While this value lives, a signal handler interrupts this thread again and again: it runs for [`RUNS_NS`], and pauses for
/// [`PAUSES_NS`].
struct Hindered;

/// Less than a snapshot takes.
const RUNS_NS: i64 = 15_000;
/// More than two slides of a period of 1 ms.
const PAUSES_NS: i64 = 400_000;
static TIMER: AtomicPtr<libc::c_void> = AtomicPtr::new(std::ptr::null_mut());

fn run_for(ns: i64) {
    let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let once = libc::itimerspec { it_interval: none, it_value: libc::timespec { tv_sec: 0, tv_nsec: ns } };
    // SAFETY: the timer exists as long as its signals come; a handler may make this call.
    unsafe { libc::timer_settime(TIMER.load(Ordering::Relaxed), 0, &raw const once, std::ptr::null_mut()) };
}

extern "C" fn pause_and_run(_: libc::c_int) {
    let pause = libc::timespec { tv_sec: 0, tv_nsec: PAUSES_NS };
    // SAFETY: a system call that a handler may make.
    unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
    run_for(RUNS_NS);
}

impl Hindered {
    fn begin() -> Self {
        // SAFETY: the handler makes two system calls; the signal belongs to this test's process alone, and the timer to this
        // thread.
        unsafe {
            let handler: extern "C" fn(libc::c_int) = pause_and_run;
            libc::signal(libc::SIGALRM, handler as libc::sighandler_t);
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGALRM;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer = std::ptr::null_mut();
            assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer), 0);
            TIMER.store(timer, Ordering::Relaxed);
        }
        run_for(RUNS_NS);
        Self
    }
}

impl Drop for Hindered {
    fn drop(&mut self) {
        // SAFETY: the signal is ignored before its timer ends.
        unsafe {
            libc::signal(libc::SIGALRM, libc::SIG_IGN);
            libc::timer_delete(TIMER.load(Ordering::Relaxed));
        }
    }
}

/// A read that is interrupted takes longer than a slide of 0.1 ms, in every attempt. It shows the rows that it can prove, and
/// never ends with an error.
fn reads_may_take_longer_than_slides() {
    const ROUNDS: usize = 10;
    let mut load = open();
    let mut watch = Watch::load(&[PPS], &Options { period_ms: 1, ..Options::default() });
    let stop = Arc::new(AtomicBool::new(false));
    let (mut proven, mut rows) = (0, 0);
    std::thread::scope(|scope| {
        let limits = Limits { stop: Some(Arc::clone(&stop)), ..limits() };
        let speaker = scope.spawn(move || load.run(&Plan::endless(CONNECTIONS), &limits));
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _hindered = Hindered::begin();
            for _ in 0..ROUNDS {
                let snapshot = watch.snapshot(PPS).snapshot;
                proven += usize::from(snapshot.is_proven());
                rows += snapshot.rows.len();
            }
        }));
        stop.store(true, Ordering::Relaxed);
        speaker.join().unwrap().unwrap();
        read.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    note(format!("{proven} of {ROUNDS} snapshots proven, {rows} rows"));
    assert!(rows > 0);
}

/// The rows of the load's sockets.
fn ours<'a>(view: &'a View, load: &[Key]) -> Vec<&'a topstat_live::watch::Socket> {
    view.sockets
        .iter()
        .filter(|s| load.contains(&s.key) || load.contains(&Key::new(s.key.remote, s.key.local)))
        .collect()
}

fn clients(load: &Load) -> Vec<Key> {
    load.connections().iter().map(|c| Key::new(c.client_addr(), c.server_addr())).collect()
}

/// Datagrams that this network namespace has sent, by the kernel's count.
fn sent() -> u64 {
    let text = std::fs::read_to_string("/proc/net/snmp").unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: ")).map(str::split_whitespace);
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let (_, value) = names.zip(values).find(|(name, _)| *name == "OutDatagrams").unwrap();
    value.parse().unwrap()
}

/// A count of sent datagrams, and the moments between which it was read.
#[derive(Clone, Copy)]
struct Look {
    from: Instant,
    to: Instant,
    sent: u64,
}

#[derive(Default)]
struct Sent(Vec<Look>);

impl Sent {
    fn look(&mut self) -> Look {
        let from = Instant::now();
        let look = Look { from, sent: sent(), to: Instant::now() };
        self.0.push(look);
        look
    }

    /// The minimum and the maximum number of datagrams sent by then.
    fn by(&self, when: Instant) -> (u64, u64) {
        let before = self.0.iter().rev().find(|look| look.to <= when).map_or(0, |look| look.sent);
        let after = self.0.iter().find(|look| look.from >= when).map_or(u64::MAX, |look| look.sent);
        (before, after)
    }
}

/// The generator keeps its rate on average, and catches up after a pause. So the test compares the mean of many snapshots,
/// and their median, which a pause does not change.
///
/// A slow host mostly pauses. There the test compares each snapshot with the datagrams that the kernel has sent: it must
/// contain all datagrams of the nine slides before it, and none from before the eleventh.
fn steady(period_ms: u32, rate: f64, run: Duration) {
    let period = Duration::from_millis(period_ms.into());
    let mut load = open();
    let keys = clients(&load);
    let mut watch = Watch::load(&[PPS, BPS], &Options { period_ms, ..Options::default() });
    let stop = Arc::new(AtomicBool::new(false));
    let limits = Limits { rate: Some(rate), time: run * 4, stop: Some(Arc::clone(&stop)), ..limits() };
    let plan = Plan::endless(CONNECTIONS).order(Order::RoundRobin);
    let slow = pace::slowdown() > 1;
    let (report, mut sums, mut bits) = std::thread::scope(|scope| {
        let running = scope.spawn(|| load.run(&plan, &limits).unwrap());
        let begun = Instant::now();
        let (mut sums, mut bits) = (Vec::new(), Vec::new());
        let mut sent = Sent::default();
        while begun.elapsed() < period + period / 5 {
            sent.look();
            std::thread::sleep(period / 13);
        }
        while begun.elapsed() < run {
            let before = sent.look();
            let view = watch.snapshot(PPS);
            let after = sent.look();
            let rows = ours(&view, &keys);
            let sum = rows.iter().map(|s| s.value).sum::<u64>();
            sums.push(sum as f64);
            if slow {
                // Each datagram is pushed at its sender and at its receiver.
                let at_least = 2 * before.sent.saturating_sub(sent.by(after.from - period * 9 / 10).1);
                let at_most = 2 * (after.sent - sent.by(before.to - period * 11 / 10).0);
                // The kernel counts a datagram a moment before or after its push.
                let moment = 4 * CONNECTIONS as u64;
                assert!(sum + moment >= at_least && sum <= at_most + moment, "{sum}, not {at_least} to {at_most}");
            }
            let view = watch.snapshot(BPS);
            bits.push(ours(&view, &keys).iter().map(|s| s.value).sum::<u64>() as f64);
            std::thread::sleep(period / 13);
        }
        stop.store(true, Ordering::Relaxed);
        (running.join().unwrap(), sums, bits)
    });
    let stopped = Instant::now();
    assert_eq!((report.lost, report.failed), (0, 0));
    // A transaction has two datagrams, and each is sent and received.
    let expected = report.rate * 4.0 * period.as_secs_f64();
    let off = |values: &mut Vec<f64>, scale: f64, what: &str| {
        values.sort_unstable_by(f64::total_cmp);
        let per = |value: f64| 100.0 * (value / (expected * scale) - 1.0);
        let mean = per(values.iter().sum::<f64>() / values.len() as f64);
        let median = per(values[values.len() / 2]);
        let (low, high) = (per(values[0]), per(values[values.len() - 1]));
        let n = values.len();
        note(format!(
            "{what}, period {period_ms} ms: {n} snapshots, mean {mean:+.2}%, median {median:+.2}%, all {low:+.2}% to {high:+.2}%"
        ));
        if !slow {
            assert!(mean.abs() < 2.0 || median.abs() < 1.0, "{what}: mean {mean:+.2}%, median {median:+.2}% off");
            assert!(median.abs() < 2.0, "{what}: median {median:+.2}% off");
        }
    };
    off(&mut sums, 1.0, "packets");
    off(&mut bits, 8.0 * SIZE as f64, "bits");

    // A period and a slide after the last packet no row is left; before the end of the period rows are left. (On a busy host
    // the test itself may come too late to see them.)
    std::thread::sleep((period * 3 / 4).saturating_sub(stopped.elapsed()));
    let view = watch.snapshot(PPS);
    if stopped.elapsed() < period * 9 / 10 {
        assert!(!ours(&view, &keys).is_empty(), "what was sent within the period is still shown");
    }
    let grain = Duration::from_millis(20); // of the clocks, and between the last packet and now
    std::thread::sleep((period + period / 10 + grain).saturating_sub(stopped.elapsed()));
    for path in [PPS, BPS] {
        let view = watch.snapshot(path);
        assert!(ours(&view, &keys).is_empty(), "{path}: nothing was sent for a period: {}", view.summary());
        let foreign: u64 = view.sockets.iter().map(|s| s.value).sum();
        assert_eq!(view.snapshot.total - view.snapshot.other, foreign);
        if view.sockets.is_empty() {
            assert_eq!(view.snapshot.total, 0, "{path}: {}", view.summary());
        }
    }
}

fn a_steady_flow_is_its_rate() {
    steady(1000, pace::rate(2000.0), Duration::from_secs(5));
}

fn a_steady_flow_in_a_short_period() {
    steady(400, pace::rate(4000.0), Duration::from_secs(3));
}

/// A TCP connection in one direction, with some writes in each slide. Readings come at all phases of a slide; their sum is compared with
/// the writes of the second before each reading. So the speed of the host has no part in it.
fn a_sender_has_what_it_has_sent() {
    const WRITE: usize = 8192;
    const EVERY: Duration = Duration::from_millis(8);
    const PERIOD: Duration = Duration::from_secs(1);
    const READINGS: u32 = 60;
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let mut sender = TcpStream::connect(listener.local_addr().expect("its address")).expect("connect");
    let (mut receiver, _) = listener.accept().expect("accept");
    let port = u64::from(sender.local_addr().expect("its address").port());
    let mut sources = [load(&[CONNECTIONS_BPS], &Options::default()), load(&[PROCESSES_BPS], &Options::default())];
    let (stop, writes) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    // Of each table, in bits: the sum of the readings, and the sum of the writes.
    let mut sums = [(0, 0); 2];
    std::thread::scope(|scope| {
        scope.spawn(|| std::io::copy(&mut receiver, &mut std::io::sink()).expect("receive"));
        let writer = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                sender.write_all(&[0; WRITE]).expect("send");
                writes.lock().expect("no panic").push(SystemTime::now());
                std::thread::sleep(EVERY);
            }
            sender.shutdown(Shutdown::Both).expect("end");
        });
        std::thread::sleep(PERIOD * 5 / 4);
        for _ in 0..READINGS {
            std::thread::sleep(Duration::from_millis(43));
            for ((source, path), sum) in sources.iter_mut().zip([CONNECTIONS_BPS, PROCESSES_BPS]).zip(&mut sums) {
                let reading = snapshot(&mut **source, path);
                let (name, own) = match path {
                    CONNECTIONS_BPS => ("sport", port),
                    _ => ("pid", std::process::id().into()),
                };
                let column = reading.column(name).expect("its column");
                let row = reading.rows.iter().find(|row| row.object[column] == Field::U64(own)).expect("its row");
                let of_period = |write: &&SystemTime| **write <= reading.time && **write + PERIOD > reading.time;
                let count = writes.lock().expect("no panic").iter().filter(of_period).count();
                sum.0 += row.parts[1];
                sum.1 += (count * WRITE * 8) as u64;
            }
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("it has sent");
    });
    for ((found, truth), path) in sums.into_iter().zip([CONNECTIONS_BPS, PROCESSES_BPS]) {
        let off = found as f64 / truth as f64 - 1.0;
        note(format!("{path}: {found} bits in {READINGS} readings, {:+.2}% of what was written", off * 100.0));
        assert!(off.abs() < 0.02, "{path}: {found} bits, but {truth} were written");
    }
}

/// A snapshot shows all of a burst until a period after its beginning, exactly, and none of it from a period and a slide
/// after its end.
fn a_burst_is_whole_for_a_period_and_then_gone() {
    const PERIOD: Duration = Duration::from_millis(2000);
    let mut load = open();
    let keys = clients(&load);
    let options = Options { period_ms: PERIOD.as_millis() as u32, ..Options::default() };
    let mut watch = Watch::load(&[PPS], &options);
    let (mut looks, plan) = (0, Plan::new(vec![25; CONNECTIONS]));
    for _ in 0..2 {
        let begun = Instant::now();
        let report = load.run(&plan, &limits()).unwrap();
        let ended = Instant::now();
        assert_eq!(report.lost, 0);
        loop {
            let view = watch.snapshot(PPS);
            let rows = ours(&view, &keys);
            // The clock has the resolution of a jiffy.
            if begun.elapsed() > PERIOD - Duration::from_millis(20) {
                break;
            }
            looks += 1;
            assert_eq!(rows.len(), 2 * CONNECTIONS, "{}", view.summary());
            for row in rows {
                assert_eq!((row.rx, row.tx), (25, 25), "{:?} after {:?}", row, begun.elapsed());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let over = PERIOD + PERIOD / 10 + Duration::from_millis(20);
        std::thread::sleep(over.saturating_sub(ended.elapsed()));
        let view = watch.snapshot(PPS);
        assert!(ours(&view, &keys).is_empty(), "{}", view.summary());
    }
    assert!(looks > 10, "the host was too slow to look at the burst");
    note(format!("a burst was whole in {looks} snapshots"));
}
