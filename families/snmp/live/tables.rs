// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares tables of counters on the running kernel with `/proc` and netlink, in network namespaces that the tests make.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use topstat_families::snmp::{Reader, Select, Wish};
use topstat_kernel::{Options, Source};
use topstat_live::daemon::Daemon;
use topstat_live::{Case, Netns, alone, case, netns, note, pace, watch};
use topstat_model::{Field, Row, Snapshot};

pub fn cases() -> Vec<Case> {
    vec![
        case!(totals_are_those_of_proc, Root, Netns; EveryKernel),
        case!(rates_are_of_what_was_sent, Root, Netns; EveryKernel),
        alone!(Totals: namespaces_are_ranked, Root, Netns; EveryKernel),
        alone!(Totals: datagrams_that_are_dropped_are_errors, Root, Netns; EveryKernel),
        case!(devices_are_what_netlink_has, Root, Netns; EveryKernel, Gate),
        case!(thousands_of_devices_are_bounded, Root, Netns; ComeAndGo),
        case!(devices_may_come_and_go, Root, Netns; EveryKernel, ComeAndGo),
        alone!(Totals: the_daemon_has_them, Root, Fuse; EveryKernel),
    ]
}

fn load(ns: &Netns, paths: &[&str]) -> Box<dyn Source> {
    of(ns.name(), paths, &Options::default())
}

fn of(netns: &str, paths: &[&str], options: &Options) -> Box<dyn Source> {
    watch::load(paths, &Options { netns: Some(netns.to_owned()), cpu_rows: true, ..options.clone() })
}

fn text(row: &Row, column: usize) -> String {
    row.object[column].to_string()
}

fn by_name(snapshot: &Snapshot) -> BTreeMap<String, u64> {
    snapshot.rows.iter().map(|row| (text(row, 0), row.value)).collect()
}

/// Sends `count` datagrams to a socket of this process.
fn send(count: usize) {
    let socket = UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let to = socket.local_addr().unwrap();
    for _ in 0..count {
        socket.send_to(b"ping", to).unwrap();
        socket.recv(&mut [0; 8]).unwrap();
    }
}

/// The counters of a title in `/proc/net/snmp` or `netstat` of the thread's namespace.
fn proc(file: &str, title: &str) -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).expect("counters");
    let mut lines = text.lines().filter_map(|line| line.split_once(':')).filter(|(found, _)| *found == title);
    let mut words = || lines.next().map(|(_, words)| words.split_whitespace().collect::<Vec<_>>()).unwrap_or_default();
    let (names, values) = (words(), words());
    let known = names.iter().zip(values).filter(|(name, _)| !matches!(**name, "Forwarding" | "DefaultTTL"));
    // A number below 0 is a setting.
    known.filter_map(|(name, value)| Some(((*name).to_owned(), value.parse().ok()?))).collect()
}

fn totals_are_those_of_proc() {
    let ns = Netns::new("totals");
    ns.inside(|| send(20));
    for (sample, file, title) in [
        ("tcp", "snmp", "Tcp"),
        ("udp", "snmp", "Udp"),
        ("ip", "snmp", "Ip"),
        ("tcpext", "netstat", "TcpExt"),
        ("ipext", "netstat", "IpExt"),
    ] {
        let path = format!("snmp_{sample}/total");
        let snapshot = watch::snapshot(&mut *load(&ns, &[&path]), &path);
        let mut expected = ns.inside(|| proc(file, title));
        let settings = ["RtoAlgorithm", "RtoMin", "RtoMax", "MaxConn"];
        expected.retain(|name, _| !settings.contains(&name.as_str()));
        // TcpExt has more counters than a table has rows: the smallest are cut off.
        let rows = by_name(&snapshot);
        for (name, value) in &rows {
            assert_eq!(expected.get(name), Some(value), "{path} {name}");
        }
        assert_eq!(snapshot.objects as usize, expected.len(), "{path}");
        assert_eq!(rows.len(), expected.len().min(128), "{path}");
        assert_eq!(snapshot.total, expected.values().sum::<u64>(), "{path}");
        assert!(snapshot.is_proven());
    }
    let tcp = watch::snapshot(&mut *load(&ns, &["snmp_tcp/total"]), "snmp_tcp/total");
    let gauge = tcp.rows.iter().find(|row| text(row, 0) == "CurrEstab").expect("a row");
    assert_eq!((text(gauge, 1).as_str(), gauge.cpus.as_slice()), ("gauge", &[][..]));
    let segments = tcp.rows.iter().find(|row| text(row, 0) == "InSegs").expect("a row");
    assert!(segments.object[1].is_none());
}

