// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Dynamic tables: the pushes of the last period, whatever the period.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use topstat_kernel::Options;
use topstat_live::{Case, Key, View, Watch, alone, limits, note, pace};
use topstat_load::{Config, Limits, Load, Order, Plan, Proto, UdpServer};

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Totals: a_steady_flow_is_its_rate, Root; Slow),
        alone!(Totals: a_steady_flow_in_a_short_period, Root),
        alone!(Totals: a_burst_is_whole_for_a_period_and_then_gone, Root; Computed, Slow),
    ]
}

const PPS: &str = "udp_v4/conns_pps";
const BPS: &str = "udp_v4/conns_bps";
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

/// Datagrams that this network namespace has sent, as the kernel counts them.
fn sent() -> u64 {
    let text = std::fs::read_to_string("/proc/net/snmp").unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: ")).map(str::split_whitespace);
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let (_, value) = names.zip(values).find(|(name, _)| *name == "OutDatagrams").unwrap();
    value.parse().unwrap()
}

/// Between which moments datagrams were counted, and how many there were.
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

    /// At least so many, and at most, were sent by then.
    fn by(&self, when: Instant) -> (u64, u64) {
        let before = self.0.iter().rev().find(|look| look.to <= when).map_or(0, |look| look.sent);
        let after = self.0.iter().find(|look| look.from >= when).map_or(u64::MAX, |look| look.sent);
        (before, after)
    }
}

/// The generator keeps to its rate on average, and catches up after a pause; so the mean of many snapshots is compared,
/// and every one is looked at in the middle (the median), where a pause does not show.
///
/// On a slow host there is more pause than anything else. There each snapshot is compared with what the kernel has sent
/// meanwhile: all of nine slides before it, nothing of what came before the eleventh.
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
                // Each datagram is pushed where it is sent and where it arrives.
                let at_least = 2 * before.sent.saturating_sub(sent.by(after.from - period * 9 / 10).1);
                let at_most = 2 * (after.sent - sent.by(before.to - period * 11 / 10).0);
                // A datagram is counted by the kernel a moment before or after it is pushed.
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
    // A transaction is two datagrams, and each is sent and received.
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

    // A period and a slide after the last packet there is nothing left, and a moment before that there was. (On a busy
    // host the test itself may come late: then there was nothing to see.)
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

/// All of a burst is shown until a period after it began, exactly, and none of it a period and a slide after it ended.
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
            // The clock has a grain of a jiffy.
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
