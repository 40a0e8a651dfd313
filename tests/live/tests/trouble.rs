// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults are reported or counted, and leave nothing behind.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use topstat_kernel::Options;
use topstat_live::attached::{Ids, pinned};
use topstat_live::truth::{self, key};
use topstat_live::watch::{View, endless, everything, table};
use topstat_live::{
    Case, End, Key, Netns, Role, Transport, Watch, Witness, alone, case, eventually, limits, note, pace,
};
use topstat_load::{Config, Dist, Family, Load, Plan, Proto, UdpServer};

pub fn cases() -> Vec<Case> {
    vec![
        case!(without_privilege, Root),
        case!(signals_come_while_programs_are_verified, Root),
        case!(options_out_of_range, Root),
        alone!(Attached: nothing_is_left_when_it_is_dropped, Root; ComeAndGo),
        alone!(Attached: nothing_is_left_when_it_is_killed, Root; Checked),
        case!(no_memory_for_objects, Root, Netns, OptmemPerNetns; Computed, ComeAndGo),
        alone!(Fills: the_smallest_and_the_largest_table, Root),
        case!(short_and_long_periods, Root),
        case!(a_delay_loses_nothing, Root, Ipv6),
        case!(tables_that_are_not_loaded, Root),
    ]
}

const PPS: &str = "tcp_v4/conns_pps";
const BYTES: &str = "tcp_v4/conns_bytes";
const UDP: &str = "udp_v4/conns_bytes";

/// The kernel stops the verification of a program at a signal, so signals must go to another thread.
fn signals_come_while_programs_are_verified() {
    const PAUSE: Duration = Duration::from_micros(100);
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler does nothing, no other code here uses the signal, and this thread stays.
    let this = unsafe {
        let handler: extern "C" fn(libc::c_int) = nothing;
        libc::signal(libc::SIGURG, handler as libc::sighandler_t);
        libc::pthread_self()
    };
    let loaded = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let signals = scope.spawn(|| {
            let mut sent = 0_u64;
            while !loaded.load(Ordering::Acquire) {
                // SAFETY: the thread waits for this one below.
                assert_eq!(unsafe { libc::pthread_kill(this, libc::SIGURG) }, 0);
                sent += 1;
                std::thread::sleep(PAUSE);
            }
            sent
        });
        let watch = std::panic::catch_unwind(|| Watch::load(&[PPS], &everything()));
        loaded.store(true, Ordering::Release);
        let sent = signals.join().expect("signals");
        drop(watch.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        sent
    });
    // SAFETY: restores the default.
    unsafe { libc::signal(libc::SIGURG, libc::SIG_DFL) };
    note(format!("{sent} signals"));
}

fn without_privilege() {
    for way in ["user", "capabilities"] {
        let mut role = Role::start("unprivileged", &[way]);
        let error = role.expect("refused");
        assert!(error.starts_with("cannot load sample"), "{way}: {error}");
        assert!(error.contains("permitted") && error.contains("CAP_BPF"), "{way}: {error}");
        role.expect("holding true");
        note(format!("{way}: {error}"));
        role.finish();
    }
}

fn options_out_of_range() {
    let before = Ids::own();
    let rows = |top: u32| (Options { top, ..Options::default() }, format!("{top} rows"), "1 to 1024 rows");
    let period = |period_ms| {
        let options = Options { period_ms, ..Options::default() };
        (options, format!("period of {period_ms} ms"), "1 to 3600000 ms")
    };
    let delay = |delay_ms| {
        let options = Options { delay_ms, ..Options::default() };
        (options, format!("delay of {delay_ms} ms"), "0 to 3600000 ms")
    };
    for (options, what, allowed) in
        [rows(0), rows(1025), rows(u32::MAX), period(0), period(3_600_001), delay(3_600_001)]
    {
        let error = match topstat_kernel::load(&[table(PPS)], &options) {
            Ok(_) => panic!("{options:?} was taken"),
            Err(e) => e.to_string(),
        };
        assert!(error.contains(&what), "{options:?}: what is wrong is not named: {error}");
        assert!(error.contains(allowed), "{options:?}: what is allowed is not said: {error}");
    }
    let error = topstat_kernel::load(&[], &Options::default()).err().expect("nothing can be loaded").to_string();
    assert!(error.contains("no table"), "{error}");
    assert!(eventually(Duration::from_secs(2), || Ids::own() == before), "{:?}", Ids::own());
}

