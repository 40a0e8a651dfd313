// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where TCP's own counters are read, rows equal TCP_INFO at the moment of the snapshot, whatever the delay, and however many
//! readers run at once. Also: hooks for UDP alone are attached while a table of UDP is on.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use topstat_kernel::{Options, State, load_state, update};
use topstat_live::attached::Ids;
use topstat_live::nest::{COMES_AND_GOES, inet};
use topstat_live::watch::{ENDLESS_MS, everything, table};
use topstat_live::{Case, Counts, Key, Transport, Watch, Witness, case, note, truth};

pub fn cases() -> Vec<Case> {
    vec![
        case!(equal_tcp_info_under_load, Root; EveryKernel),
        case!(a_request_that_readers_see_before_its_response, Root; EveryKernel),
        case!(counts_from_when_it_is_switched_on, Root; EveryKernel),
        case!(udp_that_is_switched_on_later, Root; EveryKernel),
    ]
}

const PPS: &str = "tcp_v4/conns_pps";
const BPS: &str = "tcp_v4/conns_bps";
const BYTES: &str = "tcp_v4/conns_bytes";
const DATAGRAMS: &str = "udp_v4/conns_pps";

struct Pair {
    client: TcpStream,
    server: TcpStream,
}

fn pairs(count: usize) -> Vec<Pair> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let pair = |_| {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        Pair { client, server: listener.accept().unwrap().0 }
    };
    (0..count).map(pair).collect()
}

/// Lets the pairs exchange messages of different sizes, some more often than others, until `stop` is set. Each pair exchanges at
/// least one message.
fn exchange(pairs: &[Pair], stop: &AtomicBool) {
    /// The rarest pairs speak once in this many rounds.
    const RAREST: usize = 7;
    let mut buffer = vec![7_u8; 4000];
    for round in 1_usize.. {
        for (i, pair) in pairs.iter().enumerate().filter(|(i, _)| round.is_multiple_of(i % RAREST + 1)) {
            if round > RAREST && stop.load(Ordering::Relaxed) {
                return;
            }
            let part = &mut buffer[..1 + (i * 97 + round * 13) % 4000];
            (&pair.client).write_all(part).unwrap();
            (&pair.server).read_exact(part).unwrap();
            (&pair.server).write_all(&part[..1]).unwrap();
            (&pair.client).read_exact(&mut part[..1]).unwrap();
        }
    }
}

fn counts(pairs: &[Pair]) -> Vec<(Key, Counts)> {
    let of = |socket: &TcpStream| {
        let key = Key::new(socket.local_addr().unwrap(), socket.peer_addr().unwrap());
        (key, truth::tcp_info(socket))
    };
    pairs.iter().flat_map(|pair| [of(&pair.client), of(&pair.server)]).collect()
}

/// Each value equals TCP_INFO at some moment between one just before the snapshot and one just after it. The pairs' rows are
/// proven, and all others if no other process has opened a connection, unless `contended` counts pushes that were not ordered.
fn equal_tcp_info_under_load() {
    const PAIRS: usize = 40;
    const ROUNDS: usize = 15;
    let witness = Witness::new(Transport::Tcp);
    let pairs = pairs(PAIRS);
    let begin = counts(&pairs);
    let loaded = || {
        let tables = [table(PPS), table(BYTES)];
        load_state(inet(), &tables, &everything()).unwrap_or_else(|e| panic!("{e}"))
    };
    let states: [Arc<dyn State>; 2] = [loaded(), loaded()];
    let reader = |state: &Arc<dyn State>| Watch::of(Arc::clone(state).reader().unwrap());
    let (mut watch, mut beside) = (reader(&states[0]), reader(&states[1]));
    for delay_ms in [0, 10, 100, 100_000] {
        for (state, path) in states.iter().flat_map(|state| [(state, PPS), (state, BYTES)]) {
            update(&**state, &table(path), |settings| settings.delay_ms = delay_ms).unwrap();
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let load = scope.spawn(|| exchange(&pairs, &stop));
            // Another reader of the same sockets, with tables of a separate state.
            let other = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    beside.peek(BYTES);
                }
            });
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                for round in 0..ROUNDS {
                    check(&mut watch, &witness, &pairs, &begin, &format!("delay {delay_ms} ms, round {round}"));
                    std::thread::sleep(Duration::from_millis(7));
                }
            }));
            stop.store(true, Ordering::Relaxed);
            load.join().unwrap();
            other.join().unwrap();
            checked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        // The last messages are acknowledged late.
        let truth = truth::at_rest(|| counts(&pairs));
        let view = watch.snapshot(BYTES);
        for ((key, now), (_, begin)) in truth.iter().zip(&begin) {
            let (counted, exchanged) = (view.find(*key).map(|row| row.value), now.since(begin).bytes());
            assert!(exchanged > 0, "delay {delay_ms} ms: {key:?} has exchanged nothing");
            assert_eq!(counted, Some(exchanged), "delay {delay_ms} ms, at rest: {key:?}: {}", view.summary());
        }
    }
}

