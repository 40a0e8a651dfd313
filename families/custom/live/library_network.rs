// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of the library about the network, beside what the test has sent and the kernel's counters of its namespace. Events of all
//! namespaces count, so a test looks for its own ports and devices.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use topstat_live::harness::skip;
use topstat_live::netns::{self, Bridged, Netns};
use topstat_live::{Case, case, drops, eventually, note};
use topstat_model::Field;

use super::library::{Known, Sum, Worker, ns};

pub fn cases() -> Vec<Case> {
    vec![
        case!(connections_open_and_fail, Root, Tracefs, Netns; EveryKernel),
        case!(resets_come_and_go, Root, Tracefs, Netns; EveryKernel),
        case!(segments_are_sent_again, Root, Tracefs, Netns; EveryKernel),
        case!(datagrams_that_no_socket_takes, Root, Tracefs, Netns; EveryKernel),
        case!(bytes_of_devices, Root, Tracefs, Netns; EveryKernel),
        case!(names_are_looked_up, Root, Tracefs; EveryKernel),
    ]
}

const TIMES: u64 = 20;

/// A counter of /proc/net/snmp or /proc/net/netstat of the calling thread's namespace: `Tcp`, `RetransSegs`.
fn counter(protocol: &str, name: &str) -> u64 {
    let texts = ["snmp", "netstat"]
        .map(|file| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).expect("the counters"));
    let lines: Vec<Vec<_>> =
        texts.iter().flat_map(|text| text.lines()).map(|l| l.split_whitespace().collect()).collect();
    let of: Vec<_> = lines.iter().filter(|line| line[0].trim_end_matches(':') == protocol).collect();
    let at = of[0].iter().position(|found| *found == name).unwrap_or_else(|| panic!("no {protocol} {name}"));
    of[1][at].parse().expect("a number")
}

fn connections_open_and_fail() {
    let mut tables = ["tcp-accepts", "tcp-connect-time", "tcp-connect-failures", "tcp-states", "tcp-round-trip-time"]
        .map(Known::load);
    let ns_of = Netns::new("opens");
    let (port, closed, elapsed) = ns_of.inside(|| {
        let begun = Instant::now();
        let listener = TcpListener::bind("127.0.0.77:0").expect("a port");
        let to = listener.local_addr().expect("its address");
        for _ in 0..TIMES {
            let mut client = TcpStream::connect(to).expect("a connection");
            let (mut server, _) = listener.accept().expect("a connection");
            client.write_all(b"ask").expect("a write");
            server.read_exact(&mut [0; 3]).expect("a read");
            server.write_all(b"answer").expect("a write");
            client.read_exact(&mut [0; 6]).expect("a read");
        }
        drop(listener);
        for _ in 0..TIMES {
            assert!(TcpStream::connect(to).is_err(), "no one listens");
        }
        let elapsed = ns(begun.elapsed());
        assert_eq!(counter("Tcp", "AttemptFails"), TIMES);
        (to.port(), TIMES, elapsed)
    });
    let [accepts, time, failures, states, round_trips] = &mut tables;
    accepts.has(&[("sport", port.into())], TIMES..=TIMES);
    time.took(&[("dport", port.into())], 2 * TIMES..=2 * TIMES, 1..=elapsed);
    failures.has(&[("dport", port.into())], closed..=closed);
    // Connections of other namespaces count, too.
    states.has(&[("oldstate", "TCP_SYN_SENT".into()), ("newstate", "TCP_ESTABLISHED".into())], TIMES..=u64::MAX);
    let address = [127_u64, 0, 0, 77].map(Field::from);
    let keys: Vec<_> = ["daddr[4]", "daddr[5]", "daddr[6]", "daddr[7]"].into_iter().zip(address).collect();
    let found = round_trips.sum(&keys);
    note(format!("round trips {found:?}, all in {elapsed} ns"));
    // Each connection has received a segment with data at least. A smoothed time is below the time of all.
    assert!(found.events >= TIMES && found.longest > 0 && found.longest < elapsed, "{found:?}");
}

