// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each socket's packets and bytes equal TCP_INFO and the generator's counts.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use topstat_live::truth::{self, Truth, key};
use topstat_live::watch::everything;
use topstat_live::{Case, Counts, End, Key, View, Watch, alone, case, limits, note, pace};
use topstat_load::{Config, Family, Load, Mode, Plan, Proto, UdpServer};

pub fn cases() -> Vec<Case> {
    vec![
        case!(tcp_v4_1, Root; EveryKernel),
        alone!(Totals: one_socket, Root; EveryKernel, Gate),
        case!(tcp_v4_100, Root; EveryKernel, Distribution, Gate),
        alone!(Fills: tcp_v4_1000, Root),
        alone!(Fills: tcp_v4_5000, Root, FullSpeed; Slow),
        case!(tcp_v6_100, Root, Ipv6),
        case!(bulk, Root),
        case!(from_the_handshake_to_the_half_close, Root; EveryKernel, Gate),
        case!(a_socket_that_connects_again, Root; EveryKernel),
        case!(udp, Root; EveryKernel, Distribution, Gate),
        case!(udp_v6, Root, Ipv6; EveryKernel),
        case!(udp_shared_server, Root; EveryKernel),
        case!(udp_segments, Root; EveryKernel),
        case!(v4_mapped, Root, Ipv6; EveryKernel),
    ]
}

const PPS: &str = "tcp_v4/conns_pps";
const BYTES: &str = "tcp_v4/conns_bytes";

/// The differences between topstat and TCP_INFO.
fn compare(pps: &View, bytes: &View, truth: &Truth) -> Vec<String> {
    let (packets, payload) = (pps.by_key(), bytes.by_key());
    let mut wrong = Vec::new();
    for (key, counts) in truth {
        let (packets, payload) = (packets.get(key), payload.get(key));
        let mut expect = |what: &str, shown: Option<u64>, counted: u64| {
            if shown.unwrap_or(0) != counted {
                wrong.push(format!("{key:?}: {what} is {shown:?}, not {counted} ({counts:?})"));
            }
        };
        expect("packets rx", packets.map(|s| s.rx), counts.packets_rx);
        expect("packets tx", packets.map(|s| s.tx), counts.packets_tx);
        expect("bytes tx", payload.map(|s| s.tx), counts.bytes_tx);
        // Retransmitted data may have arrived twice: TCP_INFO counts it once, topstat counts all arrivals.
        let peer = truth.get(&Key::new(key.remote, key.local));
        let again = peer.map_or(0, |peer| peer.bytes_retrans);
        let received = payload.map_or(0, |s| s.rx);
        if !(counts.bytes_rx..=counts.bytes_rx + again).contains(&received) {
            wrong.push(format!("{key:?}: bytes rx is {received}, with {again} sent again ({counts:?})"));
        }
    }
    wrong
}

pub fn assert_right(pps: &View, bytes: &View, truth: &Truth) {
    let wrong = compare(pps, bytes, truth);
    let first: Vec<_> = wrong.iter().take(8).collect();
    let (wrong, all, pps, bytes) = (wrong.len(), 4 * truth.len(), pps.summary(), bytes.summary());
    assert!(wrong == 0, "{wrong} of {all} counts are wrong: {first:#?}\n{pps}\n{bytes}");
}

/// Connections that are older than topstat. A table shows 1,024 sockets, so the connections speak in batches, and topstat is
/// loaded for each batch. Compares every packet and byte.
fn connections(count: usize, family: Family) {
    const BATCH: usize = 500;
    let (pps, bytes) = match family {
        Family::V4 => (PPS, BYTES),
        Family::V6 => ("tcp_v6/conns_pps", "tcp_v6/conns_bytes"),
    };
    let mut load = Load::open(Config { connections: count, family, ..Config::default() }).unwrap();
    load.run(&Plan::new(vec![1; count]), &limits()).unwrap();
    let mut begin = truth::settled(&load);
    let mut compared = 0;
    for first in (0..count).step_by(BATCH) {
        let mut watch = Watch::load(&[pps, bytes], &everything());
        assert!(begin == truth::read(&load), "the connections were to be at rest");
        let batch = first..(first + BATCH).min(count);
        let plan = (0..count)
            .map(|i| if batch.contains(&i) { pace::work(50, 5) + i as u64 % pace::work(50, 5) } else { 0 })
            .collect();
        let report = load.run(&Plan::new(plan), &limits()).unwrap();
        assert_eq!((report.failed, report.unfinished, report.skipped), (0, 0, 0));
        let end = truth::settled(&load);
        let shown = (watch.snapshot(pps), watch.snapshot(bytes));
        let of_batch =
            load.connections()[batch].iter().flat_map(|conn| [key(conn, End::Client), key(conn, End::Server)]);
        let truth: Truth = of_batch.map(|key| (key, end[&key].since(&begin[&key]))).collect();
        assert_right(&shown.0, &shown.1, &truth);
        compared += truth.len();
        begin = end;
    }
    assert_eq!(compared, 2 * count);
    note(format!("{compared} sockets: packets and bytes, received and sent, equal TCP_INFO's"));
}

