// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares SNMP counters on the running kernel with `/proc` and `nstat`, which are read around each reading, in network
//! namespaces that the tests make.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use topstat_families::snmp::{Netns as Which, Reader, Select, Wish};
use topstat_live::{Case, Netns, alone, case, note, pace, two_cpus};
use topstat_model::counters::{CounterKind, Counters, Scope, Source};

pub fn cases() -> Vec<Case> {
    vec![
        case!(sums_are_those_of_proc_under_load, Root, Netns; EveryKernel, Gate),
        case!(what_is_sent_is_counted, Root, Netns, Ipv6; EveryKernel),
        case!(devices_have_what_proc_has_of_them, Root, Netns, Ipv6; EveryKernel, Gate),
        case!(the_cpu_that_sends_has_it, Root, Netns, TwoCpus; EveryKernel),
        case!(the_files_say_the_same, Root, Netns, Ipv6; EveryKernel),
        case!(nstat_says_the_same, Root, Netns),
        case!(namespaces_may_come_and_go, Root, Netns; EveryKernel, ComeAndGo),
        // The kernel reuses the number of a namespace that has ended for the next one.
        alone!(Shared: what_is_not_there_is_named, Root, Netns),
    ]
}

/// Counters by protocol and name.
type Values = BTreeMap<(String, String), u64>;

/// The titles of lines of `/proc/net/snmp` and `netstat`, and protocols.
const TITLES: [(&str, &str); 9] = [
    ("Ip", "ip"),
    ("Icmp", "icmp"),
    ("IcmpMsg", "icmp"),
    ("Tcp", "tcp"),
    ("Udp", "udp"),
    ("UdpLite", "udplite"),
    ("TcpExt", "tcpext"),
    ("IpExt", "ipext"),
    ("MPTcpExt", "mptcp"),
];
/// Prefixes of names in `/proc/net/snmp6` and `xfrm_stat`.
const PREFIXES: [(&str, &str); 5] =
    [("Ip6", "ip6"), ("Icmp6", "icmp6"), ("Udp6", "udp6"), ("UdpLite6", "udplite6"), ("Xfrm", "xfrm")];

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| text.parse::<i64>().expect("a number").cast_unsigned())
}

/// All counters that `/proc` shows for the thread's namespace.
fn proc() -> Values {
    let mut values = Values::new();
    for file in ["snmp", "netstat"] {
        let text = std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).expect("counters");
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.chunks_exact(2) {
            let (title, names) = pair[0].split_once(':').expect("a title");
            let (_, protocol) = TITLES.iter().find(|(known, _)| *known == title).expect("a title that is known");
            let numbers = pair[1].split_once(':').expect("a title").1.split_whitespace();
            for (name, value) in names.split_whitespace().zip(numbers) {
                if !matches!(name, "Forwarding" | "DefaultTTL") {
                    values.insert(((*protocol).to_owned(), name.to_owned()), number(value));
                }
            }
        }
    }
    for file in ["snmp6", "xfrm_stat"] {
        let text = std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
        values.extend(lines_of(&text));
    }
    values
}

/// Counters of a file with one counter per line.
fn lines_of(text: &str) -> Values {
    let pairs = text.lines().filter_map(|line| line.split_once(char::is_whitespace));
    pairs
        .filter_map(|(name, value)| {
            let (_, protocol) = PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix))?;
            Some((((*protocol).to_owned(), name.to_owned()), number(value.trim())))
        })
        .collect()
}

fn values(scope: &Scope) -> Values {
    let all = scope.protocols.iter().flat_map(|protocol| protocol.counters.iter().map(move |c| (protocol.name, c)));
    all.map(|(protocol, counter)| ((protocol.to_owned(), counter.name.to_string()), counter.now.all)).collect()
}

fn reader(wish: &Wish, from_files: bool) -> Reader {
    let select = Select::find(wish).expect("what is wished for is there");
    Reader::open(&Select { from_files, ..select }).expect("a reader")
}

/// A reader of this namespace, from the kernel's arrays.
fn of_namespace(ns: &Netns) -> Reader {
    reader(&Wish { netns: Some(ns.name().to_owned()), ..Wish::default() }, false)
}

fn read(reader: &mut Reader) -> Counters {
    let counters = reader.read().expect("a reading");
    assert_eq!(counters.source, Source::Arrays, "the arrays are not read");
    assert_eq!(counters.check(), Ok(()));
    assert_eq!((counters.lost.beyond, counters.lost.unreadable), (0, 0));
    assert!(counters.lost.unknown.is_empty(), "not found: {:?}", counters.lost.unknown);
    counters
}

