// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tests' other processes do. Each says a line when it has done something, and waits for one to go on; it ends
//! when its input ends.

use std::ffi::CString;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _};
use std::process::ExitCode;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use topstat_live::role::{Role, say, told};
use topstat_live::watch::table;
use topstat_samples::Options;

/// Plays a role.
pub fn play(role: &str, arguments: &[String]) -> ExitCode {
    let argument = |i: usize| arguments.get(i).map(String::as_str).expect("an argument");
    match role {
        "client" => client(argument(0), argument(1)),
        "burst" => burst(argument(0), argument(1)),
        "threaded" => threaded(argument(0), argument(1)),
        "datagrams" => datagrams(argument(0), argument(1)),
        "listener" => listener(),
        "acceptor" => acceptor(argument(0)),
        "self-talk" => self_talk(argument(0), arguments.get(1).map(String::as_str)),
        "unprivileged" => unprivileged(argument(0)),
        "watcher" => watcher(),
        other => assert!(crate::task_roles::play(other, arguments), "there is no role {other}"),
    }
    ExitCode::SUCCESS
}

fn name(comm: &str) {
    let comm = CString::new(comm).expect("a name without zeroes");
    rustix::thread::set_name(&comm).expect("set the name");
}

/// How often, and how much, everyone speaks.
pub const TURNS: usize = 20;
/// See [`TURNS`].
pub const SIZE: usize = 100;

fn speak(stream: &mut TcpStream) {
    let mut buffer = [1u8; SIZE];
    for _ in 0..TURNS {
        stream.write_all(&buffer).expect("send");
        stream.read_exact(&mut buffer).expect("receive");
    }
}

/// Answers all that comes.
pub fn answer(stream: &mut TcpStream) {
    let mut buffer = [1u8; SIZE];
    while stream.read_exact(&mut buffer).is_ok() {
        if stream.write_all(&buffer).is_err() {
            break;
        }
    }
}

/// Connects, says from where, and speaks whenever it is told to.
fn client(comm: &str, to: &str) {
    name(comm);
    if told().is_none() {
        return;
    }
    let mut stream = TcpStream::connect(to).expect("connect");
    say(format!("from {}", stream.local_addr().expect("its address")));
    while told().is_some() {
        speak(&mut stream);
        say("spoken");
    }
}

/// Sends more than the other end takes and exits: the kernel goes on with it alone.
fn burst(comm: &str, to: &str) {
    name(comm);
    let stream = TcpStream::connect(to).expect("connect");
    say(format!("from {}", stream.local_addr().expect("its address")));
    stream.set_nonblocking(true).expect("not wait");
    while (&stream).write(&[1u8; 65536]).is_ok() {}
}

/// The process has one name, the thread that connects and speaks another.
fn threaded(comm: &str, to: &str) {
    name(comm);
    let to = to.to_owned();
    let thread = std::thread::Builder::new().name("tl-a-thread".to_owned()).spawn(move || {
        let mut stream = TcpStream::connect(to).expect("connect");
        speak(&mut stream);
        say(format!("from {}", stream.local_addr().expect("its address")));
        told();
    });
    thread.expect("start a thread").join().expect("the thread");
}

/// Sends datagrams.
fn datagrams(comm: &str, to: &str) {
    name(comm);
    let to: SocketAddr = to.parse().expect("an address");
    let socket = UdpSocket::bind(SocketAddr::new(to.ip(), 0)).expect("bind");
    socket.connect(to).expect("connect");
    for _ in 0..TURNS {
        socket.send(&[1u8; SIZE]).expect("send");
    }
    say(format!("from {}", socket.local_addr().expect("its address")));
    told();
}

/// Listens, and leaves all else to another process that inherits the listening socket.
fn listener() {
    name("tl-listener");
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let fd = listener.as_raw_fd();
    rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::empty()).expect("let it be inherited");
    let mut child = Role::start("acceptor", &[&fd.to_string()]);
    child.expect("ready");
    say(format!("at {} {}", listener.local_addr().expect("its address"), child.pid()));
    told();
    child.finish();
}

/// Accepts on an inherited socket, one connection after the other, and answers.
fn acceptor(fd: &str) {
    name("tl-acceptor");
    // SAFETY: inherited for this, and nobody else's in this process.
    let listener = unsafe { TcpListener::from_raw_fd(fd.parse().expect("a descriptor")) };
    say("ready");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("accept");
            std::thread::spawn(move || answer(&mut stream));
        }
    });
    told();
}

/// Both ends in one process, perhaps in a network namespace.
fn self_talk(comm: &str, netns: Option<&str>) {
    name(comm);
    if let Some(path) = netns {
        let file = std::fs::File::open(path).expect("open the namespace");
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("enter the namespace");
    }
    if told().is_none() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let mut client = TcpStream::connect(listener.local_addr().expect("its address")).expect("connect");
    let mut server = listener.accept().expect("accept").0;
    std::thread::spawn(move || answer(&mut server));
    speak(&mut client);
    let (local, remote) = (client.local_addr().expect("its address"), client.peer_addr().expect("its peer"));
    say(format!("from {local} {remote}"));
    told();
}

/// Tries to load without a privilege, and says what comes of it and what it holds of eBPF afterwards.
fn unprivileged(what: &str) {
    match what {
        "user" => {
            let (uid, gid) = (rustix::process::Uid::from_raw(65534), rustix::process::Gid::from_raw(65534));
            rustix::thread::set_thread_gid(gid).expect("become a group of no privilege");
            rustix::thread::set_thread_uid(uid).expect("become a user of no privilege");
        }
        "capabilities" => {
            use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
            let none = CapabilitySet::empty();
            set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
                .expect("drop the capabilities");
        }
        other => panic!("there is no way {other}"),
    }
    match topstat_samples::load(&[table("tcp_v4/conns_pps")], &Options::default()) {
        Ok(_) => say("loaded"),
        Err(e) => say(format!("refused {}", e.to_string().replace('\n', " "))),
    }
    say(format!("holding {}", topstat_live::attached::Ids::own().is_empty()));
    told();
}

/// Loads, and watches until it is killed.
fn watcher() {
    let _source = topstat_samples::load(&[table("tcp_v4/conns_pps")], &Options::default()).expect("load");
    say("watching");
    told();
}
