// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traffic that the kernel wraps on its way, as a table of tunnels: each socket is counted right, or the unknown part is in
//! `lost`. The sample's page lists traffic without any row.

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::process::Command;

use topstat_live::nest::counts_by_functions;
use topstat_live::truth::{self, key};
use topstat_live::watch::everything;
use topstat_live::{Case, End, Key, Netns, View, Watch, case, limits, note, pace};
use topstat_load::{Addresses, Config, Family, Load, Plan, Proto, UdpServer};

use super::right::assert_right;

pub fn cases() -> Vec<Case> {
    vec![
        case!(vxlan, Root, Netns, Ip("link add test type vxlan id 1 dstport 4789")),
        case!(geneve, Root, Netns, Ip("link add test type geneve id 1 remote 10.98.0.9")),
        case!(gre, Root, Netns, Ip("link add test type gre remote 10.98.0.9"); Computed),
        case!(ipv6_in_ipv4, Root, Netns, Ip("link add test type sit remote 10.98.0.9")),
        case!(ipv4_in_ipv6, Root, Netns, Ip("link add test type ip6tnl mode ipip6 remote fd98::9")),
        case!(ipv4_in_udp, Root, Netns, Module("fou"), Ip(FOU); Computed),
        case!(ipvlan, Root, Netns, Ip("link add test type veth; link add link test type ipvlan mode l2"); Computed),
        case!(l2tp, Root, Netns, Ip(L2TP)),
        case!(wireguard, Root, Netns, WireGuard; Computed),
        case!(ipsec_transport, Root, Netns, Ip(ESP); EveryKernel),
        case!(ipsec_authentication, Root, Netns, Ip(AH)),
        case!(ipsec_compression, Root, Netns, Ip(COMPRESSION); Computed),
        case!(ipsec_tunnel, Root, Netns, Ip(ESP)),
        case!(ipsec_through_nat, Root, Netns, Ip(ESP)),
        case!(ipsec_device, Root, Netns, Ip("link add test type xfrm dev lo if_id 1"), Ip(ESP); EveryKernel),
        case!(ipsec_device_by_mark, Root, Netns, Ip(VTI), Ip(ESP); Computed),
        case!(a_socket_of_the_kernel_ends, Root, Netns, Ip(L2TP); EveryKernel, Gate),
    ]
}

const FOU: &str = "fou add port 5555 ipproto 4; \
                   link add test type ipip remote 10.98.0.9 encap fou encap-sport auto encap-dport 5555";

const VTI: &str = "link add test type vti local 10.98.0.1 remote 10.98.0.2 key 1";

const ESP: &str = "xfrm state add src 10.98.0.1 dst 10.98.0.2 proto esp spi 1 mode transport aead rfc4106(gcm(aes)) \
                   0x0102030405060708090a0b0c0d0e0f1011121314 128";

const AH: &str = "xfrm state add src 10.98.0.1 dst 10.98.0.2 proto ah spi 1 mode transport \
                  auth hmac(sha256) 0x0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20";

const COMPRESSION: &str = "xfrm state add src 10.98.0.1 dst 10.98.0.2 proto comp spi 1 mode transport comp deflate";

const L2TP: &str = "l2tp add tunnel tunnel_id 1 peer_tunnel_id 1 encap udp local 127.0.0.1 remote 127.0.0.1 \
                    udp_sport 1701 udp_dport 1702";

/// The two ends of the cable that all tunnels go through, and the addresses inside the tunnels.
const OWN: [&str; 2] = ["10.98.0.1", "10.98.0.2"];
const OWN6: [&str; 2] = ["fd98::1", "fd98::2"];
const INSIDE: [&str; 2] = ["10.97.0.1", "10.97.0.2"];
const INSIDE6: [&str; 2] = ["fd97::1", "fd97::2"];

/// The connections of a load, and the size of their messages.
const CONNECTIONS: usize = 5;
const SIZE: usize = 500;

