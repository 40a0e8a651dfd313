// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traffic that the kernel wraps on its way, as a table of tunnels: each socket is counted right, or what can't be told of
//! it is in `lost`. What has no row at all is listed in the sample's page.

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::process::Command;

use topstat_live::truth::{self, key};
use topstat_live::watch::everything;
use topstat_live::{Case, End, Key, Need, Netns, View, Watch, limits, note, pace};
use topstat_load::{Addresses, Config, Family, Load, Plan, Proto, UdpServer};

use crate::right::assert_right;

/// The two ends of the cable that all tunnels go through, and what they have inside.
const OWN: [&str; 2] = ["10.98.0.1", "10.98.0.2"];
const OWN6: [&str; 2] = ["fd98::1", "fd98::2"];
const INSIDE: [&str; 2] = ["10.97.0.1", "10.97.0.2"];
const INSIDE6: [&str; 2] = ["fd97::1", "fd97::2"];

/// Connections of a load, and what each exchanges.
const CONNECTIONS: usize = 5;
const SIZE: usize = 500;

/// Which addresses the sockets have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sockets {
    /// Those of the cable itself.
    Own,
    Inside,
    Inside6,
}

/// What topstat is to show of those who send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// Everything.
    All,
    /// A connected socket's packets; a packet's payload is lost, and so is all that a socket sends that is not connected.
    Packets,
}

struct Tunnel {
    /// What the kernel must know: a command of `ip`, in a namespace of its own.
    needs: Need,
    /// Commands of `ip` at both ends. `{own}` is the address of the end's cable, `{far}` the other's; `{own6}`, `{far6}`,
    /// `{in}` … likewise; `{left}` and `{right}` are the same at both.
    both: &'static [&'static str],
    /// What else there is to do; what it gives lives as long as the tunnel.
    further: fn(&Ends) -> Vec<Box<dyn Any>>,
    sockets: Sockets,
    shown: Shown,
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
            for words in tunnel.both {
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

    /// Fails if there is a row of a socket in these namespaces that is none of the load's: a tunnel's own, say.
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

const fn nothing(_: &Ends) -> Vec<Box<dyn Any>> {
    Vec::new()
}

fn check(tunnel: &Tunnel) {
    let ends = Ends::new();
    let _kept = ends.set_up(tunnel);
    tcp(&ends, tunnel);
    udp(&ends, tunnel);
    if tunnel.shown == Shown::Packets {
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
    match tunnel.shown {
        Shown::All => {
            assert_right(&pps, &bytes, &truth);
            assert_eq!((opaque(&pps), opaque(&bytes)), (0, 0), "nothing is lost");
        }
        Shown::Packets => {
            for (key, counts) in &truth {
                let (packets, payload) = (pps.get(*key), bytes.get(*key));
                assert_eq!((packets.rx, packets.tx), (counts.packets_rx, counts.packets_tx), "{key:?}");
                assert_eq!((payload.rx, payload.tx), (counts.bytes_rx, 0), "{key:?}: {counts:?}");
            }
            assert_eq!((opaque(&pps), opaque(&bytes)), (0, sent), "each packet's payload is lost");
            // Whose it was is not known: any row might be smaller than that of somebody who sent it.
            assert!(pps.snapshot.is_proven(), "{}", pps.summary());
            assert_eq!(bytes.snapshot.proven, 0, "{}", bytes.summary());
        }
    }
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
    let sent = if tunnel.shown == Shown::All { turns * size } else { 0 };
    let keys: Vec<_> = load.connections().iter().flat_map(|c| [key(c, End::Client), key(c, End::Server)]).collect();
    for key in &keys {
        let (packets, payload) = (pps.get(*key), bytes.get(*key));
        assert_eq!((packets.rx, packets.tx), (turns, turns), "{key:?}");
        assert_eq!((payload.rx, payload.tx), (turns * size, sent), "{key:?}");
    }
    let lost = if tunnel.shown == Shown::All { 0 } else { all };
    assert_eq!((opaque(&pps), opaque(&bytes)), (0, lost));
    for view in [&pps, &bytes] {
        ends.nobody_else(view, &|key| keys.contains(&key));
    }
    note(format!("UDP: {all} packets, {lost} lost in bytes"));
}

/// Of a socket that sends to many the kernel keeps no route, so what it sends is lost altogether.
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
    assert_eq!((pps.get(server).rx, pps.get(server).tx), (all, 0));
    assert_eq!((bytes.get(server).rx, bytes.get(server).tx), (all * SIZE as u64, 0));
    // What the clients sent, who are connected, is counted by packets.
    assert_eq!((opaque(&pps), opaque(&bytes)), (all, 2 * all));
}

/// Runs a command to its end with something to read.
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

/// Whoever exchanges keys has a socket for what comes through NAT.
fn nat_t_sockets(ends: &Ends) -> Vec<Box<dyn Any>> {
    const UDP_ENCAP: i32 = 100;
    const UDP_ENCAP_ESPINUDP: i32 = 2;
    let open = |ns: &Netns| {
        let socket = ns.inside(|| UdpSocket::bind("0.0.0.0:4500")).expect("bind port 4500");
        // SAFETY: an int, of its size.
        let done = unsafe {
            let kind = UDP_ENCAP_ESPINUDP;
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, UDP_ENCAP, (&raw const kind).cast(), 4)
        };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        Box::new(socket) as Box<dyn Any>
    };
    ends.ns.iter().map(open).collect()
}