/// The only namespace or device of a reading.
fn only(counters: &Counters) -> &Scope {
    assert_eq!(counters.scopes.len(), 1, "{:?}", counters.scopes.iter().map(|s| s.netns).collect::<Vec<_>>());
    &counters.scopes[0]
}

fn change(counters: &Counters, protocol: &str, name: &str) -> u64 {
    let of = only(counters).protocols.iter().find(|p| p.name == protocol).expect("the protocol");
    let counter = of.counters.iter().find(|counter| &*counter.name == name);
    counter.and_then(topstat_model::counters::Counter::change).unwrap_or_else(|| panic!("{protocol} {name}"))
}

/// Sends `count` datagrams to a socket of this process, and receives all of them.
fn send(count: u64, to: &UdpSocket) {
    let from = UdpSocket::bind(SocketAddr::new(to.local_addr().unwrap().ip(), 0)).unwrap();
    let mut taken = [0; 16];
    for _ in 0..count {
        from.send_to(b"ping", to.local_addr().unwrap()).unwrap();
        assert_eq!(to.recv(&mut taken).unwrap(), 4);
    }
}

fn socket(ip: impl Into<std::net::IpAddr>) -> UdpSocket {
    let socket = UdpSocket::bind(SocketAddr::new(ip.into(), 0)).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

/// Makes a connection, sends some bytes, and closes it.
fn connect() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(&[7; 1000]).unwrap();
    server.read_exact(&mut [0; 1000]).unwrap();
}

/// Every counter lies between its values in `/proc` before and after the reading. If nothing moves, it equals them. No counter
/// is missing, and none is superfluous.
fn sums_are_those_of_proc_under_load() {
    let (busy, idle) = (Netns::new("busy"), Netns::new("idle"));
    let rounds = pace::work(200, 20);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                busy.inside(|| {
                    let to = socket(Ipv4Addr::LOCALHOST);
                    while !done.load(Ordering::Relaxed) {
                        send(50, &to);
                        connect();
                    }
                });
            });
        }
        let around = |ns: &Netns| {
            ns.inside(|| {
                let mut reader = of_namespace(ns);
                let mut moved = 0;
                for _ in 0..rounds {
                    let before = proc();
                    let counters = read(&mut reader);
                    let after = proc();
                    moved += u64::from(before != after);
                    compare(&before, &counters, &after);
                }
                moved
            })
        };
        let moved = [&busy, &idle].map(|ns| std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| around(ns))));
        done.store(true, Ordering::Relaxed);
        let moved = moved.map(|moved| moved.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        note(format!("{} of {rounds} readings while counters moved", moved[0]));
        assert!(moved[0] > 0 && moved[1] == 0, "{moved:?}: no load, or not where it belongs");
    });
}

fn compare(before: &Values, counters: &Counters, after: &Values) {
    let scope = only(counters);
    let values = values(scope);
    let gauge = |key: &(String, String)| {
        let protocol = scope.protocols.iter().find(|protocol| protocol.name == key.0);
        let counter = protocol.and_then(|protocol| protocol.counters.iter().find(|c| *c.name == *key.1));
        counter.is_some_and(|counter| counter.kind == CounterKind::Gauge)
    };
    for (key, from) in before {
        let to = after[key];
        let found = *values.get(key).unwrap_or_else(|| panic!("{key:?} is missing"));
        // If any counter has moved, a gauge may have had another value in between.
        let right = if gauge(key) { before != after || found == to } else { (*from..=to).contains(&found) };
        assert!(right, "{key:?}: {found}, not {from} to {to}");
    }
    for key in values.keys() {
        assert!(after.contains_key(key), "{key:?} is not in /proc");
    }
}

fn what_is_sent_is_counted() {
    const DATAGRAMS: u64 = 30;
    const CONNECTIONS: u64 = 5;
    const REFUSED: u64 = 3;
    let ns = Netns::new("counted");
    let mut reader = of_namespace(&ns);
    ns.inside(|| {
        let (v4, v6) = (socket(Ipv4Addr::LOCALHOST), socket(Ipv6Addr::LOCALHOST));
        read(&mut reader);
        send(DATAGRAMS, &v4);
        send(2 * DATAGRAMS, &v6);
        (0..CONNECTIONS).for_each(|_| connect());
        let from = socket(Ipv4Addr::LOCALHOST);
        let nobody = socket(Ipv4Addr::LOCALHOST).local_addr().unwrap();
        for _ in 0..REFUSED {
            from.send_to(b"ping", nobody).unwrap();
        }
    });
    let counters = read(&mut reader);
    for (protocol, name, expected) in [
        ("udp", "InDatagrams", DATAGRAMS),
        ("udp", "OutDatagrams", DATAGRAMS + REFUSED),
        ("udp", "NoPorts", REFUSED),
        ("udp6", "Udp6InDatagrams", 2 * DATAGRAMS),
        ("udp6", "Udp6OutDatagrams", 2 * DATAGRAMS),
        ("tcp", "ActiveOpens", CONNECTIONS),
        ("tcp", "PassiveOpens", CONNECTIONS),
        ("icmp", "OutMsgs", REFUSED),
        ("icmp", "OutDestUnreachs", REFUSED),
        ("icmp", "InDestUnreachs", REFUSED),
    ] {
        assert_eq!(change(&counters, protocol, name), expected, "{protocol} {name}");
    }
    // Another namespace has counted nothing of it.
    let other = Netns::new("other");
    let idle = read(&mut of_namespace(&other));
    let sent = only(&idle).protocols.iter().find(|protocol| protocol.name == "udp").unwrap();
    assert!(sent.counters.iter().all(|counter| counter.now.all == 0), "{sent:?}");
}

