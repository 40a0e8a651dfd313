// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sockets that are more than TCP and UDP to one peer: their traffic is counted, or the sample's page lists it as not counted.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::time::Duration;

use topstat_live::netns::{Bridged, LEFT, RIGHT};
use topstat_live::truth::{self, Truth};
use topstat_live::watch::everything;
use topstat_live::{Case, Key, Netns, Watch, case, instructions, note};

use super::right::{assert_right, exchange};

const UDP_LITE: i32 = 136;

pub fn cases() -> Vec<Case> {
    vec![
        case!(multicast, Root, Netns),
        case!(sockets_that_hand_on_to_each_other, Root),
        case!(kernel_tls, Root, KernelTls; Computed),
        case!(fast_open, Root, Netns),
        case!(mptcp, Root, Protocol(libc::SOCK_STREAM, libc::IPPROTO_MPTCP)),
        case!(udp_lite, Root, Protocol(libc::SOCK_DGRAM, UDP_LITE)),
        case!(sctp, Root, Protocol(libc::SOCK_STREAM, libc::IPPROTO_SCTP); Computed),
    ]
}

const PPS: &str = "tcp_v4/conns_pps";
const BYTES: &str = "tcp_v4/conns_bytes";
const UDP: &str = "udp_v4/conns_pps";
const UDP_BYTES: &str = "udp_v4/conns_bytes";

/// The number and the size of messages in each direction.
const TURNS: usize = 20;
const SIZE: usize = 100;

/// A socket of this kind.
pub fn socket(kind: i32, protocol: i32) -> OwnedFd {
    // SAFETY: the call takes numbers only.
    let socket = unsafe { libc::socket(libc::AF_INET, kind | libc::SOCK_CLOEXEC, protocol) };
    assert!(socket >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: just opened, and owned by no other value.
    unsafe { OwnedFd::from_raw_fd(socket) }
}

/// Sets an option of any structure.
pub fn set<T>(socket: &impl std::os::fd::AsRawFd, level: i32, option: i32, value: &T) {
    // SAFETY: the value exists, and has the given length.
    let done = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), size_of::<T>() as u32)
    };
    assert_eq!(done, 0, "option {option} of {level}: {}", std::io::Error::last_os_error());
}

/// Both ends of a connection of a protocol with TCP's socket calls.
fn connected(protocol: i32) -> (TcpStream, TcpStream) {
    let [listener, client] = [socket(libc::SOCK_STREAM, protocol), socket(libc::SOCK_STREAM, protocol)];
    rustix::net::bind(&listener, &SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    let listener = TcpListener::from(listener);
    rustix::net::connect(&client, &listener.local_addr().unwrap()).unwrap();
    (TcpStream::from(client), listener.accept().unwrap().0)
}

/// The keys of both ends.
fn ends(client: &TcpStream, server: &TcpStream) -> (Key, Key) {
    let (from, to) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
    assert_eq!(server.peer_addr().unwrap(), from);
    (Key::new(from, to), Key::new(to, from))
}

/// TCP_INFO of both ends of a connection that was made while topstat was loaded.
fn truth_of(client: &TcpStream, server: &TcpStream) -> Truth {
    std::thread::sleep(Duration::from_millis(300)); // for delayed acknowledgements
    let (from, to) = ends(client, server);
    let truth: Truth = [(from, truth::tcp_info(client)), (to, truth::tcp_info(server))].into();
    truth
}

/// Checks that the sample's page lists the entry as not counted.
fn assert_listed(what: &str) {
    let page = include_str!("../README.md");
    let section = page.split("\n## ").find(|section| section.starts_with("What is not counted"));
    let listed = section.expect("the section").lines().any(|line| line.starts_with("| ") && line.contains(what));
    assert!(listed, "the page of the sample does not list {what} in its table of what is not counted");
}

/// Every socket that receives a datagram counts it. The sender counts it once, however many sockets receive it.
fn multicast() {
    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
    const PORT: u16 = 5007;
    let net = Bridged::new();
    net.bridge.ip("link set br0 type bridge mcast_snooping 0");
    let mut watch = Watch::load(&[UDP, UDP_BYTES], &everything());
    let receiver = |own: Ipv4Addr| {
        let receiver = socket(libc::SOCK_DGRAM, 0);
        set(&receiver, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1i32);
        rustix::net::bind(&receiver, &SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT)).unwrap();
        let receiver = UdpSocket::from(receiver);
        receiver.join_multicast_v4(&GROUP, &own).unwrap();
        receiver.set_read_timeout(Some(topstat_live::pace::patience(Duration::from_secs(5)))).unwrap();
        receiver
    };
    let mut receivers = net.right.inside(|| vec![receiver(RIGHT), receiver(RIGHT)]);
    let (sender, local) = net.left.inside(|| (UdpSocket::bind((LEFT, 0)).unwrap(), receiver(LEFT)));
    receivers.push(local);
    for _ in 0..TURNS {
        sender.send_to(&[1; SIZE], (GROUP, PORT)).unwrap();
    }
    for receiver in &receivers {
        let received = (0..TURNS).map(|_| receiver.recv(&mut [0; SIZE]).expect("a datagram for all")).sum::<usize>();
        assert_eq!(received, TURNS * SIZE);
    }
    let nobody = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
    let from = Key::new(sender.local_addr().unwrap(), nobody);
    let to = Key::new(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT), nobody);
    for (table, count) in [(UDP, TURNS), (UDP_BYTES, TURNS * SIZE)] {
        let (view, count) = (watch.snapshot(table), count as u64);
        assert_eq!((view.get(from).rx, view.get(from).tx), (0, count), "{table}: the sender");
        for (ns, sockets) in [(&net.right, 2), (&net.left, 1)] {
            let rows: Vec<_> = view.sockets.iter().filter(|s| s.key == to && s.netns == ns.number()).collect();
            assert_eq!(rows.len(), sockets, "{table}: {rows:?}");
            assert!(rows.iter().all(|s| (s.rx, s.tx) == (count, 0)), "{table}: {rows:?}");
        }
    }
}

