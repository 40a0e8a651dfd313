// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Thousands of sockets begin and end while observers are loaded and unloaded. A kernel with its checks on (see tests/vm) is most
//! likely to report errors here.

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use topstat_kernel::Options;
use topstat_live::attached::{Ids, Programs};
use topstat_live::watch::everything;
use topstat_live::{Case, Key, Nest, Transport, Watch, Witness, alone, case, eventually, harness, need, note, pace};
use topstat_load::{Config, Proto};

use crate::additive::under;

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Totals: connections_that_live_for_one_message, Root; EveryKernel, ComeAndGo, Gate),
        alone!(Totals: ends_that_no_program_sees, Root; EveryKernel, Checked, Gate),
        alone!(Totals: ends_while_programs_are_preempted, Root, RealTime; EveryKernel, Checked),
        alone!(Totals: attached_and_detached_under_load, Root, CgroupV2; EveryKernel, Checked),
        alone!(Totals: loaded_and_dropped_under_load, Root; Checked),
        case!(a_read_loads_no_program, Root),
    ]
}

const BYTES: &str = "tcp_v4/conns_bytes";
const PPS: &str = "tcp_v4/conns_pps";
/// Payload of a message, each way.
const MESSAGE: [u8; 64] = [7; 64];

/// Loading a program takes up to half a second: too long for a reader of many tables.
fn a_read_loads_no_program() {
    let mut watch = Watch::load(&SOME, &Options::default());
    let loaded = Ids::own();
    watch.snapshot(PPS);
    assert_eq!(Ids::own(), loaded);
}

/// `count` times: opens a connection, has a message echoed, and closes the connection.
fn short_connections(count: u64, server: SocketAddr) -> HashSet<SocketAddr> {
    let mut clients = HashSet::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(server).unwrap();
        clients.insert(stream.local_addr().unwrap());
        stream.write_all(&MESSAGE).unwrap();
        let mut answer = [0; MESSAGE.len()];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, MESSAGE);
    }
    clients
}

/// Every byte of short connections is in the total, except for ends that the kernel keeps from topstat and counts. No closed
/// connection is shown.
fn connections_that_live_for_one_message() {
    const THREADS: u64 = 4;
    let count = pace::work(5000, 250);
    let mut watch = Watch::load(&[PPS, BYTES], &everything());
    let witness = Witness::new(Transport::Tcp);
    let clients: HashSet<SocketAddr> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let server = listener.local_addr().unwrap();
                scope.spawn(move || {
                    for _ in 0..count {
                        let (mut stream, _) = listener.accept().unwrap();
                        let mut message = [0; MESSAGE.len()];
                        stream.read_exact(&mut message).unwrap();
                        stream.write_all(&message).unwrap();
                    }
                });
                scope.spawn(move || short_connections(count, server))
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let ours = |key: &Key| clients.contains(&key.local) || clients.contains(&key.remote);
    let gone = || watch.snapshot(BYTES).sockets.iter().all(|s| !ours(&s.key));
    let left = !eventually(Duration::from_secs(5), gone);
    assert!(!left, "closed connections are shown: {}", watch.snapshot(BYTES).summary());
    // A message each way, counted at both ends.
    let carried = THREADS * count * 4 * MESSAGE.len() as u64;
    let view = watch.snapshot(BYTES);
    let foreign: u64 = view.sockets.iter().map(|s| s.value).sum();
    assert_eq!(view.snapshot.lost.no_memory, 0, "{}", view.summary());
    // Connections of other processes may have begun and ended unseen. Each connection has two ends.
    let opened = witness.others_opened(2 * THREADS * count);
    if view.snapshot.total > carried + foreign && opened > 0 {
        harness::disturbed(format!("others opened {opened} ends of connections: {}", view.summary()));
    }
    let skipped = view.snapshot.lost.counters().find(|(name, _)| *name == "skipped").map_or(0, |(_, count)| count);
    // Each end of a connection has carried a message each way.
    let kept = skipped * 2 * MESSAGE.len() as u64;
    let right = (carried + foreign).saturating_sub(kept)..=carried + foreign;
    assert!(right.contains(&view.snapshot.total), "{carried} and {foreign} bytes: {}", view.summary());
    note(format!(
        "{carried} bytes of {} connections: all in the total; lost {:?}",
        THREADS * count,
        view.snapshot.lost
    ));
}

const UDP_BYTES: &str = "udp_v4/conns_bytes";
/// The programs that end the objects of sockets.
const ENDS: [&str; 3] = ["inet_state", "inet_destroy", "inet_release"];

