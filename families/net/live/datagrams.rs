// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The use of the network by UDP, compared with the generator's and the kernel's own counts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::Command;
use std::time::Duration;

use rustix::net::SendFlags;
use topstat_live::nest::counts_by_functions;
use topstat_live::truth::Counts;
use topstat_live::watch::snapshot;
use topstat_live::{Case, Netns, alone, limits, note, pace, role};
use topstat_load::{Config, Family, Load, Plan, Proto};

use super::flows::{host, load_all, parts, pid, port_of, shown};
use topstat_model::Field;

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Totals: one_server_and_many_clients, Root, Sample(PORTS); EveryKernel),
        alone!(Totals: clients_of_ipv6, Root, Ipv6, Sample(PORTS)),
        alone!(Totals: sockets_that_were_there_before, Root, Sample(PORTS); EveryKernel),
        alone!(Totals: one_socket_and_many_hosts, Root, Sample(PORTS); EveryKernel),
        alone!(Totals: sockets_that_send_once, Root, Netns, Sample(PORTS); EveryKernel),
        alone!(Totals: segments_and_several_calls, Root, Sample(PORTS); EveryKernel),
        alone!(Totals: one_socket_of_many_threads, Root, Sample(PORTS); EveryKernel),
        alone!(Totals: beside_connections, Root, Sample(PORTS)),
        alone!(Totals: who_sends_by_a_socket_of_anothers, Root, Sample(PORTS); EveryKernel),
        alone!(Totals: udp_that_is_not_asked_for, Root, Sample(PORTS); EveryKernel),
    ]
}

const PORTS: &str = "net_ports/pps";

/// The counts of this many datagrams received and sent, each of `size` bytes.
fn counts(received: u64, sent: u64, size: u64) -> Counts {
    Counts {
        packets_rx: received,
        packets_tx: sent,
        bytes_rx: received * size,
        bytes_tx: sent * size,
        ..Counts::default()
    }
}

fn port(at: SocketAddr, side: &str) -> [(&'static str, Field); 4] {
    port_of(at, "udp", side)
}

/// A socket with a timeout on reads.
fn socket(at: impl Into<SocketAddr>) -> UdpSocket {
    let socket = UdpSocket::bind(at.into()).expect("bind");
    socket.set_read_timeout(Some(pace::patience(Duration::from_secs(5)))).expect("a time-out");
    socket
}

fn at(socket: &UdpSocket) -> SocketAddr {
    socket.local_addr().expect("its address")
}

/// Connected clients ask one socket that is not connected.
fn asks(family: Family, before: bool) {
    const CLIENTS: usize = 50;
    let config = Config { proto: Proto::Udp, connections: CLIENTS, family, ..Config::default() };
    let size = config.request_size as u64;
    let early = before.then(|| Load::open(config.clone()).expect("sockets"));
    let mut source = load_all();
    let mut traffic = early.unwrap_or_else(|| Load::open(config).expect("sockets"));
    let mut asked = 0;
    for turns in [20, 1, 7] {
        let plan = (0..CLIENTS as u64).map(|i| turns + i % 3).collect();
        let report = traffic.run(&Plan::new(plan), &limits()).expect("a run");
        assert_eq!((report.lost, report.failed, report.unfinished), (0, 0, 0));
        asked += (0..CLIENTS as u64).map(|i| turns + i % 3).sum::<u64>();
        let server = report.connections[0].server;
        let of = counts(asked, asked, size);
        for side in ["server", "client"] {
            assert_eq!(shown(&mut *source, "net_ports", &port(server, side)), of, "{side}, after {asked}");
        }
        let both = counts(2 * asked, 2 * asked, size);
        assert_eq!(shown(&mut *source, "net_procs", &pid(std::process::id())), both, "the process has both ends");
        let opened = snapshot(&mut *source, "net_ports/opened");
        assert_eq!(parts(&opened, &port(server, "client")), [0; 2], "datagrams open nothing");
    }
    note(format!("{asked} datagrams each way"));
}

fn one_server_and_many_clients() {
    asks(Family::V4, false);
}

fn clients_of_ipv6() {
    asks(Family::V6, false);
}

fn sockets_that_were_there_before() {
    asks(Family::V4, true);
}

/// More hosts ask a server than it keeps peers: each host has its whole traffic, in whichever order the hosts ask.
fn one_socket_and_many_hosts() {
    const HOSTS: u64 = 600;
    const ROUNDS: u64 = 3;
    const ASKED: u64 = 10;
    const ANSWERED: u64 = 7;
    let mut source = load_all();
    let server = socket(([127, 0, 0, 1], 0));
    let to = at(&server);
    let clients: Vec<_> =
        (0..HOSTS).map(|i| socket((Ipv4Addr::from(Ipv4Addr::new(127, 9, 0, 0).to_bits() + 1 + i as u32), 0))).collect();
    for round in 0..ROUNDS {
        for i in 0..HOSTS {
            // The stride has no factor in common with the number of hosts, and differs in each round.
            let client = &clients[(i * (7 + 6 * round) % HOSTS) as usize];
            client.send_to(&[1; ASKED as usize], to).expect("ask");
            let (size, from) = server.recv_from(&mut [0; 100]).expect("a question");
            assert_eq!((size as u64, from), (ASKED, at(client)));
            server.send_to(&[2; ANSWERED as usize], from).expect("answer");
            client.recv_from(&mut [0; 100]).expect("an answer");
        }
    }
    for client in &clients {
        let now = Counts {
            packets_rx: ROUNDS,
            packets_tx: ROUNDS,
            bytes_rx: ROUNDS * ASKED,
            bytes_tx: ROUNDS * ANSWERED,
            ..Counts::default()
        };
        assert_eq!(shown(&mut *source, "net_hosts", &host(at(client).ip())), now, "{:?}", at(client));
    }
    let all = HOSTS * ROUNDS;
    let served = Counts {
        packets_rx: all,
        packets_tx: all,
        bytes_rx: all * ASKED,
        bytes_tx: all * ANSWERED,
        ..Counts::default()
    };
    assert_eq!(shown(&mut *source, "net_ports", &port(to, "server")), served);
    let asking = Counts { bytes_rx: served.bytes_tx, bytes_tx: served.bytes_rx, ..served };
    assert_eq!(shown(&mut *source, "net_ports", &port(to, "client")), asking);
}

/// The datagrams that UDP has sent in this namespace, as the kernel counts them.
fn sent_by_udp(ns: &Netns) -> u64 {
    let text = ns.inside(|| std::fs::read_to_string("/proc/thread-self/net/snmp")).expect("/proc");
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with("Udp:")).collect();
    let number = lines[0].split_whitespace().position(|name| name == "OutDatagrams").expect("OutDatagrams");
    lines[1].split_whitespace().nth(number).and_then(|count| count.parse().ok()).expect("a number")
}

