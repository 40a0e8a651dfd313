// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes one end of TCP traffic: long flows, and requests with responses. Each flow has a thread that is pinned to its CPU.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt::BindToDevice};
use rustix::net::{AddressFamily, SocketType};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::place::Place;

/// The bytes of each call that sends or receives, as in the study's generator.
const CALL_BYTES: usize = 128 * 1024;
/// The data of a long flow that wakes its receiver up. If the sender is slower than the receiver, the receiver would otherwise
/// sleep and wake up for each packet. The measurement would then mostly show these wake-ups: interrupts between CPUs, which a
/// hypervisor handles. The receivers of the study always had work. The value is a quarter of a call, so that no window has to
/// grow for it.
const WAKE_BYTES: libc::c_int = 32 * 1024;
/// How long a connection may take. [`LOOK`] is how long a call may wait before the thread checks whether it has to end.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(100);
/// How long a receiver reads the data on its way, after all senders have ended: with packet loss there may be more data than
/// that.
const DRAIN: Duration = Duration::from_secs(2);

/// The contents of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// As much data as possible, from one side to the other.
    Long,
    /// Requests, each followed by a response of the same size.
    Requests {
        /// The bytes of each request and of each response.
        bytes: usize,
    },
}

/// A connection, which carries one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The CPU of the sender.
    pub from_cpu: usize,
    /// The CPU of the receiver.
    pub to_cpu: usize,
    /// The contents of the flow.
    pub kind: Kind,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowEnd {
    /// The CPU of the thread.
    pub cpu: usize,
    /// The contents of the flow.
    pub kind: Kind,
}

/// The options of all sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sockets {
    /// The receive buffer; `None`: the kernel tunes it.
    pub buffer: Option<usize>,
    /// The congestion control; `None`: the kernel's default.
    pub congestion: Option<String>,
}

/// The data that the flows of one end have moved, and the CPU time for it. No value ever decreases.
#[derive(Debug, Default)]
struct Moved {
    sent: AtomicU64,
    received: AtomicU64,
    responses: AtomicU64,
    cpu_ns: AtomicU64,
}

/// The values of `Moved` at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// Bytes that senders have written: requests, but not responses.
    pub sent: u64,
    /// Bytes that receivers have read.
    pub received: u64,
    /// Responses that have come back.
    pub responses: u64,
    /// CPU time of the threads.
    pub cpu_ns: u64,
}

/// The phase in which all threads go on.
const GO_ON: u8 = 0;
/// Senders end; receivers read the data on its way.
const FINISH: u8 = 1;
const END: u8 = 2;

/// The state that all threads of an end share.
#[derive(Debug)]
struct Shared {
    place: Arc<Place>,
    sockets: Sockets,
    moved: Moved,
    phase: AtomicU8,
}

impl Shared {
    fn goes_on(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == GO_ON
    }

    /// Whether a thread still waits for the other end.
    fn waits(&self) -> bool {
        self.phase.load(Ordering::Relaxed) != END
    }
}

/// The threads of one end of all flows. They end when the generator is dropped.
#[derive(Debug)]
pub struct Generator {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<(), String>>>,
}

impl Generator {
    /// A generator without flows.
    pub fn new(place: Arc<Place>, sockets: Sockets) -> Self {
        let (moved, phase) = (Moved::default(), AtomicU8::new(GO_ON));
        Self { shared: Arc::new(Shared { place, sockets, moved, phase }), threads: Vec::new() }
    }

    /// Starts a receiver for each flow, which takes one connection of this peer. Returns the addresses on which they listen.
    ///
    /// # Errors
    ///
    /// When a receiver can't listen.
    pub fn listen(&mut self, flows: &[FlowEnd], own: IpAddr, peer: IpAddr) -> Result<Vec<SocketAddr>, String> {
        let mut addresses = Vec::new();
        for flow in flows.iter().copied() {
            let (listening, address) = mpsc::channel();
            self.start(flow, move |shared| {
                receive(flow, shared, (own, peer), &listening).map_err(|e| format!("a receiver: {e}"))
            });
            match address.recv_timeout(2 * PATIENCE) {
                Ok(address) => addresses.push(address),
                // A receiver that does not listen has ended with an error.
                Err(_) => {
                    return Err(self.stop(false).err().unwrap_or_else(|| "a receiver does not listen".to_owned()));
                }
            }
        }
        Ok(addresses)
    }

    /// Starts a sender for each flow, and returns when all are connected.
    ///
    /// # Errors
    ///
    /// When a sender can't connect.
    pub fn connect(&mut self, flows: &[FlowEnd], own: IpAddr, to: &[SocketAddr]) -> Result<(), String> {
        let (ready, all_ready) = mpsc::channel();
        for (flow, to) in flows.iter().copied().zip(to.iter().copied()) {
            let ready = ready.clone();
            self.start(flow, move |shared| {
                send(flow, shared, own, to, &ready).map_err(|e| format!("a sender, to {to}: {e}"))
            });
        }
        drop(ready);
        for _ in flows {
            if all_ready.recv_timeout(2 * PATIENCE).is_err() {
                return Err(self.stop(false).err().unwrap_or_else(|| "a sender is not connected".to_owned()));
            }
        }
        Ok(())
    }