fn tcp_v4_1() {
    connections(1, Family::V4);
}

fn tcp_v4_100() {
    connections(100, Family::V4);
}

fn tcp_v4_1000() {
    connections(1000, Family::V4);
}

fn tcp_v4_5000() {
    connections(5000, Family::V4);
}

fn tcp_v6_100() {
    connections(100, Family::V6);
}

/// The only connection of a quiet host, a socket that is connected to itself, and then one connection more. The number that an
/// iterator gives at its end is the same after no socket and after one.
fn one_socket() {
    const SIZE: usize = 1000;
    const ROUNDS: usize = 5;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let own = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&own, &port).unwrap();
    rustix::net::connect(&own, &port).unwrap();
    let mut own = TcpStream::from(own);
    let key = Key::new(port, port);
    let mut watch = Watch::load(&[PPS, BYTES], &everything());
    let begin = truth::tcp_info(&own);
    let mut proven = [0, 0];
    for _ in 0..ROUNDS {
        for others in [0, 1] {
            own.write_all(&[7; SIZE]).unwrap();
            own.read_exact(&mut [0; SIZE]).unwrap();
            let truth: Truth = [(key, truth::tcp_info(&own).since(&begin))].into();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let others_of_host = (0..others).map(|_| {
                let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let mut server = listener.accept().unwrap().0;
                exchange(&mut client, &mut server, 1, 1);
                (client, server)
            });
            let _open: Vec<_> = others_of_host.collect();
            let (pps, bytes) = (watch.snapshot(PPS), watch.snapshot(BYTES));
            assert_right(&pps, &bytes, &truth);
            proven[others] += usize::from(bytes.get(key).rank <= bytes.snapshot.proven);
        }
    }
    // Other connections of the host may be written at the moment of a read, but not at each of them.
    assert!(
        proven[0] > 0 && proven[1] > 0,
        "a run of readers that has ended counts as running: {proven:?} of {ROUNDS} proven"
    );
    note(format!("{ROUNDS} reads of one socket, and {ROUNDS} with others beside it: {proven:?} proven"));
}

/// Large segments: a GSO packet counts its segments, and its headers once.
fn bulk() {
    let config = Config { connections: 8, mode: Mode::Bulk, request_size: 300_000, ..Config::default() };
    let mut load = Load::open(config).unwrap();
    let begin = truth::settled(&load);
    let mut watch = Watch::load(&[PPS, BYTES], &everything());
    load.run(&Plan::new(vec![pace::work(200, 20); 8]), &limits()).unwrap();
    let truth = truth::difference(&begin, &truth::settled(&load));
    let (pps, bytes) = (watch.snapshot(PPS), watch.snapshot(BYTES));
    assert_right(&pps, &bytes, &truth);
    let sum = |of: fn(&Counts) -> u64| truth.values().map(of).sum::<u64>();
    let size = sum(|c| c.bytes_tx) / sum(|c| c.packets_tx).max(1);
    note(format!(
        "{} MB in {} packets ({size} bytes each), {} of them sent again",
        sum(|c| c.bytes_tx) / 1_000_000,
        sum(|c| c.packets_tx),
        sum(|c| c.total_retrans)
    ));
}