/// The addresses of the sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sockets {
    /// The addresses of the cable itself.
    Own,
    Inside,
    Inside6,
}

/// What topstat shows of the senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// All packets and their payload.
    All,
    /// The packets of a connected socket, without their payload; nothing of a socket that is not connected.
    Packets,
    /// As `Packets`, but packets without payload may be sent unwrapped.
    SomePackets,
}

struct Tunnel {
    /// Commands of `ip` at both ends. `{own}` is the address of the end's cable, `{far}` the other end's; `{own6}`, `{far6}`,
    /// `{in}` … likewise; `{left}` and `{right}` stand for the same addresses at both ends.
    both: Vec<String>,
    /// Further steps. Their results live as long as the tunnel.
    further: fn(&Ends) -> Vec<Box<dyn Any>>,
    sockets: Sockets,
    shown: Shown,
}

impl Tunnel {
    /// A tunnel made by these commands; its sockets have inside addresses, and are all shown.
    fn of(both: &[&str]) -> Self {
        let both = both.iter().map(|words| (*words).to_owned()).collect();
        Self { both, further: |_| Vec::new(), sockets: Sockets::Inside, shown: Shown::All }
    }

    /// A tunnel device of this kind.
    fn device(kind: &str) -> Self {
        Self::of(&[&format!("link add tun7 {kind}"), "address add {in}/24 dev tun7", "link set tun7 up"])
    }

    fn and(mut self, words: impl IntoIterator<Item = String>) -> Self {
        self.both.extend(words);
        self
    }
}

/// Two namespaces and a cable.
struct Ends {
    ns: [Netns; 2],
}

impl Ends {
    fn new() -> Self {
        let ns = [Netns::new("left"), Netns::new("right")];
        ns[0].ip(&format!("link add eth0 type veth peer name eth0 netns {}", ns[1].name()));
        for (end, ns) in ns.iter().enumerate() {
            ns.ip(&format!("address add {}/24 dev eth0", OWN[end]));
            ns.ip(&format!("address add {}/64 dev eth0 nodad", OWN6[end]));
            ns.ip("link set eth0 up");
        }
        Self { ns }
    }

    fn set_up(&self, tunnel: &Tunnel) -> Vec<Box<dyn Any>> {
        for (end, ns) in self.ns.iter().enumerate() {
            let far = 1 - end;
            for words in &tunnel.both {
                let words = words
                    .replace("{own}", OWN[end])
                    .replace("{far}", OWN[far])
                    .replace("{own6}", OWN6[end])
                    .replace("{far6}", OWN6[far])
                    .replace("{in}", INSIDE[end])
                    .replace("{far in}", INSIDE[far])
                    .replace("{in6}", INSIDE6[end])
                    .replace("{left}", OWN[0])
                    .replace("{right}", OWN[1]);
                ns.ip(&words);
            }
        }
        (tunnel.further)(self)
    }

    fn config(&self, tunnel: &Tunnel, proto: Proto, udp_server: UdpServer) -> Config {
        let addresses = match tunnel.sockets {
            Sockets::Own => OWN,
            Sockets::Inside => INSIDE,
            Sockets::Inside6 => INSIDE6,
        };
        let [from, to]: [IpAddr; 2] = addresses.map(|text| text.parse().expect("an address"));
        Config {
            proto,
            udp_server,
            family: if from.is_ipv6() { Family::V6 } else { Family::V4 },
            connections: CONNECTIONS,
            request_size: SIZE,
            sources: Addresses::List(vec![from]),
            destinations: Addresses::List(vec![to]),
            allow_addresses: vec![from, to],
            client_netns: Some(self.ns[0].path()),
            server_netns: Some(self.ns[1].path()),
            ..Config::default()
        }
    }

    /// Fails if a socket in these namespaces that is not the load's has a row, for example a tunnel's own.
    fn nobody_else(&self, view: &View, known: &dyn Fn(Key) -> bool) {
        let own = self.ns.each_ref().map(Netns::number);
        let others: Vec<_> = view.sockets.iter().filter(|s| own.contains(&s.netns) && !known(s.key)).collect();
        assert!(others.is_empty(), "rows of others: {others:#?}");
    }
}

