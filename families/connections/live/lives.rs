// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The events of connections, compared with the bytes that both ends have sent and received.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use topstat_live::events::{Told, during, number, text};
use topstat_live::{Case, Netns, alone, case, note, pace};
use topstat_model::events::Event;

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Fills: each_of_a_storm_is_told_with_its_totals, Root, Netns, Atomics; EveryKernel, ComeAndGo),
        case!(why_it_ended_is_told, Root, Netns, Atomics; EveryKernel, Gate),
        case!(what_was_there_before_is_told_when_it_ends, Root, Netns, Atomics; EveryKernel),
    ]
}

const THREADS: u64 = 4;

/// The generator's knowledge of a connection.
#[derive(Clone, Copy, Debug)]
struct Truth {
    sent: u64,
    received: u64,
    /// The client has closed first.
    client_first: bool,
}

fn read_all(stream: &mut TcpStream, mut bytes: u64) {
    let mut buffer = [0; 16384];
    while bytes > 0 {
        let most = buffer.len().min(bytes as usize);
        let read = stream.read(&mut buffer[..most]).expect("read");
        assert!(read > 0, "it ended {bytes} bytes too soon");
        bytes -= read as u64;
    }
}

fn write_all(stream: &mut TcpStream, bytes: u64) {
    let buffer = [7; 16384];
    let mut left = bytes as usize;
    while left > 0 {
        left -= stream.write(&buffer[..left.min(buffer.len())]).expect("write");
    }
}

/// Opens connections, sends some bytes each way, and closes them from either end. Returns the server's address, which all share,
/// and each client's address, which may be used again.
fn storm(thread: u64, connections: u64) -> (SocketAddr, Vec<(SocketAddr, Truth)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let to = listener.local_addr().expect("its address");
    let mut truth = Vec::new();
    for number in 0..connections {
        let seed = (thread << 32 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let of = Truth { sent: 1 + seed % 3000, received: seed >> 16 & 0xfff, client_first: seed >> 40 & 1 == 0 };
        let mut client = TcpStream::connect(to).expect("connect");
        let (mut server, _) = listener.accept().expect("accept");
        write_all(&mut client, of.sent);
        read_all(&mut server, of.sent);
        write_all(&mut server, of.received);
        read_all(&mut client, of.received);
        truth.push((client.local_addr().expect("its address"), of));
        let (first, mut second) = if of.client_first { (client, server) } else { (server, client) };
        first.shutdown(Shutdown::Write).expect("end it");
        assert_eq!(second.read(&mut [0]).expect("the end"), 0);
        drop(second);
        drop(first);
    }
    (to, truth)
}

/// The address of one end in an event.
fn end(event: &Event, address: &str, port: &str) -> SocketAddr {
    format!("{}:{}", text(event, address), text(event, port)).parse().expect("an address")
}

fn ours<'a>(told: &'a Told, ns: &Netns) -> Vec<&'a Event> {
    let netns = ns.number();
    told.events.iter().filter(|event| number(event, "netns") == netns).collect()
}

