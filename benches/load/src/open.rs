// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opens connections, both ends of them, one after the other.
//!
//! On loopback `connect` processes the three packets of a handshake. So accepting each connection right after its `connect`
//! never waits, needs no large backlog, and pairs the two sockets without doubt.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use crate::address::Endpoints;
use crate::config::{Config, Family, Proto, UdpServer};
use crate::conn::{Conn, ServerCounts};
use crate::error::{Error, Result};
use crate::sys;

/// How often a client in a blocking call checks limits and requests to stop.
pub(crate) const BLOCKING_INTERVAL: Duration = Duration::from_millis(50);

/// The time limit of a handshake: it is immediate on loopback, and takes an address resolution over veth.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Only connections of other programs ever wait in the backlog.
const BACKLOG: i32 = 1024;

/// A shared UDP socket holds the requests of all connections in flight; a 64-byte datagram counts as 768 bytes or more.
const SHARED_BUFFER: usize = 8 << 20;

/// Opens connections with the addresses of a configuration.
pub(crate) struct Opener {
    tcp: bool,
    per_client: bool,
    family: AddressFamily,
    endpoints: Endpoints,
    /// Listening (TCP) or shared (UDP) sockets.
    servers: Vec<(Arc<OwnedFd>, SocketAddr)>,
    client_netns: Option<File>,
    server_netns: Option<File>,
    opened: u64,
}

impl Opener {
    /// Opens the server's side. Leaves the calling thread in the clients' network namespace.
    pub fn new(config: &Config, endpoints: Endpoints) -> Result<Opener> {
        let namespace = |path: &Option<_>| path.as_deref().map(sys::open_netns).transpose();
        let mut opener = Opener {
            tcp: config.proto == Proto::Tcp,
            per_client: config.proto == Proto::Udp && config.udp_server == UdpServer::PerClient,
            family: match config.family {
                Family::V4 => AddressFamily::INET,
                Family::V6 => AddressFamily::INET6,
            },
            endpoints,
            servers: Vec::new(),
            client_netns: namespace(&config.client_netns)?,
            server_netns: namespace(&config.server_netns)?,
            opened: 0,
        };
        // The caller's namespace, to return to for the side without a namespace.
        let own = || sys::open_netns("/proc/thread-self/ns/net".as_ref()).map(Some);
        if opener.client_netns.is_some() && opener.server_netns.is_none() {
            opener.server_netns = own()?;
        } else if opener.server_netns.is_some() && opener.client_netns.is_none() {
            opener.client_netns = own()?;
        }
        opener.enter(&opener.server_netns)?;
        for port in 0..opener.endpoints.ports {
            for ip in opener.endpoints.destinations.clone() {
                let port = if config.first_port == 0 { 0 } else { config.first_port + port as u16 };
                let addr = SocketAddr::new(ip, port);
                let server = opener.listen(addr).map_err(|error| Error::Listen { addr, source: error.into() })?;
                opener.servers.push(server);
            }
        }
        opener.enter_client()?;
        Ok(opener)
    }

    /// Moves the calling thread to the clients' network namespace.
    pub fn enter_client(&self) -> Result<()> {
        self.enter(&self.client_netns)
    }

    /// The sockets that serve many clients each.
    pub fn shared(&self) -> impl Iterator<Item = &Arc<OwnedFd>> {
        self.servers.iter().map(|(socket, _)| socket).filter(|_| !self.tcp && !self.per_client)
    }