fn opaque(view: &View) -> u64 {
    let counters = &view.snapshot.lost.further;
    counters.iter().find(|(name, _)| name == "opaque").expect("the counter 'opaque'").1
}

fn check(tunnel: &Tunnel) {
    let ends = Ends::new();
    let _kept = ends.set_up(tunnel);
    tcp(&ends, tunnel);
    udp(&ends, tunnel);
    if tunnel.shown != Shown::All {
        udp_unconnected(&ends, tunnel);
    }
}

fn tcp(ends: &Ends, tunnel: &Tunnel) {
    let sample = if tunnel.sockets == Sockets::Inside6 { "tcp_v6" } else { "tcp_v4" };
    let [pps, bytes] = ["conns_pps", "conns_bytes"].map(|table| format!("{sample}/{table}"));
    let mut load = Load::open(ends.config(tunnel, Proto::Tcp, UdpServer::Shared)).unwrap();
    load.run(&Plan::new(vec![1; CONNECTIONS]), &limits()).unwrap();
    let before = truth::settled(&load);
    let mut watch = Watch::load(&[&pps, &bytes], &everything());
    let turns = pace::work(50, 10);
    let report = load.run(&Plan::new(vec![turns; CONNECTIONS]), &limits()).unwrap();
    assert_eq!((report.failed, report.unfinished), (0, 0));
    let truth = truth::difference(&before, &truth::settled(&load));
    let (pps, bytes) = (watch.snapshot(&pps), watch.snapshot(&bytes));
    let sent: u64 = truth.values().map(|counts| counts.packets_tx).sum();
    // TCP's own counters include the payload that wrapped packets hide.
    assert_right(&pps, &bytes, &truth);
    assert_eq!((opaque(&pps), opaque(&bytes)), (0, 0), "nothing is lost");
    for view in [&pps, &bytes] {
        ends.nobody_else(view, &|key| truth.contains_key(&key));
    }
    note(format!("TCP: {sent} packets, {} lost in bytes", opaque(&bytes)));
}

fn udp(ends: &Ends, tunnel: &Tunnel) {
    let sample = if tunnel.sockets == Sockets::Inside6 { "udp_v6" } else { "udp_v4" };
    let [pps, bytes] = ["conns_pps", "conns_bytes"].map(|table| format!("{sample}/{table}"));
    let mut watch = Watch::load(&[&pps, &bytes], &everything());
    let mut load = Load::open(ends.config(tunnel, Proto::Udp, UdpServer::PerClient)).unwrap();
    let turns = pace::work(50, 10);
    let report = load.run(&Plan::new(vec![turns; CONNECTIONS]), &limits()).unwrap();
    assert_eq!((report.lost, report.failed, report.unfinished), (0, 0, 0));
    let (pps, bytes) = (watch.snapshot(&pps), watch.snapshot(&bytes));
    let (all, size) = (2 * turns * CONNECTIONS as u64, SIZE as u64);
    // Datagrams are counted before IPsec, where nothing is hidden.
    let is_shown = tunnel.shown == Shown::All || counts_by_functions();
    let sent = if is_shown { turns * size } else { 0 };
    let keys: Vec<_> = load.connections().iter().flat_map(|c| [key(c, End::Client), key(c, End::Server)]).collect();
    for key in &keys {
        let (packets, payload) = (pps.get(*key), bytes.get(*key));
        assert_eq!((packets.rx, packets.tx), (turns, turns), "{key:?}");
        assert_eq!((payload.rx, payload.tx), (turns * size, sent), "{key:?}");
    }
    let lost = if is_shown { 0 } else { all };
    assert_eq!((opaque(&pps), opaque(&bytes)), (0, lost));
    for view in [&pps, &bytes] {
        ends.nobody_else(view, &|key| keys.contains(&key));
    }
    note(format!("UDP: {all} packets, {lost} lost in bytes"));
}