fn check(watch: &mut Watch, witness: &Witness, pairs: &[Pair], begin: &[(Key, Counts)], title: &str) {
    for (path, of) in [(PPS, Counts::packets as fn(&Counts) -> u64), (BYTES, Counts::bytes)] {
        let before = counts(pairs);
        let view = watch.snapshot(path);
        let after = counts(pairs);
        for ((key, begin), ((_, before), (_, after))) in begin.iter().zip(before.iter().zip(&after)) {
            let (least, most) = (of(&before.since(begin)), of(&after.since(begin)));
            let value = view.find(*key).map_or(0, |row| row.value);
            // A reader leaves the last received byte to the next look while the socket's lock is held: the byte may be a FIN.
            let least = if path == BYTES { least.saturating_sub(1) } else { least };
            assert!((least..=most).contains(&value), "{title}, {path}: {key:?} has {value}, not {least} to {most}");
        }
        let proven = view.snapshot.proven;
        let is_own = |key: &Key| begin.iter().any(|(own, _)| own == key);
        let first_open = view.sockets.iter().find(|row| row.rank > proven && is_own(&row.key));
        let right = if witness.others_opened(begin.len() as u64) > 0 {
            first_open.is_none()
        } else {
            proven as usize == view.snapshot.rows.len()
        };
        // An amount that an interrupt pushed while its CPU was ordering another object may be larger than a row.
        assert!(right || view.snapshot.lost.contended > 0, "{title}: {}, {first_open:?}", view.summary());
    }
}

/// A reader runs after a client has sent a request and before it has received the response. The window contains the request all
/// the same: after a change of the period, and after silence.
fn a_request_that_readers_see_before_its_response() {
    /// Long enough for all outstanding acknowledgements.
    const REST: Duration = Duration::from_millis(100);
    /// A silence after which a reader takes a connection off its list.
    const SILENCE: Duration = Duration::from_millis(1200);
    /// The window after silence, and the time within which a reader finds all of it.
    const PERIOD_MS: u32 = 1000;
    const SOON: Duration = Duration::from_millis(500);
    let pairs = pairs(1);
    let tables = [table(PPS), table(BPS), table(BYTES)];
    let options = Options { period_ms: PERIOD_MS, ..everything() };
    let state: Arc<dyn State> = load_state(inet(), &tables, &options).unwrap_or_else(|e| panic!("{e}"));
    let mut watch = Watch::of(Arc::clone(&state).reader().unwrap());
    let period = |path: &str, ms| update(&*state, &table(path), |settings| settings.period_ms = ms).unwrap();
    // Later acknowledgements are delayed until the response.
    let exchange = || exchange(&pairs, &AtomicBool::new(true));
    let once = |watch: &mut Watch| {
        (&pairs[0].client).write_all(&[1]).unwrap();
        watch.snapshot(PPS);
        watch.snapshot(BPS);
        (&pairs[0].server).read_exact(&mut [0]).unwrap();
        (&pairs[0].server).write_all(&[1]).unwrap();
        (&pairs[0].client).read_exact(&mut [0]).unwrap();
    };
    let check = |watch: &mut Watch, begin: &[(Key, Counts)], title: &str| {
        let of_bits = |counts: &Counts| 8 * counts.bytes();
        for (path, of) in [(PPS, Counts::packets as fn(&Counts) -> u64), (BPS, of_bits)] {
            let (before, view, after) = (counts(&pairs), watch.snapshot(path), counts(&pairs));
            for ((key, begin), ((_, before), (_, after))) in begin.iter().zip(before.iter().zip(&after)) {
                let value = view.find(*key).map_or(0, |row| row.value);
                let all = of(&before.since(begin))..=of(&after.since(begin));
                assert!(all.contains(&value), "{title}, {path}: {key:?} has {value}, not {all:?}: {}", view.summary());
            }
        }
    };
    for round in 0..5 {
        exchange();
        std::thread::sleep(REST);
        // Tables with the same period, and with different periods.
        period(PPS, ENDLESS_MS + round * 1000);
        period(BPS, ENDLESS_MS + round % 2 * 500_000);
        let begin = counts(&pairs);
        once(&mut watch);
        std::thread::sleep(REST);
        check(&mut watch, &begin, &format!("round {round}"));
    }
    for path in [PPS, BPS] {
        period(path, PERIOD_MS);
    }
    exchange();
    let soon = (0..10).any(|_| {
        std::thread::sleep(SILENCE);
        watch.snapshot(BYTES);
        std::thread::sleep(REST);
        let (begin, begun) = (counts(&pairs), Instant::now());
        once(&mut watch);
        // The rows are checked only if they were read in time.
        let checked =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&mut watch, &begin, "after silence")));
        let in_time = begun.elapsed() < SOON;
        if in_time {
            checked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        in_time
    });
    assert!(soon, "no exchange took less than {SOON:?}");
}

