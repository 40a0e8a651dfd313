// SPDX-License-Identifier: Apache-2.0 OR MIT
//! In every snapshot rows and `other` are the total; and the total is the traffic that was carried.
//!
//! Every snapshot of every test is checked (see `topstat_live::View`); here thousands of snapshots are taken.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use topstat_kernel::Options;
use topstat_live::watch::{endless, everything};
use topstat_live::{Case, Key, View, Watch, alone, eventually, limits, note, pace};
use topstat_load::{Config, Family, Limits, Load, Plan, Proto};

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Totals: thousands_of_snapshots_under_load, Root; Computed),
        alone!(Totals: two_sources_do_not_disturb_each_other, Root),
        alone!(Totals: the_total_is_what_was_carried_v4, Root),
        alone!(Totals: the_total_is_what_was_carried_v6, Root, Ipv6),
        alone!(Totals: the_total_is_what_was_carried_with_a_delay, Root),
    ]
}

const TABLES: [&str; 7] = [
    "tcp_v4/conns_pps",
    "tcp_v4/conns_bps",
    "tcp_v4/conns_bytes",
    "tcp_v4/conns_retrans",
    "udp_v4/conns_pps",
    "udp_v4/conns_bps",
    "udp_v4/conns_bytes",
];

/// Longer than any work takes, so that the work ends a load.
const ENDLESS: Duration = Duration::from_secs(3600);

/// The maximum time for the required number of snapshots.
const PATIENCE: Duration = Duration::from_secs(120);

/// Transactions per second on a slow host, where a load at full speed would take all CPU time from topstat.
const SLOW_RATE: f64 = 3000.0;

/// Runs a load until the work is done.
pub fn under<T>(config: Config, churn: f64, work: impl FnOnce() -> T) -> T {
    let connections = config.connections;
    let mut load = Load::open(config).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let rate = (pace::slowdown() > 1).then(|| pace::rate(SLOW_RATE));
    let limits = Limits { churn, rate, stop: Some(Arc::clone(&stop)), time: ENDLESS, ..limits() };
    struct Stop(Arc<AtomicBool>);
    impl Drop for Stop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let stop = Stop(stop);
        scope.spawn(|| load.run(&Plan::endless(connections), &limits).unwrap());
        let result = work();
        drop(stop);
        result
    })
}

/// Two loads at full speed, one with churn, on tables so small and periods so short that every entry moves all the time.
fn thousands_of_snapshots_under_load() {
    let time = Duration::from_secs(pace::work(4, 3));
    let options = Options { top: 16, period_ms: 500, ..Options::default() };
    let mut watch = Watch::load(&TABLES, &options);
    let (mut taken, mut grown, mut static_total) = (0, 0, 0);
    let tcp = Config { connections: 300, ..Config::default() };
    let udp = Config { proto: Proto::Udp, connections: 50, ..Config::default() };
    under(tcp, pace::rate(200.0), || {
        under(udp, 0.0, || {
            let begun = Instant::now();
            // A busy host takes longer for this number of snapshots.
            let enough = |taken, grown| taken > pace::work(2000, 1) && grown > pace::work(100, 1);
            while begun.elapsed() < time || !enough(taken, grown) && begun.elapsed() < pace::patience(PATIENCE) {
                for path in TABLES {
                    // View makes all the checks.
                    let view = if taken % 2 == 0 { watch.peek(path) } else { watch.snapshot(path) };
                    taken += 1;
                    if path == "tcp_v4/conns_bytes" {
                        assert!(view.snapshot.total >= static_total, "a running total never falls");
                        grown += u64::from(view.snapshot.total > static_total);
                        static_total = view.snapshot.total;
                    }
                }
            }
        });
    });
    assert!(taken > pace::work(2000, 1) && grown > pace::work(100, 1), "{taken} snapshots, {grown} of them new");
    let lost = watch.peek("tcp_v4/conns_pps").snapshot.lost;
    assert_eq!(lost.no_memory, 0, "there was memory enough: {lost:?}");
    note(format!("{taken} snapshots under load, all additive; lost {lost:?}"));
}

