// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Datagrams of every kind are counted once, at both ends, in the sample of their socket, in either variant of counting. Also
//! which variant runs.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use rustix::net::SendFlags;
use topstat_kernel::{Options, load_state};
use topstat_live::attached::runs_missed;
use topstat_live::nest::{counts_by_functions, inet};
use topstat_live::netns::{Bridged, LEFT, RIGHT};
use topstat_live::watch::{Socket, everything, table};
use topstat_live::{Case, Key, Netns, View, Watch, case, note, pace, role};

use super::protocols::{set, socket};

pub fn cases() -> Vec<Case> {
    vec![
        case!(one_way_is_attached, Root; EveryKernel),
        case!(a_way_that_is_asked_for, Root; EveryKernel),
        case!(made_up_of_several_calls, Root, Ipv6; EveryKernel, Gate),
        case!(segments_of_every_family, Root, Ipv6; EveryKernel, Gate),
        case!(behind_options, Root, Ipv6; EveryKernel),
        case!(cut_into_fragments, Root, Netns; EveryKernel),
        case!(refused_by_a_full_buffer, Root; EveryKernel),
        case!(refused_by_a_filter, Root; EveryKernel),
        case!(not_sent, Root, Netns; EveryKernel),
        case!(of_raw_sockets, Root; EveryKernel),
        case!(from_many_threads, Root; EveryKernel),
    ]
}

const TABLES: [&str; 4] = ["udp_v4/conns_pps", "udp_v4/conns_bytes", "udp_v6/conns_pps", "udp_v6/conns_bytes"];

/// How two sockets see each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    V4,
    V6,
    /// Sockets of IPv6 that exchange IPv4.
    Mapped,
}

const KINDS: [Kind; 3] = [Kind::V4, Kind::V6, Kind::Mapped];

/// Two sockets that are connected to each other.
struct Pair {
    kind: Kind,
    one: UdpSocket,
    other: UdpSocket,
}

impl Pair {
    fn new(kind: Kind) -> Self {
        let any = match kind {
            Kind::V4 => "127.0.0.1:0",
            Kind::V6 => "[::1]:0",
            Kind::Mapped => "[::ffff:127.0.0.1]:0",
        };
        let [one, other] = [(); 2].map(|()| UdpSocket::bind(any).unwrap());
        one.connect(other.local_addr().unwrap()).unwrap();
        other.connect(one.local_addr().unwrap()).unwrap();
        other.set_read_timeout(Some(pace::patience(Duration::from_secs(5)))).unwrap();
        Self { kind, one, other }
    }

    /// Checks that both ends have counted this many packets and bytes, from `one` to `other`, in the sample of the sockets alone.
    fn assert_counted(&self, watch: &mut Watch, packets: u64, bytes: u64, title: &str) {
        let ends = [&self.one, &self.other].map(|socket| {
            let shown = socket.local_addr().unwrap();
            SocketAddr::new(shown.ip().to_canonical(), shown.port())
        });
        let [sender, receiver] = [Key::new(ends[0], ends[1]), Key::new(ends[1], ends[0])];
        let own = if self.kind == Kind::V4 { "udp_v4" } else { "udp_v6" };
        for (path, count) in TABLES.into_iter().zip([packets, bytes, packets, bytes]) {
            let view = watch.snapshot(path);
            let shown = [sender, receiver].map(|key| view.find(key).map(|row| (row.rx, row.tx)));
            let expected = if path.starts_with(own) { [Some((0, count)), Some((count, 0))] } else { [None; 2] };
            assert_eq!(shown, expected, "{title}, {:?}, {path}: {}", self.kind, view.summary());
        }
    }

    fn receive(&self) -> usize {
        self.other.recv(&mut [0; 1 << 16]).expect("a datagram")
    }
}

/// The hooks of a state that only counts UDP, by their names.
fn hooks() -> Vec<String> {
    let state = load_state(inet(), &[table(TABLES[0])], &Options::default()).expect("load");
    state.programs().into_iter().map(|program| program.hook).collect()
}

