// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Across network namespaces, a bridge and virtual cables: a packet counts once per socket, however many devices it crosses. Also
//! retransmitted segments.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use topstat_live::netns::{self, Bridged, LEFT, RIGHT};
use topstat_live::truth::{self, Truth, key};
use topstat_live::watch::everything;
use topstat_live::{Case, Counts, End, Key, Watch, case, drops, eventually, limits, note, pace};
use topstat_load::{Config, Limits, Load, Mode, Plan, Proto, UdpServer};

use super::right::assert_right;

pub fn cases() -> Vec<Case> {
    vec![
        case!(across_a_bridge, Root, Netns; Computed),
        case!(udp_across_a_bridge, Root, Netns),
        case!(retransmits_are_those_of_tcp_info, Root, Netns; EveryKernel, Gate),
        case!(a_thousand_retransmits, Root, Netns),
    ]
}

const PPS: &str = "tcp_v4/conns_pps";
const BYTES: &str = "tcp_v4/conns_bytes";
const RETRANS: &str = "tcp_v4/conns_retrans";

/// From the left namespace to the right one.
fn across(net: &Bridged, config: Config) -> Config {
    Config {
        sources: topstat_load::Addresses::List(vec![LEFT.into()]),
        destinations: topstat_load::Addresses::List(vec![RIGHT.into()]),
        allow_addresses: vec![IpAddr::from(LEFT), IpAddr::from(RIGHT)],
        client_netns: Some(net.left.path()),
        server_netns: Some(net.right.path()),
        ..config
    }
}

fn sum(truth: &Truth, of: fn(&Counts) -> u64) -> u64 {
    truth.values().map(of).sum()
}

/// With and without segmentation by the device; without it, GRO joins packets that arrive one by one.
fn across_a_bridge() {
    let net = Bridged::new();
    let mut watch = Watch::load(&[PPS, BYTES], &everything());
    for (title, mode, size, turns, gso) in [
        ("small", Mode::Rr, 64, 100, true),
        ("large, whole", Mode::Bulk, 300_000, pace::work(60, 10), true),
        ("large, cut by the sender", Mode::Bulk, 300_000, pace::work(30, 5), false),
    ] {
        if !gso {
            // TCP's packets are cut before they reach the cable.
            net.left.ip("link set eth0 gso_max_segs 1");
        }
        let config = Config { connections: 10, mode, request_size: size, ..Config::default() };
        let mut load = Load::open(across(&net, config)).unwrap();
        load.run(&Plan::new(vec![1; 10]), &limits()).unwrap();
        let before = truth::settled(&load);
        let (first_pps, first_bytes) = (watch.snapshot(PPS), watch.snapshot(BYTES));
        load.run(&Plan::new(vec![turns; 10]), &limits()).unwrap();
        let after = truth::settled(&load);
        let (pps, bytes) = (watch.snapshot(PPS), watch.snapshot(BYTES));
        // topstat has seen these connections from their handshake on, so the test compares differences.
        let truth = truth::difference(&before, &after);
        for (key, counts) in &truth {
            let grown = |now: &topstat_live::View, then: &topstat_live::View| {
                let (now, then) = (now.get(*key), then.get(*key));
                (now.rx - then.rx, now.tx - then.tx)
            };
            assert_eq!(grown(&pps, &first_pps), (counts.packets_rx, counts.packets_tx), "{title}: {key:?}");
            let (rx, tx) = grown(&bytes, &first_bytes);
            assert_eq!(tx, counts.bytes_tx, "{title}: {key:?}");
            assert!(
                rx >= counts.bytes_rx && rx <= counts.bytes_rx + sum(&truth, |c| c.bytes_retrans),
                "{title}: {key:?}"
            );
            let (left, right) = (net.left.number(), net.right.number());
            let ns = if key.local.ip() == IpAddr::from(LEFT) { left } else { right };
            assert_eq!(pps.get(*key).netns, ns, "{title}: the socket's own namespace");
        }
        let (bytes, packets) = (sum(&truth, |c| c.bytes_tx), sum(&truth, |c| c.packets_tx));
        note(format!("{title}: {packets} packets, {} bytes each", bytes / packets.max(1)));
    }
}

fn udp_across_a_bridge() {
    let net = Bridged::new();
    let mut watch = Watch::load(&["udp_v4/conns_pps", "udp_v4/conns_bytes"], &everything());
    let config = Config {
        proto: Proto::Udp,
        udp_server: UdpServer::PerClient,
        connections: 20,
        request_size: 1000,
        ..Config::default()
    };
    let mut load = Load::open(across(&net, config)).unwrap();
    let report = load.run(&Plan::new(vec![50; 20]), &limits()).unwrap();
    assert_eq!((report.lost, report.failed), (0, 0));
    let (pps, bytes) = (watch.snapshot("udp_v4/conns_pps"), watch.snapshot("udp_v4/conns_bytes"));
    for conn in load.connections() {
        for end in [End::Client, End::Server] {
            let key = key(conn, end);
            assert_eq!((pps.get(key).rx, pps.get(key).tx), (50, 50), "{key:?}");
            assert_eq!((bytes.get(key).rx, bytes.get(key).tx), (50_000, 50_000), "{key:?}");
        }
    }
}