/// The kernel keeps no route for a socket that sends to many. So where packets are counted, all its sent packets are lost.
fn udp_unconnected(ends: &Ends, tunnel: &Tunnel) {
    let [pps, bytes] = ["udp_v4/conns_pps", "udp_v4/conns_bytes"];
    let mut watch = Watch::load(&[pps, bytes], &everything());
    let mut load = Load::open(ends.config(tunnel, Proto::Udp, UdpServer::Shared)).unwrap();
    let turns = pace::work(50, 10);
    let report = load.run(&Plan::new(vec![turns; CONNECTIONS]), &limits()).unwrap();
    assert_eq!((report.lost, report.failed, report.unfinished), (0, 0, 0));
    let (pps, bytes) = (watch.snapshot(pps), watch.snapshot(bytes));
    let all = turns * CONNECTIONS as u64;
    let server = Key::new(report.connections[0].server, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0));
    let (sent, lost) = if counts_by_functions() { (all, 0) } else { (0, all) };
    assert_eq!((pps.get(server).rx, pps.get(server).tx), (all, sent));
    assert_eq!((bytes.get(server).rx, bytes.get(server).tx), (all * SIZE as u64, sent * SIZE as u64));
    // The clients are connected, so their datagrams count as packets.
    assert_eq!((opaque(&pps), opaque(&bytes)), (lost, 2 * lost));
}

/// Runs a command with this input to its end.
fn command(words: &str, input: &str) -> String {
    let mut parts = words.split_whitespace();
    let mut command = Command::new(parts.next().expect("a program"));
    command.args(parts).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{words}: {e}"));
    std::io::Write::write_all(&mut child.stdin.take().expect("its input"), input.as_bytes()).expect("tell it");
    let output = child.wait_with_output().expect("its output");
    assert!(output.status.success(), "{words}: {}", output.status);
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

fn wireguard_keys(ends: &Ends) -> Vec<Box<dyn Any>> {
    let private = [command("wg genkey", ""), command("wg genkey", "")];
    for (end, ns) in ends.ns.iter().enumerate() {
        let (public, far) = (command("wg pubkey", &private[1 - end]), OWN[1 - end]);
        let set = "wg set wg0 private-key /dev/stdin listen-port 51820";
        let words =
            format!("ip netns exec {} {set} peer {public} endpoint {far}:51820 allowed-ips 0.0.0.0/0", ns.name());
        command(&words, &private[end]);
    }
    Vec::new()
}

/// A daemon that exchanges keys has a socket for packets through NAT.
fn nat_t_sockets(ends: &Ends) -> Vec<Box<dyn Any>> {
    const UDP_ENCAP: i32 = 100;
    const UDP_ENCAP_ESPINUDP: i32 = 2;
    let open = |ns: &Netns| {
        let socket = ns.inside(|| UdpSocket::bind("0.0.0.0:4500")).expect("bind port 4500");
        // SAFETY: an int, with its size.
        let done = unsafe {
            let kind = UDP_ENCAP_ESPINUDP;
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, UDP_ENCAP, (&raw const kind).cast(), 4)
        };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        Box::new(socket) as Box<dyn Any>
    };
    ends.ns.iter().map(open).collect()
}

/// One device for each kind of tunnel.
fn vxlan() {
    check(&Tunnel::device("type vxlan id 42 local {own} remote {far} dstport 4789 dev eth0"));
}

fn geneve() {
    check(&Tunnel::device("type geneve id 42 remote {far}"));
}

fn gre() {
    check(&Tunnel::device("type gre local {own} remote {far}"));
}

fn ipv6_in_ipv4() {
    let commands =
        ["link add tun7 type sit local {own} remote {far}", "address add {in6}/64 dev tun7 nodad", "link set tun7 up"];
    check(&Tunnel { sockets: Sockets::Inside6, ..Tunnel::of(&commands) });
}

