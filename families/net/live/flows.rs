// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The use of the network, compared with the generator's counts and with `TCP_INFO`.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use topstat_kernel::Source;
use topstat_live::truth::{self, Counts};
use topstat_live::watch::{everything, load, snapshot};
use topstat_live::{Case, Role, Transport, Witness, alone, cgroup, eventually, limits, netns, note, pace};
use topstat_load::{Config, Family, Load, Plan};
use topstat_model::{Field, Row, Snapshot};

use super::roles::{REQUEST, ask};

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Totals: connections_are_told_by_process_host_and_port, Root, Sample(PORTS); EveryKernel, Gate),
        alone!(Totals: connections_that_were_there_before, Root, Sample(PORTS); EveryKernel),
        alone!(Totals: connections_of_ipv6, Root, Ipv6, Sample(PORTS)),
        alone!(Totals: connections_that_live_for_one_message, Root, Sample(PORTS); EveryKernel),
        alone!(Totals: one_end_is_closed, Root, Sample(PORTS); EveryKernel),
        alone!(Totals: a_socket_connects_again, Root, Sample(PORTS)),
        alone!(Totals: more_hosts_than_there_are_places, Root, FullSpeed, Sample(PORTS)),
    ]
}

const PORTS: &str = "net_ports/pps";
const SAMPLES: [&str; 4] = ["net_procs", "net_cgroups", "net_hosts", "net_ports"];

/// All tables of all samples, with a period in which nothing ages.
pub fn load_all() -> Box<dyn Source> {
    let tables = ["pps", "bps", "retrans", "opened", "bytes"];
    let paths: Vec<_> = SAMPLES.iter().flat_map(|of| tables.map(|table| format!("{of}/{table}"))).collect();
    load(&paths.iter().map(String::as_str).collect::<Vec<_>>(), &everything())
}

