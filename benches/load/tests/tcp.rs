// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP on loopback: the load's counts equal the kernel's. Needs no privileges.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use topstat_load::{Addresses, Config, Dist, EndedBy, Error, Family, Limits, Load, Mode, Order, Plan, RunReport};

/// Checks every connection's counts against the plan, the other end and the kernel.
fn check_exact(load: &Load, plan: &Plan, report: &RunReport) {
    let size = load.config().request_size as u64;
    assert_eq!(report.transactions, plan.total());
    assert_eq!((report.lost, report.unfinished, report.skipped, report.failed), (0, 0, 0, 0));
    for (index, (count, &planned)) in report.connections.iter().zip(plan.counts()).enumerate() {
        assert_eq!(count.transactions, planned, "connection {index}");
        let (client, server) = load.tcp_info(index).unwrap();
        assert_eq!(count.bytes_sent, planned * size);
        assert_eq!(count.server_bytes_received, planned * size);
        assert_eq!(server.bytes_received, planned * size);
        assert_eq!(client.bytes_sent - client.bytes_retrans, planned * size);
        if load.config().mode == Mode::Rr {
            assert_eq!(count.bytes_received, planned * size);
            assert_eq!(count.server_bytes_sent, planned * size);
            assert_eq!(client.bytes_received, planned * size);
        }
    }
}

fn run_exactly(config: Config, dist: Dist, limits: Limits) -> RunReport {
    let mut load = Load::open(config).unwrap();
    let plan = Plan::from_dist(&dist, load.connections().len()).unwrap();
    let report = load.run(&plan, &limits).unwrap();
    assert_eq!(report.ended_by, EndedBy::Plan);
    check_exact(&load, &plan, &report);
    report
}

#[test]
fn one_connection() {
    let report = run_exactly(Config::default(), Dist::Uniform(5_000), Limits::default());
    assert_eq!(report.times.len(), 5_000);
    assert!(report.latency.min_ns > 0 && report.latency.p50_ns <= report.latency.max_ns);
    assert!(report.rate > 0.0 && report.cpu.system_ns > 0);
}

#[test]
fn hundred_connections_skewed() {
    let config = Config { connections: 100, request_size: 100, ..Config::default() };
    run_exactly(config, Dist::Zipf { exponent: 1.0, max: 2_000 }, Limits::default());
}

#[test]
fn hundred_connections_one_at_a_time() {
    let config = Config { connections: 100, ..Config::default() };
    run_exactly(config, Dist::Flat { low: 0, high: 99 }, Limits { depth: 1, ..Limits::default() });
}

#[test]
fn five_thousand_connections() {
    let config = Config { connections: 5_000, ..Config::default() };
    run_exactly(config, Dist::Flat { low: 2, high: 12 }, Limits { depth: 1_000, ..Limits::default() });
}

#[test]
fn two_hundred_connections_v6() {
    let config = Config { connections: 200, family: Family::V6, ports: 4, ..Config::default() };
    run_exactly(config, Dist::Uniform(50), Limits::default());
}

#[test]
fn large_messages_are_sent_in_parts() {
    for depth in [1, 4] {
        let config = Config { connections: 4, request_size: 3_000_000, ..Config::default() };
        run_exactly(config, Dist::Uniform(3), Limits { depth, ..Limits::default() });
    }
    let config = Config { request_size: 5_000_000, ..Config::default() };
    run_exactly(config, Dist::Uniform(3), Limits::default());
}

#[test]
fn responses_can_have_a_size_of_their_own() {
    let mut load = Load::open(Config { connections: 3, response_size: Some(1_000), ..Config::default() }).unwrap();
    let report = load.run(&Plan::new(vec![7; 3]), &Limits::default()).unwrap();
    assert_eq!((report.bytes_sent, report.bytes_received), (21 * 64, 21_000));
    assert_eq!(load.tcp_info(2).unwrap().0.bytes_received, 7_000);
}

#[test]
fn bulk_is_counted_at_both_ends() {
    for (connections, depth) in [(1, 1), (8, 8)] {
        let config = Config { connections, mode: Mode::Bulk, request_size: 10_000, ..Config::default() };
        run_exactly(config, Dist::Flat { low: 500, high: 1_500 }, Limits { depth, ..Limits::default() });
    }
}

#[test]
fn runs_follow_each_other_on_the_same_connections() {
    let mut load = Load::open(Config { connections: 20, ..Config::default() }).unwrap();
    let mut expected = 0;
    for round in 1..=6 {
        let plan = Plan::new(vec![round; 20]).order(Order::RoundRobin);
        let depth = if round % 2 == 0 { 1 } else { 10 };
        let report = load.run(&plan, &Limits { depth, ..Limits::default() }).unwrap();
        assert_eq!(report.transactions, 20 * round);
        expected += round * 64;
        assert_eq!(load.tcp_info(19).unwrap().1.bytes_received, expected);
    }
}

#[test]
fn time_is_a_limit() {
    for connections in [1, 50] {
        let mut load = Load::open(Config { connections, ..Config::default() }).unwrap();
        let start = Instant::now();
        let limits = Limits { time: Duration::from_millis(300), ..Limits::default() };
        let report = load.run(&Plan::endless(connections), &limits).unwrap();
        assert_eq!(report.ended_by, EndedBy::Time);
        assert!((0.25..1.5).contains(&start.elapsed().as_secs_f64()), "{:?}", start.elapsed());
        assert_eq!(report.unfinished, 0);
        assert_eq!(report.server_bytes_received, report.transactions * 64);
    }
}

#[test]
fn total_is_a_limit() {
    for depth in [1, 30] {
        let mut load = Load::open(Config { connections: 30, ..Config::default() }).unwrap();
        let report = load.run(&Plan::endless(30), &Limits { total: 1_000, depth, ..Limits::default() }).unwrap();
        assert_eq!((report.transactions, report.ended_by), (1_000, EndedBy::Total));
    }
}