fn nothing_is_left_when_it_is_dropped() {
    let (before, pins) = (Ids::own(), pinned());
    let mut watch = Watch::load(&[PPS, BYTES, UDP], &Options::default());
    watch.snapshot(PPS);
    let _ = watch.source().refill(&table(PPS));
    let ids = Ids::own();
    let loaded = (ids.programs.len() - before.programs.len(), ids.links.len(), ids.maps.len());
    assert!(loaded.0 > 5 && loaded.1 >= 5 && loaded.2 > 3, "{loaded:?}: the test does not see what is loaded");
    drop(watch);
    assert_eq!(Ids::own(), before);
    let gone = || ids.left().is_empty();
    assert!(eventually(Duration::from_secs(5), gone), "left: {:?}", ids.left());
    assert_eq!(pinned().difference(&pins).collect::<Vec<_>>(), Vec::<&std::path::PathBuf>::new());
    note(format!("programs, links and maps, then none: {loaded:?}"));
}

fn nothing_is_left_when_it_is_killed() {
    let pins = pinned();
    let mut role = Role::start("watcher", &[]);
    role.expect("watching");
    let ids = Ids::of_process(&role.pid().to_string());
    assert!(ids.links.len() >= 5, "{ids:?}: the test does not see what is attached");
    role.kill();
    assert!(eventually(Duration::from_secs(5), || ids.left().is_empty()), "left: {:?}", ids.left());
    assert_eq!(pinned().difference(&pins).count(), 0);
}

/// Sockets without storage: their traffic is in the total and in other, and counted as lost. The traffic of one of them may
/// be larger than a row, which is then not proven.
fn no_memory_for_objects() {
    const SOCKETS: usize = 30;
    const TURNS: u64 = 10;
    let poor = Netns::new("poor");
    let mut watch = Watch::load(&["udp_v6/conns_pps", "udp_v6/conns_bytes"], &everything());
    let before = watch.snapshot("udp_v6/conns_pps").snapshot;
    assert_eq!(before.lost.no_memory, 0);
    let report = poor.inside(|| {
        std::fs::write("/proc/sys/net/core/optmem_max", "64").unwrap();
        let config = Config {
            proto: Proto::Udp,
            family: Family::V6,
            udp_server: UdpServer::PerClient,
            connections: SOCKETS,
            ..Config::default()
        };
        Load::open(config).unwrap().run(&Plan::new(vec![TURNS; SOCKETS]), &limits()).unwrap()
    });
    assert_eq!((report.lost, report.transactions), (0, TURNS * SOCKETS as u64));
    // Sockets with storage that carry less than a single socket without storage may have carried.
    let config = Config { proto: Proto::Udp, family: Family::V6, connections: 2, ..Config::default() };
    let mut few = Load::open(config).unwrap();
    few.run(&Plan::new(vec![1; 2]), &limits()).unwrap();
    // Request and response, at both ends.
    let packets = 4 * report.transactions;
    let bytes = 2 * (report.bytes_sent + report.bytes_received);
    for (path, counted) in [("udp_v6/conns_pps", packets), ("udp_v6/conns_bytes", bytes)] {
        let view = watch.snapshot(path);
        let number = poor.number();
        assert!(view.sockets.iter().all(|s| s.netns != number), "{path}: an object was made: {}", view.summary());
        let (total, other) = (view.snapshot.total, view.snapshot.other);
        let foreign: u64 = view.sockets.iter().map(|s| s.value).sum();
        assert!(other >= counted && total >= counted + foreign, "{path}: {counted} in {}", view.summary());
        assert!(view.snapshot.lost.no_memory >= packets, "{path}: {}", view.summary());
        if view.sockets.iter().all(|s| s.pid == Some(std::process::id().into())) {
            assert_eq!((total, other, view.snapshot.lost.no_memory), (counted + foreign, counted, packets), "{path}");
        }
        // The loss belongs to the interval since the previous snapshot, and not to the interval since this one.
        assert!(view.snapshot.lost_now.no_memory >= packets, "{path}: {}", view.summary());
        let later = watch.peek(path).snapshot;
        assert!(later.lost.no_memory >= packets, "{path}: what was lost is forgotten");
        assert!(later.lost_now.no_memory < packets, "{path}: {:?} is told again", later.lost_now);
        let proven = view.sockets.iter().take(view.snapshot.proven as usize);
        assert!(view.sockets.iter().any(|s| s.value < counted), "{path}: the test has no row: {}", view.summary());
        assert!(proven.map(|s| s.value).all(|value| value >= counted), "{path}: {counted} in {}", view.summary());
        note(view.summary());
    }
}