/// Data in the SYN (TCP Fast Open) counts for the connection, at both ends. The first connection receives the cookie, and the
/// second one uses it.
fn fast_open() {
    const TFO_CLIENT_AND_SERVER: &str = "3";
    let ns = Netns::new("fast-open");
    let mut watch = Watch::load(&[PPS, BYTES], &everything());
    ns.inside(|| {
        std::fs::write("/proc/sys/net/ipv4/tcp_fastopen", TFO_CLIENT_AND_SERVER).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set(&listener, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, &16i32);
        let to = listener.local_addr().unwrap();
        for with_cookie in [false, true] {
            let client = socket(libc::SOCK_STREAM, libc::IPPROTO_TCP);
            set(&client, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, &1i32);
            // With a cookie the connection begins with the first bytes.
            rustix::net::connect(&client, &to).unwrap();
            let mut client = TcpStream::from(client);
            client.write_all(&[7; SIZE]).unwrap();
            let mut server = listener.accept().unwrap().0;
            server.read_exact(&mut [0; SIZE]).unwrap();
            exchange(&mut client, &mut server, SIZE, TURNS);
            assert_eq!(data_was_in_syn(&client), with_cookie, "the SYN had data");
            let truth = truth_of(&client, &server);
            assert_right(&watch.snapshot(PPS), &watch.snapshot(BYTES), &truth);
            note(format!("data in the SYN: {with_cookie}, {truth:?}"));
        }
    });
}

/// Whether the peer has acknowledged data that was in the SYN.
fn data_was_in_syn(socket: &TcpStream) -> bool {
    const TCPI_OPT_SYN_DATA: u8 = 32;
    // SAFETY: plain data.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes no more than the length that is given.
    let done = unsafe {
        libc::getsockopt(
            std::os::fd::AsRawFd::as_raw_fd(socket),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            std::ptr::from_mut(&mut info).cast(),
            &raw mut length,
        )
    };
    assert_eq!(done, 0, "TCP_INFO: {}", std::io::Error::last_os_error());
    info.tcpi_options & TCPI_OPT_SYN_DATA != 0
}

