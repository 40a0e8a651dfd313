// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What goes wrong is said or counted, and leaves nothing behind.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use topstat_kernel::Options;
use topstat_live::attached::{Ids, pinned};
use topstat_live::truth::{self, key};
use topstat_live::watch::{endless, everything, table};
use topstat_live::{Case, End, Key, Netns, Role, Transport, Watch, Witness, case, eventually, limits, note, pace};
use topstat_load::{Config, Dist, Family, Limits, Load, Plan, Proto, UdpServer};

pub fn cases() -> Vec<Case> {
    vec![
        case!(without_privilege, Root),
        case!(options_out_of_range, Root),
        case!(nothing_is_left_when_it_is_dropped, Root; ComeAndGo),
        case!(nothing_is_left_when_it_is_killed, Root; Checked),
        case!(no_memory_for_objects, Root, Netns, OptmemPerNetns; Computed, ComeAndGo),
        case!(the_smallest_and_the_largest_table, Root),
        case!(short_and_long_periods, Root),
        case!(a_delay_loses_nothing, Root, Ipv6),
        case!(tables_that_are_not_loaded, Root),
    ]
}

const PPS: &str = "tcp_v4/conns_pps";
const BYTES: &str = "tcp_v4/conns_bytes";
const UDP: &str = "udp_v4/conns_bytes";

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

/// Sockets that may have no storage: what they carry is in the total and in other, and counted as lost. One of them may be
/// larger than a row, which is then not proven.
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
    // Sockets that have storage, and carry less than what was refused may be of a single one.
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
        // It was lost since the snapshot before, and not again since this one.
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

/// Periods below the grain of jiffies have a finer clock, and periods far above the test's length keep everything.
fn short_and_long_periods() {
    const PPS: &str = "udp_v4/conns_pps";
    let config = Config { proto: Proto::Udp, udp_server: UdpServer::PerClient, connections: 4, ..Config::default() };
    let mut load = Load::open(config).unwrap();
    let ours: Vec<Key> = load.connections().iter().flat_map(|c| [key(c, End::Client), key(c, End::Server)]).collect();
    // Taking a snapshot takes the CPU from the generator for a good part of a millisecond. On a slow host it takes longer
    // than a slide of the first two lasts: there it is one whose slides are no whole jiffies either, and the rate is too
    // unsteady to be compared with.
    let (slow, at_once) = ([(161, 20_000.0, 1.0)], [(1, 20_000.0, 0.5), (40, 5000.0, 0.1)]);
    let short: &[_] = if pace::slowdown() > 1 { &slow } else { &at_once };
    for &(period_ms, rate, tolerance) in short.iter().chain(&[(60_000, 2000.0, 0.0), (3_600_000, 2000.0, 0.0)]) {
        let mut watch = Watch::load(&[PPS], &Options { period_ms, ..Options::default() });
        let mut sums = Vec::new();
        let report = std::thread::scope(|scope| {
            let limits = Limits { rate: Some(pace::rate(rate)), time: Duration::from_millis(1200), ..limits() };
            let load = &mut load;
            let running = scope.spawn(move || load.run(&Plan::endless(4), &limits).unwrap());
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(1000) {
                let view = watch.snapshot(PPS);
                if begun.elapsed() > Duration::from_millis(200) {
                    sums.push(view.sockets.iter().filter(|s| ours.contains(&s.key)).map(|s| s.value).sum::<u64>());
                }
                std::thread::sleep(Duration::from_millis(3));
            }
            running.join().unwrap()
        });
        assert_eq!(report.lost, 0);
        let now = watch.snapshot(PPS);
        let rows: Vec<_> = now.sockets.iter().filter(|s| ours.contains(&s.key)).collect();
        if period_ms >= 60_000 {
            let sum: u64 = rows.iter().map(|s| s.value).sum();
            assert_eq!(sum, 4 * report.transactions, "{}", now.summary());
            note(format!("period {period_ms} ms: {sum} packets, all there"));
        } else {
            let expected = 4.0 * report.rate * f64::from(period_ms) / 1000.0;
            let mean = sums.iter().sum::<u64>() as f64 / sums.len() as f64;
            note(format!("period {period_ms} ms: {mean:.1} packets on average, the generator sent {expected:.1}"));
            assert!((mean / expected - 1.0).abs() < tolerance, "period {period_ms}: {mean:.2}, not {expected:.2}");
            std::thread::sleep(Duration::from_millis(u64::from(period_ms) * 11 / 10 + 5));
            let now = watch.snapshot(PPS);
            assert!(!now.sockets.iter().any(|s| ours.contains(&s.key)), "period {period_ms}: {}", now.summary());
        }
    }
}

/// With a delay objects are ordered less often: the rows may be others than the top, but what they say is exact, and so
/// is the total.
fn a_delay_loses_nothing() {
    const CONNECTIONS: usize = 400;
    const PPS: &str = "tcp_v6/conns_pps"; // few others are there
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
        // Others may have come and gone unseen.
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
