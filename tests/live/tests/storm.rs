// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sockets that come and go by the thousand, and observers that come and go meanwhile: what a kernel with its checks on
//! (see tests/vm) has the most to say about.

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use topstat_live::attached::{Ids, Programs};
use topstat_live::watch::everything;
use topstat_live::{Case, Key, Nest, Watch, case, eventually, harness, note, pace};
use topstat_load::{Config, Proto};
use topstat_samples::Options;

use crate::additive::under;

pub fn cases() -> Vec<Case> {
    vec![
        case!(connections_that_live_for_one_message, Root),
        case!(attached_and_detached_under_load, Root, CgroupV2),
        case!(loaded_and_dropped_under_load, Root),
    ]
}

const BYTES: &str = "tcp_v4/conns_bytes";
const PPS: &str = "tcp_v4/conns_pps";
/// Payload of a message, each way.
const MESSAGE: [u8; 64] = [7; 64];

/// Opens a connection, has a message echoed, and closes it; so many times.
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

/// Every byte of connections that are gone again at once is in the total, and none of them is shown.
fn connections_that_live_for_one_message() {
    const THREADS: u64 = 4;
    let count = pace::work(5000, 250);
    let mut watch = Watch::load(&[PPS, BYTES], &everything());
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
    assert!(eventually(Duration::from_secs(5), gone), "closed connections are shown");
    // A message each way, counted at both ends.
    let carried = THREADS * count * 4 * MESSAGE.len() as u64;
    let view = watch.snapshot(BYTES);
    let foreign: u64 = view.sockets.iter().map(|s| s.value).sum();
    assert_eq!(view.snapshot.lost.no_memory, 0, "{}", view.summary());
    if view.snapshot.total > carried + foreign {
        harness::crowded(); // others may have come and gone unseen
    }
    assert_eq!(view.snapshot.total, carried + foreign, "{}", view.summary());
    note(format!("{carried} bytes of {} connections: all in the total", THREADS * count));
}

/// Sockets by the hundred that are in use; of TCP's, so many come and go in a second.
fn busy<T>(churn: f64, work: impl FnOnce() -> T) -> T {
    let tcp = Config { connections: 200, ..Config::default() };
    let udp = Config { proto: Proto::Udp, connections: 50, ..Config::default() };
    under(tcp, pace::rate(churn), || under(udp, 0.0, work))
}

const SOME: [&str; 4] = [PPS, BYTES, "udp_v4/conns_pps", "tcp_v6/conns_pps"];

/// Programs are attached to sockets that are in use, and detached from them, again and again. While they are not attached
/// nothing is counted, while they are it is. (No socket goes meanwhile: nobody would tell the tables.)
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
            // What has begun may end.
            std::thread::sleep(Duration::from_millis(20));
            let detached = total();
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(total(), detached, "round {round}: something is still attached");
        }
    });
    note(format!("{ROUNDS} rounds"));
}

/// Observers come, with all they have, and go again; what they had put into sockets goes, too.
fn loaded_and_dropped_under_load() {
    let rounds = pace::work(20, 2);
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