/// Each datagram has a separate socket, which is closed at once.
fn sockets_that_send_once() {
    let times = pace::work(10_000, 500);
    let ns = Netns::new("once");
    let mut source = load_all();
    let before = sent_by_udp(&ns);
    let to = ns.inside(|| {
        let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
        for _ in 0..times {
            socket(([127, 0, 0, 1], 0)).send_to(&[1; 10], nobody).expect("send");
        }
        nobody
    });
    assert_eq!(sent_by_udp(&ns) - before, times, "the kernel has counted them");
    let row = [("port", u64::from(to.port()).into()), ("side", "client".into()), ("netns", ns.number().into())];
    assert_eq!(shown(&mut *source, "net_ports", &row), counts(0, times, 10));
}

/// `UDP_SEGMENT`, with and without `UDP_GRO`, and `MSG_MORE`.
fn segments_and_several_calls() {
    const SEGMENT: usize = 1000;
    const SEGMENTS: usize = 12;
    let mut source = load_all();
    let set = |socket: &UdpSocket, option: i32, value: i32| {
        // SAFETY: an int, with its size.
        let done = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, option, (&raw const value).cast(), 4) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    };
    for gro in [0, 1] {
        let (client, server) = (socket(([127, 0, 0, 1], 0)), socket(([127, 0, 0, 1], 0)));
        client.connect(at(&server)).expect("connect");
        set(&client, libc::UDP_SEGMENT, SEGMENT as i32);
        set(&server, libc::UDP_GRO, gro);
        for flags in [SendFlags::MORE, SendFlags::empty()] {
            rustix::net::send(&client, &vec![1; SEGMENT * SEGMENTS / 2], flags).expect("send");
        }
        let mut got = 0;
        while got < SEGMENT * SEGMENTS {
            got += server.recv(&mut [0; 1 << 16]).expect("segments");
        }
        let sent = counts(0, SEGMENTS as u64, SEGMENT as u64);
        let received = counts(SEGMENTS as u64, 0, SEGMENT as u64);
        assert_eq!(shown(&mut *source, "net_ports", &port(at(&server), "client")), sent, "gro {gro}");
        assert_eq!(shown(&mut *source, "net_ports", &port(at(&server), "server")), received, "gro {gro}");
    }
}