fn each_of_a_storm_is_told_with_its_totals() {
    let ns = Netns::new("events");
    let connections = pace::work(20_000, 400) / THREADS;
    let (told, truth) = during(&["tcp"], || {
        ns.inside(|| {
            std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..THREADS).map(|thread| scope.spawn(move || storm(thread, connections))).collect();
                threads.into_iter().map(|thread| thread.join().expect("a thread")).collect::<Vec<_>>()
            })
        })
    });
    let (listeners, truth): (Vec<_>, Vec<_>) = truth.into_iter().unzip();
    let truth = truth.concat();
    let account = &told.accounts["tcp"];
    assert_eq!(account.dropped, 0, "{account:?}");
    // A port may be used again: events of several connections may have the same addresses.
    let mut left: HashMap<(SocketAddr, &str, &str), Vec<&Event>> = HashMap::new();
    for event in ours(&told, &ns) {
        let (own, peer) = (end(event, "sip", "sport"), end(event, "dip", "dport"));
        let side = if listeners.contains(&own) { (peer, "accepted") } else { (own, "connected") };
        // If topstat has missed the beginning, the side is unknown.
        let is_told = ["unknown", side.1].contains(&text(event, "side").as_str());
        assert!(is_told && (account.skipped > 0 || text(event, "side") == side.1), "{event:?}");
        left.entry((side.0, side.1, &event.kind.event)).or_default().push(event);
    }
    let comm = std::fs::read_to_string("/proc/self/comm").expect("the own name");
    // Missed events are lost, except for closes, which are emitted when the socket is destroyed.
    let (mut unseen, mut nameless) = (0, 0);
    for (client, of) in &truth {
        for (side, tx, rx, first) in
            [("connected", of.sent, of.received, of.client_first), ("accepted", of.received, of.sent, !of.client_first)]
        {
            let mut take = |event: &'static str, is: &dyn Fn(&Event) -> bool| {
                let events = left.get_mut(&(*client, side, event))?;
                let found = events.iter().position(|event| is(event))?;
                Some(events.swap_remove(found))
            };
            unseen += u64::from(take("open", &|_| true).is_none());
            let reason = if first { "local" } else { "remote" };
            let close = take("close", &|event| {
                (number(event, "tx_bytes"), number(event, "rx_bytes")) == (tx, rx)
                    && [reason, "unknown"].contains(&text(event, "reason").as_str())
            });
            let Some(close) = close else {
                unseen += 1;
                continue;
            };
            assert!(number(close, "rtt_us") > 0, "{close:?}");
            unseen += u64::from(text(close, "reason") == "unknown");
            // If a listener's beginning was missed, its accepted connections have no process.
            if number(close, "pid") == 0 && account.skipped > 0 {
                nameless += 1;
                continue;
            }
            assert_eq!(number(close, "pid"), u64::from(std::process::id()), "{close:?}");
            assert_eq!(text(close, "comm"), comm.trim(), "{close:?}");
        }
    }
    assert!(unseen <= account.skipped, "{unseen} were not told as they were: {account:?}");
    let more: usize = left.values().map(Vec::len).sum();
    assert_eq!(more, 0, "more is told than was: {:?}", left.values().flatten().next());
    note(format!("{} connections, {unseen} events kept, {nameless} without a name: {account:?}", truth.len()));
}

/// The event and the reason of the end of the connection with this local port.
fn ended(told: &[&Event], port: u16) -> (String, String) {
    let of = |event: &&&Event| number(event, "sport") == u64::from(port) && event.kind.event != "open";
    let found: Vec<_> = told.iter().filter(of).collect();
    assert_eq!(found.len(), 1, "port {port}: {found:?}");
    (found[0].kind.event.clone(), text(found[0], "reason"))
}

fn port(stream: &TcpStream) -> u16 {
    stream.local_addr().expect("its address").port()
}

/// Makes the close of the stream a reset.
fn no_linger(stream: &TcpStream) {
    sockopt::set_socket_linger(stream, Some(Duration::ZERO)).expect("do not linger");
}

fn why_it_ended_is_told() {
    /// No host misses an end in this many attempts in a row.
    const ATTEMPTS: usize = 3;
    let all_told = (0..ATTEMPTS).any(|_| every_end_is_told());
    assert!(all_told, "in each of {ATTEMPTS} attempts a timer's end was missed, and told when its socket went");
}

