// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The server thread: answers requests, or discards one-way messages, and counts bytes per connection.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{self, RecvFlags, SendFlags};

use crate::config::{Config, Proto};
use crate::conn::{Conn, Counter, ServerCounts};
use crate::error::{Error, Result};
use crate::sys;

/// The maximum number of events taken in one call.
const EVENTS: usize = 512;

/// The maximum number of bytes read from a stream in one call.
const BUFFER: usize = 256 * 1024;

/// The maximum number of datagrams taken from one socket before others get their turn.
const DATAGRAMS: usize = 64;

/// How often a server in a blocking call looks for commands.
const COMMAND_INTERVAL: Duration = Duration::from_millis(10);

/// The token of the descriptor that announces commands.
const WAKE: u64 = u64::MAX;

/// Set in the tokens of shared sockets; the other bits are their index.
const SHARED: u64 = 1 << 63;

/// The bits of a token that hold a connection's index; the higher bits distinguish a connection from its replacement.
const INDEX_BITS: u32 = 24;

enum Command {
    Add {
        index: usize,
        id: u64,
        client: SocketAddr,
        socket: Arc<OwnedFd>,
        counts: Arc<ServerCounts>,
    },
    Share(Arc<OwnedFd>),
    Forget {
        index: usize,
        client: SocketAddr,
        counts: Arc<ServerCounts>,
    },
    /// Starts or stops serving the only connection by blocking calls.
    Block(bool),
    Sync(SyncSender<()>),
    Stop,
}

/// A handle of the server thread, which ends when the handle is dropped.
pub(crate) struct Server {
    commands: Sender<Command>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<Result<()>>>,
    /// Bytes received on all connections.
    pub received: Arc<Counter>,
}

impl Server {
    pub fn start(config: &Config) -> Result<Server> {
        let failed = |error: Errno| Error::system("start the server", error);
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?);
        let received = Arc::new(Counter::default());
        let (commands, receiver) = channel();
        let mut worker = Worker {
            tcp: config.proto == Proto::Tcp,
            request: config.request_size,
            response: config.response_bytes(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?,
            commands: receiver,
            wake: Arc::clone(&wake),
            entries: Vec::new(),
            open: 0,
            leaving: HashMap::new(),
            shared: Vec::new(),
            peers: HashMap::new(),
            received: Arc::clone(&received),
            buffer: vec![0; BUFFER.max(if config.proto == Proto::Tcp { 0 } else { config.response_bytes() })],
            block: false,
        };
        let cpu = config.server_cpu;
        let thread = std::thread::Builder::new()
            .name("load-server".into())
            .spawn(move || cpu.map_or(Ok(()), sys::pin).and_then(|()| worker.run()))
            .map_err(|error| Error::system("start the server thread", error))?;
        let mut server = Server { commands, wake, thread: Some(thread), received };
        server.sync()?;
        Ok(server)
    }

    /// Passes a connection's end to the server. Takes effect before the first datagram of that connection is answered.
    pub fn add(&self, conn: &Conn) {
        let Conn { id, index, client_addr: client, server: Some(socket), counts, .. } = conn else {
            return;
        };
        let (socket, counts) = (Arc::clone(socket), Arc::clone(counts));
        self.send(Command::Add { index: *index, id: *id, client: *client, socket, counts });
    }

    /// Passes a socket that serves many clients to the server.
    pub fn share(&self, socket: &Arc<OwnedFd>) {
        self.send(Command::Share(Arc::clone(socket)));
    }

    /// Makes the server close a connection's end without waiting for its client.
    pub fn forget(&self, conn: &Conn) {
        let (index, client, counts) = (conn.index, conn.client_addr, Arc::clone(&conn.counts));
        self.send(Command::Forget { index, client, counts });
    }

    /// Sets whether the server serves the only connection by blocking calls.
    pub fn block(&self, block: bool) {
        self.send(Command::Block(block));
    }

    /// Wakes the server for the commands sent so far.
    pub fn wake(&self) {
        // This fails only if the counter is full, and then the server wakes up, too.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Waits until the server has carried out all commands so far.
    pub fn sync(&mut self) -> Result<()> {
        let (done, wait) = sync_channel(1);
        self.send(Command::Sync(done));
        self.wake();
        if wait.recv().is_ok() {
            return Ok(());
        }
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => Err(error),
            Some(Err(_)) => Err(Error::ServerGone("it panicked".into())),
            Some(Ok(Ok(()))) | None => Err(Error::ServerGone("it was stopped before".into())),
        }
    }

    fn send(&self, command: Command) {
        // `sync` notices if the server is gone.
        let _ = self.commands.send(command);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.send(Command::Stop);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // An error that mattered would have been met by `sync`.
            let _ = thread.join();
        }
    }
}

/// A connection as the server sees it.
struct Entry {
    socket: Arc<OwnedFd>,
    counts: Arc<ServerCounts>,
    token: u64,
    /// Received bytes of the current request.
    got: usize,
    /// Bytes of responses that must still be sent.
    owed: usize,
}