fn ipv4_in_ipv6() {
    check(&Tunnel::device("type ip6tnl mode ipip6 local {own6} remote {far6}"));
}

/// IPv4 in UDP: received packets belong to a UDP socket of the kernel, which has no row.
fn ipv4_in_udp() {
    let listen = "fou add port 5555 ipproto 4".to_owned();
    let device = "type ipip local {own} remote {far} encap fou encap-sport auto encap-dport 5555";
    check(&Tunnel::device(device).and([listen]));
}

/// No tunnel, but a device with a separate address whose packets leave by another device.
fn ipvlan() {
    check(&Tunnel::device("link eth0 type ipvlan mode l2"));
}

fn l2tp() {
    check(&Tunnel::of(&[
        "l2tp add tunnel tunnel_id 7 peer_tunnel_id 7 encap udp local {own} remote {far} udp_sport 1701 udp_dport 1701",
        "l2tp add session name l20 tunnel_id 7 session_id 8 peer_session_id 8",
        "address add {in}/24 dev l20",
        "link set l20 up",
    ]));
}

fn wireguard() {
    let commands = ["link add wg0 type wireguard", "address add {in}/24 dev wg0", "link set wg0 up"];
    check(&Tunnel { further: wireguard_keys, ..Tunnel::of(&commands) });
}

/// A transformation of IPsec, in the words of `ip xfrm`.
struct Ipsec {
    proto: &'static str,
    mode: &'static str,
    /// The algorithm; the argument is the key.
    how: fn(key: &str) -> String,
    /// The addresses of the packets.
    from: &'static str,
    to: &'static str,
    /// Further selectors of both policies, and the level of their templates.
    more: &'static str,
    level: &'static str,
}

/// Encrypted and authenticated at once.
fn gcm(key: &str) -> String {
    format!("aead rfc4106(gcm(aes)) 0x{key}11121314 128")
}

const TRANSPORT: Ipsec =
    Ipsec { proto: "esp", mode: "transport", how: gcm, from: "{own}", to: "{far}", more: "", level: "required" };

const TUNNEL: Ipsec = Ipsec { mode: "tunnel", from: "{in}", to: "{far in}", ..TRANSPORT };

impl Ipsec {
    /// Both directions, at both ends.
    fn commands(&self) -> [String; 4] {
        let Self { proto, mode, how, from, to, more, level } = self;
        let state = |ends: &str, number: u32| {
            let key = format!("{number:x}0102030405060708090a0b0c0d0e0f0");
            format!("xfrm state add {ends} proto {proto} spi 0x10{number} reqid 1 mode {mode} {}", how(&key))
        };
        let policy = |whose: &str, ends: &str| {
            format!("xfrm policy add {whose} {more} tmpl {ends} proto {proto} reqid 1 mode {mode} level {level}")
        };
        [
            state("src {left} dst {right}", 1),
            state("src {right} dst {left}", 2),
            policy(&format!("src {from} dst {to} dir out"), "src {own} dst {far}"),
            policy(&format!("src {to} dst {from} dir in"), "src {far} dst {own}"),
        ]
    }

    /// A tunnel with this transformation: the addresses of its sockets, and what topstat shows of them.
    fn tunnel(&self, before: &[&str], sockets: Sockets, shown: Shown) -> Tunnel {
        Tunnel { sockets, shown, ..Tunnel::of(before) }.and(self.commands())
    }
}

fn ipsec_transport() {
    check(&TRANSPORT.tunnel(&[], Sockets::Own, Shown::Packets));
}

fn ipsec_authentication() {
    let how = |key: &str| format!("auth hmac(sha256) 0x{key}101112131415161718191a1b1c1d1e1f");
    check(&Ipsec { proto: "ah", how, ..TRANSPORT }.tunnel(&[], Sockets::Own, Shown::All));
}

/// Compressed. Packets that would not become smaller are sent uncompressed: acknowledgements.
fn ipsec_compression() {
    let how = |_: &str| "comp deflate".to_owned();
    let compressed = Ipsec { proto: "comp", how, level: "use", ..TRANSPORT };
    check(&compressed.tunnel(&[], Sockets::Own, Shown::SomePackets));
}