/// Wanted values, by column.
pub type Wanted<'a> = &'a [(&'a str, Field)];

fn rows<'a>(snapshot: &'a Snapshot, wanted: Wanted<'_>) -> Vec<&'a Row> {
    let at = |name: &str| snapshot.column(name).expect("a column");
    let is = |row: &&Row| wanted.iter().all(|(name, value)| row.object[at(name)] == *value);
    snapshot.rows.iter().filter(is).collect()
}

/// The parts of the only row with these values; 0: there is no such row.
pub fn parts(snapshot: &Snapshot, wanted: Wanted<'_>) -> [u64; 2] {
    match &rows(snapshot, wanted)[..] {
        [] => [0; 2],
        [row] => [row.parts[0], row.parts[1]],
        more => panic!("{wanted:?} is there more than once: {more:?}"),
    }
}

/// A TCP or UDP port in this network namespace.
pub fn port_of(at: SocketAddr, proto: &str, side: &str) -> [(&'static str, Field); 4] {
    let netns = Field::U64(netns::own_number());
    [("port", Field::U64(at.port().into())), ("proto", proto.into()), ("side", side.into()), ("netns", netns)]
}

fn port(at: SocketAddr, side: &str) -> [(&'static str, Field); 4] {
    port_of(at, "tcp", side)
}

pub fn pid(pid: u32) -> [(&'static str, Field); 1] {
    [("pid", Field::U64(pid.into()))]
}

pub fn host(address: IpAddr) -> [(&'static str, Field); 1] {
    [("host", Field::Ip(address))]
}

/// A process that answers, and its address.
pub fn server(comm: &str, at: &str) -> (Role, SocketAddr) {
    let mut role = Role::start("net-server", &[comm, at]);
    let at = role.expect("at").parse().expect("an address");
    (role, at)
}

/// The sum of the counters at this end of the connections.
fn sum<'a>(counts: impl Iterator<Item = &'a Counts>) -> Counts {
    counts.fold(Counts::default(), |a, b| Counts {
        packets_rx: a.packets_rx + b.packets_rx,
        packets_tx: a.packets_tx + b.packets_tx,
        bytes_rx: a.bytes_rx + b.bytes_rx,
        bytes_tx: a.bytes_tx + b.bytes_tx,
        bytes_retrans: a.bytes_retrans + b.bytes_retrans,
        total_retrans: a.total_retrans + b.total_retrans,
    })
}

/// The counts that a sample shows for the row with these values.
pub fn shown(source: &mut dyn Source, sample: &str, wanted: Wanted<'_>) -> Counts {
    let mut of = |table: &str| parts(&snapshot(source, &format!("{sample}/{table}")), wanted);
    let ([packets_rx, packets_tx], [bytes_rx, bytes_tx]) = (of("pps"), of("bytes"));
    let bits = of("bps");
    assert_eq!(bits, [bytes_rx * 8, bytes_tx * 8], "{sample}: nothing has aged");
    let [_, total_retrans] = of("retrans");
    Counts { packets_rx, packets_tx, bytes_rx, bytes_tx, bytes_retrans: 0, total_retrans }
}

/// The counts that the test compares.
fn told(counts: Counts) -> Counts {
    Counts { bytes_retrans: 0, ..counts }
}

/// Checks the bytes sent. TCP counts retransmitted bytes again; a busy host retransmits also within the host.
fn assert_sent(shown: u64, sent: u64, source: &mut dyn Source) {
    let again: u64 = snapshot(source, "net_ports/retrans").total;
    assert!(shown == sent || (shown > sent && again > 0), "{shown}, not {sent}; {again} segments were sent again");
}

/// Each of twenty connections sends a different number of messages, several times: pushed and settled amounts add up.
fn speaks(family: Family, before: bool) {
    let config = Config { connections: 20, family, ..Config::default() };
    let early = before.then(|| Load::open(config.clone()).expect("connections"));
    let mut source = if early.is_none() { Some(load_all()) } else { None };
    let mut traffic = early.unwrap_or_else(|| Load::open(config).expect("connections"));
    if before {
        traffic.run(&Plan::new(vec![3; 20]), &limits()).expect("a run");
    }
    let begin = truth::settled(&traffic);
    let source = &mut **source.get_or_insert_with(load_all);
    let at = traffic.connections()[0].server_addr();
    // The handshake counts, too, where topstat has seen it.
    let first = [shown(source, "net_ports", &port(at, "server")), shown(source, "net_ports", &port(at, "client"))];
    for turns in [7, 1, 30] {
        traffic.run(&Plan::new((0..20).map(|i| turns + i % 3).collect()), &limits()).expect("a run");
        let end = truth::settled(&traffic);
        let all = truth::difference(&begin, &end);
        let of = |server: bool| sum(all.iter().filter(|(key, _)| (key.local == at) == server).map(|(_, c)| c));
        for (i, (side, is_server)) in [("server", true), ("client", false)].into_iter().enumerate() {
            let now = shown(source, "net_ports", &port(at, side));
            assert_eq!(told(now.since(&first[i])), told(of(is_server)), "{side}");
        }
        let both = sum([of(true), of(false)].iter());
        let seen = sum(first.iter());
        let own = [("pid", Field::U64(std::process::id().into()))];
        assert_eq!(told(shown(source, "net_procs", &own).since(&seen)), told(both), "the process has both ends");
        assert_eq!(told(shown(source, "net_hosts", &host(at.ip())).since(&seen)), told(both), "as has the host");
        let group = [("cgroup", cgroup::expected(std::process::id()).into())];
        let group = shown(source, "net_cgroups", &group).since(&seen);
        assert!(group.packets() >= both.packets() && group.bytes() >= both.bytes(), "{group:?}, {both:?}");
    }
    let opened = snapshot(source, "net_ports/opened");
    let opened = [parts(&opened, &port(at, "server")), parts(&opened, &port(at, "client"))];
    assert_eq!(opened, if before { [[0, 0]; 2] } else { [[20, 0], [0, 20]] }, "accepted, and connected");
}

fn connections_are_told_by_process_host_and_port() {
    speaks(Family::V4, false);
}

fn connections_that_were_there_before() {
    speaks(Family::V4, true);
}

fn connections_of_ipv6() {
    speaks(Family::V6, false);
}

/// As many connections a second as possible, while readers settle: each is counted to its end, once, for the right process.
fn connections_that_live_for_one_message() {
    const ANSWER: usize = 5000;
    let turns = pace::work(6000, 200);
    let mut source = load_all();
    let (role, at) = server("tl-net-server", "127.0.0.1:0");
    let done = AtomicBool::new(false);
    let mut looks = 0;
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| {
            for _ in 0..turns {
                let mut stream = TcpStream::connect(at).expect("connect");
                ask(&mut stream, ANSWER).expect("an answer");
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            snapshot(&mut *source, PORTS);
            looks += 1;
        }
        clients.join().expect("clients");
    });
    // A connection is pushed when its socket is destroyed. This may be pending on a CPU that does not run just now.
    let mut begun = || {
        let opened = snapshot(&mut *source, "net_ports/opened");
        parts(&opened, &port(at, "client"))[1] + parts(&opened, &port(at, "server"))[0]
    };
    eventually(Duration::from_millis(250), || begun() == 2 * turns);
    let opened = snapshot(&mut *source, "net_ports/opened");
    let all = snapshot(&mut *source, "net_ports/bytes");
    let own = [("pid", Field::U64(role.pid().into())), ("comm", "tl-net-server".into())];
    let procs = snapshot(&mut *source, "net_procs/bytes");
    let again = snapshot(&mut *source, "net_ports/retrans");
    // For each event that the kernel keeps from topstat and counts, a connection's opening may be missing, or its end with all
    // its bytes.
    let kept = again.lost.count("skipped");
    // A look is refused if another CPU makes the object of its port or process at that moment and is preempted. The amount is in
    // `other`, and each table counts it as `full`. This happens once at the beginning, for a few connections.
    let refused = |tables: &[&Snapshot]| tables.iter().any(|table| table.lost.count("full") > 0);
    // TCP counts retransmitted bytes again; a busy host retransmits also within the host.
    let counted = |of: &str, shown: u64, each: usize, may_be_more: bool, refused: bool| {
        let lacks = kept + if refused { turns.div_ceil(100) } else { 0 };
        let (least, most) = (turns.saturating_sub(lacks) * each as u64, turns * each as u64);
        let is_right = shown >= least && (shown <= most || may_be_more);
        assert!(
            is_right,
            "{of}: {shown}, not {most}; {kept} events were kept, {} sent again, refused: {refused}",
            again.total
        );
    };
    let [server, none] = parts(&opened, &port(at, "server"));
    counted("accepted", server, 1, false, refused(&[&opened]));
    let [nothing, client] = parts(&opened, &port(at, "client"));
    counted("connected", client, 1, false, refused(&[&opened]));
    assert_eq!([none, nothing], [0; 2]);
    // Amounts settled between a handshake and the first read are the listener's owner's, which is the server's process, too.
    let served = [
        parts(&all, &port(at, "server")),
        parts(&all, &[&port(at, "server")[..], &own].concat()),
        parts(&procs, &pid(role.pid())),
    ];
    for [rx, tx] in served {
        counted("the server has received", rx, REQUEST, false, refused(&[&all, &procs]));
        counted("the server has sent", tx, ANSWER, again.total > 0, refused(&[&all, &procs]));
    }
    let [rx, tx] = parts(&all, &port(at, "client"));
    counted("the client has received", rx, ANSWER, false, refused(&[&all]));
    counted("the client has sent", tx, REQUEST, again.total > 0, refused(&[&all]));
    note(format!("{turns} connections, and {looks} snapshots meanwhile; {kept} events were kept by the kernel"));
    role.finish();
}

/// After the close of one end the kernel takes another path for received data, without a hook that looks at connections.
fn one_end_is_closed() {
    const ANSWER: usize = 3_000_000;
    let mut source = load_all();
    let (role, at) = server("tl-net-half", "127.0.0.1:0");
    let mut stream = TcpStream::connect(at).expect("connect");
    stream.write_all(&(ANSWER as u64).to_le_bytes()).expect("ask");
    stream.shutdown(Shutdown::Write).expect("close one end");
    let mut read = vec![0; ANSWER / 2];
    stream.read_exact(&mut read).expect("half of the answer");
    let [rx, tx] = parts(&snapshot(&mut *source, "net_ports/bytes"), &port(at, "client"));
    assert!(rx >= (ANSWER / 2) as u64 && rx <= ANSWER as u64, "{rx} bytes have arrived");
    assert_eq!(tx, REQUEST as u64, "the FIN is none");
    stream.read_exact(&mut read).expect("the other half");
    // The server's FIN comes after all bytes.
    assert_eq!(stream.read(&mut read).expect("the end"), 0);
    let bytes = snapshot(&mut *source, "net_ports/bytes");
    assert_eq!(parts(&bytes, &port(at, "client")), [ANSWER as u64, REQUEST as u64]);
    drop(stream);
    let bytes = snapshot(&mut *source, "net_ports/bytes");
    assert_eq!(parts(&bytes, &port(at, "client")), [ANSWER as u64, REQUEST as u64]);
    let [rx, tx] = parts(&bytes, &port(at, "server"));
    assert_eq!(rx, REQUEST as u64);
    assert_sent(tx, ANSWER as u64, &mut *source);
    role.finish();
}

/// `connect` to `AF_UNSPEC` ends a connection. Its socket makes another one, whose counters begin at 0.
fn a_socket_connects_again() {
    let mut source = load_all();
    let (role, at) = server("tl-net-again", "127.0.0.1:0");
    let mut stream = TcpStream::connect(at).expect("connect");
    ask(&mut stream, 5000).expect("an answer");
    let (nowhere, length) = (libc::sockaddr { sa_family: libc::AF_UNSPEC as u16, sa_data: [0; 14] }, 16);
    // SAFETY: an address with its length.
    let done = unsafe { libc::connect(stream.as_raw_fd(), &raw const nowhere, length) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    rustix::net::connect(&stream, &at).expect("connect again");
    ask(&mut stream, 300).expect("an answer");
    drop(stream);
    let opened = snapshot(&mut *source, "net_ports/opened");
    assert_eq!(parts(&opened, &port(at, "client")), [0, 2]);
    let bytes = snapshot(&mut *source, "net_ports/bytes");
    assert_eq!(parts(&bytes, &port(at, "client")), [5300, 2 * REQUEST as u64]);
    role.finish();
}

/// Each connection has another remote host. Hosts without a place are in the total, and counted as refused.
fn more_hosts_than_there_are_places() {
    const HOSTS: u32 = 20_000;
    let mut source = load(&["net_hosts/bytes", "net_hosts/opened"], &everything());
    let witness = Witness::new(Transport::Tcp);
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let to = listener.local_addr().expect("its address");
    for i in 0..HOSTS {
        let from = SocketAddr::from((Ipv4Addr::from(Ipv4Addr::new(127, 7, 0, 0).to_bits() + i), 0));
        let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None);
        let socket = socket.expect("a socket");
        rustix::net::bind(&socket, &from).expect("bind");
        rustix::net::connect(&socket, &to).expect("connect");
        let mut accepted = listener.accept().expect("accept").0;
        // Reset at the end, so that no port stays in use for a minute.
        rustix::net::sockopt::set_socket_linger(&socket, Some(std::time::Duration::ZERO)).expect("not linger");
        let mut stream = TcpStream::from(socket);
        stream.write_all(&[1; 10]).expect("send");
        accepted.read_exact(&mut [0; 10]).expect("receive");
    }
    let all = snapshot(&mut *source, "net_hosts/opened");
    note(format!("{} objects, {} refused of {HOSTS}", all.objects, all.lost.count("full")));
    let own = 2 * u64::from(HOSTS);
    let excess = all.total.checked_sub(own).expect("both ends of each are in the total");
    assert!(excess <= witness.others_opened(own), "{excess} opened more than by the kernel's counters");
    assert!(all.objects > u64::from(HOSTS) / 2 && all.objects < u64::from(HOSTS), "{} objects", all.objects);
    // Amounts without a place, found by looks on one CPU, are refused at once.
    assert!(all.lost.count("full") > 0, "nothing was refused");
    assert_eq!(all.lost.no_memory, 0, "there is memory");
    // All clients' ends have one remote host, which is larger than all refused amounts.
    assert_eq!(parts(&all, &host(to.ip())), [0, u64::from(HOSTS)]);
    assert_eq!(all.proven, 1, "the others are as large as what was refused");
    let bytes = snapshot(&mut *source, "net_hosts/bytes");
    assert_eq!(bytes.total, 20 * u64::from(HOSTS));
}