struct Worker {
    tcp: bool,
    request: usize,
    /// 0 in one-way mode.
    response: usize,
    epoll: OwnedFd,
    commands: Receiver<Command>,
    wake: Arc<OwnedFd>,
    entries: Vec<Option<Entry>>,
    open: usize,
    /// Replaced streams, until all their data has arrived.
    leaving: HashMap<u64, Entry>,
    shared: Vec<Arc<OwnedFd>>,
    peers: HashMap<SocketAddr, Arc<ServerCounts>>,
    received: Arc<Counter>,
    buffer: Vec<u8>,
    block: bool,
}

impl Worker {
    fn run(&mut self) -> Result<()> {
        let failed = |error: Errno| Error::system("wait for requests", error);
        epoll::add(&self.epoll, &self.wake, EventData::new_u64(WAKE), EventFlags::IN).map_err(failed)?;
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        loop {
            if self.block && self.tcp && self.open == 1 && self.leaving.is_empty() && self.serve_blocking()?.is_break()
            {
                return Ok(());
            }
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(failed(error)),
            }
            for event in &events {
                match event.data.u64() {
                    WAKE => {
                        let mut count = [0u8; 8];
                        let _ = rustix::io::read(&self.wake, &mut count);
                        if self.obey()?.is_break() {
                            return Ok(());
                        }
                    }
                    token if token & SHARED != 0 => self.serve_shared((token & !SHARED) as usize)?,
                    token => self.serve_connected(token, event.flags),
                }
            }
        }
    }

    /// Carries out the pending commands.
    fn obey(&mut self) -> Result<ControlFlow<()>> {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Add { index, id, client, socket, counts } => self.add(index, id, client, socket, counts)?,
                Command::Share(socket) => {
                    let token = EventData::new_u64(SHARED | self.shared.len() as u64);
                    epoll::add(&self.epoll, &socket, token, EventFlags::IN)
                        .map_err(|error| Error::system("watch a shared socket", error))?;
                    self.shared.push(socket);
                }
                Command::Forget { index, client, counts } => {
                    // A later connection may have this address by now.
                    if self.peers.get(&client).is_some_and(|present| Arc::ptr_eq(present, &counts)) {
                        self.peers.remove(&client);
                    }
                    self.close(index);
                }
                Command::Block(block) => self.block = block,
                // No thread waits any more if the other side gave up.
                Command::Sync(done) => drop(done.send(())),
                Command::Stop => return Ok(ControlFlow::Break(())),
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn add(
        &mut self,
        index: usize,
        id: u64,
        client: SocketAddr,
        socket: Arc<OwnedFd>,
        counts: Arc<ServerCounts>,
    ) -> Result<()> {
        if !self.shared.is_empty() {
            self.peers.insert(client, counts);
            return Ok(());
        }
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, || None);
        }
        if !self.tcp {
            self.close(index);
        } else if let Some(entry) = self.entries[index].take() {
            self.open -= 1;
            self.leaving.insert(entry.token, entry);
        }
        let token = (id << INDEX_BITS | index as u64) & !SHARED;
        // Streams are read until they are empty, so an edge is enough. A UDP socket would also report room after every
        // datagram that has left, so it is watched for input only.
        let flags = if self.tcp {
            EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET
        } else {
            EventFlags::IN
        };
        epoll::add(&self.epoll, &socket, EventData::new_u64(token), flags)
            .map_err(|error| Error::system(format!("watch connection {index}"), error))?;
        self.entries[index] = Some(Entry { socket, counts, token, got: 0, owed: 0 });
        self.open += 1;
        Ok(())
    }

    fn close(&mut self, index: usize) {
        if let Some(entry) = self.entries.get_mut(index).and_then(Option::take) {
            // The connection's other owner may keep the descriptor open, and epoll would go on watching it.
            let _ = epoll::delete(&self.epoll, &entry.socket);
            self.open -= 1;
        }
    }

    fn serve_connected(&mut self, token: u64, flags: EventFlags) {
        let index = (token & ((1 << INDEX_BITS) - 1)) as usize;
        let current = self.entries.get_mut(index).and_then(Option::as_mut).filter(|entry| entry.token == token);
        let leaving = current.is_none();
        let Some(entry) = current.or_else(|| self.leaving.get_mut(&token)) else {
            return;
        };
        let done = if self.tcp {
            let ending = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
            serve_stream(entry, self.request, self.response, &mut self.buffer, &self.received, ending)
        } else {
            serve_datagrams(entry, self.response, &mut self.buffer, &self.received)
        };
        if done.is_break() && leaving {
            self.leaving.remove(&token);
        } else if done.is_break() {
            self.close(index);
        }
    }

    /// Serves the only connection until a command ends this, or the connection ends.
    fn serve_blocking(&mut self) -> Result<ControlFlow<()>> {
        let Some((index, socket)) = self
            .entries
            .iter()
            .enumerate()
            .find_map(|(index, entry)| entry.as_ref().map(|entry| (index, Arc::clone(&entry.socket))))
        else {
            return Ok(ControlFlow::Continue(()));
        };
        let timeout = |value| {
            sockopt::set_socket_timeout(&socket, Timeout::Recv, value)
                .and_then(|()| sockopt::set_socket_timeout(&socket, Timeout::Send, value))
                .map_err(|error| Error::system("set a socket's timeout", error))
        };
        timeout(Some(COMMAND_INTERVAL))?;
        while self.block && self.open == 1 {
            let Some(entry) = &mut self.entries[index] else {
                break;
            };
            let done = flush(entry, &self.buffer, SendFlags::NOSIGNAL)
                .and_then(|()| net::recv(&entry.socket, &mut self.buffer[..], RecvFlags::empty()));
            match done {
                Ok((0, _)) => self.close(index),
                Ok((count, _)) => receive(entry, count, self.request, self.response, &self.received),
                Err(Errno::AGAIN | Errno::INTR) => {
                    if self.obey()?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                Err(_) => self.close(index),
            }
        }
        timeout(None)?;
        // Data that arrived at the very end has had its edge already.
        if let Some(token) = self.entries[index].as_ref().map(|entry| entry.token) {
            self.serve_connected(token, EventFlags::IN);
        }
        Ok(ControlFlow::Continue(()))
    }

    fn serve_shared(&mut self, which: usize) -> Result<()> {
        let socket = Arc::clone(&self.shared[which]);
        for _ in 0..DATAGRAMS {
            let (count, peer) = match net::recvfrom(&socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((count, _, Some(peer))) => (count, SocketAddr::try_from(peer)),
                Ok((_, _, None)) | Err(Errno::INTR | Errno::CONNREFUSED) => continue,
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(Error::system("receive a datagram", error)),
            };
            let Ok(peer) = peer else { continue };
            if !self.peers.contains_key(&peer) && self.obey()?.is_break() {
                // Stop is sent once, and this function has received it, so it returns the stop as an error.
                return Err(Error::ServerGone("stopped".into()));
            }
            // A datagram of another program is no part of the load.
            let Some(counts) = self.peers.get(&peer) else {
                continue;
            };
            counts.received.add(count as u64);
            self.received.add(count as u64);
            if self.response > 0
                && let Ok(sent) = net::sendto(&socket, &self.buffer[..self.response], SendFlags::NOSIGNAL, &peer)
            {
                counts.sent.add(sent as u64);
            }
        }
        Ok(())
    }
}