    fn start(&mut self, flow: FlowEnd, work: impl FnOnce(&Shared) -> Result<(), String> + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        self.threads.push(std::thread::spawn(move || {
            let mut only = CpuSet::new();
            only.set(flow.cpu);
            sched_setaffinity(None, &only).map_err(|e| format!("cannot run on CPU {}: {e}", flow.cpu))?;
            shared.place.enter()?;
            work(&shared)
        }));
    }

    /// The sums at this instant. Threads add their CPU time every few calls only.
    pub fn sum(&self) -> Sum {
        let (moved, read) = (&self.shared.moved, |number: &AtomicU64| number.load(Ordering::Relaxed));
        Sum {
            sent: read(&moved.sent),
            received: read(&moved.received),
            responses: read(&moved.responses),
            cpu_ns: read(&moved.cpu_ns),
        }
    }

    /// Ends all threads. `finish`: the other end has ended, and the data on its way is read first. A failure of one flow is an
    /// error, even if the other flows went on.
    ///
    /// # Errors
    ///
    /// The first failure of a flow.
    pub fn stop(&mut self, finish: bool) -> Result<(), String> {
        self.shared.phase.store(if finish { FINISH } else { END }, Ordering::Relaxed);
        let threads = std::mem::take(&mut self.threads);
        let begun = Instant::now();
        while finish && begun.elapsed() < DRAIN && threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.shared.phase.store(END, Ordering::Relaxed);
        let ended = threads.into_iter().filter_map(|thread| match thread.join() {
            Ok(ended) => ended.err(),
            Err(_) => Some("a thread of the generator has panicked".to_owned()),
        });
        // All threads are joined, also after a failure.
        ended.collect::<Vec<String>>().into_iter().next().map_or(Ok(()), Err)
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        let _ = self.stop(false);
    }
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

/// Wakes a thread that waits for data when this many bytes are there.
fn wake_at(socket: &TcpStream, bytes: libc::c_int) -> io::Result<()> {
    let (value, length) = (std::ptr::from_ref(&bytes).cast(), size_of_val(&bytes) as libc::socklen_t);
    // SAFETY: the kernel reads an integer, whose size is given.
    let error = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, value, length) };
    if error == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets the congestion control, and reads it back.
fn set_congestion(socket: &TcpStream, name: &str) -> io::Result<()> {
    rustix::net::sockopt::set_tcp_congestion(socket, name)?;
    let set = rustix::net::sockopt::tcp_congestion(socket)?;
    if set == name { Ok(()) } else { Err(io::Error::other(format!("the kernel has set {set} instead of {name}"))) }
}

/// The congestion control of sockets at this place: the wanted one, or the kernel's default.
///
/// # Errors
///
/// When the kernel does not have it, or does not let this user set it.
pub fn congestion(place: &Place, wanted: Option<&str>) -> Result<String, String> {
    /// The congestion controls of the kernel, by network namespace.
    const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let ask = || {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).map_err(io::Error::from)?;
        let socket = TcpStream::from(socket);
        wanted.map_or(Ok(()), |name| set_congestion(&socket, name))?;
        rustix::net::sockopt::tcp_congestion(&socket).map_err(io::Error::from)
    };
    place.inside(|| {
        ask().map_err(|e: io::Error| {
            let there = std::fs::read_to_string(AVAILABLE).unwrap_or_default();
            let name = wanted.unwrap_or("the default");
            format!(
                "cannot use the congestion control {name}: {e}; there are {} (net.ipv4.tcp_available_congestion_control)",
                there.trim()
            )
        })
    })
}

/// A socket with this address whose packets pass no other device.
fn bound(own: IpAddr, device: &str) -> io::Result<OwnedFd> {
    let family = if own.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = rustix::net::SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    setsockopt(&socket.as_fd(), BindToDevice, &device.into())?;
    rustix::net::bind(&socket, &SocketAddr::from((own, 0)))?;
    Ok(socket)
}