macro_rules! tunnels {
    ($($name:ident: $tunnel:expr;)*) => {
        $(fn $name() { check(const { &$tunnel }) })*

        pub fn cases() -> Vec<Case> {
            let mut cases = vec![
                $(Case {
                    name: stringify!($name),
                    needs: const { &[Need::Root, Need::Netns, $tunnel.needs] },
                    beside: false,
                    run: $name,
                }),*
            ];
            cases.push(Case {
                name: "a_socket_of_the_kernel_ends",
                needs: const { &[Need::Root, Need::Netns, L2TP] },
                beside: false,
                run: a_socket_of_the_kernel_ends,
            });
            cases
        }
    };
}

tunnels! {
    vxlan: Tunnel {
        needs: Need::Ip("link add test type vxlan id 1 dstport 4789"),
        both: &[
            "link add vx0 type vxlan id 42 local {own} remote {far} dstport 4789 dev eth0",
            "address add {in}/24 dev vx0",
            "link set vx0 up",
        ],
        further: nothing, sockets: Sockets::Inside, shown: Shown::All,
    };
    geneve: Tunnel {
        needs: Need::Ip("link add test type geneve id 1 remote 10.98.0.9"),
        both: &["link add gn0 type geneve id 42 remote {far}", "address add {in}/24 dev gn0", "link set gn0 up"],
        further: nothing, sockets: Sockets::Inside, shown: Shown::All,
    };
    gre: Tunnel {
        needs: Need::Ip("link add test type gre remote 10.98.0.9"),
        both: &["link add gr1 type gre local {own} remote {far}", "address add {in}/24 dev gr1", "link set gr1 up"],
        further: nothing, sockets: Sockets::Inside, shown: Shown::All,
    };
    ipv6_in_ipv4: Tunnel {
        needs: Need::Ip("link add test type sit remote 10.98.0.9"),
        both: &["link add st1 type sit local {own} remote {far}", "address add {in6}/64 dev st1 nodad", "link set st1 up"],
        further: nothing, sockets: Sockets::Inside6, shown: Shown::All,
    };
    ipv4_in_ipv6: Tunnel {
        needs: Need::Ip("link add test type ip6tnl mode ipip6 remote fd98::9"),
        both: &[
            "link add t61 type ip6tnl mode ipip6 local {own6} remote {far6}",
            "address add {in}/24 dev t61",
            "link set t61 up",
        ],
        further: nothing, sockets: Sockets::Inside, shown: Shown::All,
    };
    l2tp: Tunnel {
        needs: L2TP,
        both: &[
            "l2tp add tunnel tunnel_id 7 peer_tunnel_id 7 encap udp local {own} remote {far} udp_sport 1701 udp_dport 1701",
            "l2tp add session name l20 tunnel_id 7 session_id 8 peer_session_id 8",
            "address add {in}/24 dev l20",
            "link set l20 up",
        ],
        further: nothing, sockets: Sockets::Inside, shown: Shown::All,
    };
    wireguard: Tunnel {
        needs: Need::WireGuard,
        both: &["link add wg0 type wireguard", "address add {in}/24 dev wg0", "link set wg0 up"],
        further: wireguard_keys, sockets: Sockets::Inside, shown: Shown::All,
    };
    ipsec_transport: Tunnel {
        needs: ESP,
        both: &[
            "xfrm state add src {left} dst {right} proto esp spi 0x101 reqid 1 mode transport \
             aead rfc4106(gcm(aes)) 0x0102030405060708090a0b0c0d0e0f1011121314 128",
            "xfrm state add src {right} dst {left} proto esp spi 0x102 reqid 1 mode transport \
             aead rfc4106(gcm(aes)) 0x2102030405060708090a0b0c0d0e0f1011121314 128",
            "xfrm policy add src {own} dst {far} dir out tmpl src {own} dst {far} proto esp reqid 1 mode transport",
            "xfrm policy add src {far} dst {own} dir in tmpl src {far} dst {own} proto esp reqid 1 mode transport",
        ],
        further: nothing, sockets: Sockets::Own, shown: Shown::Packets,
    };
    ipsec_authentication: Tunnel {
        needs: AH,
        both: &[
            "xfrm state add src {left} dst {right} proto ah spi 0x101 reqid 1 mode transport \
             auth hmac(sha256) 0x0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20",
            "xfrm state add src {right} dst {left} proto ah spi 0x102 reqid 1 mode transport \
             auth hmac(sha256) 0x2102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20",
            "xfrm policy add src {own} dst {far} dir out tmpl src {own} dst {far} proto ah reqid 1 mode transport",
            "xfrm policy add src {far} dst {own} dir in tmpl src {far} dst {own} proto ah reqid 1 mode transport",
        ],
        further: nothing, sockets: Sockets::Own, shown: Shown::All,
    };
    ipsec_tunnel: Tunnel {
        needs: ESP,
        both: &[
            "address add {in}/32 dev lo",
            "route add {far in}/32 via {far} dev eth0 src {in}",
            "xfrm state add src {left} dst {right} proto esp spi 0x101 reqid 1 mode tunnel \
             aead rfc4106(gcm(aes)) 0x0102030405060708090a0b0c0d0e0f1011121314 128",
            "xfrm state add src {right} dst {left} proto esp spi 0x102 reqid 1 mode tunnel \
             aead rfc4106(gcm(aes)) 0x2102030405060708090a0b0c0d0e0f1011121314 128",
            "xfrm policy add src {in} dst {far in} dir out tmpl src {own} dst {far} proto esp reqid 1 mode tunnel",
            "xfrm policy add src {far in} dst {in} dir in tmpl src {far} dst {own} proto esp reqid 1 mode tunnel",
        ],
        further: nothing, sockets: Sockets::Inside, shown: Shown::Packets,
    };
    ipsec_through_nat: Tunnel {
        needs: ESP,
        both: &[
            "xfrm state add src {left} dst {right} proto esp spi 0x101 reqid 1 mode transport \
             aead rfc4106(gcm(aes)) 0x0102030405060708090a0b0c0d0e0f1011121314 128 encap espinudp 4500 4500 0.0.0.0",
            "xfrm state add src {right} dst {left} proto esp spi 0x102 reqid 1 mode transport \
             aead rfc4106(gcm(aes)) 0x2102030405060708090a0b0c0d0e0f1011121314 128 encap espinudp 4500 4500 0.0.0.0",
            "xfrm policy add src {own} dst {far} dir out priority 2 \
             tmpl src {own} dst {far} proto esp reqid 1 mode transport",
            "xfrm policy add src {far} dst {own} dir in priority 2 \
             tmpl src {far} dst {own} proto esp reqid 1 mode transport",
            // What the packets come in need not be protected itself.
            "xfrm policy add src {far} dst {own} proto udp sport 4500 dport 4500 dir in priority 1",
        ],
        further: nat_t_sockets, sockets: Sockets::Own, shown: Shown::Packets,
    };
    ipsec_device: Tunnel {
        needs: Need::Ip("link add test type xfrm dev lo if_id 1"),
        both: &[
            "link add xf0 type xfrm dev eth0 if_id 42",
            "address add {in}/24 dev xf0",
            "link set xf0 up",
            "xfrm state add src {left} dst {right} proto esp spi 0x101 reqid 1 mode tunnel if_id 42 \
             aead rfc4106(gcm(aes)) 0x0102030405060708090a0b0c0d0e0f1011121314 128",
            "xfrm state add src {right} dst {left} proto esp spi 0x102 reqid 1 mode tunnel if_id 42 \
             aead rfc4106(gcm(aes)) 0x2102030405060708090a0b0c0d0e0f1011121314 128",
            "xfrm policy add src {in} dst {far in} dir out if_id 42 tmpl src {own} dst {far} proto esp reqid 1 mode tunnel",
            "xfrm policy add src {far in} dst {in} dir in if_id 42 tmpl src {far} dst {own} proto esp reqid 1 mode tunnel",
        ],
        further: nothing, sockets: Sockets::Inside, shown: Shown::All,
    };
}