/// A connection has spoken in the present slide when tables are switched off, or before they are switched on again.
fn counts_from_when_it_is_switched_on() {
    /// More than the precision of a moment in a slide: 1/256 of it.
    const REST: Duration = Duration::from_millis(ENDLESS_MS as u64 / 10 / 256 * 2);
    let pairs = pairs(3);
    let tables = [table(PPS), table(BPS)];
    let state: Arc<dyn State> = load_state(inet(), &tables, &everything()).unwrap_or_else(|e| panic!("{e}"));
    let mut watch = Watch::of(Arc::clone(&state).reader().unwrap());
    let all = |on: bool| tables.iter().for_each(|of| update(&*state, of, |settings| settings.enabled = on).unwrap());
    let speak = || exchange(&pairs, &AtomicBool::new(true));
    for round in 0..3 {
        speak();
        all(false);
        if round > 0 {
            speak();
        }
        std::thread::sleep(REST);
        let begin = truth::at_rest(|| counts(&pairs));
        all(true);
        speak();
        let end = truth::at_rest(|| counts(&pairs));
        for (path, of) in [(PPS, Counts::packets as fn(&Counts) -> u64), (BPS, |counts: &Counts| 8 * counts.bytes())] {
            let view = watch.snapshot(path);
            for ((key, end), (_, begin)) in end.iter().zip(&begin) {
                let value = view.find(*key).map_or(0, |row| row.value);
                assert_eq!(value, of(&end.since(begin)), "round {round}, {path}: {key:?}: {}", view.summary());
            }
        }
    }
}

/// Only a table of TCP is loaded; then a table of UDP is switched on, off, and on.
fn udp_that_is_switched_on_later() {
    let own = || Ids::own().attached().iter().filter(|program| *program != COMES_AND_GOES).count();
    let state: Arc<dyn State> = load_state(inet(), &[table(PPS)], &everything()).unwrap_or_else(|e| panic!("{e}"));
    let mut watch = Watch::of(Arc::clone(&state).reader().unwrap());
    let (one, other) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    one.connect(other.local_addr().unwrap()).unwrap();
    let key = Key::new(one.local_addr().unwrap(), other.local_addr().unwrap());
    let mut send = |count: u64| {
        for _ in 0..count {
            one.send(&[1]).unwrap();
            other.recv(&mut [0; 8]).unwrap();
        }
        watch.snapshot(DATAGRAMS).find(key).map_or(0, |row| row.tx)
    };
    let switch = |on| update(&*state, &table(DATAGRAMS), |settings| settings.enabled = on).unwrap();
    assert_eq!(send(5), 0, "it is off");
    let before = own();
    switch(true);
    assert_eq!(send(7), 7, "it is on");
    let more = own() - before;
    switch(false);
    assert_eq!((send(3), own()), (7, before), "it is off again, and its hooks are detached");
    switch(true);
    assert_eq!((send(2), own()), (2, before + more), "it is on again, and counts from then on");
    note(format!("{more} hooks are for UDP alone"));
}
