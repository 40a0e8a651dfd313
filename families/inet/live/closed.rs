// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections that have closed: their rows stay in dynamic tables until they have aged out.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use topstat_kernel::Options;
use topstat_live::watch::{ENDLESS_MS, everything, table};
use topstat_live::{Case, Key, View, Watch, alone, harness, note, pace};

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Fills: short_connections_have_their_rows, Root; EveryKernel, Gate),
        alone!(Fills: what_does_not_fit_is_counted, Root; EveryKernel),
        alone!(Fills: closed_rows_age_out, Root; EveryKernel),
        alone!(Fills: a_socket_used_again_has_a_row_for_each_connection, Root; EveryKernel),
        alone!(Fills: none_is_missed_that_closes_while_cpus_are_read, Root, TwoCpus; EveryKernel),
        alone!(Fills: rows_are_whole_with_a_delay_while_readers_settle, Root; EveryKernel),
    ]
}

const BPS: &str = "tcp_v4/conns_bps";
const PPS: &str = "tcp_v4/conns_pps";
const BYTES: &str = "tcp_v4/conns_bytes";

/// For each size: opens a connection, sends this many bytes, receives one byte, and closes both ends. Returns the bytes sent by
/// each connection, by its ends as the client sees them.
fn short_connections(sizes: impl Iterator<Item = u64>) -> HashMap<Key, u64> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap();
    let mut sent = HashMap::new();
    std::thread::scope(|scope| {
        let sizes: Vec<_> = sizes.collect();
        let count = sizes.len();
        let serving = scope.spawn(move || {
            for _ in 0..count {
                let (mut stream, _) = listener.accept().unwrap();
                let mut size = [0; 8];
                stream.read_exact(&mut size).unwrap();
                let mut rest = vec![0; usize::try_from(u64::from_ne_bytes(size)).unwrap() - 8];
                stream.read_exact(&mut rest).unwrap();
                stream.write_all(&[1]).unwrap();
            }
        });
        for size in sizes {
            let mut stream = TcpStream::connect(server).unwrap();
            let key = Key::new(stream.local_addr().unwrap(), server);
            let mut message = vec![7; usize::try_from(size).unwrap()];
            message[..8].copy_from_slice(&size.to_ne_bytes());
            stream.write_all(&message).unwrap();
            stream.read_exact(&mut [0]).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the server closes first");
            sent.insert(key, size);
        }
        serving.join().unwrap();
    });
    // The client's last ACK, and its effects, need some time.
    std::thread::sleep(Duration::from_millis(100));
    sent
}

/// The rows of closed connections at both ends: received and sent.
fn closed(view: &View) -> HashMap<Key, [u64; 2]> {
    view.sockets.iter().filter(|s| s.closed).map(|s| (s.key, [s.rx, s.tx])).collect()
}

/// Both ends of each connection, in bits.
fn ends(sent: &HashMap<Key, u64>) -> HashMap<Key, [u64; 2]> {
    sent.iter()
        .flat_map(|(key, size)| [(*key, [8, 8 * size]), (Key::new(key.remote, key.local), [8 * size, 8])])
        .collect()
}

/// The number of closed connections ever that found no place.
fn unkept(watch: &mut Watch) -> u64 {
    watch.source().dump(&table(BPS)).unwrap().unkept.expect("rows of closed connections stay")
}

/// Checks the bytes of each connection against the generator's, and the owners.
fn short_connections_have_their_rows() {
    let count = pace::work(300, 60);
    let mut watch = Watch::load(&[PPS, BPS, BYTES], &everything());
    let sent = short_connections((0..count).map(|i| 1000 + 7 * i));
    let view = watch.snapshot(BPS);
    // A kernel that preempts tasks may skip a program. A connection whose end no program has seen has no row.
    if view.snapshot.lost.count("skipped") > 0 {
        harness::disturbed("the kernel left programs out");
    }
    let rows = closed(&view);
    let wrong: Vec<_> = ends(&sent).into_iter().filter(|(key, both)| rows.get(key) != Some(both)).collect();
    assert!(wrong.is_empty(), "{} wrong: {:?}; {}", wrong.len(), wrong.first(), view.summary());
    assert_eq!(unkept(&mut watch), 0, "{}", view.summary());
    assert!(view.snapshot.is_proven(), "{}", view.summary());
    let ours = u64::from(std::process::id());
    let pids = view.sockets.iter().filter(|s| rows.contains_key(&s.key)).map(|s| s.pid);
    assert!(pids.into_iter().all(|pid| pid == Some(ours)), "{}", view.summary());
    assert!(
        sent.keys().all(|key| watch.snapshot(BYTES).find(*key).is_none()),
        "static tables have none that is closed"
    );
    note(format!("{} closed connections: their bytes are the generator's", sent.len()));
}

