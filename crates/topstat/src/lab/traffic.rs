// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes TCP traffic between two network namespaces: long flows, and requests with responses, each end on a thread that is
//! pinned to its CPU.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use super::host::{End, Host, Trouble};

/// Bytes of a call that sends or receives: what the study's generator used.
const CALL_BYTES: usize = 128 * 1024;
/// How long a connection may take, and any call may wait before the thread looks whether it is to end.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(100);

/// What a flow carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As much as goes, from one side to the other.
    Long,
    /// A request of so many bytes, then a response of as many.
    Requests {
        /// Of each.
        bytes: usize,
    },
}

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Where it is sent from.
    pub from_cpu: usize,
    /// Where it is received.
    pub to_cpu: usize,
    /// What it carries.
    pub kind: Kind,
}

/// What all sockets are set to.
#[derive(Clone, Debug, Default)]
pub struct Sockets {
    /// The receive buffer; `None`: the kernel tunes it.
    pub buffer: Option<usize>,
    /// The congestion control; `None`: the kernel's default.
    pub congestion: Option<String>,
}

/// What flows have moved, and what that took; all of it only grows.
#[derive(Debug, Default)]
pub struct Moved {
    /// Bytes that receivers have read.
    received: AtomicU64,
    /// Responses that have come back.
    responses: AtomicU64,
    /// CPU time of the threads of each end.
    sender_ns: AtomicU64,
    receiver_ns: AtomicU64,
}

/// The same at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Bytes that receivers have read.
    pub received: u64,
    /// Responses that have come back.
    pub responses: u64,
    /// CPU time of the sending threads.
    pub sender_ns: u64,
    /// Of the receiving ones.
    pub receiver_ns: u64,
}

impl Moved {
    /// At this moment, but for what threads have not told yet: they do with every call.
    pub fn sum(&self) -> Sum {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Sum {
            received: read(&self.received),
            responses: read(&self.responses),
            sender_ns: read(&self.sender_ns),
            receiver_ns: read(&self.receiver_ns),
        }
    }
}

/// Makes the traffic as long as `during` runs, which is called when all flows are connected. What went wrong in a flow is
/// an error, also where the others went on.
///
/// # Errors
///
/// When a connection can't be made, or breaks.
pub fn run<T>(
    host: &Host,
    flows: &[Flow],
    sockets: &Sockets,
    during: impl FnOnce(&Moved) -> Result<T, String>,
) -> Result<T, String> {
    let (moved, stop) = (Moved::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        let connected = connect(scope, host, flows, sockets, &moved, &stop, &mut threads);
        let done = connected.and_then(|()| during(&moved));
        stop.store(true, Ordering::Relaxed);
        let mut failures = threads.into_iter().filter_map(|thread| match thread.join() {
            Ok(ended) => ended.err(),
            Err(_) => Some("a thread of the generator has panicked".to_owned()),
        });
        match (done, failures.next()) {
            (Ok(_), Some(failure)) => Err(failure),
            (done, _) => done,
        }
    })
}

type Thread<'scope> = ScopedJoinHandle<'scope, Result<(), String>>;

/// Starts the threads of all flows; done when all are connected.
fn connect<'scope, 'env: 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    host: &'env Host,
    flows: &'env [Flow],
    sockets: &'env Sockets,
    moved: &'scope Moved,
    stop: &'scope AtomicBool,
    threads: &mut Vec<Thread<'scope>>,
) -> Result<(), String> {
    let (ready, all_ready) = mpsc::channel();
    for flow in flows {
        let (listening, port) = mpsc::channel();
        threads.push(scope.spawn(move || {
            begin(host, End::Right, flow.to_cpu)?;
            receive(*flow, sockets, moved, stop, &listening).map_err(|e| format!("a receiver: {e}"))
        }));
        // Who does not listen has ended with an error, which is told at the end.
        let address: SocketAddr =
            port.recv_timeout(2 * PATIENCE).map_err(|_| "a receiver does not listen".to_owned())?;
        let ready = ready.clone();
        threads.push(scope.spawn(move || {
            begin(host, End::Left, flow.from_cpu)?;
            send(*flow, address, sockets, moved, stop, &ready).map_err(|e| format!("a sender: {e}"))
        }));
    }
    drop(ready);
    for _ in flows {
        all_ready.recv_timeout(2 * PATIENCE).map_err(|_| "a sender is not connected".to_owned())?;
    }
    Ok(())
}

/// Enters the namespace of an end, on a CPU.
fn begin(host: &Host, end: End, cpu: usize) -> Result<(), String> {
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).map_err(|e| format!("cannot run on CPU {cpu}: {e}"))?;
    host.enter(end)
}

fn set(socket: &TcpStream, sockets: &Sockets) -> io::Result<()> {
    socket.set_read_timeout(Some(LOOK))?;
    socket.set_write_timeout(Some(LOOK))?;
    socket.set_nodelay(true)?;
    if let Some(name) = &sockets.congestion {
        set_congestion(socket, name)?;
    }
    Ok(())
}

/// Sets it, and reads it back.
fn set_congestion(socket: &TcpStream, name: &str) -> io::Result<()> {
    rustix::net::sockopt::set_tcp_congestion(socket, name)?;
    let set = rustix::net::sockopt::tcp_congestion(socket)?;
    if set == name { Ok(()) } else { Err(io::Error::other(format!("the kernel has set {set} instead of {name}"))) }
}