/// Increases are scaled by the elapsed time. The parts of CPUs add up (`snapshot` checks this).
fn rates_are_of_what_was_sent() {
    const SENT: u64 = 3000;
    let ns = Netns::new("rates");
    let options = Options { period_ms: 1000, ..Options::default() };
    let mut source = of(ns.name(), &["snmp_udp/rate"], &options);
    let began = Instant::now();
    ns.inside(|| send(SENT as usize));
    let snapshot = watch::snapshot(&mut *source, "snmp_udp/rate");
    let (elapsed, at_most) = (snapshot.elapsed.expect("two readings"), began.elapsed() + Duration::from_secs(1));
    assert!(elapsed < at_most + pace::patience(Duration::from_secs(1)), "{elapsed:?}");
    let expected = (SENT as f64 / elapsed.as_secs_f64()).round() as u64;
    let rows = by_name(&snapshot);
    assert_eq!((rows["InDatagrams"], rows["OutDatagrams"]), (expected, expected), "in {elapsed:?}");
    assert_eq!((snapshot.total, rows.len()), (2 * expected, 2), "nothing else has come: {rows:?}");
    // Counts before the period are in no rate.
    std::thread::sleep(Duration::from_millis(1000));
    watch::snapshot(&mut *source, "snmp_udp/rate");
    std::thread::sleep(Duration::from_millis(1000));
    assert_eq!(watch::snapshot(&mut *source, "snmp_udp/rate").total, 0);
}

fn namespaces_are_ranked() {
    let (busy, idle) = (Netns::new("busy"), Netns::new("idle"));
    let options = Options { by: Some("udp/InDatagrams".to_owned()), top: 1024, ..Options::default() };
    let paths = ["net_namespaces/packets", "net_namespaces/bytes_total", "net_namespaces/counter_total"];
    let mut source = watch::load(&paths, &Options { cpu_rows: true, ..options });
    busy.inside(|| send(100));
    let find = |snapshot: &Snapshot, ns: &Netns| {
        let found = snapshot.rows.iter().find(|row| row.object[0] == Field::U64(ns.number())).cloned();
        if let Some(row) = &found {
            assert_eq!(text(row, 1), ns.name());
        }
        found
    };
    let packets = watch::snapshot(&mut *source, "net_namespaces/packets");
    assert!(find(&packets, &busy).is_some_and(|row| row.value > 0 && row.parts[0] > 0 && row.parts[1] > 0));
    assert_eq!(find(&packets, &idle), None, "nothing has come to it");
    let bytes = watch::snapshot(&mut *source, "net_namespaces/bytes_total");
    let octets = busy.inside(|| proc("netstat", "IpExt"));
    let row = find(&bytes, &busy).expect("a row");
    // IPv6 may have counted more, when its loopback was set up.
    assert!(row.parts[0] >= octets["InOctets"] && row.parts[1] >= octets["OutOctets"], "{row:?} {octets:?}");
    let counter = watch::snapshot(&mut *source, "net_namespaces/counter_total");
    assert_eq!(counter.value_name, "InDatagrams");
    assert_eq!(find(&counter, &busy).map(|row| row.value), Some(100));
    assert_eq!(find(&counter, &idle).map(|row| row.value), Some(0));
}

/// Datagrams to a port without a socket, and to a socket whose buffer is full.
fn datagrams_that_are_dropped_are_errors() {
    const REFUSED: u64 = 100;
    let ns = Netns::new("dropping");
    let path = "net_namespaces/errors_total";
    let mut source = watch::load(&[path], &Options { top: 1024, ..Options::default() });
    let udp = ns.inside(|| {
        let sender = UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a socket");
        let full = UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a socket");
        let closed = UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a socket");
        let (full_at, closed_at) = (full.local_addr().unwrap(), closed.local_addr().unwrap());
        drop(closed);
        (0..REFUSED).for_each(|_| drop(sender.send_to(b"ping", closed_at)));
        // The buffer of a socket takes some hundred datagrams of this size.
        (0..2000).for_each(|_| drop(sender.send_to(&[0; 1400], full_at)));
        proc("snmp", "Udp")
    });
    assert!(udp["NoPorts"] == REFUSED && udp["RcvbufErrors"] > 0, "{udp:?}");
    let snapshot = watch::snapshot(&mut *source, path);
    let row = snapshot.rows.iter().find(|row| row.object[0] == Field::U64(ns.number())).expect("a row");
    // IP counts further errors.
    assert!(row.parts[0] >= udp["NoPorts"] + udp["RcvbufErrors"], "{row:?} {udp:?}");
}