/// Sockets are closed while the programs at their end are detached. Their objects keep their ids, in freed memory that is not
/// used again; the rows must disappear all the same.
fn ends_that_no_program_sees() {
    const SOCKETS: usize = 50;
    let nest = Nest::new("unseen");
    drop(nest.adopt(&[BYTES, UDP_BYTES], &everything()));
    let mut watch = nest.watch();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut streams = Vec::new();
    let mut udp = Vec::new();
    for _ in 0..SOCKETS {
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&MESSAGE).unwrap();
        server.read_exact(&mut [0; MESSAGE.len()]).unwrap();
        streams.push((client, server));
        let (one, other) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        one.send_to(&MESSAGE, other.local_addr().unwrap()).unwrap();
        udp.push((one, other));
    }
    let tcp_ports: HashSet<SocketAddr> = streams.iter().map(|(client, _)| client.local_addr().unwrap()).collect();
    let udp_ports: HashSet<SocketAddr> =
        udp.iter().flat_map(|(one, other)| [one.local_addr().unwrap(), other.local_addr().unwrap()]).collect();
    let mut shown = |path: &str, ports: &HashSet<SocketAddr>| {
        let ours = |key: &Key| ports.contains(&key.local) || ports.contains(&key.remote);
        watch.snapshot(path).sockets.iter().filter(|s| ours(&s.key)).count()
    };
    assert_eq!((shown(BYTES, &tcp_ports), shown(UDP_BYTES, &udp_ports)), (2 * SOCKETS, 2 * SOCKETS));
    for link in std::fs::read_dir(nest.family().join("links")).unwrap().flatten() {
        let name = link.file_name().into_string().unwrap();
        if ENDS.iter().any(|end| name.starts_with(end)) {
            std::fs::remove_file(link.path()).unwrap();
        }
    }
    // Running programs may end.
    std::thread::sleep(pace::patience(Duration::from_millis(20)));
    drop((streams, udp, listener));
    let mut left = (0, 0);
    let gone = || {
        left = (shown(BYTES, &tcp_ports), shown(UDP_BYTES, &udp_ports));
        left == (0, 0)
    };
    assert!(eventually(Duration::from_secs(5), gone), "closed sockets are shown (TCP, UDP): {left:?}");
}

/// A client and a server in one thread: connects, has a message echoed, and closes both.
fn one_connection(listener: &TcpListener) -> SocketAddr {
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(&MESSAGE).unwrap();
    let mut message = [0; MESSAGE.len()];
    server.read_exact(&mut message).unwrap();
    server.write_all(&message).unwrap();
    client.read_exact(&mut message).unwrap();
    client.local_addr().unwrap()
}

/// Threads that sleep, and preempt a CPU's task when they wake. Where tracing programs can be preempted, some are: the kernel
/// then skips the same program for all other tasks on the CPU, also at the ends of connections.
fn ends_while_programs_are_preempted() {
    const THREADS: usize = 4;
    const REAL_TIME_THREADS: usize = 2;
    const NAP: Duration = Duration::from_micros(300);
    let count = pace::work(4000, 250);
    let mut watch = Watch::load(&[BYTES], &everything());
    let witness = Witness::new(Transport::Tcp);
    let client = |real_time: bool| {
        move || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            if real_time {
                need::real_time().unwrap();
            }
            let connect = |_| {
                if real_time {
                    std::thread::sleep(NAP);
                }
                one_connection(&listener)
            };
            (0..count).map(connect).collect::<Vec<_>>()
        }
    };
    let clients: HashSet<SocketAddr> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS + REAL_TIME_THREADS).map(|i| scope.spawn(client(i < REAL_TIME_THREADS))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let ours = |key: &Key| clients.contains(&key.local) || clients.contains(&key.remote);
    let gone = || watch.snapshot(BYTES).sockets.iter().all(|s| !ours(&s.key));
    let left = !eventually(Duration::from_secs(5), gone);
    let view = watch.snapshot(BYTES);
    assert!(!left, "closed connections are shown: {}", view.summary());
    let lost = &view.snapshot.lost;
    let skipped = lost.further.iter().find(|(name, _)| name == "skipped").map_or(0, |(_, count)| *count);
    let others = view.snapshot.rows.len() as u64;
    note(format!(
        "{} connections, {skipped} events left out, {} objects too many",
        clients.len(),
        view.snapshot.objects.saturating_sub(others)
    ));
    // Only if two programs miss the same end is its object taken for an open one. (A socket of another process may have an
    // object, and carry no payload.)
    let too_many = view.snapshot.objects.saturating_sub(others + skipped / 50);
    let opened = witness.others_opened(2 * clients.len() as u64);
    if too_many > 0 && too_many <= opened {
        harness::disturbed(format!("others opened {opened} ends of connections: {}", view.summary()));
    }
    assert_eq!(too_many, 0, "ends were missed: {}", view.summary());
}

/// Hundreds of sockets in use, while `churn` connections a second begin and end.
fn busy<T>(churn: f64, work: impl FnOnce() -> T) -> T {
    let tcp = Config { connections: 200, ..Config::default() };
    let udp = Config { proto: Proto::Udp, connections: 50, ..Config::default() };
    under(tcp, pace::rate(churn), || under(udp, 0.0, work))
}

const SOME: [&str; 4] = [PPS, BYTES, "udp_v4/conns_pps", "tcp_v6/conns_pps"];

/// Programs are attached to used sockets, and detached, again and again. Readers still push the growth of TCP's counters. (No
/// socket ends during the test: without programs its end would be missed.)
fn attached_and_detached_under_load() {
    const ROUNDS: usize = 20;
    let nest = Nest::new("rounds");
    drop(nest.adopt(&SOME, &everything()));
    let mut watch = nest.watch();
    let programs = Programs::detach(&nest);
    let mut total = || watch.peek(BYTES).snapshot.total;
    busy(0.0, || {
        for round in 0..ROUNDS {
            let links = programs.attach();
            let before = total();
            assert!(eventually(Duration::from_secs(5), || total() > before), "round {round}: nothing is counted");
            drop(links);
        }
    });
    note(format!("{ROUNDS} rounds"));
}

/// Observers are loaded with all their programs and maps, and unloaded. Their storage in sockets disappears, too.
fn loaded_and_dropped_under_load() {
    let rounds = pace::work(4, 2);
    let before = Ids::own();
    busy(200.0, || {
        for _ in 0..rounds {
            let mut watch = Watch::load(&SOME, &Options::default());
            let busy = || watch.peek(PPS).snapshot.total > 0;
            assert!(eventually(Duration::from_secs(5), busy), "nothing of the load is seen");
        }
    });
    assert_eq!(Ids::own(), before);
    note(format!("{rounds} rounds, nothing left"));
}