/// The congestion control that sockets of the sender's namespace will have: this one, or the kernel's default.
///
/// # Errors
///
/// When the kernel does not have it, or does not let this user set it.
pub fn congestion(host: &Host, wanted: Option<&str>) -> Result<String, String> {
    /// What the kernel has; of a network namespace.
    const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let ask = || {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).map_err(io::Error::from)?;
        let socket = TcpStream::from(socket);
        wanted.map_or(Ok(()), |name| set_congestion(&socket, name))?;
        rustix::net::sockopt::tcp_congestion(&socket).map_err(io::Error::from)
    };
    let told = || {
        ask().map_err(|e: io::Error| {
            let there = std::fs::read_to_string(AVAILABLE).unwrap_or_default();
            let name = wanted.unwrap_or("the default");
            Trouble::Failed(format!(
                "cannot use the congestion control {name}: {e}; there are {} (net.ipv4.tcp_available_congestion_control)",
                there.trim()
            ))
        })
    };
    host.inside(End::Left, told).map_err(Trouble::why)
}

fn receive(
    flow: Flow,
    sockets: &Sockets,
    moved: &Moved,
    stop: &AtomicBool,
    listening: &mpsc::Sender<SocketAddr>,
) -> io::Result<()> {
    let listener = TcpListener::bind((IpAddr::from(End::Right.address()), 0))?;
    // Before it listens: the window of a connection is scaled by what the listener has.
    if let Some(bytes) = sockets.buffer {
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&listener, bytes)?;
    }
    listener.set_nonblocking(true)?;
    let _ = listening.send(listener.local_addr()?);
    let begun = Instant::now();
    let mut socket = loop {
        match listener.accept() {
            Ok((socket, _)) => break socket,
            Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(e),
            Err(_) if stop.load(Ordering::Relaxed) => return Ok(()),
            Err(e) if begun.elapsed() > PATIENCE => return Err(e),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    socket.set_nonblocking(false)?;
    set(&socket, sockets)?;
    let mut buffer = vec![0; CALL_BYTES];
    let mut cpu = OwnCpu::new(&moved.receiver_ns);
    while !stop.load(Ordering::Relaxed) {
        match flow.kind {
            Kind::Long => match again(socket.read(&mut buffer))? {
                Some(0) => break,
                Some(bytes) => _ = moved.received.fetch_add(bytes as u64, Ordering::Relaxed),
                None => {}
            },
            Kind::Requests { bytes } => {
                if !read_all(&mut socket, &mut buffer, bytes, stop)? {
                    break;
                }
                moved.received.fetch_add(bytes as u64, Ordering::Relaxed);
                if !write_all(&mut socket, &buffer, bytes, stop)? {
                    break;
                }
            }
        }
        cpu.tell();
    }
    Ok(())
}

fn send(
    flow: Flow,
    to: SocketAddr,
    sockets: &Sockets,
    moved: &Moved,
    stop: &AtomicBool,
    ready: &mpsc::Sender<()>,
) -> io::Result<()> {
    let mut socket = TcpStream::connect_timeout(&to, PATIENCE)?;
    set(&socket, sockets)?;
    let _ = ready.send(());
    let mut buffer = vec![0; CALL_BYTES];
    let mut cpu = OwnCpu::new(&moved.sender_ns);
    while !stop.load(Ordering::Relaxed) {
        match flow.kind {
            Kind::Long => _ = again(socket.write(&buffer))?,
            Kind::Requests { bytes } => {
                if !write_all(&mut socket, &buffer, bytes, stop)? || !read_all(&mut socket, &mut buffer, bytes, stop)? {
                    break;
                }
                moved.responses.fetch_add(1, Ordering::Relaxed);
            }
        }
        cpu.tell();
    }
    Ok(())
}

/// The result of a call; `None`: it has waited for as long as it may. The other end may end first, when all do.
fn again(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => Ok(None),
        Err(e) if matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => Ok(Some(0)),
        Err(e) => Err(e),
    }
}

/// Reads so many bytes; false: the end has come first.
fn read_all(socket: &mut TcpStream, buffer: &mut [u8], bytes: usize, stop: &AtomicBool) -> io::Result<bool> {
    let mut left = bytes;
    while left > 0 {
        let most = left.min(buffer.len());
        match again(socket.read(&mut buffer[..most]))? {
            Some(0) => return Ok(false),
            Some(read) => left -= read,
            None if stop.load(Ordering::Relaxed) => return Ok(false),
            None => {}
        }
    }
    Ok(true)
}

/// Writes so many bytes; false: the end has come first.
fn write_all(socket: &mut TcpStream, buffer: &[u8], bytes: usize, stop: &AtomicBool) -> io::Result<bool> {
    let mut left = bytes;
    while left > 0 {
        match again(socket.write(&buffer[..left.min(buffer.len())]))? {
            Some(0) => return Ok(false),
            Some(written) => left -= written,
            None if stop.load(Ordering::Relaxed) => return Ok(false),
            None => {}
        }
    }
    Ok(true)
}

/// The CPU time of the calling thread, added to a sum now and then: asking takes as long as a small call.
struct OwnCpu<'a> {
    sum: &'a AtomicU64,
    told_ns: u64,
    calls: u32,
}

impl<'a> OwnCpu<'a> {
    fn new(sum: &'a AtomicU64) -> Self {
        Self { sum, told_ns: own_ns(), calls: 0 }
    }

    fn tell(&mut self) {
        const EVERY: u32 = 16;
        self.calls += 1;
        if self.calls.is_multiple_of(EVERY) {
            self.tell_now();
        }
    }

    fn tell_now(&mut self) {
        let now = own_ns();
        self.sum.fetch_add(now.saturating_sub(self.told_ns), Ordering::Relaxed);
        self.told_ns = now;
    }
}

impl Drop for OwnCpu<'_> {
    fn drop(&mut self) {
        self.tell_now();
    }
}

fn own_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