fn the_smallest_and_the_largest_table() {
    const CONNECTIONS: usize = 700;
    let mut load = Load::open(Config { connections: CONNECTIONS, ..Config::default() }).unwrap();
    for top in [1, 2, 1024] {
        let before = truth::settled(&load);
        let mut watch = Watch::load(&[PPS, BYTES], &Options { top, ..endless() });
        let plan = Plan::from_dist(&Dist::Flat { low: 10, high: 40 }, CONNECTIONS).unwrap();
        load.run(&plan, &limits()).unwrap();
        let truth = truth::difference(&before, &truth::settled(&load));
        let mut values: Vec<u64> = truth.keys().map(|key| truth::carried(&truth, key).0).collect();
        values.sort_unstable_by(|a, b| b.cmp(a));
        values.truncate(top as usize);
        for view in [watch.peek(BYTES), watch.snapshot(BYTES)] {
            let shown: Vec<u64> = view.sockets.iter().filter(|s| truth.contains_key(&s.key)).map(|s| s.value).collect();
            let others = view.sockets.len() - shown.len();
            assert_eq!(view.sockets.len(), top as usize);
            assert_eq!(shown, values[..values.len() - others], "top {top}: {}", view.summary());
        }
    }
}

/// Periods below the resolution of jiffies use a finer clock; periods far above the length of the test keep everything.
fn short_and_long_periods() {
    let config = Config { proto: Proto::Udp, udp_server: UdpServer::PerClient, connections: 4, ..Config::default() };
    let mut load = Load::open(config).unwrap();
    bursts_age(&mut load, 1, 40);
    // At least one of these periods is long enough for a look during a burst's period, also on a busy host.
    let found = [(40, 40), (401, 20), (4001, 4)]
        .into_iter()
        .find(|(period, rounds)| bursts_age(&mut load, *period, *rounds) > 0);
    assert!(found.is_some(), "no burst was looked at within seconds of its beginning");
    for period_ms in [60_000, 3_600_000] {
        all_stays(&mut load, period_ms);
    }
}

/// Packets per period, of both ends of all connections.
const PACKETS: &str = "udp_v4/conns_pps";

/// The sum of the load's rows.
fn of_load(load: &Load, view: &View) -> u64 {
    let ours: Vec<Key> = load.connections().iter().flat_map(|c| [key(c, End::Client), key(c, End::Server)]).collect();
    view.sockets.iter().filter(|s| ours.contains(&s.key)).map(|s| s.value).sum()
}

/// Sends this many requests on each connection; returns the packets at both ends that these and their responses make.
fn send(load: &mut Load, requests: u64) -> u64 {
    let report = load.run(&Plan::new(vec![requests; load.connections().len()]), &limits()).unwrap();
    assert_eq!(report.lost, 0);
    4 * report.transactions
}

