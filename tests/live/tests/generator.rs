// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The generator's own counts, which other tests take for the truth, where events outside the generator could make them
//! wrong.

use std::collections::HashSet;
use std::time::Duration;

use topstat_live::{Case, Netns, case, limits, note, pace};
use topstat_load::{Config, Limits, Load, Plan, Proto, RunReport, UdpServer};

pub fn cases() -> Vec<Case> {
    vec![case!(ports_that_come_round, Root, Netns)]
}

const CONNECTIONS: usize = 20;
/// Few more ports than are open at once, so that a replacement gets the port of a connection that was retired before.
const PORTS: std::ops::RangeInclusive<u16> = 40_000..=40_063;
/// Runs until a port is used again; each run has about eighty replacements.
const RUNS: usize = 20;

/// Every datagram is counted to its connection, which the server identifies by the address alone, although later connections
/// of the same run have that address again.
fn ports_that_come_round() {
    let net = Netns::new("ports");
    net.inside(|| {
        let range = format!("{} {}", PORTS.start(), PORTS.end());
        std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", range).expect("set the range of ports");
    });
    for udp_server in [UdpServer::Shared, UdpServer::PerClient] {
        let config = Config {
            proto: Proto::Udp,
            udp_server,
            connections: CONNECTIONS,
            client_netns: Some(net.path()),
            server_netns: Some(net.path()),
            ..Config::default()
        };
        let mut load = Load::open(config).unwrap();
        let churn = Limits { time: pace::patience(Duration::from_millis(400)), churn: pace::rate(200.0), ..limits() };
        let (mut again, mut replaced) = (0, 0);
        for _ in 0..RUNS {
            let report = load.run(&Plan::endless(CONNECTIONS), &churn).unwrap();
            all_counted(&report, udp_server);
            let clients: HashSet<_> = report.connections.iter().map(|count| count.client).collect();
            again += report.connections.len() - clients.len();
            replaced += report.churned;
            if again > 0 {
                break;
            }
        }
        assert!(again > 0, "{udp_server:?}: no port came round in {replaced} replacements, so this shows nothing");
        // The server knows the connections that are open now, whichever connection had their ports before.
        all_counted(&load.run(&Plan::new(vec![5; CONNECTIONS]), &limits()).unwrap(), udp_server);
        note(format!("{udp_server:?}: {replaced} replacements, of which {again} had a port again"));
    }
}

fn all_counted(report: &RunReport, server: UdpServer) {
    assert_eq!((report.lost, report.failed, report.unfinished), (0, 0, 0), "{server:?}");
    let bytes = |transactions: u64| transactions * Config::default().request_size as u64;
    let wrong: Vec<_> =
        report.connections.iter().filter(|count| count.server_bytes_received != bytes(count.transactions)).collect();
    assert!(wrong.is_empty(), "{server:?}: the server has counted to another connection: {wrong:#?}");
}