/// Proven rows are the largest, in order, though most connections have found no place.
fn what_does_not_fit_is_counted() {
    let count = pace::work(400, 120);
    let options = Options { top: 8, period_ms: ENDLESS_MS, ..Options::default() };
    let mut watch = Watch::load(&[BPS], &options);
    // Every second connection is larger than all before it, so some find no place at once, and others lose theirs.
    let sent = short_connections((0..count).map(|i| if i % 2 == 0 { 10_000 + 100 * i } else { 500 + i }));
    let view = watch.snapshot(BPS);
    let unkept = unkept(&mut watch);
    assert!(unkept > 0, "{}", view.summary());
    // Other connections of the host may have rows, too. All of the test's connections that are larger than the smallest proven
    // row must have rows.
    let proven: Vec<_> = view.sockets.iter().take(view.snapshot.proven as usize).map(|s| s.value).collect();
    let least = *proven.last().unwrap_or_else(|| panic!("nothing is proven: {}", view.summary()));
    let missing: Vec<_> =
        ends(&sent).into_iter().filter(|(key, [rx, tx])| rx + tx > least && view.find(*key).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?}: {}", view.summary());
    note(format!("{} of {} proven, {unkept} unkept", proven.len(), view.sockets.len()));
}

/// All closed rows are gone a period and a slide later.
fn closed_rows_age_out() {
    let options = Options { period_ms: 2000, ..everything() };
    let mut watch = Watch::load(&[BPS], &options);
    let began = Instant::now();
    let sent = short_connections((0..20).map(|i| 1000 + i));
    let rows = closed(&watch.snapshot(BPS));
    if began.elapsed() < Duration::from_millis(1900) {
        assert!(sent.keys().all(|key| rows.contains_key(key)), "{rows:?}");
    }
    std::thread::sleep(Duration::from_millis(2300));
    let rows = closed(&watch.snapshot(BPS));
    assert!(sent.keys().all(|key| !rows.contains_key(key)), "{rows:?}");
}

/// The socket stays the same, and so does its cookie.
fn a_socket_used_again_has_a_row_for_each_connection() {
    let mut watch = Watch::load(&[BPS], &everything());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let client = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    let mut keys = Vec::new();
    for size in [1000_usize, 2000, 3000] {
        rustix::net::connect(&client, &to).unwrap();
        let mut stream = TcpStream::from(client.try_clone().unwrap());
        keys.push((Key::new(stream.local_addr().unwrap(), to), 8 * size as u64));
        let mut server = listener.accept().unwrap().0;
        stream.write_all(&vec![7; size]).unwrap();
        server.read_exact(&mut vec![0; size]).unwrap();
        rustix::net::connect_unspec(&client).unwrap();
    }
    let view = watch.snapshot(BPS);
    let rows = closed(&view);
    for (key, bits) in &keys {
        assert_eq!(rows.get(key), Some(&[0, *bits]), "{}", view.summary());
    }
}

/// Sends 1000 bytes, and reads them at the other end.
fn carry(from: &mut TcpStream, to: &mut TcpStream) {
    from.write_all(&[7; 1000]).unwrap();
    to.read_exact(&mut [0; 1000]).unwrap();
}

/// The client's and the accepted end of a connection that has carried 1000 bytes.
fn pair(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut accepted = listener.accept().unwrap().0;
    carry(&mut client, &mut accepted);
    (client, accepted)
}