/// A burst counts fully for a period from its beginning, and not at all from a period and a slide after its end (W1). The
/// host decides when a look happens, so each round asserts only the facts that the clock around the look makes certain.
/// Returns how many bursts were found complete.
fn bursts_age(load: &mut Load, period_ms: u32, rounds: u32) -> u32 {
    // Tables with longer periods use jiffies, of up to 10 ms.
    let grain = Duration::from_millis(if period_ms < 10 { 0 } else { 10 });
    let period = Duration::from_millis(period_ms.into());
    let gone_after = period + period / 10 + grain;
    let mut watch = Watch::load(&[PACKETS], &Options { period_ms, ..Options::default() });
    let (mut whole, mut gone) = (0, 0);
    for round in 0..rounds {
        let begun = Instant::now();
        let sent = send(load, 2);
        let ended = Instant::now();
        std::thread::sleep(gone_after * (round % 4) / 3);
        let looked = Instant::now();
        let shown = of_load(load, &watch.peek(PACKETS));
        let seen = Instant::now();
        assert!(shown <= sent, "period {period_ms} ms: {shown} packets, {sent} were sent");
        if seen - begun + grain <= period {
            assert_eq!(shown, sent, "period {period_ms} ms: {:?} after the first packet", seen - begun);
            whole += 1;
        }
        if looked - ended > gone_after {
            assert_eq!(shown, 0, "period {period_ms} ms: {:?} after the last packet", looked - ended);
            gone += 1;
        }
        std::thread::sleep(gone_after);
    }
    note(format!("period {period_ms} ms: of {rounds} bursts {whole} were found whole, {gone} gone"));
    assert!(gone > 0, "no burst was looked at after {gone_after:?}");
    whole
}

fn all_stays(load: &mut Load, period_ms: u32) {
    const ROUNDS: u32 = 5;
    let mut watch = Watch::load(&[PACKETS], &Options { period_ms, ..Options::default() });
    let mut sent = 0;
    for _ in 0..ROUNDS {
        sent += send(load, pace::work(500, 50));
        let view = watch.snapshot(PACKETS);
        assert_eq!(of_load(load, &view), sent, "period {period_ms} ms: {}", view.summary());
    }
    note(format!("period {period_ms} ms: {sent} packets, all there"));
}

/// With a delay, objects are ordered less often: the rows may differ from the top, but their values are exact, and so is the
/// total.
fn a_delay_loses_nothing() {
    const CONNECTIONS: usize = 400;
    const PPS: &str = "tcp_v6/conns_pps"; // few other sockets use it
    const BYTES: &str = "tcp_v6/conns_bytes";
    let config = Config { connections: CONNECTIONS, family: Family::V6, ..Config::default() };
    let mut load = Load::open(config).unwrap();
    let before = truth::settled(&load);
    let witness = Witness::new(Transport::Tcp);
    let mut watch = Watch::load(&[PPS, BYTES], &Options { delay_ms: 100, ..endless() });
    let plan = Plan::from_dist(&Dist::Zipf { exponent: 0.7, max: pace::work(3000, 500) }, CONNECTIONS).unwrap();
    load.run(&plan, &limits()).unwrap();
    let truth = truth::difference(&before, &truth::settled(&load));
    let packets = truth.values().map(topstat_live::Counts::packets).sum();
    for (path, of) in [
        (PPS, (|c| (c.packets_rx, c.packets_tx)) as fn(&topstat_live::Counts) -> (u64, u64)),
        (BYTES, |c| (c.bytes_rx, c.bytes_tx)),
    ] {
        let view = watch.snapshot(path);
        let mut foreign = 0;
        for s in &view.sockets {
            match truth.get(&s.key) {
                Some(counts) => assert_eq!((s.rx, s.tx), of(counts), "{path}: {s:?}"),
                None => foreign += s.value,
            }
        }
        assert!(view.sockets.len() >= 100, "{path}: {}", view.summary());
        let carried: u64 = truth.values().map(|c| of(c).0 + of(c).1).sum();
        // Sockets of other processes may have come and gone unseen.
        witness.assert_bytes(view.snapshot.total - foreign, carried, packets, path);
        let mut values: Vec<u64> = truth.values().map(|c| of(c).0 + of(c).1).collect();
        values.sort_unstable_by(|a, b| b.cmp(a));
        let least = values[127];
        let right = view.sockets.iter().filter(|s| s.value >= least).count();
        note(format!("{path}: {right} of {} rows are of the top", view.sockets.len()));
    }
}

/// Asking for a table that is not there is an error, and asking for one that is off gives nothing.
fn tables_that_are_not_loaded() {
    let mut watch = Watch::load(&[PPS], &everything());
    let (a, b) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    a.send_to(&[1; 100], b.local_addr().unwrap()).unwrap();
    match watch.source().snapshot(&table(UDP)) {
        Err(e) => assert!(e.to_string().contains(UDP), "the table is not named: {e}"),
        Ok(snapshot) => assert_eq!((snapshot.rows.len(), snapshot.total), (0, 0), "the table is off"),
    }
}