    /// Opens the connection with the given index.
    pub fn open(&mut self, index: usize) -> Result<Conn> {
        // Replacements continue through the addresses, so that they avoid the ports of the connections that they replace.
        let at = self.opened as usize;
        let from = self.endpoints.source(at);
        let (listener, to) = &self.servers[self.endpoints.server(at)];
        let failed = |source: io::Error| Error::Connect { index, from, to: *to, source };

        let client = self.socket()?;
        let source = SocketAddr::new(from, 0);
        let (server, server_addr) = if self.tcp {
            // If this fails, the kernel chooses a port that is free for all destinations, which is enough unless connections
            // are very many.
            let _ = sys::bind_address_no_port(&client);
            self.bind_source(&client, source).map_err(failed)?;
            sockopt::set_tcp_nodelay(&client, true).map_err(|error| failed(error.into()))?;
            connect(&client, *to).map_err(failed)?;
            let server = accept(listener, local_addr(&client).map_err(failed)?).map_err(failed)?;
            sockopt::set_tcp_nodelay(&server, true).map_err(|error| failed(error.into()))?;
            (Arc::new(server), *to)
        } else if self.per_client {
            self.enter(&self.server_netns)?;
            let server = self.socket()?;
            net::bind(&server, &SocketAddr::new(to.ip(), 0)).map_err(|error| failed(error.into()))?;
            let addr = local_addr(&server).map_err(failed)?;
            self.enter_client()?;
            self.bind_source(&client, source).map_err(failed)?;
            connect(&client, addr).map_err(failed)?;
            connect(&server, local_addr(&client).map_err(failed)?).map_err(failed)?;
            (Arc::new(server), addr)
        } else {
            self.bind_source(&client, source).map_err(failed)?;
            connect(&client, *to).map_err(failed)?;
            (Arc::clone(listener), *to)
        };
        let client_addr = local_addr(&client).map_err(failed)?;
        for side in [Timeout::Recv, Timeout::Send] {
            sockopt::set_socket_timeout(&client, side, Some(BLOCKING_INTERVAL))
                .map_err(|error| failed(error.into()))?;
        }
        let id = self.opened;
        self.opened += 1;
        Ok(Conn {
            id,
            index,
            client_addr,
            server_addr,
            client: Some(client),
            server: Some(server),
            counts: Arc::new(ServerCounts::default()),
        })
    }

    fn enter(&self, namespace: &Option<File>) -> Result<()> {
        namespace.as_ref().map_or(Ok(()), sys::enter_netns)
    }

    fn socket(&self) -> Result<OwnedFd> {
        let kind = if self.tcp { SocketType::STREAM } else { SocketType::DGRAM };
        net::socket_with(self.family, kind, SocketFlags::CLOEXEC, None)
            .map_err(|error| Error::system(format!("create socket {}", self.opened), error))
    }

    fn bind_source(&self, client: &OwnedFd, source: SocketAddr) -> io::Result<()> {
        if source.ip().is_unspecified() {
            return Ok(());
        }
        Ok(net::bind(client, &source)?)
    }

    fn listen(&self, addr: SocketAddr) -> std::result::Result<(Arc<OwnedFd>, SocketAddr), Errno> {
        let kind = if self.tcp { SocketType::STREAM } else { SocketType::DGRAM };
        let socket = net::socket_with(self.family, kind, SocketFlags::CLOEXEC, None)?;
        if self.tcp {
            sockopt::set_socket_reuseaddr(&socket, true)?;
            sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(CONNECT_TIMEOUT))?;
        } else if sockopt::set_socket_recv_buffer_size_force(&socket, SHARED_BUFFER).is_err() {
            // Without CAP_NET_ADMIN the size is limited by net.core.rmem_max.
            sockopt::set_socket_recv_buffer_size(&socket, SHARED_BUFFER)?;
        }
        net::bind(&socket, &addr)?;
        if self.tcp {
            net::listen(&socket, BACKLOG)?;
        }
        let addr = SocketAddr::try_from(net::getsockname(&socket)?)?;
        Ok((Arc::new(socket), addr))
    }
}

fn local_addr(socket: impl AsFd) -> io::Result<SocketAddr> {
    Ok(SocketAddr::try_from(net::getsockname(socket)?)?)
}

fn connect(socket: &OwnedFd, to: SocketAddr) -> io::Result<()> {
    match net::connect(socket, &to) {
        Ok(()) => return Ok(()),
        Err(Errno::INPROGRESS | Errno::INTR | Errno::AGAIN) => {}
        Err(error) => return Err(error.into()),
    }
    let timeout = Timespec { tv_sec: CONNECT_TIMEOUT.as_secs() as i64, tv_nsec: 0 };
    if poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&timeout))? == 0 {
        return Err(Errno::TIMEDOUT.into());
    }
    Ok(sockopt::socket_error(socket)??)
}

/// Accepts the connection that comes from `client`, and closes connections of any other program that found the port.
fn accept(listener: &OwnedFd, client: SocketAddr) -> io::Result<OwnedFd> {
    loop {
        match net::acceptfrom_with(listener, SocketFlags::CLOEXEC) {
            Ok((socket, Some(peer))) if SocketAddr::try_from(peer.clone()) == Ok(client) => {
                return Ok(socket);
            }
            Ok(_) | Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(Errno::AGAIN) => return Err(Errno::TIMEDOUT.into()),
            Err(error) => return Err(error.into()),
        }
    }
}