fn devices_have_what_proc_has_of_them() {
    let ns = Netns::new("devices");
    ns.ip("link add o.d-d type veth peer name right");
    for device in ["o.d-d", "right"] {
        ns.ip(&format!("link set {device} up"));
    }
    let of =
        |device: &str| Wish { netns: Some(ns.name().to_owned()), device: Some(device.to_owned()), ..Wish::default() };
    let mut all = reader(&of("all"), false);
    ns.inside(|| {
        // Devices exchange IPv6 messages after they go up: wait until they have ended.
        let settled = || {
            let files =
                |device: &str| std::fs::read_to_string(format!("/proc/thread-self/net/dev_snmp6/{device}")).unwrap();
            ["lo", "right", "o.d-d"].map(|device| (device, lines_of(&files(device))))
        };
        let right = topstat_live::eventually(Duration::from_secs(20), || {
            send(10, &socket(Ipv6Addr::LOCALHOST));
            let before = settled();
            let counters = read(&mut all);
            let after = settled();
            let same = |(device, expected): &(&str, Values)| {
                let scope = counters.scopes.iter().find(|scope| scope.device.as_deref() == Some(*device)).unwrap();
                assert_eq!(u64::from(scope.netns), ns.number());
                values(scope) == *expected
            };
            before == after && before.iter().all(same)
        });
        assert!(right, "{:?}\n{:?}", settled(), read(&mut all).scopes);
    });
    let one = read(&mut reader(&of("o.d-d"), false));
    assert_eq!(only(&one).device.as_deref(), Some("o.d-d"));
}

/// A datagram that is sent from a CPU over the loopback is counted on that CPU.
fn the_cpu_that_sends_has_it() {
    const DATAGRAMS: u64 = 40;
    let ns = Netns::new("cpus");
    let mut reader = of_namespace(&ns);
    let (first, second) = two_cpus().unwrap();
    for cpu in [first, second] {
        ns.inside(|| {
            let mut set = CpuSet::new();
            set.set(cpu);
            sched_setaffinity(None, &set).unwrap();
            let to = socket(Ipv4Addr::LOCALHOST);
            read(&mut reader);
            send(DATAGRAMS, &to);
        });
        let counters = read(&mut reader);
        let place = counters.cpus.iter().position(|known| *known as usize == cpu).unwrap();
        let udp = only(&counters).protocols.iter().find(|protocol| protocol.name == "udp").unwrap();
        let sent = udp.counters.iter().find(|counter| &*counter.name == "OutDatagrams").unwrap();
        let parts = sent.cpu_changes().unwrap();
        assert_eq!(parts[place], DATAGRAMS, "CPU {cpu}: {parts:?}");
        assert_eq!(parts.iter().sum::<u64>(), DATAGRAMS);
    }
}

fn the_files_say_the_same() {
    let ns = Netns::new("files");
    ns.inside(|| {
        send(10, &socket(Ipv4Addr::LOCALHOST));
        send(10, &socket(Ipv6Addr::LOCALHOST));
        connect();
    });
    let wish = Wish { netns: Some(ns.name().to_owned()), ..Wish::default() };
    // Connections linger for a while, and their end is counted.
    let right = topstat_live::eventually(Duration::from_secs(20), || {
        let arrays = read(&mut reader(&wish, false));
        let files = reader(&wish, true).read().unwrap();
        assert!(matches!(files.source, Source::Proc(_)) && files.cpus.is_empty());
        let order = |counters: &Counters| {
            let all = only(counters).protocols.iter().map(|p| (p.name, p.counters.iter().map(|c| c.name.clone())));
            all.map(|(name, counters)| (name, counters.collect::<Vec<_>>())).collect::<Vec<_>>()
        };
        assert_eq!(order(&arrays), order(&files), "other names, or another order");
        values(only(&arrays)) == values(only(&files))
    });
    assert!(right);
    let devices = Wish { device: Some("lo".to_owned()), ..wish };
    assert_eq!(
        values(only(&read(&mut reader(&devices, false)))),
        values(only(&reader(&devices, true).read().unwrap()))
    );
}