fn ipsec_tunnel() {
    let addresses = ["address add {in}/32 dev lo", "route add {far in}/32 via {far} dev eth0 src {in}"];
    check(&TUNNEL.tunnel(&addresses, Sockets::Inside, Shown::Packets));
}

fn ipsec_through_nat() {
    let how = |key: &str| format!("{} encap espinudp 4500 4500 0.0.0.0", gcm(key));
    // The wrapping packets themselves need no protection.
    let port = "xfrm policy add src {far} dst {own} proto udp sport 4500 dport 4500 dir in priority 1";
    let tunnel = Ipsec { how, more: "priority 2", ..TRANSPORT }.tunnel(&[port], Sockets::Own, Shown::Packets);
    check(&Tunnel { further: nat_t_sockets, ..tunnel });
}

fn ipsec_device() {
    let device = ["link add xf0 type xfrm dev eth0 if_id 42", "address add {in}/24 dev xf0", "link set xf0 up"];
    let how = |key: &str| format!("if_id 42 {}", gcm(key));
    check(&Ipsec { how, more: "if_id 42", ..TUNNEL }.tunnel(&device, Sockets::Inside, Shown::All));
}

/// The older kind of device, identified by a mark.
fn ipsec_device_by_mark() {
    let device =
        ["link add vt0 type vti local {own} remote {far} key 42", "address add {in}/24 dev vt0", "link set vt0 up"];
    let how = |key: &str| format!("mark 42 {}", gcm(key));
    check(&Ipsec { how, more: "mark 42", ..TUNNEL }.tunnel(&device, Sockets::Inside, Shown::All));
}

/// No hook sees the end of the kernel's own UDP sockets: their rows disappear with them. They are not counted in the objects,
/// whose number would never decrease.
fn a_socket_of_the_kernel_ends() {
    const PPS: &str = "udp_v4/conns_pps";
    /// A bare control message of L2TP version 3, which the kernel passes on to the socket.
    const CONTROL: [u8; 12] = [0xc8, 0x03, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0];
    const MESSAGES: u64 = 10;
    const ROUNDS: usize = 4;
    let ns = Netns::new("l2tp");
    let own = ns.inside(|| UdpSocket::bind("127.0.0.1:0")).expect("a socket");
    let to: SocketAddr = "127.0.0.1:1701".parse().unwrap();
    let mut watch = Watch::load(&[PPS], &everything());
    let mut seen = Vec::new();
    for _ in 0..ROUNDS {
        ns.ip(L2TP);
        // The tunnel's socket is connected, so the messages must come from its peer.
        let peer = ns.inside(|| UdpSocket::bind("127.0.0.1:1702")).expect("the peer's port");
        for _ in 0..MESSAGES {
            peer.send_to(&CONTROL, to).unwrap();
        }
        own.send_to(&CONTROL, "127.0.0.1:9").unwrap();
        let view = watch.snapshot(PPS);
        let kernels = view.sockets.iter().find(|s| s.netns == ns.number() && s.key.local == to);
        let kernels = kernels.unwrap_or_else(|| panic!("the kernel's socket has no row: {:#?}", view.sockets));
        assert_eq!((kernels.rx, kernels.tx, kernels.pid), (MESSAGES, 0, None), "{kernels:?}");
        drop(peer);
        ns.ip("l2tp del tunnel tunnel_id 1");
        let gone = || watch.snapshot(PPS).sockets.iter().all(|s| s.key.local != to);
        assert!(topstat_live::eventually(std::time::Duration::from_secs(5), gone), "the row of a closed socket stays");
        seen.push(watch.snapshot(PPS).snapshot.objects);
    }
    // Other sockets may have begun since. A socket that stays counted would add one object in every round.
    assert!(!seen.is_sorted_by(|before, after| before < after), "objects drift: {seen:?}");
}