#[test]
fn the_rate_is_kept() {
    for depth in [1, 16] {
        let mut load = Load::open(Config { connections: 16, ..Config::default() }).unwrap();
        let limits = Limits { rate: Some(2_000.0), total: 1_000, depth, ..Limits::default() };
        let report = load.run(&Plan::endless(16), &limits).unwrap();
        assert_eq!(report.transactions, 1_000);
        assert!(report.elapsed.as_secs_f64() >= 0.49, "{:?}", report.elapsed);
    }
}

#[test]
fn a_run_can_be_stopped() {
    let mut load = Load::open(Config { connections: 4, ..Config::default() }).unwrap();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let limits = Limits { stop: Some(stop.clone()), rate: Some(1.0), ..Limits::default() };
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        load.run(&Plan::endless(4), &limits).unwrap()
    });
    assert_eq!((report.ended_by, report.transactions), (EndedBy::Stop, 1));
}

#[test]
fn churn_replaces_connections_and_keeps_their_counts() {
    for (mode, depth) in [(Mode::Rr, 1), (Mode::Rr, 20), (Mode::Bulk, 20)] {
        let mut load = Load::open(Config { connections: 20, mode, ..Config::default() }).unwrap();
        let limits = Limits { time: Duration::from_millis(500), churn: 200.0, depth, ..Limits::default() };
        let report = load.run(&Plan::endless(20), &limits).unwrap();
        // At 200 a second for half a second; a busy host makes fewer.
        assert!((1..=100).contains(&report.churned), "{}", report.churned);
        assert_eq!(report.connections.len() as u64, 20 + report.churned);
        assert_eq!((report.failed, report.unfinished, report.skipped), (0, 0, 0));
        for count in &report.connections {
            assert_eq!(count.bytes_sent, count.transactions * 64);
            assert_eq!(count.server_bytes_received, count.bytes_sent, "{count:?}");
        }
        let ids: HashSet<u64> = report.connections.iter().map(|count| count.id).collect();
        assert_eq!(ids.len(), report.connections.len());
        assert_eq!(report.connections.iter().filter(|count| count.closed).count() as u64, report.churned);
    }
}

#[test]
fn connections_can_be_closed_one_by_one() {
    let mut load = Load::open(Config { connections: 3, ..Config::default() }).unwrap();
    load.close_connection(1).unwrap();
    assert!(!load.connections()[1].is_open());
    assert!(matches!(load.close_connection(1), Err(Error::Closed(1))));
    assert!(matches!(load.tcp_info(1), Err(Error::Closed(1))));
    let report = load.run(&Plan::new(vec![5; 3]), &Limits::default()).unwrap();
    assert_eq!((report.transactions, report.skipped), (10, 5));
    load.close_connection(0).unwrap();
    load.close_connection(2).unwrap();
    let report = load.run(&Plan::endless(3), &Limits::default()).unwrap();
    assert_eq!((report.transactions, report.ended_by), (0, EndedBy::NoConnections));
}

#[test]
fn both_ends_are_known() {
    let config = Config {
        connections: 12,
        sources: Addresses::Spread(3),
        destinations: Addresses::Spread(2),
        ..Config::default()
    };
    let load = Load::open(config).unwrap();
    let clients: HashSet<_> = load.connections().iter().map(|conn| conn.client_addr()).collect();
    assert_eq!(clients.len(), 12);
    let cookies: HashSet<_> = load.connections().iter().map(|conn| conn.cookies().unwrap()).collect();
    assert_eq!(cookies.len(), 12);
    for conn in load.connections() {
        let name = |fd| std::net::SocketAddr::try_from(rustix::net::getsockname(fd).unwrap()).unwrap();
        let peer = |fd| std::net::SocketAddr::try_from(rustix::net::getpeername(fd).unwrap().unwrap()).unwrap();
        let (client, server) = (conn.client_fd().unwrap(), conn.server_fd().unwrap());
        assert_eq!((name(client), peer(client)), (conn.client_addr(), conn.server_addr()));
        assert_eq!((name(server), peer(server)), (conn.server_addr(), conn.client_addr()));
        let (client_inode, server_inode) = conn.inodes().unwrap();
        assert_ne!(client_inode, server_inode);
    }
}

#[test]
fn an_address_that_does_not_exist_is_named() {
    let far = "192.0.2.7".parse().unwrap();
    let destinations = Addresses::List(vec![far]);
    let config = Config { destinations, allow_addresses: vec![far], ..Config::default() };
    let error = Load::open(config).unwrap_err().to_string();
    assert!(error.starts_with("cannot listen on 192.0.2.7:0: "), "{error}");
    assert!(error.contains("no such address on this host"), "{error}");
}

#[test]
fn a_plan_for_other_connections_is_refused() {
    let mut load = Load::open(Config::default()).unwrap();
    let error = load.run(&Plan::endless(2), &Limits::default()).unwrap_err();
    assert_eq!(error.to_string(), "the plan has 2 numbers for 1 connections");
    assert!(error.is_usage());
}

#[test]
fn nothing_is_left_behind() {
    let load = Load::open(Config { connections: 10, ..Config::default() }).unwrap();
    let inodes: HashSet<u64> = load.connections().iter().map(|conn| conn.inodes().unwrap().1).collect();
    drop(load);
    let open =
        std::fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok());
    for link in open {
        let link = link.to_string_lossy().into_owned();
        let inode = link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')).and_then(|n| n.parse().ok());
        assert!(!inode.is_some_and(|inode: u64| inodes.contains(&inode)), "{link} is still open");
    }
}