fn serve_stream(
    entry: &mut Entry,
    request: usize,
    response: usize,
    buffer: &mut [u8],
    total: &Counter,
    ending: bool,
) -> ControlFlow<()> {
    let mut drained = false;
    loop {
        match flush(entry, buffer, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(()) => {}
            Err(Errno::AGAIN) => return ControlFlow::Continue(()),
            Err(_) => return ControlFlow::Break(()),
        }
        if drained {
            return ControlFlow::Continue(());
        }
        match net::recv(&entry.socket, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return ControlFlow::Break(()),
            Ok((count, _)) => {
                receive(entry, count, request, response, total);
                // A short read has emptied the stream: later data makes a new edge. The end of the stream makes none.
                drained = count < buffer.len() && !ending;
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return ControlFlow::Continue(()),
            Err(_) => return ControlFlow::Break(()),
        }
    }
}

fn receive(entry: &mut Entry, count: usize, request: usize, response: usize, total: &Counter) {
    entry.counts.received.add(count as u64);
    total.add(count as u64);
    if response > 0 {
        entry.got += count;
        entry.owed += entry.got / request * response;
        entry.got %= request;
    }
}

fn flush(entry: &mut Entry, buffer: &[u8], flags: SendFlags) -> std::result::Result<(), Errno> {
    while entry.owed > 0 {
        let part = entry.owed.min(buffer.len());
        match net::send(&entry.socket, &buffer[..part], flags) {
            Ok(sent) => {
                entry.owed -= sent;
                entry.counts.sent.add(sent as u64);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn serve_datagrams(entry: &mut Entry, response: usize, buffer: &mut [u8], total: &Counter) -> ControlFlow<()> {
    // A client has one request in flight, so a second read would be a wasted call.
    for _ in 0..if response > 0 { 1 } else { DATAGRAMS } {
        match net::recv(&entry.socket, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((count, _)) => {
                entry.counts.received.add(count as u64);
                total.add(count as u64);
                if response > 0
                    && let Ok(sent) = net::send(&entry.socket, &buffer[..response], SendFlags::NOSIGNAL)
                {
                    entry.counts.sent.add(sent as u64);
                }
            }
            Err(Errno::AGAIN) => break,
            // The client's port was closed for a moment: the response is lost, but the socket still works.
            Err(Errno::INTR | Errno::CONNREFUSED) => {}
            Err(_) => return ControlFlow::Break(()),
        }
    }
    ControlFlow::Continue(())
}