/// Connections that are in the table of one CPU alone close on another CPU, which is read first, while snapshots are taken: each
/// connection has a row. (T9 in the engine's `keep.h`.)
fn none_is_missed_that_closes_while_cpus_are_read() {
    const AT_ONCE: usize = 40;
    let rounds = pace::work(8, 2);
    let allowed = sched_getaffinity(None).unwrap();
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let stay_on = |cpu: usize| {
        let mut only = CpuSet::new();
        only.set(cpu);
        sched_setaffinity(None, &only).unwrap();
    };
    let (closes_on, opens_on) = (cpus.next().unwrap(), cpus.next().unwrap());
    let mut watch = Watch::load(&[BPS], &everything());
    let (known, done) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let (mut snapshots, mut amid) = (0, 0);
    std::thread::scope(|scope| {
        let (known, done) = (&known, &done);
        scope.spawn(move || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let server = listener.local_addr().unwrap();
            for _ in 0..rounds {
                stay_on(opens_on);
                let pairs: Vec<_> = (0..AT_ONCE).map(|_| pair(&listener)).collect();
                let keys = pairs.iter().map(|(client, _)| Key::new(client.local_addr().unwrap(), server));
                known.lock().unwrap().extend(keys);
                // Some snapshots see all of them open.
                std::thread::sleep(Duration::from_millis(20));
                stay_on(closes_on);
                for (client, accepted) in pairs {
                    drop(client);
                    drop(accepted);
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            let keys = known.lock().unwrap().clone();
            let view = watch.peek(BPS);
            let rows = view.by_key();
            let missing: Vec<_> = keys
                .iter()
                .flat_map(|key| [*key, Key::new(key.remote, key.local)])
                .filter(|key| !rows.contains_key(key))
                .collect();
            assert!(missing.is_empty(), "{} of {}: {missing:?}: {}", missing.len(), 2 * keys.len(), view.summary());
            let has_closed = closed(&view).len();
            snapshots += 1;
            amid += usize::from(!has_closed.is_multiple_of(2 * AT_ONCE));
        }
    });
    let all = known.into_inner().unwrap().len();
    note(format!(
        "{snapshots} snapshots, {amid} of them while connections closed: each has all of up to {all} connections"
    ));
}

/// With a delay, a closing connection has amounts that are not pushed yet, and readers push amounts at the same time: the kept
/// row has all of them. If a close could not wait for a reader, no row with a smaller value is proven.
fn rows_are_whole_with_a_delay_while_readers_settle() {
    const AT_ONCE: usize = 25;
    let rounds = pace::work(16, 2);
    let mut watch = Watch::load(&[BPS], &Options { delay_ms: 2000, ..everything() });
    watch.peek(BPS);
    let done = AtomicBool::new(false);
    let (sent, mut snapshots) = std::thread::scope(|scope| {
        let done = &done;
        let closing = scope.spawn(move || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let server = listener.local_addr().unwrap();
            let mut sent = HashMap::new();
            for _ in 0..rounds {
                let pairs: Vec<_> = (0..AT_ONCE).map(|_| pair(&listener)).collect();
                for (mut client, mut accepted) in pairs {
                    sent.insert(Key::new(client.local_addr().unwrap(), server), 2000);
                    carry(&mut client, &mut accepted);
                }
            }
            done.store(true, Ordering::Release);
            sent
        });
        let mut snapshots = 0;
        while !done.load(Ordering::Acquire) {
            watch.peek(BPS);
            snapshots += 1;
        }
        (closing.join().unwrap(), snapshots)
    });
    std::thread::sleep(Duration::from_millis(100));
    let view = watch.peek(BPS);
    snapshots += 1;
    let rows = closed(&view);
    let both = |(key, size): (&Key, &u64)| [(*key, [0, 8 * size]), (Key::new(key.remote, key.local), [8 * size, 0])];
    let wrong: Vec<_> = sent.iter().flat_map(both).filter(|(key, bits)| rows.get(key) != Some(bits)).collect();
    // A connection without a row may be worth as much as the last proven row. If a row of it exists, it is not proven.
    let proven: Vec<_> = view.sockets.iter().filter(|row| row.rank <= view.snapshot.proven).collect();
    let least = proven.last().map_or(u64::MAX, |row| row.value);
    let contradicted = |(key, bits): &&(Key, [u64; 2])| {
        bits.iter().sum::<u64>() > least || proven.iter().any(|row| row.closed && row.key == *key)
    };
    let contradicted: Vec<_> = wrong.iter().filter(contradicted).collect();
    assert!(contradicted.is_empty(), "wrong, and rows are proven: {contradicted:?}; {}", view.summary());
    note(format!("{snapshots} snapshots while {} connections closed: {} are not whole", sent.len(), wrong.len()));
}