/// The counters of all devices of a namespace by RTM_GETLINK: packets and bytes, received and sent.
fn links(ns: &Netns) -> BTreeMap<String, [u64; 4]> {
    let output = Command::new("ip").args(["-n", ns.name(), "-j", "-s", "link"]).output().expect("ip");
    let links: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a document");
    let of = |link: &serde_json::Value| {
        let number = |way: &str, what: &str| link["stats64"][way][what].as_u64().expect("a number");
        let numbers = [number("rx", "packets"), number("rx", "bytes"), number("tx", "packets"), number("tx", "bytes")];
        (link["ifname"].as_str().expect("a name").to_owned(), numbers)
    };
    links.as_array().expect("links").iter().map(of).collect()
}

fn devices_are_what_netlink_has() {
    let ns = Netns::new("devices");
    ns.ip("link add o.d-d@1 type veth peer name right");
    ns.inside(|| send(10));
    let paths = ["net_devs/packets_total", "net_devs/bytes_total", "net_devs/bytes"];
    let mut source = load(&ns, &paths);
    let same = topstat_live::eventually(Duration::from_secs(20), || {
        let before = links(&ns);
        let snapshots = [paths[0], paths[1]].map(|path| watch::snapshot(&mut *source, path));
        let names: Vec<_> = snapshots[0].rows.iter().map(|row| text(row, 0)).collect();
        assert!(names.iter().any(|name| name == "o.d-d@1"), "{names:?}");
        let of = |name: &str| {
            let parts =
                |snapshot: &Snapshot| snapshot.rows.iter().find(|row| text(row, 0) == name).unwrap().parts.clone();
            let [packets, bytes] = snapshots.each_ref().map(parts);
            [packets[0], bytes[0], packets[1], bytes[1]]
        };
        let found = before.keys().map(|name| (name.clone(), of(name))).collect::<BTreeMap<_, _>>();
        assert_eq!(snapshots[0].rows.len(), before.len());
        before == links(&ns) && found == before
    });
    assert!(same, "{:?}", links(&ns));
    // A renamed device is a new device, without a rate: its counts so far do not become a rate.
    watch::snapshot(&mut *source, "net_devs/bytes");
    ns.ip("link set lo down");
    ns.ip("link set lo name loop");
    let renamed = watch::snapshot(&mut *source, "net_devs/bytes");
    assert!(renamed.rows.iter().all(|row| text(row, 0) != "loop"), "{:?}", renamed.rows);
}

/// With more devices than a table has rows, the rest is in `other`; all devices are read.
fn thousands_of_devices_are_bounded() {
    let pairs = pace::work(5000, 50);
    let ns = Netns::new("many");
    // Besides the loopback, loaded drivers of tunnels may have made one device each.
    let devices = 2 * pairs + links(&ns).len() as u64;
    let batch: String = (0..pairs).map(|i| format!("link add l{i} type veth peer name r{i}\n")).collect();
    let file = std::env::temp_dir().join(format!("topstat-live-links-{}", std::process::id()));
    std::fs::write(&file, batch).expect("a file");
    ns.ip(&format!("-batch {}", file.display()));
    std::fs::remove_file(&file).expect("remove it");
    ns.inside(|| send(10));
    let expected = links(&ns);
    assert_eq!(expected.len() as u64, devices);
    let mut source = load(&ns, &["net_devs/packets_total"]);
    let begun = Instant::now();
    let snapshot = watch::snapshot(&mut *source, "net_devs/packets_total");
    note(format!("{} devices in {:?}", snapshot.objects, begun.elapsed()));
    assert_eq!((snapshot.objects, snapshot.rows.len()), (devices, 128.min(expected.len())));
    assert_eq!(snapshot.total, expected.values().map(|numbers| numbers[0] + numbers[2]).sum::<u64>());
    assert_eq!(text(&snapshot.rows[0], 0), "lo", "the only one that has sent anything");
    // The kernel's own counters of each device.
    let wish = Wish { netns: Some(ns.name().to_owned()), device: Some("all".to_owned()), ..Wish::default() };
    let counters = Reader::open(&Select::find(&wish).unwrap()).unwrap().read().expect("a reading");
    let scopes = counters.scopes.len() as u64;
    assert!((2 * pairs + 1..=devices).contains(&scopes), "{scopes} of {devices} devices have IPv6");
    assert_eq!(counters.lost.beyond, 0);
    assert_eq!(counters.check(), Ok(()));
}