/// Data that an eBPF program passes from one socket to another (sockmap) never reaches TCP, nor TCP_INFO. Data through TCP is
/// counted as usual.
fn sockets_that_hand_on_to_each_other() {
    const BPF_SK_MSG_VERDICT: u32 = 7;
    let mut watch = Watch::load(&[PPS, BYTES], &everything());
    let (mut client, mut server) = connected(libc::IPPROTO_TCP);
    exchange(&mut client, &mut server, SIZE, TURNS);
    let before = truth_of(&client, &server);

    let sockets = instructions::sockmap(1).expect("make a map of sockets");
    let program = instructions::hand_on(&sockets).expect("load the program that hands on");
    instructions::attach(&sockets, &program, BPF_SK_MSG_VERDICT, 0).expect("attach it");
    // Data sent on a socket of the map is handed to socket 0 of the map: the server hands its own data to itself.
    instructions::put(&sockets, 0, &server).expect("put the socket into the map");
    for _ in 0..TURNS {
        server.write_all(&[2; SIZE]).unwrap();
        let mut buffer = [0; SIZE];
        server.read_exact(&mut buffer).unwrap();
        assert_eq!(buffer, [2; SIZE], "it was handed on");
    }
    assert_eq!(truth_of(&client, &server), before, "TCP knows nothing of it");
    drop((sockets, program));
    assert_right(&watch.snapshot(PPS), &watch.snapshot(BYTES), &before);
    assert_listed("sockmap");
}

/// The payload of TCP then consists of TLS records.
fn kernel_tls() {
    const SOL_TLS: i32 = 282;
    const TLS_TX: i32 = 1;
    const TLS_RX: i32 = 2;
    let mut watch = Watch::load(&[PPS, BYTES], &everything());
    let (mut client, mut server) = connected(libc::IPPROTO_TCP);
    // struct tls12_crypto_info_aes_gcm_128: version 1.2, cipher 51, then iv, key, salt and sequence.
    let mut keys = [7u8; 40];
    keys[..2].copy_from_slice(&0x0303u16.to_ne_bytes());
    keys[2..4].copy_from_slice(&51u16.to_ne_bytes());
    for socket in [&client, &server] {
        set(socket, libc::IPPROTO_TCP, libc::TCP_ULP, b"tls\0");
        set(socket, SOL_TLS, TLS_TX, &keys);
        set(socket, SOL_TLS, TLS_RX, &keys);
    }
    exchange(&mut client, &mut server, SIZE, TURNS);
    let truth = truth_of(&client, &server);
    assert_right(&watch.snapshot(PPS), &watch.snapshot(BYTES), &truth);
    let sent = truth[&ends(&client, &server).0].bytes_tx;
    assert!(sent > (TURNS * SIZE) as u64, "{sent} bytes are not encrypted");
    note(format!("{} bytes as {sent}", TURNS * SIZE));
}

/// A connection with several paths is several TCP connections, each with a row.
fn mptcp() {
    let mut watch = Watch::load(&[PPS, BYTES], &everything());
    let (mut client, mut server) = connected(libc::IPPROTO_MPTCP);
    exchange(&mut client, &mut server, SIZE, TURNS);
    let (from, to) = ends(&client, &server);
    let truth = truth_of(&client, &server);
    let (pps, bytes) = (watch.snapshot(PPS), watch.snapshot(BYTES));
    assert_right(&pps, &bytes, &truth);
    let payload = (TURNS * SIZE) as u64;
    for key in [from, to] {
        assert_eq!((bytes.get(key).rx, bytes.get(key).tx), (payload, payload), "{key:?}");
    }
    note(format!("shown as process {:?} and {:?}", pps.get(from).pid, pps.get(to).pid));
}

/// Checks that no sample has a row with the port.
fn nobody(watch: &mut Watch, port: u16) {
    for table in [PPS, UDP] {
        let view = watch.snapshot(table);
        let found: Vec<_> =
            view.sockets.iter().filter(|s| [s.key.local.port(), s.key.remote.port()].contains(&port)).collect();
        assert!(found.is_empty(), "{table}: {found:?}");
    }
}

fn udp_lite() {
    let mut watch = Watch::load(&[PPS, UDP], &everything());
    let [a, b] = [(); 2].map(|()| UdpSocket::from(socket(libc::SOCK_DGRAM, UDP_LITE)));
    for socket in [&a, &b] {
        rustix::net::bind(socket, &SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)).unwrap();
    }
    let port = b.local_addr().unwrap().port();
    for _ in 0..TURNS {
        a.send_to(&[1; SIZE], (Ipv4Addr::LOCALHOST, port)).unwrap();
        assert_eq!(b.recv(&mut [0; SIZE]).unwrap(), SIZE);
    }
    nobody(&mut watch, port);
    assert_listed("UDP-Lite");
}

fn sctp() {
    let mut watch = Watch::load(&[PPS, UDP], &everything());
    let (mut client, mut server) = connected(libc::IPPROTO_SCTP);
    exchange(&mut client, &mut server, SIZE, TURNS);
    nobody(&mut watch, client.peer_addr().unwrap().port());
    assert_listed("SCTP");
}
