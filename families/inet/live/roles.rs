// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes that talk to others. Each prints a line when it has done a step, and waits for a line before the next. It ends when
//! its input ends.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _};
use std::process::ExitCode;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use topstat_live::role::{Role, name, say, told};

/// Plays a role, if it is one of this family's.
pub fn play(role: &str, arguments: &[String]) -> Option<ExitCode> {
    let argument = |i: usize| arguments.get(i).map(String::as_str).expect("an argument");
    match role {
        "client" => client(argument(0), argument(1)),
        "burst" => burst(argument(0), argument(1)),
        "threaded" => threaded(argument(0), argument(1)),
        "datagrams" => datagrams(argument(0), argument(1)),
        "datagrams-when-told" => {
            if told().is_some() {
                datagrams(argument(0), argument(1));
            }
        }
        "listener" => listener(),
        "acceptor" => acceptor(argument(0)),
        "self-talk" => self_talk(argument(0), arguments.get(1).map(String::as_str)),
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

/// The number of messages in each direction.
pub const TURNS: usize = 20;
/// The size of a message.
pub const SIZE: usize = 100;

fn speak(stream: &mut TcpStream) {
    let mut buffer = [1u8; SIZE];
    for _ in 0..TURNS {
        stream.write_all(&buffer).expect("send");
        stream.read_exact(&mut buffer).expect("receive");
    }
}

/// Echoes all messages.
pub fn answer(stream: &mut TcpStream) {
    let mut buffer = [1u8; SIZE];
    while stream.read_exact(&mut buffer).is_ok() {
        if stream.write_all(&buffer).is_err() {
            break;
        }
    }
}

/// Connects, prints its address, and speaks at each line of input.
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

/// Sends more than the other end reads, and exits: the kernel sends the rest alone.
fn burst(comm: &str, to: &str) {
    name(comm);
    let stream = TcpStream::connect(to).expect("connect");
    say(format!("from {}", stream.local_addr().expect("its address")));
    stream.set_nonblocking(true).expect("not wait");
    while (&stream).write(&[1u8; 65536]).is_ok() {}
}

/// The process has one name, and the thread that connects and speaks has another.
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

/// Listens. Another process, which inherits the listening socket, accepts.
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

/// Accepts connections on an inherited socket one after the other, and answers.
fn acceptor(fd: &str) {
    name("tl-acceptor");
    // SAFETY: inherited for this purpose, and used nowhere else in this process.
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

/// Both ends in one process, in the network namespace, if one is given.
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