/// All threads send by one socket, to different hosts, while readers look: no thread disturbs another one's count.
fn one_socket_of_many_threads() {
    const THREADS: u64 = 4;
    let each = pace::work(5000, 500);
    let mut source = load_all();
    let shared = socket(([127, 0, 0, 1], 0));
    let to = |thread: u64| SocketAddr::from((Ipv4Addr::new(127, 8, 0, 1 + thread as u8), 9));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let shared = &shared;
            scope.spawn(move || {
                for i in 0..each {
                    shared.send_to(&[1; 3], to((thread + i) % THREADS)).expect("send");
                }
            });
        }
        for _ in 0..10 {
            snapshot(&mut *source, "net_hosts/pps");
        }
    });
    for thread in 0..THREADS {
        let address: IpAddr = to(thread).ip();
        assert_eq!(shown(&mut *source, "net_hosts", &host(address)), counts(0, each, 3), "{address}");
    }
    assert_eq!(shown(&mut *source, "net_procs", &pid(std::process::id())), counts(0, THREADS * each, 3));
}

/// A TCP port and a UDP port of one number are two objects. A process has the traffic of both protocols.
fn beside_connections() {
    let mut source = load_all();
    // TCP chooses the port: connections that other processes have closed may still take thousands of TCP ports, but no UDP ports.
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("listen");
    let udp = socket(listener.local_addr().expect("its address"));
    let mut client = std::net::TcpStream::connect(at(&udp)).expect("connect");
    let mut served = listener.accept().expect("accept").0;
    std::io::Write::write_all(&mut client, &[1; 1000]).expect("send");
    std::io::Read::read_exact(&mut served, &mut [0; 1000]).expect("receive");
    let other = socket(([127, 0, 0, 1], 0));
    other.send_to(&[1; 50], at(&udp)).expect("send");
    udp.recv(&mut [0; 100]).expect("receive");
    let bytes = snapshot(&mut *source, "net_ports/bytes");
    for (proto, [received, sent]) in [("tcp", [[1000, 0], [0, 1000]]), ("udp", [[50, 0], [0, 50]])] {
        assert_eq!(parts(&bytes, &port_of(at(&udp), proto, "server")), received, "{proto}");
        assert_eq!(parts(&bytes, &port_of(at(&udp), proto, "client")), sent, "{proto}");
    }
    let bytes = snapshot(&mut *source, "net_procs/bytes");
    assert_eq!(parts(&bytes, &pid(std::process::id())), [1050, 1050], "the process has both");
    drop((client, served));
}

/// A process sends by a socket that another process has made and received by. Where UDP is counted in functions, the sent
/// datagram is the sender's, and the earlier ones stay the maker's. Packets do not show the sender.
fn who_sends_by_a_socket_of_anothers() {
    const RECEIVED: u64 = 7;
    const SENT: u64 = 5;
    let mut source = load_all();
    let (made, other) = (socket(([127, 0, 0, 1], 0)), socket(([127, 0, 0, 1], 0)));
    made.connect(at(&other)).expect("connect");
    other.send_to(&[1; RECEIVED as usize], at(&made)).expect("send");
    made.recv(&mut [0; 100]).expect("receive");
    let mut sender = Command::new("sh");
    sender.args(["-c", "printf %s 12345 >&0"]).stdin(OwnedFd::from(made));
    let mut sender = sender.spawn().expect("sh");
    assert_eq!(other.recv(&mut [0; 100]).expect("receive") as u64, SENT);
    assert!(sender.wait().expect("sh").success());
    let senders = shown(&mut *source, "net_procs", &pid(sender.id()));
    let own = shown(&mut *source, "net_procs", &pid(std::process::id()));
    let sent = counts(0, 1, SENT);
    let before =
        Counts { packets_rx: 2, packets_tx: 1, bytes_rx: RECEIVED + SENT, bytes_tx: RECEIVED, ..Counts::default() };
    let all = Counts { packets_tx: 2, bytes_tx: RECEIVED + SENT, ..before };
    let expected = if counts_by_functions() { [sent, before] } else { [Counts::default(), all] };
    assert_eq!([senders, own], expected);
}

/// `topstat check` shows whether UDP is counted. A valid setting is used, and an invalid one refused.
fn udp_that_is_not_asked_for() {
    let topstat = |words: &[&str], set: Option<&str>| {
        let mut command = role::command("topstat");
        command.args(words).envs(set.map(|set| ("TOPSTAT_NET_UDP", set)));
        let output = command.output().expect("topstat");
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    let of_udp = ["cgroup ingress", "function ip_send_skb"];
    for (set, is_counted) in [(None, true), (Some("yes"), true), (Some("no"), false)] {
        let text = topstat(&["check", "net_procs"], set);
        assert_eq!(of_udp.iter().any(|hook| text.contains(hook)), is_counted, "{set:?}: {text}");
        let not_at_all = text.contains("not at all, as TOPSTAT_NET_UDP=no asks for");
        assert_eq!(not_at_all, !is_counted, "{set:?}: {text}");
    }
    let wrong = topstat(&["top", "--private", PORTS, "0.1", "1"], Some("maybe"));
    assert!(wrong.contains("TOPSTAT_NET_UDP must be yes or no, not 'maybe'"), "{wrong}");
}
