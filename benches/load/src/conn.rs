// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One connection: its two sockets and the counts on them.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::net::sockopt::socket_cookie;

use crate::error::{Error, Result};

/// A connection of a [`Load`](crate::Load), seen from both ends.
#[derive(Debug)]
pub struct Conn {
    pub(crate) id: u64,
    pub(crate) index: usize,
    pub(crate) client_addr: SocketAddr,
    pub(crate) server_addr: SocketAddr,
    // Both are `None` once closed. The server thread owns the server's socket as well; if one UDP socket serves many
    // connections, they all own it.
    pub(crate) client: Option<OwnedFd>,
    pub(crate) server: Option<Arc<OwnedFd>>,
    pub(crate) counts: Arc<ServerCounts>,
}

/// The counts of the server thread on a connection; only that thread writes them. They outlive the sockets.
#[derive(Debug, Default)]
pub(crate) struct ServerCounts {
    pub received: Counter,
    pub sent: Counter,
}

/// A count with a single writer thread, so that it needs no locked instruction.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + amount, Ordering::Release);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

impl Conn {
    /// Releases both sockets, the client's first. The server's socket closes when the server thread has released it as well.
    pub(crate) fn close(&mut self) {
        self.client = None;
        self.server = None;
    }

    /// The number of the connection: the first has 0, and a replacement gets a new number.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The index in [`Load::connections`](crate::Load::connections) and in a plan; a replacement takes over the index.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The client socket's local address, which is the peer address of the server socket.
    #[must_use]
    pub fn client_addr(&self) -> SocketAddr {
        self.client_addr
    }

    /// The client socket's peer address, which is the local address of the server socket.
    #[must_use]
    pub fn server_addr(&self) -> SocketAddr {
        self.server_addr
    }

    /// Whether the connection is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.client.is_some()
    }

    /// The client's socket.
    pub fn client_fd(&self) -> Result<BorrowedFd<'_>> {
        self.client.as_ref().map(AsFd::as_fd).ok_or(Error::Closed(self.index))
    }

    /// The server's socket: the accepted one of this connection, or the one that serves all clients of a shared UDP server.
    pub fn server_fd(&self) -> Result<BorrowedFd<'_>> {
        self.server.as_ref().map(AsFd::as_fd).ok_or(Error::Closed(self.index))
    }

    /// The kernel's cookies of the client's and the server's socket.
    pub fn cookies(&self) -> Result<(u64, u64)> {
        let cookie = |fd| socket_cookie(fd).map_err(|error| Error::system("read SO_COOKIE", error));
        Ok((cookie(self.client_fd()?)?, cookie(self.server_fd()?)?))
    }

    /// The inodes of the client's and the server's socket, as in `/proc/net/tcp`.
    pub fn inodes(&self) -> Result<(u64, u64)> {
        let inode = |fd| {
            rustix::fs::fstat(fd).map(|stat| stat.st_ino).map_err(|error| Error::system("find a socket's inode", error))
        };
        Ok((inode(self.client_fd()?)?, inode(self.server_fd()?)?))
    }
}