fn receive(
    flow: FlowEnd,
    shared: &Shared,
    (own, peer): (IpAddr, IpAddr),
    listening: &mpsc::Sender<SocketAddr>,
) -> io::Result<()> {
    let listener = bound(own, &shared.place.device)?;
    // The buffer is set before the socket listens: the window of a connection is scaled by the listener's buffer.
    if let Some(bytes) = shared.sockets.buffer {
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&listener, bytes)?;
    }
    rustix::net::listen(&listener, 1)?;
    let listener = TcpListener::from(listener);
    listener.set_nonblocking(true)?;
    let _ = listening.send(listener.local_addr()?);
    let begun = Instant::now();
    let mut socket = loop {
        match listener.accept() {
            // Connections of other peers are not measured.
            Ok((socket, from)) if from.ip() == peer => break socket,
            Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(e),
            _ if !shared.goes_on() => return Ok(()),
            _ if begun.elapsed() > 2 * PATIENCE => {
                return Err(io::Error::other(format!("no connection has come from {peer}")));
            }
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    socket.set_nonblocking(false)?;
    set(&socket, &shared.sockets)?;
    if flow.kind == Kind::Long {
        wake_at(&socket, WAKE_BYTES)?;
    }
    let mut buffer = vec![0; CALL_BYTES];
    let received = &shared.moved.received;
    let mut cpu = OwnCpu::new(&shared.moved.cpu_ns);
    while shared.waits() {
        match flow.kind {
            Kind::Long => match again(socket.read(&mut buffer))? {
                Some(0) => break,
                Some(bytes) => _ = received.fetch_add(bytes as u64, Ordering::Relaxed),
                None => {}
            },
            Kind::Requests { bytes } => {
                let waits = || shared.waits();
                if !read_all(&mut socket, &mut buffer, bytes, waits, Some(received))?
                    || !write_all(&mut socket, &buffer, bytes, waits, None)?
                {
                    break;
                }
            }
        }
        cpu.tell();
    }
    Ok(())
}

fn send(flow: FlowEnd, shared: &Shared, own: IpAddr, to: SocketAddr, ready: &mpsc::Sender<()>) -> io::Result<()> {
    let socket = bound(own, &shared.place.device)?;
    // Linux uses the timeout of sending for connecting, too.
    rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Send, Some(PATIENCE))?;
    rustix::net::connect(&socket, &to).map_err(|e| match e {
        rustix::io::Errno::INPROGRESS => io::Error::from(ErrorKind::TimedOut),
        e => e.into(),
    })?;
    let mut socket = TcpStream::from(socket);
    set(&socket, &shared.sockets)?;
    let _ = ready.send(());
    let mut buffer = vec![0; CALL_BYTES];
    let sent = &shared.moved.sent;
    let mut cpu = OwnCpu::new(&shared.moved.cpu_ns);
    while shared.goes_on() {
        match flow.kind {
            Kind::Long => match again(socket.write(&buffer))? {
                Some(0) => break,
                Some(bytes) => _ = sent.fetch_add(bytes as u64, Ordering::Relaxed),
                None => {}
            },
            Kind::Requests { bytes } => {
                let goes_on = || shared.goes_on();
                if !write_all(&mut socket, &buffer, bytes, goes_on, Some(sent))?
                    || !read_all(&mut socket, &mut buffer, bytes, goes_on, None)?
                {
                    break;
                }
                shared.moved.responses.fetch_add(1, Ordering::Relaxed);
            }
        }
        cpu.tell();
    }
    Ok(())
}

/// The result of a call; `None`: the call has waited for its longest time. At the end of a run, the other end may close the
/// connection first.
fn again(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => Ok(None),
        Err(e) if matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => Ok(Some(0)),
        Err(e) => Err(e),
    }
}

/// Reads this number of bytes, and counts them. False: the end has come first.
fn read_all(
    socket: &mut TcpStream,
    buffer: &mut [u8],
    bytes: usize,
    goes_on: impl Fn() -> bool,
    counted: Option<&AtomicU64>,
) -> io::Result<bool> {
    all(bytes, goes_on, counted, |left| {
        let most = left.min(buffer.len());
        socket.read(&mut buffer[..most])
    })
}

/// Writes this number of bytes, and counts them. False: the end has come first.
fn write_all(
    socket: &mut TcpStream,
    buffer: &[u8],
    bytes: usize,
    goes_on: impl Fn() -> bool,
    counted: Option<&AtomicU64>,
) -> io::Result<bool> {
    all(bytes, goes_on, counted, |left| socket.write(&buffer[..left.min(buffer.len())]))
}

fn all(
    bytes: usize,
    goes_on: impl Fn() -> bool,
    counted: Option<&AtomicU64>,
    mut call: impl FnMut(usize) -> io::Result<usize>,
) -> io::Result<bool> {
    let mut left = bytes;
    while left > 0 {
        match again(call(left))? {
            Some(0) => return Ok(false),
            Some(moved) => {
                left -= moved;
                counted.map(|counted| counted.fetch_add(moved as u64, Ordering::Relaxed));
            }
            None if !goes_on() => return Ok(false),
            None => {}
        }
    }
    Ok(true)
}

/// The CPU time of the calling thread, added to a sum every few calls: asking for it takes as long as a small call.
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