fn nstat_says_the_same() {
    let ns = Netns::new("nstat");
    let counters = ns.inside(|| {
        send(10, &socket(Ipv4Addr::LOCALHOST));
        read(&mut of_namespace(&ns))
    });
    let output = ns.inside(|| {
        Command::new("nstat").args(["-a", "-z", "-s"]).env("NSTAT_HISTORY", "/dev/null").output().expect("nstat")
    });
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut compared = 0;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let (name, value) = (words.next().unwrap(), words.next().unwrap());
        let titled = |(title, protocol): &(&str, &'static str)| Some((*protocol, name.strip_prefix(title)?));
        let whole = |(prefix, protocol): &(&str, &'static str)| name.starts_with(prefix).then_some((*protocol, name));
        let mut meant = TITLES.iter().filter_map(titled).chain(PREFIXES.iter().filter_map(whole));
        let found = meant.find_map(|(protocol, name)| {
            let of = only(&counters).protocols.iter().find(|p| p.name == protocol)?;
            of.counters.iter().find(|counter| &*counter.name == name)
        });
        // nstat also shows settings and its own averages.
        let Some(found) = found.filter(|counter| counter.kind == CounterKind::Count) else { continue };
        assert_eq!(found.now.all, number(value), "{line}");
        compared += 1;
    }
    note(format!("{compared} counters of nstat"));
    assert!(compared > 100, "{text}");
}

/// Readings of all namespaces go on while some namespaces come and go; each reading is complete.
fn namespaces_may_come_and_go() {
    let count = pace::work(60, 10);
    let mut all = reader(&Wish { netns: Some("all".to_owned()), ..Wish::default() }, false);
    let stays = Netns::new("stays");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..count {
                let ns = Netns::new("goes");
                ns.ip("link add left type veth peer name right");
            }
            done.store(true, Ordering::Relaxed);
        });
        let (mut readings, mut seen) = (0, std::collections::BTreeSet::new());
        while !done.load(Ordering::Relaxed) {
            let counters = all.read().expect("a reading");
            assert_eq!((counters.check(), &counters.source), (Ok(()), &Source::Arrays));
            assert!(counters.scopes.iter().any(|scope| u64::from(scope.netns) == stays.number()));
            // A new namespace has counted next to nothing. A freed array that belongs to another user by now would have other
            // values.
            let mine = counters.scopes.iter().filter(|s| s.name.as_deref().is_some_and(|name| name.contains("-goes")));
            for scope in mine {
                let udp = scope.protocols.iter().find(|protocol| protocol.name == "udp").unwrap();
                assert!(udp.counters.iter().all(|counter| counter.now.all == 0), "{udp:?}");
            }
            seen.extend(counters.scopes.iter().map(|scope| scope.netns));
            readings += 1;
        }
        note(format!("{readings} readings of {} namespaces in all", seen.len()));
    });
}

fn what_is_not_there_is_named() {
    let ns = Netns::new("o.dd name".replace(' ', "_").as_str());
    for (wish, words) in [
        (Wish { what: Some("no-such".into()), ..Wish::default() }, "no protocol"),
        (Wish { what: Some("tcp,no-such".into()), ..Wish::default() }, "no counters of no-such"),
        (Wish { netns: Some("no-such".into()), ..Wish::default() }, "no network namespace no-such"),
        (Wish { what: Some("tcp".into()), device: Some("all".into()), ..Wish::default() }, "ip6 and icmp6 only"),
    ] {
        let error = Select::find(&wish).and_then(|select| Reader::open(&select)).err();
        let error = error.unwrap_or_else(|| panic!("{wish:?} is there")).to_string();
        assert!(error.contains(words), "{error}");
    }
    let find = |what: &str| Select::find(&Wish { what: Some(what.to_owned()), ..Wish::default() }).unwrap().which;
    let inode = u32::try_from(ns.number()).unwrap();
    assert_eq!(find(ns.name()).netns, Which::Inode(inode));
    assert_eq!(find(&inode.to_string()).netns, Which::Inode(inode));
    assert_eq!(find("lo").device.as_deref(), Some("lo"));
    let counters = read(&mut of_namespace(&ns));
    assert_eq!(only(&counters).name.as_deref(), Some(ns.name()));
    drop(ns);
    // The namespace has ended: nothing is left to read.
    let which = topstat_families::snmp::Which { netns: Which::Inode(inode), ..Default::default() };
    let mut gone = Reader::open(&Select { which, ..Select::default() }).unwrap();
    assert!(gone.read().unwrap().scopes.iter().all(|scope| scope.netns != inode));
}