/// Where UDP is counted by its functions, packets of TCP run no program of UDP.
fn one_way_is_attached() {
    let hooks = hooks();
    let has = |name: &str| hooks.iter().any(|hook| hook == name);
    let functions =
        ["__udp_enqueue_schedule_skb", "ip_send_skb", "ip6_send_skb"].map(|f| has(&format!("function {f}")));
    assert_eq!(functions, [counts_by_functions(); 3], "{hooks:?}");
    assert_eq!(["cgroup ingress", "cgroup egress"].map(has), [!counts_by_functions(); 2], "{hooks:?}");
    note(hooks.join(", "));
}

/// `topstat check` shows the variant and the reason. A valid setting is used, and an invalid one refused.
fn a_way_that_is_asked_for() {
    let topstat = |words: &[&str], way: Option<&str>| {
        let mut command = role::command("topstat");
        command.args(words).envs(way.map(|way| ("TOPSTAT_UDP", way)));
        let output = command.output().expect("topstat");
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    let check = |way| {
        let text = topstat(&["check", "udp_v4"], way);
        let found = text.lines().find(|line| line.contains("counting of UDP"));
        found.unwrap_or_else(|| panic!("nothing about UDP: {text}")).to_owned()
    };
    let (as_it_is, packets) = (check(None), check(Some("packets")));
    assert_eq!(as_it_is.contains("by its own functions"), counts_by_functions(), "{as_it_is}");
    assert!(packets.contains("by its packets") && packets.contains("as TOPSTAT_UDP=packets asks for"), "{packets}");
    let wrong = topstat(&["top", "--private", TABLES[0], "0.1", "1"], Some("bytes"));
    assert!(wrong.contains("TOPSTAT_UDP must be functions or packets, not 'bytes'"), "{wrong}");
    note(as_it_is);
}

/// `MSG_MORE` and `UDP_CORK`.
fn made_up_of_several_calls() {
    let mut watch = Watch::load(&TABLES, &everything());
    for kind in KINDS {
        let pair = Pair::new(kind);
        for flags in [SendFlags::MORE, SendFlags::MORE, SendFlags::empty()] {
            assert_eq!(rustix::net::send(&pair.one, &[1; 700], flags).unwrap(), 700);
        }
        assert_eq!(pair.receive(), 2100);
        pair.assert_counted(&mut watch, 1, 2100, "MSG_MORE");
        set(&pair.one, libc::SOL_UDP, libc::UDP_CORK, &1i32);
        for _ in 0..5 {
            pair.one.send(&[2; 10]).unwrap();
        }
        pair.assert_counted(&mut watch, 1, 2100, "nothing is sent yet");
        set(&pair.one, libc::SOL_UDP, libc::UDP_CORK, &0i32);
        assert_eq!(pair.receive(), 50);
        pair.assert_counted(&mut watch, 2, 2150, "UDP_CORK");
    }
}

/// `UDP_SEGMENT` and `UDP_GRO`; the last segment is shorter. Sent by one call, and by several calls.
fn segments_of_every_family() {
    const SEGMENT: usize = 1000;
    const SEGMENTS: usize = 12;
    const ALL: usize = SEGMENT * (SEGMENTS - 1) + 7;
    let mut watch = Watch::load(&TABLES, &everything());
    for kind in KINDS {
        for gro in [0i32, 1] {
            let pair = Pair::new(kind);
            set(&pair.one, libc::SOL_UDP, libc::UDP_SEGMENT, &(SEGMENT as i32));
            set(&pair.other, libc::SOL_UDP, libc::UDP_GRO, &gro);
            for (round, first) in [ALL, 1700].into_iter().enumerate() {
                let flags = if first < ALL { SendFlags::MORE } else { SendFlags::empty() };
                rustix::net::send(&pair.one, &vec![1; first], flags).unwrap();
                if first < ALL {
                    pair.one.send(&vec![1; ALL - first]).unwrap();
                }
                let (mut got, mut reads) = (0, 0);
                while got < ALL {
                    got += pair.receive();
                    reads += 1;
                }
                let rounds = round + 1;
                let (packets, bytes) = ((rounds * SEGMENTS) as u64, (rounds * ALL) as u64);
                pair.assert_counted(&mut watch, packets, bytes, &format!("first {first}, gro {gro}"));
                note(format!("{kind:?}: {SEGMENTS} segments, {reads} receives"));
            }
        }
    }
}

/// Options of IPv4 and extension headers of IPv6 do not count as payload.
fn behind_options() {
    /// Three no-operations, and the end of options.
    const IP: [u8; 4] = [1, 1, 1, 0];
    /// Eight bytes: the first two are the header, the others padding.
    const DESTINATION: [u8; 8] = [0, 0, 1, 4, 0, 0, 0, 0];
    let mut watch = Watch::load(&TABLES, &everything());
    for kind in [Kind::V4, Kind::V6] {
        let pair = Pair::new(kind);
        if kind == Kind::V4 {
            set(&pair.one, libc::SOL_IP, libc::IP_OPTIONS, &IP);
        } else {
            set(&pair.one, libc::SOL_IPV6, libc::IPV6_DSTOPTS, &DESTINATION);
        }
        for _ in 0..3 {
            pair.one.send(&[1; 100]).unwrap();
            assert_eq!(pair.receive(), 100);
        }
        pair.assert_counted(&mut watch, 3, 300, "options");
    }
}

fn of(view: &View, key: Key) -> (u64, u64) {
    view.find(key).map_or((0, 0), |row| (row.rx, row.tx))
}

/// A datagram that IP cuts into fragments counts once, at both ends.
fn cut_into_fragments() {
    const SIZE: usize = 9000;
    let net = Bridged::new();
    let mut watch = Watch::load(&TABLES, &everything());
    let sender = net.left.inside(|| UdpSocket::bind((LEFT, 0)).unwrap());
    let receiver = net.right.inside(|| UdpSocket::bind((RIGHT, 0)).unwrap());
    let (from, to) = (sender.local_addr().unwrap(), receiver.local_addr().unwrap());
    sender.connect(to).unwrap();
    receiver.connect(from).unwrap();
    receiver.set_read_timeout(Some(pace::patience(Duration::from_secs(5)))).unwrap();
    for _ in 0..5 {
        sender.send(&[1; SIZE]).unwrap();
        assert_eq!(receiver.recv(&mut [0; SIZE]).unwrap(), SIZE);
    }
    for (path, count) in TABLES.into_iter().zip([5, 5 * SIZE as u64]) {
        let view = watch.snapshot(path);
        let shown = [of(&view, Key::new(from, to)), of(&view, Key::new(to, from))];
        assert_eq!(shown, [(0, count), (count, 0)], "{path}: {}", view.summary());
    }
}

/// Datagrams that a full buffer refuses count as received.
fn refused_by_a_full_buffer() {
    const DATAGRAMS: u64 = 200;
    let mut watch = Watch::load(&TABLES, &everything());
    let pair = Pair::new(Kind::V4);
    set(&pair.other, libc::SOL_SOCKET, libc::SO_RCVBUF, &4096i32);
    for _ in 0..DATAGRAMS {
        pair.one.send(&[1; 1000]).unwrap();
    }
    pair.assert_counted(&mut watch, DATAGRAMS, 1000 * DATAGRAMS, "a full buffer");
    pair.other.set_nonblocking(true).unwrap();
    let got = std::iter::repeat_with(|| pair.other.recv(&mut [0; 1000])).take_while(io::Result::is_ok).count();
    assert!((got as u64) < DATAGRAMS, "the buffer was large enough for all");
    note(format!("{got} of {DATAGRAMS} were kept"));
}

/// Datagrams that the socket's own filter refuses count as received where packets are counted: they are counted before the
/// filter.
fn refused_by_a_filter() {
    const DATAGRAMS: u64 = 20;
    let mut watch = Watch::load(&TABLES, &everything());
    let pair = Pair::new(Kind::V4);
    // One instruction, return 0: no byte of the packet is let in.
    let mut nothing = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 };
    let filter = libc::sock_fprog { len: 1, filter: &raw mut nothing };
    set(&pair.other, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter);
    for _ in 0..DATAGRAMS {
        pair.one.send(&[1; 10]).unwrap();
    }
    let (from, to) = (pair.one.local_addr().unwrap(), pair.other.local_addr().unwrap());
    let view = watch.snapshot(TABLES[0]);
    let received = if counts_by_functions() { 0 } else { DATAGRAMS };
    let shown = [of(&view, Key::new(from, to)), of(&view, Key::new(to, from))];
    assert_eq!(shown, [(0, DATAGRAMS), (received, 0)], "{}", view.summary());
}

