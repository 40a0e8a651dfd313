// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The owner of a socket: the process's id and name (not the thread's), its cgroup and its network namespace.

use std::net::{SocketAddr, TcpListener, UdpSocket};

use std::time::Duration;

use topstat_live::nest::COMES_AND_GOES;
use topstat_live::watch::{Socket, everything};
use topstat_live::{Case, Key, Nest, Netns, Role, Watch, alone, case, cgroup, eventually, netns, note};

use super::roles::{SIZE, TURNS, answer};

pub fn cases() -> Vec<Case> {
    vec![
        case!(who_connects, Root; EveryKernel),
        case!(who_accepts_on_an_inherited_listener, Root),
        case!(the_process_not_the_thread, Root; EveryKernel, Gate),
        case!(sockets_that_were_there_before, Root; EveryKernel),
        case!(accepted_sockets_that_were_there_before, Root),
        case!(in_another_cgroup, Root, CgroupV2; EveryKernel, Gate),
        case!(in_a_cgroup_of_v1, Root, CgroupV1; EveryKernel, Gate),
        case!(in_another_network_namespace, Root, Netns; EveryKernel),
        case!(who_sends_datagrams, Root; EveryKernel, Gate),
        case!(who_has_exited_is_still_named, Root),
        alone!(Attached: reads_are_watched_while_an_owner_is_unknown, Root; EveryKernel),
    ]
}

const BYTES: &str = "tcp_v4/conns_bytes";

/// A server in this process that answers until the test program ends.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(&mut stream));
        }
    });
    at
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap_or_else(|e| panic!("'{text}': {e}"))
}

/// Starts a client role that connects and waits.
fn connected(comm: &str, to: SocketAddr) -> (Role, Key) {
    let mut role = Role::start("client", &[comm, &to.to_string()]);
    role.tell("connect");
    let from = address(&role.expect("from"));
    (role, Key::new(from, to))
}

fn speak(role: &mut Role) {
    role.tell("speak");
    role.expect("spoken");
}

/// This process's rows show the tests' own name, id, cgroup and namespace.
fn assert_own(socket: &Socket) {
    let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert_owner(socket, std::process::id(), comm.trim_end());
}

fn assert_owner(socket: &Socket, pid: u32, comm: &str) {
    assert_eq!(socket.pid, Some(pid.into()), "{socket:?}");
    assert_eq!(socket.comm.as_deref(), Some(comm), "{socket:?}");
    assert_eq!(socket.cgroup, cgroup::expected(pid), "{socket:?}");
    assert_eq!(socket.netns, netns::own_number(), "{socket:?}");
}

const ALL: u64 = (2 * TURNS * SIZE) as u64;

fn other(key: Key) -> Key {
    Key::new(key.remote, key.local)
}

fn who_connects() {
    let to = echo();
    let mut watch = Watch::load(&[BYTES, "tcp_v4/conns_pps"], &everything());
    let (mut role, key) = connected("tl-client", to);
    speak(&mut role);
    for path in [BYTES, "tcp_v4/conns_pps"] {
        let view = watch.snapshot(path);
        assert_owner(view.get(key), role.pid(), "tl-client");
        // Another thread of this process has accepted the other end.
        assert_own(view.get(other(key)));
    }
    assert_eq!(watch.snapshot(BYTES).get(key).value, ALL);
    role.finish();
}

/// A process that listens, its address, and the process that accepts in its stead.
fn inherited_listener() -> (Role, SocketAddr, u32) {
    let mut role = Role::start("listener", &[]);
    let said = role.expect("at");
    let (at, acceptor) = said.split_once(' ').unwrap();
    (role, address(at), acceptor.parse().unwrap())
}

fn who_accepts_on_an_inherited_listener() {
    let mut watch = Watch::load(&[BYTES, "tcp_v4/conns_pps"], &everything());
    let (role, to, acceptor) = inherited_listener();
    let (mut client, key) = connected("tl-client", to);
    speak(&mut client);
    assert_owner(watch.snapshot(BYTES).get(other(key)), acceptor, "tl-acceptor");
    assert_owner(watch.snapshot(BYTES).get(key), client.pid(), "tl-client");
    client.finish();
    role.finish();
}