/// A server that closes a connection with data that it has not read resets it. A closed port resets an attempt.
fn resets_come_and_go() {
    let mut received = Known::load("tcp-resets-received");
    let mut sent = Known::load("tcp-resets-sent");
    let reasons = Known::try_load("tcp-reset-reasons");
    let ns_of = Netns::new("resets");
    let (port, truth) = ns_of.inside(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("its address");
        for _ in 0..TIMES {
            let mut client = TcpStream::connect(to).expect("a connection");
            let (server, _) = listener.accept().expect("a connection");
            client.write_all(b"unread").expect("a write");
            // The data is there before the server closes.
            assert!(server.peek(&mut [0; 6]).expect("data") > 0);
            drop(server);
            let error = client.read(&mut [0; 1]).expect_err("a reset");
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
        drop(listener);
        assert!(TcpStream::connect(to).is_err(), "no one listens");
        (to.port(), counter("Tcp", "OutRsts"))
    });
    assert_eq!(truth, TIMES + 1);
    received.has(&[("dport", port.into())], TIMES + 1..=TIMES + 1);
    // Resets of other namespaces count, too.
    let at_least = |name: &str, found: Sum, truth: u64| {
        note(format!("{name}: {found:?}"));
        assert!(found.most >= truth, "{name}: {found:?}, not {truth}");
    };
    // A reset without a socket is an event since Linux 6.10, which has added the reasons.
    at_least("sent", sent.sum(&[]), if reasons.is_some() { truth } else { TIMES });
    if let Some(mut reasons) = reasons {
        at_least("reasons", reasons.sum(&[]), truth);
    }
}

fn segments_are_sent_again() {
    let mut table = Known::load("tcp-retransmits");
    let net = Bridged::new();
    net.bridge.inside(|| drops::drop_one_in(netns::PORT_LEFT, 20).expect("attach the program that drops"));
    let listener = net.right.inside(|| TcpListener::bind((netns::RIGHT, 0)).expect("a port"));
    let to = listener.local_addr().expect("its address");
    let (bytes, truth) = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let (mut server, _) = listener.accept().expect("a connection");
            std::io::copy(&mut server, &mut std::io::sink()).expect("all data")
        });
        let truth = net.left.inside(|| {
            let mut client = TcpStream::connect(to).expect("a connection");
            for _ in 0..200 {
                client.write_all(&[1; 20_000]).expect("a write");
            }
            drop(client);
            // The last segments may be lost, too.
            let before = || (counter("Tcp", "RetransSegs"), counter("TcpExt", "TCPSynRetrans"));
            assert!(eventually(Duration::from_secs(20), || server.is_finished()), "all data arrives");
            before().0
        });
        (server.join().expect("the server"), truth)
    });
    assert_eq!(bytes, 4_000_000);
    let found = table.sum(&[("dport", to.port().into())]);
    note(format!("{found:?}, {truth} segments"));
    // An event is a packet, which may have several segments.
    assert!(truth > 0 && found.value > 0 && found.value <= truth && truth <= 45 * found.value, "{found:?}, {truth}");
}

fn datagrams_that_no_socket_takes() {
    let mut tables = ["packet-drops", "packet-drops-by-protocol", "udp-drops"].map(Known::load);
    let ns_of = Netns::new("drops");
    let (port, full, none) = ns_of.inside(|| {
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let size: libc::c_int = 4096;
        // SAFETY: the option is an integer.
        let set = unsafe {
            let value = (&raw const size).cast();
            libc::setsockopt(receiver.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, value, 4)
        };
        assert_eq!(set, 0);
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let to = receiver.local_addr().expect("its address");
        for _ in 0..200 {
            sender.send_to(&[1; 1000], to).expect("a datagram");
        }
        drop(receiver);
        for _ in 0..TIMES {
            sender.send_to(&[1; 1000], to).expect("a datagram");
        }
        (to.port(), counter("Udp", "RcvbufErrors"), counter("Udp", "NoPorts"))
    });
    assert!(full > 100 && none == TIMES, "{full} and {none}");
    let [drops, protocols, sockets] = &mut tables;
    sockets.has(&[("skc_num", port.into())], full..=full);
    // All namespaces count.
    let reason = |name: &str| [("reason", Field::from(name))];
    drops.has(&reason("NO_SOCKET"), none..=u64::MAX);
    drops.has(&reason("SOCKET_RCVBUFF"), full..=u64::MAX);
    let ipv4 = [("reason", Field::from("NO_SOCKET")), ("protocol", 2048_u64.into())];
    protocols.has(&ipv4, none..=u64::MAX);
}