/// Sends that UDP does not hand to IP are not counted: too large, no route, an aborted call.
fn not_sent() {
    let ns = Netns::new("nowhere");
    let mut watch = Watch::load(&TABLES, &everything());
    let socket = ns.inside(|| UdpSocket::bind("127.0.0.1:0")).unwrap();
    let from = Key::new(socket.local_addr().unwrap(), SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0));
    let to: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let errno = |sent: io::Result<usize>| sent.expect_err("it can't be sent").raw_os_error();
    for _ in 0..5 {
        assert_eq!(errno(socket.send_to(&vec![1; 65_508], to)), Some(libc::EMSGSIZE));
        assert!(errno(socket.send_to(&[1], "10.1.2.3:9")).is_some());
    }
    assert_eq!(of(&watch.snapshot(TABLES[0]), from), (0, 0), "nothing is sent yet");
    for _ in 0..3 {
        socket.send_to(&[1; 10], to).unwrap();
    }
    for (path, count) in TABLES.into_iter().zip([3, 30]) {
        assert_eq!(of(&watch.snapshot(path), from), (0, count), "{path}");
    }
}

/// A raw socket that sends datagrams is no UDP socket; their receiver is one.
fn of_raw_sockets() {
    const PAYLOAD: usize = 24;
    let mut watch = Watch::load(&TABLES, &everything());
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(pace::patience(Duration::from_secs(5)))).unwrap();
    let to = receiver.local_addr().unwrap();
    let raw = socket(libc::SOCK_RAW, libc::IPPROTO_UDP);
    // The UDP header: from port 7, to the receiver, the length, and no checksum.
    let length = (8 + PAYLOAD) as u16;
    let header = [7, to.port(), length, 0].map(u16::to_be_bytes).concat();
    let datagram = [header, vec![1; PAYLOAD]].concat();
    for _ in 0..3 {
        let sent = rustix::net::sendto(&raw, &datagram, SendFlags::empty(), &SocketAddr::new(to.ip(), 0)).unwrap();
        assert_eq!((sent, receiver.recv(&mut [0; 100]).unwrap()), (datagram.len(), PAYLOAD), "{}", raw.as_raw_fd());
    }
    let nobody = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
    for (path, count) in TABLES.into_iter().zip([3, 3 * PAYLOAD as u64]) {
        let view = watch.snapshot(path);
        assert_eq!(of(&view, Key::new(to, nobody)), (count, 0), "{path}");
        let own = |row: &&Socket| row.pid == Some(std::process::id().into()) && row.tx > 0;
        assert!(view.sockets.iter().find(own).is_none(), "{path}: {}", view.summary());
    }
}