fn the_process_not_the_thread() {
    let to = echo();
    let mut watch = Watch::load(&[BYTES], &everything());
    let mut role = Role::start("threaded", &["tl-a-process", &to.to_string()]);
    let from = address(&role.expect("from"));
    let view = watch.snapshot(BYTES);
    assert_owner(view.get(Key::new(from, to)), role.pid(), "tl-a-process");
    role.finish();
}

/// Sockets that send reveal their owner in the process context. Sockets that only receive do not, and their owner is found all
/// the same.
fn sockets_that_were_there_before() {
    let to = echo();
    let (mut role, key) = connected("tl-before", to);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (silent, silent_key) = connected("tl-silent", listener.local_addr().unwrap());
    let mut server = listener.accept().unwrap().0;
    let mut watch = Watch::load(&[BYTES], &everything());
    speak(&mut role);
    std::io::Write::write_all(&mut server, &[1; SIZE]).unwrap();
    let view = watch.snapshot(BYTES);
    assert_owner(view.get(key), role.pid(), "tl-before");
    assert_own(view.get(other(key)));
    assert_owner(view.get(silent_key), silent.pid(), "tl-silent");
    assert_eq!((view.get(silent_key).rx, view.get(silent_key).tx), (SIZE as u64, 0));
    assert_own(view.get(other(silent_key)));
    silent.finish();
    role.finish();
}

/// Accepted before topstat's start, by another process than the listener's: the owner is found by its descriptors.
fn accepted_sockets_that_were_there_before() {
    let (role, to, acceptor) = inherited_listener();
    let (mut client, key) = connected("tl-client", to);
    speak(&mut client);
    let mut watch = Watch::load(&[BYTES], &everything());
    // And one that is accepted later, from a listener that is older than topstat.
    let (mut late, late_key) = connected("tl-late", to);
    speak(&mut client);
    speak(&mut late);
    let view = watch.snapshot(BYTES);
    assert_owner(view.get(other(key)), acceptor, "tl-acceptor");
    assert_owner(view.get(other(late_key)), acceptor, "tl-acceptor");
    assert_owner(view.get(key), client.pid(), "tl-client");
    assert_owner(view.get(late_key), late.pid(), "tl-late");
    late.finish();
    client.finish();
    role.finish();
}

/// One process is in a separate cgroup, the other is not; they talk to each other.
fn in_another_cgroup() {
    let group = cgroup::Group::new("owner").unwrap();
    let to = echo();
    let mut watch = Watch::load(&[BYTES], &everything());
    let mut role = Role::start("client", &["tl-grouped", &to.to_string()]);
    group.take(role.pid());
    role.tell("connect");
    let key = Key::new(address(&role.expect("from")), to);
    speak(&mut role);
    let view = watch.snapshot(BYTES);
    assert_eq!(view.get(key).cgroup.as_deref(), Some(group.path.as_str()));
    assert_owner(view.get(key), role.pid(), "tl-grouped");
    assert_own(view.get(other(key)));
    assert_ne!(view.get(other(key)).cgroup.as_deref(), Some(group.path.as_str()));
    role.finish();
}

/// On hosts where v2 has all processes in its root, v1 tells them apart.
fn in_a_cgroup_of_v1() {
    let to = echo();
    let mut watch = Watch::load(&[BYTES], &everything());
    let (mut role, key) = connected("tl-v1", to);
    speak(&mut role);
    let shown = watch.snapshot(BYTES).get(key).cgroup.clone();
    assert_eq!(cgroup::path_of(role.pid(), "").as_deref(), Some("/"));
    assert!(shown.as_deref().is_some_and(|path| path.len() > 1), "{shown:?}");
    assert_eq!(shown, cgroup::expected(role.pid()));
    role.finish();
}