/// False: the end by a timer was missed. This happens if the timer fires in the context of a process in which the kernel runs no
/// tracing programs; the kernel does not count this omission.
fn every_end_is_told() -> bool {
    let ns = Netns::new("events-why");
    ns.ip("link add veth-a type veth peer name veth-b");
    ns.ip("addr add 10.77.0.1/24 dev veth-a");
    ns.ip("link set veth-a up");
    // The other end has no host: it does not answer.
    ns.ip("neigh add 10.77.0.2 lladdr 02:00:00:00:00:02 dev veth-a");
    ns.ip("link set veth-b up");
    let (told, ports) = during(&["tcp"], || {
        ns.inside(|| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
            let to = listener.local_addr().expect("its address");
            let both = || {
                let client = TcpStream::connect(to).expect("connect");
                let (server, _) = listener.accept().expect("accept");
                (client, server)
            };
            let mut ports = Vec::new();
            let (client, mut server) = both();
            ports.push((port(&client), "close", "aborted"));
            no_linger(&client);
            drop(client);
            assert!(server.read(&mut [0]).is_err(), "it was reset");
            let (mut client, server) = both();
            // A close with data unread is a reset, too.
            client.write_all(b"unread").expect("write");
            drop(server);
            let reset = client.read(&mut [0]);
            assert!(reset.is_err(), "{reset:?}");
            ports.push((port(&client), "close", "reset"));
            drop(client);
            // The server's port is its listener's, so connections are identified by the client's port alone.
            let free =
                TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
            let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
            let socket = TcpStream::from(socket.expect("a socket"));
            let bound: SocketAddr = "127.0.0.1:0".parse().expect("an address");
            rustix::net::bind(&socket, &bound).expect("bind");
            ports.push((port(&socket), "fail", "refused"));
            assert!(rustix::net::connect(&socket, &free).is_err());
            let nowhere: SocketAddr = "10.77.0.2:9".parse().expect("an address");
            let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::NONBLOCK, None);
            let socket = TcpStream::from(socket.expect("a socket"));
            let bound: SocketAddr = "10.77.0.1:0".parse().expect("an address");
            rustix::net::bind(&socket, &bound).expect("bind");
            ports.push((port(&socket), "fail", "abandoned"));
            assert!(rustix::net::connect(&socket, &nowhere).is_err());
            drop(socket);
            let (mut client, server) = both();
            let patience: libc::c_uint = 300; // ms
            // SAFETY: an integer, with its length.
            let set = unsafe {
                let value = (&raw const patience).cast();
                libc::setsockopt(client.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, value, 4)
            };
            assert_eq!(set, 0);
            ports.push((port(&client), "close", "timeout"));
            topstat_live::netns::ip("link set lo down");
            client.write_all(b"nobody hears it").expect("write");
            client.set_read_timeout(Some(pace::patience(Duration::from_secs(20)))).expect("a limit");
            let error = client.read(&mut [0]).expect_err("it is timed out");
            assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{error}");
            topstat_live::netns::ip("link set lo up");
            no_linger(&server);
            ports
        })
    });
    told.undisturbed();
    let told = ours(&told, &ns);
    let is_missed = |port| ended(&told, port) == ("close".to_owned(), "unknown".to_owned());
    if ports.iter().any(|(port, _, reason)| *reason == "timeout" && is_missed(*port)) {
        return false;
    }
    for (port, event, reason) in ports {
        assert_eq!(ended(&told, port), (event.to_owned(), reason.to_owned()), "{told:#?}");
    }
    true
}

fn what_was_there_before_is_told_when_it_ends() {
    let ns = Netns::new("events-before");
    let (mut client, mut server) = ns.inside(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let client = TcpStream::connect(listener.local_addr().expect("its address")).expect("connect");
        (client, listener.accept().expect("accept").0)
    });
    write_all(&mut client, 1000);
    read_all(&mut server, 1000);
    let port = u64::from(port(&client));
    let (told, ()) = during(&["tcp"], || {
        write_all(&mut client, 234);
        read_all(&mut server, 234);
        client.shutdown(Shutdown::Write).expect("end it");
        assert_eq!(server.read(&mut [0]).expect("the end"), 0);
        drop(server);
        drop(client);
    });
    told.undisturbed();
    let told = ours(&told, &ns);
    let closed: Vec<_> = told.iter().filter(|event| number(event, "sport") == port).collect();
    assert_eq!((told.len(), closed.len()), (2, 1), "{told:?}");
    assert_eq!(closed[0].kind.event, "close");
    assert_eq!((number(closed[0], "tx_bytes"), number(closed[0], "lived_ns")), (1234, 0), "since when is not known");
    assert_eq!(number(closed[0], "pid"), u64::from(std::process::id()));
}