/// Connections made while topstat is loaded. The handshake counts for the connection, and not for the listener.
fn from_the_handshake_to_the_half_close() {
    const COUNT: usize = 50;
    let mut watch = Watch::load(&[PPS, BYTES], &everything());
    let mut load = Load::open(Config { connections: COUNT, ..Config::default() }).unwrap();
    load.run(&Plan::new((1..=COUNT as u64).collect()), &limits()).unwrap();
    for conn in load.connections() {
        // The client's FIN and its acknowledgement; the server's end stays open.
        rustix::net::shutdown(conn.client_fd().unwrap(), rustix::net::Shutdown::Write).unwrap();
    }
    let mut truth = truth::settled(&load);
    for conn in load.connections() {
        let counts = truth.get_mut(&key(conn, End::Server)).unwrap();
        counts.bytes_rx -= 1; // the FIN, which takes a place in the stream
    }
    let (pps, bytes) = (watch.snapshot(PPS), watch.snapshot(BYTES));
    assert_right(&pps, &bytes, &truth);
    let server = load.connections()[0].server_addr();
    let listener = Key::new(server, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0));
    assert!(pps.find(listener).is_none(), "a listener counts nothing");
}

pub fn exchange(client: &mut TcpStream, server: &mut TcpStream, size: usize, times: usize) {
    let mut buffer = vec![7u8; size];
    for _ in 0..times {
        client.write_all(&buffer).unwrap();
        server.read_exact(&mut buffer).unwrap();
        server.write_all(&buffer).unwrap();
        client.read_exact(&mut buffer).unwrap();
    }
}

/// A socket that is disconnected and connects again is another connection: its values begin at 0, like TCP_INFO's.
fn a_socket_that_connects_again() {
    let mut watch = Watch::load(&[PPS, BYTES], &everything());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(to).unwrap();
    let mut server = listener.accept().unwrap().0;
    exchange(&mut client, &mut server, 1000, 30);
    let first = Key::new(client.local_addr().unwrap(), to);
    assert_eq!(watch.snapshot(BYTES).get(first).value, 60_000);

    let nowhere = libc::sockaddr { sa_family: libc::AF_UNSPEC as u16, sa_data: [0; 14] };
    // SAFETY: an address with its length, and an open socket.
    let done = unsafe { libc::connect(client.as_raw_fd(), &raw const nowhere, size_of_val(&nowhere) as u32) };
    assert_eq!(done, 0, "disconnect: {}", std::io::Error::last_os_error());
    drop(server);
    assert!(watch.snapshot(BYTES).find(first).is_none(), "a connection that has ended is not shown");

    rustix::net::connect(&client, &to).unwrap();
    let mut server = listener.accept().unwrap().0;
    exchange(&mut client, &mut server, 500, 10);
    std::thread::sleep(Duration::from_millis(300));
    let second = Key::new(client.local_addr().unwrap(), to);
    let truth: Truth = [(second, truth::tcp_info(&client))].into();
    assert_right(&watch.snapshot(PPS), &watch.snapshot(BYTES), &truth);
}

/// Datagrams between connected sockets: all counts equal the generator's.
fn datagrams(family: Family) {
    let sample = if family == Family::V4 { "udp_v4" } else { "udp_v6" };
    let (pps, bps, bytes) =
        (format!("{sample}/conns_pps"), format!("{sample}/conns_bps"), format!("{sample}/conns_bytes"));
    let mut watch = Watch::load(&[&pps, &bps, &bytes], &everything());
    for size in [1, 64, 9000] {
        let config = Config {
            proto: Proto::Udp,
            family,
            udp_server: UdpServer::PerClient,
            connections: 200,
            request_size: size,
            response_size: Some(2 * size),
            ..Config::default()
        };
        let mut load = Load::open(config).unwrap();
        let report = load.run(&Plan::new((0..200).map(|i| 10 + i % 7).collect()), &limits()).unwrap();
        assert_eq!((report.lost, report.unfinished, report.failed), (0, 0, 0));
        let shown = [watch.snapshot(&pps), watch.snapshot(&bps), watch.snapshot(&bytes)];
        let mut wrong = Vec::new();
        for conn in &report.connections {
            let (n, sent, received) = (conn.transactions, conn.bytes_sent, conn.bytes_received);
            for (key, [rx, tx]) in [
                (Key::new(conn.client, conn.server), [received, sent]),
                (Key::new(conn.server, conn.client), [sent, received]),
            ] {
                for (view, truth) in shown.iter().zip([[n, n], [8 * rx, 8 * tx], [rx, tx]]) {
                    let row = view.find(key).map(|s| [s.rx, s.tx]);
                    if row != Some(truth) {
                        wrong.push(format!("{}: {key:?} has {row:?}, not {truth:?}", view.snapshot.table));
                    }
                }
            }
        }
        let summaries: Vec<_> = shown.iter().map(View::summary).collect();
        assert!(wrong.is_empty(), "{} wrong: {:#?}\n{summaries:#?}", wrong.len(), &wrong[..wrong.len().min(8)]);
    }
    note("1,200 sockets: datagrams and bytes equal the generator's");
}