fn bytes_of_devices() {
    let mut tables =
        ["device-sent-bytes", "device-received-bytes", "port-sent-bytes", "network-polls"].map(Known::load);
    let (left, right) = (Netns::new("sends"), Netns::new("receives"));
    let number = std::process::id() % 10_000;
    let (one, two) = (format!("lib-one-{number}"), format!("lib-two-{number}"));
    left.ip(&format!("link add {one} type veth peer name {two} netns {}", right.name()));
    left.ip(&format!("address add 10.88.0.1/24 dev {one}"));
    right.ip(&format!("address add 10.88.0.2/24 dev {two}"));
    left.ip(&format!("link set {one} up"));
    right.ip(&format!("link set {two} up"));
    let receiver = right.inside(|| UdpSocket::bind("10.88.0.2:0").expect("a port"));
    let to = receiver.local_addr().expect("its address");
    receiver.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
    let port = left.inside(|| {
        let sender = UdpSocket::bind("10.88.0.1:0").expect("a port");
        for size in 1..=1000_usize {
            sender.send_to(&vec![1; size], to).expect("a datagram");
            receiver.recv(&mut [0; 1000]).expect("the datagram");
        }
        sender.local_addr().expect("its address").port()
    });
    // All counters of a device at one moment.
    let of = |ns: &Netns, device: &str| -> Vec<u64> {
        ns.inside(|| {
            let text = std::fs::read_to_string("/proc/thread-self/net/dev").expect("the devices");
            let line =
                text.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':')).expect("a device");
            line.split_whitespace().map(|n| n.parse().expect("a number")).collect()
        })
    };
    const RX_BYTES: usize = 0;
    const RX_PACKETS: usize = 1;
    const TX_BYTES: usize = 8;
    let [sent, received, ports, polls] = &mut tables;
    // The kernel may send packets, for instance to find neighbours, so its counters are read before and after the table.
    let device = |name: &str| [("name", Field::from(name))];
    let before = of(&left, &one)[TX_BYTES];
    let found = sent.sum(&device(&one));
    let after = of(&left, &one)[TX_BYTES];
    assert!(found.most >= before && found.value <= after, "{found:?} sent, not {before} to {after}");
    // The kernel has removed the header of 14 bytes before the event.
    let net = || {
        let all = of(&right, &two);
        all[RX_BYTES] - 14 * all[RX_PACKETS]
    };
    let before = net();
    let (found, after) = (received.sum(&device(&two)), net());
    assert!(found.most >= before && found.value <= after, "{found:?} received, not {before} to {after}");
    // Headers of Ethernet, IP and UDP.
    let truth = 1000 * 1001 / 2 + 1000 * (14 + 20 + 8);
    ports.has(&[("name", one.as_str().into()), ("skc_num", port.into())], truth..=truth);
    // The kernel collects from all devices of this kind at once.
    polls.has(&[], 1000..=u64::MAX);
}

fn names_are_looked_up() {
    let Some(mut lookups) = Known::try_load("name-lookups") else { skip("needs glibc") };
    let mut time = Known::load("name-lookup-time");
    let worker = Worker::new("asker");
    let elapsed = worker.run(|| {
        let begun = Instant::now();
        for _ in 0..5 {
            assert!(("localhost", 80).to_socket_addrs().expect("an address").next().is_some());
        }
        ns(begun.elapsed())
    });
    let own = [worker.comm(), ("arg0", "localhost".into())];
    lookups.has(&own, 5..=5);
    time.took(&own, 5..=5, 1..=elapsed);
}