/// All threads send at the same time, by one shared socket and by one separate socket each: no thread disturbs another one's
/// count.
fn from_many_threads() {
    const THREADS: u64 = 4;
    let each = pace::work(5000, 500);
    let mut watch = Watch::load(&TABLES, &everything());
    let shared = UdpSocket::bind("127.0.0.1:0").unwrap();
    let own: Vec<_> = (0..THREADS).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let to = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9);
    std::thread::scope(|scope| {
        for own in &own {
            scope.spawn(|| {
                for _ in 0..each {
                    shared.send_to(&[1; 3], to).unwrap();
                    own.send_to(&[1; 5], to).unwrap();
                }
            });
        }
    });
    let nobody = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
    let key = |socket: &UdpSocket| Key::new(socket.local_addr().unwrap(), nobody);
    for (path, [together, alone]) in TABLES.into_iter().zip([[1, 1], [3, 5]]) {
        let view = watch.snapshot(path);
        assert_eq!(runs_missed("inet_sent"), 0, "{path}: {}", view.summary());
        assert_eq!(of(&view, key(&shared)), (0, THREADS * each * together), "{path}");
        for own in &own {
            assert_eq!(of(&view, key(own)), (0, each * alone), "{path}");
        }
    }
    note(format!("{} datagrams", 2 * THREADS * each));
}
