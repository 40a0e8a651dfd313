// SPDX-License-Identifier: Apache-2.0 OR MIT
//! UDP on loopback: every datagram is counted at both ends. Needs no privileges.

use std::time::Duration;

use topstat_load::{Config, Dist, EndedBy, Family, Limits, Load, Mode, Plan, Proto, UdpServer};

fn config(connections: usize, family: Family, udp_server: UdpServer) -> Config {
    Config { proto: Proto::Udp, connections, family, udp_server, ..Config::default() }
}

#[test]
fn a_hundred_clients_with_either_server() {
    for family in [Family::V4, Family::V6] {
        for server in [UdpServer::Shared, UdpServer::PerClient] {
            for depth in [1, 50] {
                let mut load = Load::open(config(100, family, server)).unwrap();
                let plan = Plan::from_dist(&Dist::Flat { low: 10, high: 50 }, 100).unwrap();
                let report = load.run(&plan, &Limits { depth, ..Limits::default() }).unwrap();
                assert_eq!((report.transactions, report.lost), (plan.total(), 0), "{family} {server:?} {depth}");
                for (count, &planned) in report.connections.iter().zip(plan.counts()) {
                    assert_eq!((count.transactions, count.bytes_sent), (planned, planned * 64));
                    assert_eq!((count.server_bytes_received, count.bytes_received), (planned * 64, planned * 64));
                }
            }
        }
    }
}

#[test]
fn what_one_way_datagrams_lose_is_known() {
    for server in [UdpServer::Shared, UdpServer::PerClient] {
        let config = Config { mode: Mode::Bulk, request_size: 1_000, ..config(10, Family::V4, server) };
        let mut load = Load::open(config).unwrap();
        let report = load.run(&Plan::new(vec![5_000; 10]), &Limits::default()).unwrap();
        assert_eq!(report.transactions, 50_000);
        assert_eq!(report.server_bytes_received + report.lost * 1_000, 50_000_000);
    }
}

#[test]
fn churn_loses_nothing() {
    for server in [UdpServer::Shared, UdpServer::PerClient] {
        let run = || {
            let mut load = Load::open(config(20, Family::V4, server)).unwrap();
            let limits = Limits { time: Duration::from_millis(400), churn: 200.0, ..Limits::default() };
            let report = load.run(&Plan::endless(20), &limits).unwrap();
            assert_eq!((report.lost, report.failed), (0, 0));
            assert!(report.connections.iter().all(|count| count.server_bytes_received == count.transactions * 64));
            report.churned
        };
        // No datagram is ever lost; the pace is kept if the host lets the generator run in time.
        let churned: Vec<u64> = (0..8).map(|_| run()).collect();
        assert!(churned.iter().any(|n| (60..=80).contains(n)), "{churned:?}");
    }
}

#[test]
fn a_lost_request_is_counted_and_the_next_one_is_sent() {
    for depth in [1, 3] {
        let mut load = Load::open(config(3, Family::V4, UdpServer::PerClient)).unwrap();
        // The server's socket now accepts datagrams from another address only, so this client's requests get no answer.
        let elsewhere: std::net::SocketAddr = "127.0.0.1:9".parse().unwrap();
        rustix::net::connect(load.connections()[1].server_fd().unwrap(), &elsewhere).unwrap();
        let limits = Limits { depth, loss_timeout: Duration::from_millis(120), ..Limits::default() };
        let report = load.run(&Plan::new(vec![2; 3]), &limits).unwrap();
        assert_eq!(report.ended_by, EndedBy::Plan);
        assert_eq!(report.transactions + report.lost + report.skipped, 6, "{report:?}");
        assert_eq!(report.connections[0].transactions, 2);
        assert_eq!(report.connections[1].transactions, 0);
    }
}
