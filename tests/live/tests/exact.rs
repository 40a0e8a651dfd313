// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows are the true top: recall and precision against the generator's own counts.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use topstat_live::truth::{self, key};
use topstat_live::watch::endless;
use topstat_live::{Case, End, Key, View, Watch, alone, eventually, limits, note, pace, two_cpus};
use topstat_load::{Config, Dist, EndedBy, Limits, Load, Plan, Proto, RunReport, UdpServer};

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Fills: tcp_1000_sockets, Root),
        alone!(Fills: tcp_10000_sockets, Root, FullSpeed; Slow),
        alone!(Fills: udp_1000_sockets, Root),
        alone!(Fills: udp_10000_sockets, Root, FullSpeed),
        alone!(Fills: with_churn, Root; ComeAndGo),
        alone!(Fills: after_the_top_has_closed, Root; Computed),
    ]
}

const PPS: &str = "tcp_v4/conns_pps";
const BPS: &str = "tcp_v4/conns_bps";
const BYTES: &str = "tcp_v4/conns_bytes";

/// In one load a few sockets have nearly all traffic; in the other nearly all sockets have equal traffic, with ties across
/// the border of the top.
fn loads(connections: usize) -> [(&'static str, Dist); 2] {
    [
        ("skewed", Dist::Zipf { exponent: 1.0, max: pace::work(40, 10) * (connections as u64).isqrt() }),
        ("nearly flat", Dist::Flat { low: pace::work(20, 2), high: pace::work(20, 2) + 6 }),
    ]
}

/// Puts client and server on separate CPUs: every socket is then counted, and ranked, on both.
fn apart(config: Config) -> Config {
    let (client_cpu, server_cpu) = two_cpus().unzip();
    Config { client_cpu, server_cpu, ..config }
}

/// The differences between the rows and the top of these values. Rows of other processes' sockets, and rows of closed
/// connections (whose addresses may be used again), are left out: each of them takes the place of one of ours. If several
/// sockets have the value at the border, any of them may be shown; the value itself is fixed.
fn faults(view: &View, truth: &HashMap<Key, u64>) -> Vec<String> {
    let mut wrong = Vec::new();
    let ours: Vec<_> = view.sockets.iter().filter(|s| !s.closed && truth.contains_key(&s.key)).collect();
    for s in &ours {
        if s.value != truth[&s.key] {
            wrong.push(format!("{:?} has {}, not {}", s.key, s.value, truth[&s.key]));
        }
    }
    let distinct: HashSet<_> = ours.iter().map(|s| s.key).collect();
    if distinct.len() != ours.len() {
        wrong.push("a socket is shown twice".to_owned());
    }
    let places = view.snapshot.top as usize - (view.snapshot.rows.len() - ours.len());
    let mut values: Vec<u64> = truth.values().copied().filter(|v| *v > 0).collect();
    values.sort_unstable_by(|a, b| b.cmp(a));
    values.truncate(places);
    let shown: Vec<u64> = ours.iter().map(|s| s.value).collect();
    if shown != values {
        let right = shown.iter().zip(&values).filter(|(a, b)| a == b).count();
        wrong.push(format!("{} rows of {} places, {right} of the right value", shown.len(), values.len()));
    }
    wrong
}

/// The snapshot must be the true top, and say so. The result of a peek is only noted.
fn assert_exact(watch: &mut Watch, path: &str, scale: u64, truth: &HashMap<Key, u64>, title: &str) {
    let truth: HashMap<Key, u64> = truth.iter().map(|(key, value)| (*key, value * scale)).collect();
    let peek = watch.peek(path);
    let peeked = faults(&peek, &truth).is_empty();
    let view = watch.snapshot(path);
    let wrong = faults(&view, &truth);
    assert!(wrong.is_empty(), "{title}: {}\n{:#?}", view.summary(), &wrong[..wrong.len().min(8)]);
    assert!(view.snapshot.is_proven(), "{title}: at rest every row can be proven: {}", view.summary());
    // Rows that are proven without a look at every object must be right as well.
    assert!(peeked || !peek.snapshot.is_proven(), "{title}: proven, but wrong: {}", peek.summary());
    let how = if peek.snapshot.is_proven() { "at once" } else { "after a refill" };
    let ties = truth.values().filter(|v| Some(**v) == view.sockets.last().map(|s| s.value)).count();
    note(format!(
        "{title} {path}: {} rows of {} exact {how}; {ties} tie at the border",
        view.sockets.len(),
        truth.len()
    ));
}

fn assert_clean(report: &RunReport) {
    assert_eq!((report.lost, report.failed, report.unfinished), (0, 0, 0));
}

fn tcp(sockets: usize) {
    let connections = sockets / 2;
    let mut load = Load::open(apart(Config { connections, ..Config::default() })).unwrap();
    load.run(&Plan::new(vec![1; connections]), &limits()).unwrap();
    for (name, dist) in loads(connections) {
        let before = truth::settled(&load);
        let mut watch = Watch::load(&[PPS, BPS, BYTES], &endless());
        let plan = Plan::from_dist(&dist, connections).unwrap();
        assert_clean(&load.run(&plan, &limits()).unwrap());
        let truth = truth::difference(&before, &truth::settled(&load));
        let title = format!("{sockets} sockets, {name}:");
        let packets = truth.iter().map(|(key, counts)| (*key, counts.packets())).collect();
        let bytes: HashMap<Key, u64> = truth.keys().map(|key| (*key, truth::carried(&truth, key).0)).collect();
        // The kernel's counts equal the generator's.
        for (conn, turns) in load.connections().iter().zip(plan.counts()) {
            let (carried, again) = truth::carried(&truth, &key(conn, End::Client));
            assert_eq!(carried - again, turns * 128);
        }
        assert_exact(&mut watch, PPS, 1, &packets, &title);
        assert_exact(&mut watch, BPS, 8, &bytes, &title);
        assert_exact(&mut watch, BYTES, 1, &bytes, &title);
    }
}

fn tcp_1000_sockets() {
    tcp(1000);
}

fn tcp_10000_sockets() {
    tcp(10_000);
}

/// Only the generator counts datagrams; packets are taken from it, too.
fn udp(sockets: usize) {
    let connections = sockets / 2;
    let config = Config { proto: Proto::Udp, udp_server: UdpServer::PerClient, connections, ..Config::default() };
    let config = apart(config);
    let mut watch = Watch::load(&["udp_v4/conns_pps", "udp_v4/conns_bps", "udp_v4/conns_bytes"], &endless());
    for (name, dist) in loads(connections) {
        let mut load = Load::open(config.clone()).unwrap();
        let report = load.run(&Plan::from_dist(&dist, connections).unwrap(), &limits()).unwrap();
        assert_clean(&report);
        let counts = |of: fn(&topstat_load::ConnCount) -> u64| -> HashMap<Key, u64> {
            let both = report
                .connections
                .iter()
                .flat_map(|c| [(Key::new(c.client, c.server), of(c)), (Key::new(c.server, c.client), of(c))]);
            both.collect()
        };
        let title = format!("{sockets} sockets, {name}:");
        let bytes = counts(|c| c.bytes_sent + c.bytes_received);
        assert_exact(&mut watch, "udp_v4/conns_pps", 1, &counts(|c| 2 * c.transactions), &title);
        assert_exact(&mut watch, "udp_v4/conns_bps", 8, &bytes, &title);
        assert_exact(&mut watch, "udp_v4/conns_bytes", 1, &bytes, &title);
    }
}

fn udp_1000_sockets() {
    udp(1000);
}

fn udp_10000_sockets() {
    udp(10_000);
}

/// Connections close, and new ones take their places, all the time. Closed connections are not shown; open ones are ranked by
/// their traffic, and packets that arrive after the close are not counted as lost memory.
fn with_churn() {
    const CONNECTIONS: usize = 500;
    for (name, dist) in loads(CONNECTIONS) {
        let mut watch = Watch::load(&[PPS, BPS, BYTES], &endless());
        let mut load = Load::open(apart(Config { connections: CONNECTIONS, ..Config::default() })).unwrap();
        let plan = Plan::from_dist(&dist, CONNECTIONS).unwrap().repeat(true);
        let limits = Limits {
            time: Duration::from_secs(2),
            churn: pace::rate(300.0),
            rate: Some(pace::rate(20_000.0)),
            ..limits()
        };
        let report = load.run(&plan, &limits).unwrap();
        assert_eq!((report.ended_by, report.failed, report.unfinished), (EndedBy::Time, 0, 0));
        assert!(report.churned > pace::work(30, 1), "only {} connections were replaced", report.churned);
        let settled = truth::settled(&load);
        let open: HashMap<Key, u64> = report
            .connections
            .iter()
            .filter(|c| !c.closed)
            .flat_map(|c| [Key::new(c.client, c.server), Key::new(c.server, c.client)].map(|k| (k, c)))
            .map(|(key, c)| {
                let (carried, again) = truth::carried(&settled, &key);
                assert_eq!(carried - again, c.bytes_sent + c.bytes_received, "{key:?}");
                (key, carried)
            })
            .collect();
        let closed: HashSet<Key> = report
            .connections
            .iter()
            .filter(|c| c.closed)
            .flat_map(|c| [Key::new(c.client, c.server), Key::new(c.server, c.client)])
            .filter(|key| !open.contains_key(key))
            .collect();
        let packets: HashMap<Key, u64> = settled.into_iter().map(|(key, c)| (key, c.packets())).collect();
        let mut gone = || watch.snapshot(BYTES).sockets.iter().all(|s| !closed.contains(&s.key));
        assert!(eventually(Duration::from_secs(2), &mut gone), "{name}: closed connections are shown");
        let title = format!("{} sockets, {} closed, {name}:", open.len(), closed.len());
        assert_exact(&mut watch, PPS, 1, &packets, &title);
        assert_exact(&mut watch, BPS, 8, &open, &title);
        assert_exact(&mut watch, BYTES, 1, &open, &title);
        let lost = watch.peek(PPS).snapshot.lost;
        assert_eq!(lost.no_memory, 0, "there was memory enough: {lost:?}");
    }
}

/// More connections close than a table has entries: then the table shows sockets that it had no room for before.
fn after_the_top_has_closed() {
    const CONNECTIONS: usize = 1500;
    const CLOSED: usize = 600;
    let mut load = Load::open(apart(Config { connections: CONNECTIONS, ..Config::default() })).unwrap();
    let mut watch = Watch::load(&[PPS, BYTES], &endless());
    let plan: Vec<u64> =
        (0..CONNECTIONS).map(|i| if i < CLOSED { 40 + i as u64 % 9 } else { 10 + i as u64 % 13 }).collect();
    assert_clean(&load.run(&Plan::new(plan.clone()), &limits()).unwrap());
    let settled = truth::settled(&load);
    let of = |load: &Load, range: std::ops::Range<usize>| -> HashMap<Key, u64> {
        let both = |c: &topstat_load::Conn| [End::Client, End::Server].map(|end| (c.index(), key(c, end)));
        let keys = load.connections()[range].iter().flat_map(both);
        keys.map(|(index, key)| {
            let (carried, again) = truth::carried(&settled, &key);
            assert_eq!(carried - again, plan[index] * 128);
            (key, carried)
        })
        .collect()
    };
    assert_exact(&mut watch, BYTES, 1, &of(&load, 0..CONNECTIONS), "before:");
    let total = watch.snapshot(BYTES).snapshot.total;
    let (dead, rest) = (of(&load, 0..CLOSED), of(&load, CLOSED..CONNECTIONS));
    for index in 0..CLOSED {
        load.close_connection(index).unwrap();
    }
    let mut gone = || watch.snapshot(BYTES).sockets.iter().all(|s| !dead.contains_key(&s.key));
    assert!(eventually(Duration::from_secs(2), &mut gone), "closed connections are shown");
    assert_exact(&mut watch, BYTES, 1, &rest, "after:");
    let now = watch.snapshot(BYTES).snapshot;
    assert!(now.total >= total, "what closed connections carried stays in the total: {} of {total}", now.total);
}