/// One packet in fifty is lost on the way to the right, and one in two hundred on the way back.
fn retransmits_are_those_of_tcp_info() {
    let net = Bridged::new();
    net.bridge.inside(|| {
        drops::drop_one_in(netns::PORT_LEFT, 50).expect("attach the program that drops");
        drops::drop_one_in(netns::PORT_RIGHT, 200).expect("attach the program that drops");
    });
    let config = Config { connections: 20, mode: Mode::Bulk, request_size: 20_000, ..Config::default() };
    let mut load = Load::open(across(&net, config)).unwrap();
    let before = truth::settled(&load);
    let mut watch = Watch::load(&[PPS, BYTES, RETRANS], &everything());
    let limits = Limits { time: pace::patience(Duration::from_secs(10)), ..limits() };
    load.run(&Plan::new(vec![50; 20]), &limits).unwrap();
    let truth = truth::difference(&before, &truth::settled(&load));
    let again = sum(&truth, |c| c.total_retrans);
    assert!(again > 20, "only {again} segments were sent again, so this shows nothing");
    let view = watch.snapshot(RETRANS);
    for (key, counts) in &truth {
        let shown = view.find(*key).map_or((0, 0), |s| (s.rx, s.tx));
        assert_eq!(shown, (0, counts.total_retrans), "{key:?}: {counts:?}\n{}", view.summary());
    }
    // Sent and received amounts equal TCP_INFO, whether packets are lost or not.
    assert_right(&watch.snapshot(PPS), &watch.snapshot(BYTES), &truth);
    let sockets = truth.values().filter(|c| c.total_retrans > 0).count();
    note(format!("{again} segments sent again by {sockets} sockets, of {} packets", sum(&truth, |c| c.packets_tx)));

    // Without loss there is no row.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to: SocketAddr = listener.local_addr().unwrap();
    let client = TcpStream::connect(to).unwrap();
    let quiet = Key::new(client.local_addr().unwrap(), to);
    assert!(watch.snapshot(RETRANS).find(quiet).is_none());
    assert_eq!(watch.snapshot(PPS).get(quiet).netns, netns::own_number());
}

/// The network is down until hundreds of connections have retransmitted a thousand segments: each segment counts, for its
/// connection, whatever the delay.
fn a_thousand_retransmits() {
    const CONNECTIONS: usize = 300;
    const MESSAGE: [u8; 100] = [7; 100];
    let net = Bridged::new();
    let listener = net.right.inside(|| TcpListener::bind((RIGHT, 0)).unwrap());
    let to = listener.local_addr().unwrap();
    let mut watch = Watch::load(&[RETRANS], &topstat_kernel::Options { delay_ms: 100_000, ..everything() });
    let connect = |_| {
        let client = net.left.inside(|| TcpStream::connect(to).unwrap());
        (client, listener.accept().unwrap().0)
    };
    let pairs: Vec<_> = (0..CONNECTIONS).map(connect).collect();
    let again = || pairs.iter().map(|(client, _)| truth::tcp_info(client).total_retrans).sum::<u64>();
    net.bridge.ip("link set br0 down");
    for (client, _) in &pairs {
        (&mut &*client).write_all(&MESSAGE).unwrap();
    }
    assert!(eventually(Duration::from_secs(60), || again() >= 1000), "only {} were sent again", again());
    net.bridge.ip("link set br0 up");
    for (_, server) in &pairs {
        (&mut &*server).read_exact(&mut [0; MESSAGE.len()]).unwrap();
    }
    // Retransmits may go on until the last acknowledgement arrives.
    let at_rest = || {
        let before = again();
        std::thread::sleep(Duration::from_millis(500));
        before == again()
    };
    assert!(eventually(Duration::from_secs(60), at_rest), "segments are sent again without an end");
    let view = watch.snapshot(RETRANS);
    for (client, _) in &pairs {
        let key = Key::new(client.local_addr().unwrap(), to);
        let counted = view.find(key).map_or((0, 0), |row| (row.rx, row.tx));
        assert_eq!(counted, (0, truth::tcp_info(client).total_retrans), "{key:?}: {}", view.summary());
    }
    note(format!("{} segments sent again by {CONNECTIONS} connections", again()));
}