fn in_another_network_namespace() {
    let (one, two) = (Netns::new("one"), Netns::new("two"));
    let mut watch = Watch::load(&[BYTES], &everything());
    for ns in [&one, &two] {
        let path = ns.path();
        let mut role = Role::start("self-talk", &["tl-apart", path.to_str().unwrap()]);
        role.tell("go");
        let said = role.expect("from");
        let (from, to) = said.split_once(' ').unwrap();
        let view = watch.snapshot(BYTES);
        let key = Key::new(address(from), address(to));
        for key in [key, other(key)] {
            let socket = view.get(key);
            assert_eq!((socket.pid, socket.comm.as_deref()), (Some(role.pid().into()), Some("tl-apart")));
            assert_eq!(socket.netns, ns.number());
            assert_eq!(socket.value, ALL);
        }
        role.finish();
    }
}

fn who_sends_datagrams() {
    const UDP: &str = "udp_v4/conns_bytes";
    let before = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut watch = Watch::load(&[UDP], &everything());
    let after = UdpSocket::bind("127.0.0.1:0").unwrap();
    for socket in [&before, &after] {
        let to = socket.local_addr().unwrap();
        let mut role = Role::start("datagrams", &["tl-datagrams", &to.to_string()]);
        let from = address(&role.expect("from"));
        let view = watch.snapshot(UDP);
        let key = Key::new(from, to);
        assert_owner(view.get(key), role.pid(), "tl-datagrams");
        assert_eq!(view.get(key).tx, ALL / 2);
        // The datagrams have arrived, though no process has read them.
        let receiver = view.get(Key::new(to, address("0.0.0.0:0")));
        assert_own(receiver);
        assert_eq!(receiver.rx, ALL / 2);
        role.finish();
    }
}

/// The process has exited, but its connection has not ended: the other end has not read yet.
fn who_has_exited_is_still_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let mut watch = Watch::load(&[BYTES], &everything());
    let mut role = Role::start("burst", &["tl-shortlived", &to.to_string()]);
    let key = Key::new(address(&role.expect("from")), to);
    // The process is in the group in which it was started; /proc no longer shows it after the exit.
    let (pid, cgroup) = (role.pid(), cgroup::expected(std::process::id()));
    let server = listener.accept().unwrap().0;
    role.finish();
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    let view = watch.snapshot(BYTES);
    let socket = view.get(key);
    assert_eq!((socket.pid, socket.comm.as_deref()), (Some(pid.into()), Some("tl-shortlived")));
    assert_eq!(socket.cgroup, cgroup);
    // The kernel sends the rest once the other end reads, on behalf of no process.
    let sent = socket.tx;
    let read = std::io::copy(&mut &server, &mut std::io::sink()).unwrap();
    assert!(read >= sent, "{read} of {sent}");
    drop(server);
    let gone =
        topstat_live::eventually(std::time::Duration::from_secs(2), || watch.snapshot(BYTES).find(key).is_none());
    assert!(gone, "its connection has ended, and is shown");
    note(format!("a process that had exited was named; {sent} of its {read} bytes had left by then"));
}

/// The hook that learns owners passes each call that receives. It goes when all owners are known, and is back when one is not, by
/// readers alone: the process that has pinned the programs is gone by then.
fn reads_are_watched_while_an_owner_is_unknown() {
    let (role, to, acceptor) = inherited_listener();
    let nest = Nest::new("owners");
    drop(nest.adopt(&[BYTES], &everything()));
    let hook = nest.family().join("links").join(COMES_AND_GOES);
    assert!(hook.exists(), "at first it is there, so that the first snapshot has owners");
    let mut watch = nest.watch();
    // Connections of other processes may lack an owner for a while.
    let is_gone = || {
        watch.snapshot(BYTES);
        !hook.exists()
    };
    assert!(eventually(Duration::from_secs(60), is_gone), "it stays");

    let (mut client, key) = connected("tl-client", to);
    speak(&mut client);
    let first = watch.snapshot(BYTES).get(other(key)).clone();
    assert!(hook.exists(), "an owner is unknown: {first:?}");
    assert_ne!(first.pid, Some(acceptor.into()), "a read was seen without the hook");
    speak(&mut client);
    assert_owner(watch.snapshot(BYTES).get(other(key)), acceptor, "tl-acceptor");
    client.finish();
    role.finish();
}