/// Readings of devices go on while some devices come and go; each reading is complete.
fn devices_may_come_and_go() {
    let ns = Netns::new("coming");
    let (count, done) = (pace::work(100, 10), AtomicBool::new(false));
    let wish = Wish { netns: Some(ns.name().to_owned()), device: Some("all".to_owned()), ..Wish::default() };
    let mut reader = Reader::open(&Select::find(&wish).unwrap()).unwrap();
    let mut source = load(&ns, &["net_devs/packets"]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..count {
                ns.ip(&format!("link add left{round} type veth peer name right{round}"));
                ns.ip(&format!("link set left{round} up"));
                ns.ip(&format!("link del right{round}"));
            }
            done.store(true, Ordering::Relaxed);
        });
        let mut readings = 0;
        while !done.load(Ordering::Relaxed) {
            let counters = reader.read().expect("a reading");
            assert_eq!(counters.check(), Ok(()));
            assert!(counters.scopes.iter().any(|scope| scope.device.as_deref() == Some("lo")), "{:?}", counters.scopes);
            // A short-lived device counts a few messages at most.
            for scope in counters.scopes.iter().filter(|scope| scope.device.as_deref() != Some("lo")) {
                let all = scope.protocols.iter().flat_map(|protocol| &protocol.counters);
                assert!(all.clone().all(|counter| counter.now.all < 10_000), "{scope:?}");
            }
            watch::snapshot(&mut *source, "net_devs/packets");
            readings += 1;
        }
        note(format!("{readings} readings while {count} pairs came and went"));
    });
}

/// The daemon's tree has the counters of the host, takes settings, and adds up.
fn the_daemon_has_them() {
    let mut daemon = Daemon::start();
    // A host that was started a moment ago may have counted nothing yet.
    let send = |datagrams| netns::in_host(|| send(datagrams));
    send(1);
    let rows = |daemon: &Daemon, table: &str| daemon.json(table).value["rows"].as_array().expect("rows").clone();
    let segments = rows(&daemon, "snmp_tcp/total").into_iter().find(|row| row["object"]["counter"] == "InSegs");
    assert!(segments.is_some_and(|row| row["value"].is_u64()));
    let stat = daemon.stat("snmp_ip/total");
    assert!(!stat.cpus.is_empty(), "{stat:?}");
    for path in ["net_devs/packets_total", "net_namespaces/packets_total"] {
        let rows = rows(&daemon, path);
        assert!(
            rows.iter().all(|row| row["object"]["netns"].as_u64() > Some(0)) && !rows.is_empty(),
            "{path}: {rows:?}"
        );
    }
    assert_eq!(daemon.read("snmp_tcp/rate/type") + &daemon.read("snmp_tcp/total/type"), "1\n2\n");
    daemon.write("snmp_tcp/rate/period", 2500);
    assert_eq!(daemon.stat("snmp_tcp/rate").get("period"), "2500");
    // Readers within the delay share one reading.
    daemon.write("snmp_ip/total/delay", 3_600_000);
    let first = daemon.json("snmp_ip/total");
    send(50);
    assert_eq!(daemon.json("snmp_ip/total").total, first.total);
    daemon.write("snmp_ip/total/delay", 0);
    // Tables that are read within 50 ms share a reading, and another table may have got the present one before the datagrams.
    std::thread::sleep(Duration::from_millis(60));
    assert!(daemon.json("snmp_ip/total").total >= first.total + 100);
    // A sample that is off is not read, and the kernel counts on.
    daemon.write("snmp_ip/enabled", 0);
    assert_eq!(daemon.json("snmp_ip/total").total, 0);
    daemon.write("snmp_ip/enabled", 1);
    assert!(daemon.json("snmp_ip/total").total > first.total);
    assert_eq!(daemon.stop().code(), Some(0), "{}", daemon.log());
}