const ESP: Need = Need::Ip(
    "xfrm state add src 10.98.0.1 dst 10.98.0.2 proto esp spi 1 mode transport aead rfc4106(gcm(aes)) \
     0x0102030405060708090a0b0c0d0e0f1011121314 128",
);

const AH: Need = Need::Ip(
    "xfrm state add src 10.98.0.1 dst 10.98.0.2 proto ah spi 1 mode transport \
     auth hmac(sha256) 0x0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20",
);

const L2TP: Need = Need::Ip(
    "l2tp add tunnel tunnel_id 1 peer_tunnel_id 1 encap udp local 127.0.0.1 remote 127.0.0.1 udp_sport 1701 \
     udp_dport 1702",
);

/// The kernel has UDP sockets of its own, of whose end no hook tells: their rows go with them, and they are not among the
/// objects, which would never become fewer again.
fn a_socket_of_the_kernel_ends() {
    const PPS: &str = "udp_v4/conns_pps";
    /// A control message of L2TP version 3 and no more, which the kernel passes on to the socket.
    const CONTROL: [u8; 12] = [0xc8, 0x03, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0];
    const MESSAGES: u64 = 10;
    let ns = Netns::new("l2tp");
    let own = ns.inside(|| UdpSocket::bind("127.0.0.1:0")).expect("a socket");
    let to: SocketAddr = "127.0.0.1:1701".parse().unwrap();
    let mut watch = Watch::load(&[PPS], &everything());
    let mut seen = Vec::new();
    for _ in 0..3 {
        ns.ip("l2tp add tunnel tunnel_id 1 peer_tunnel_id 1 encap udp local 127.0.0.1 remote 127.0.0.1 \
             udp_sport 1701 udp_dport 1702");
        // The tunnel's socket is connected, so the messages have to come from its peer.
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
    // Others' sockets may have come and gone meanwhile.
    if seen[0] != seen[2] {
        topstat_live::harness::crowded();
    }
    assert_eq!(seen[0], seen[2], "objects drift: {seen:?}");
}