fn udp() {
    datagrams(Family::V4);
}

fn udp_v6() {
    datagrams(Family::V6);
}

/// One unconnected socket serves all clients: one row.
fn udp_shared_server() {
    let mut watch = Watch::load(&["udp_v4/conns_pps", "udp_v4/conns_bytes"], &everything());
    let config = Config { proto: Proto::Udp, connections: 50, ..Config::default() };
    let mut load = Load::open(config).unwrap();
    let report = load.run(&Plan::new(vec![20; 50]), &limits()).unwrap();
    assert_eq!(report.lost, 0);
    let server = Key::new(report.connections[0].server, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0));
    let pps = watch.snapshot("udp_v4/conns_pps");
    assert_eq!((pps.get(server).rx, pps.get(server).tx), (1000, 1000));
    assert_eq!(watch.snapshot("udp_v4/conns_bytes").get(server).value, 2 * 64_000);
}

/// Datagrams that cross the stack as one packet (`UDP_SEGMENT`, `UDP_GRO`) count one by one.
fn udp_segments() {
    const SEGMENT: usize = 1000;
    const SEGMENTS: usize = 12;
    let mut watch = Watch::load(&["udp_v4/conns_pps", "udp_v4/conns_bytes"], &everything());
    for gro in [false, true] {
        let (a, b) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let (from, to) = (a.local_addr().unwrap(), b.local_addr().unwrap());
        a.connect(to).unwrap();
        b.connect(from).unwrap();
        b.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let set = |socket: &UdpSocket, option: i32, value: i32| {
            // SAFETY: an int, with its size.
            let done =
                unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, option, (&raw const value).cast(), 4) };
            assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        };
        set(&a, libc::UDP_SEGMENT, SEGMENT as i32);
        if gro {
            set(&b, libc::UDP_GRO, 1);
        }
        a.send(&vec![1u8; SEGMENT * SEGMENTS]).unwrap();
        let (mut buffer, mut got, mut reads) = (vec![0u8; 65536], 0, 0);
        while got < SEGMENT * SEGMENTS {
            got += b.recv(&mut buffer).unwrap();
            reads += 1;
        }
        let pps = watch.snapshot("udp_v4/conns_pps");
        let bytes = watch.snapshot("udp_v4/conns_bytes");
        let (sender, receiver) = (Key::new(from, to), Key::new(to, from));
        assert_eq!((pps.get(sender).rx, pps.get(sender).tx), (0, SEGMENTS as u64), "sent, gro {gro}");
        assert_eq!((pps.get(receiver).rx, pps.get(receiver).tx), (SEGMENTS as u64, 0), "received, gro {gro}");
        assert_eq!(bytes.get(sender).tx, (SEGMENT * SEGMENTS) as u64, "gro {gro}");
        assert_eq!(bytes.get(receiver).rx, (SEGMENT * SEGMENTS) as u64, "gro {gro}");
        note(format!("{SEGMENTS} datagrams in 1 send, {reads} receives"));
    }
}

/// A dual-stack socket with an IPv4 peer is an IPv4 connection, and shows IPv4 addresses.
fn v4_mapped() {
    let mut watch = Watch::load(&[PPS, BYTES, "tcp_v6/conns_pps", "tcp_v6/conns_bytes"], &everything());
    let listener = TcpListener::bind("[::]:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let to = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let mut client = TcpStream::connect(to).unwrap();
    let mut server = listener.accept().unwrap().0;
    exchange(&mut client, &mut server, 64, 10);
    std::thread::sleep(Duration::from_millis(300));
    let from = client.local_addr().unwrap();
    let truth: Truth =
        [(Key::new(from, to), truth::tcp_info(&client)), (Key::new(to, from), truth::tcp_info(&server))].into();
    assert_right(&watch.snapshot(PPS), &watch.snapshot(BYTES), &truth);
    for table in ["tcp_v6/conns_pps", "tcp_v6/conns_bytes"] {
        let v6 = watch.snapshot(table);
        let found: Vec<_> = v6.sockets.iter().filter(|s| s.key.remote.port() == from.port()).collect();
        assert!(found.is_empty(), "{table}: {found:?}");
    }
}