/// A second topstat with other options starts and ends: the rows of the first equal the rows of the second, and the counts of
/// the first stay.
fn two_sources_do_not_disturb_each_other() {
    const PPS: &str = "udp_v4/conns_pps";
    const CONNECTIONS: usize = 40;
    let config = Config { proto: Proto::Udp, connections: CONNECTIONS, ..Config::default() };
    let mut load = Load::open(config).unwrap();
    let mut plan = |turns: u64| {
        let plan = Plan::new((0..CONNECTIONS as u64).map(|i| turns * (i + 1)).collect());
        let report = load.run(&plan, &limits()).unwrap();
        assert_eq!(report.lost, 0);
        report
    };
    let mut first = Watch::load(&[PPS], &endless());
    let client = |view: &View, conn: &topstat_load::ConnCount| {
        view.find(Key::new(conn.client, conn.server)).map_or(0, |s| s.value)
    };
    plan(1);
    let mut second = Watch::load(&[PPS], &Options { top: 1024, delay_ms: 50, ..endless() });
    let report = plan(2);
    let (a, b) = (first.snapshot(PPS), second.snapshot(PPS));
    for (turns, conn) in (1..).zip(&report.connections) {
        assert_eq!((client(&a, conn), client(&b, conn)), (2 * 3 * turns, 2 * 2 * turns));
    }
    // A read drains nothing: a second read sees the same rows.
    assert_eq!(first.snapshot(PPS).by_key(), a.by_key());
    drop(second);
    let report = plan(1);
    let a = first.snapshot(PPS);
    for (turns, conn) in (1..).zip(&report.connections) {
        assert_eq!(client(&a, conn), 2 * 4 * turns);
    }
}

/// Rows and other of a static table, with some connections open and after all have closed, are exactly the bytes that the
/// generator carried. Traffic of other processes is recognised by its rows; if some of it came and went unseen, the test is
/// repeated.
fn carried(family: Family, options: &Options) {
    const CONNECTIONS: usize = 300;
    const ATTEMPTS: usize = 4;
    let bytes = if family == Family::V4 { "tcp_v4/conns_bytes" } else { "tcp_v6/conns_bytes" };
    for attempt in 1..=ATTEMPTS {
        let mut watch = Watch::load(&[bytes], options);
        let mut load = Load::open(Config { connections: CONNECTIONS, family, ..Config::default() }).unwrap();
        let limits = Limits {
            churn: pace::rate(100.0),
            time: Duration::from_secs(2),
            rate: Some(pace::rate(20_000.0)),
            ..limits()
        };
        let report = load.run(&Plan::endless(CONNECTIONS), &limits).unwrap();
        assert_eq!((report.failed, report.unfinished), (0, 0));
        let carried = 2 * (report.bytes_sent + report.bytes_received);
        let keys: HashSet<Key> = report
            .connections
            .iter()
            .flat_map(|c| [Key::new(c.client, c.server), Key::new(c.server, c.client)])
            .collect();
        let open = watch.snapshot(bytes).snapshot.total;
        drop(load);
        let mut gone = || watch.snapshot(bytes).sockets.iter().all(|s| !keys.contains(&s.key));
        assert!(eventually(Duration::from_secs(2), &mut gone), "closed connections are shown");
        let closed = watch.snapshot(bytes);
        let total = closed.snapshot.total;
        let of_others: u64 = closed.sockets.iter().map(|s| s.value).sum();
        assert!(open >= carried && total >= open, "{carried} bytes: {open}, then {}", closed.summary());
        if total == carried + of_others {
            note(format!(
                "{carried} bytes on {} connections, {} of them closed meanwhile: all in the total (attempt {attempt})",
                report.connections.len(),
                report.churned
            ));
            return;
        }
        note(format!("{} bytes more are in the total: others'?", total - carried - of_others));
    }
    panic!("the total was more than what was carried, {ATTEMPTS} times");
}

fn the_total_is_what_was_carried_v4() {
    carried(Family::V4, &everything());
}

fn the_total_is_what_was_carried_v6() {
    carried(Family::V6, &everything());
}

fn the_total_is_what_was_carried_with_a_delay() {
    carried(Family::V4, &Options { delay_ms: 100, ..everything() });
}
