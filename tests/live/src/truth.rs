// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The real traffic of each socket, from the kernel's TCP_INFO and the load generator.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use topstat_load::{Conn, Load, TcpInfo};

use crate::pace;

/// A socket, by its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The address of the socket.
    pub local: SocketAddr,
    /// The address of the peer; unspecified with port 0 if the socket has no peer.
    pub remote: SocketAddr,
}

impl Key {
    /// The socket with these addresses.
    pub fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self { local, remote }
    }
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The end that connected.
    Client,
    /// The end that was accepted.
    Server,
}

/// The key of one end of a connection.
pub fn key(conn: &Conn, end: End) -> Key {
    match end {
        End::Client => Key::new(conn.client_addr(), conn.server_addr()),
        End::Server => Key::new(conn.server_addr(), conn.client_addr()),
    }
}

/// Packets and bytes that a socket has received and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct Counts {
    pub packets_rx: u64,
    pub packets_tx: u64,
    pub bytes_rx: u64,
    pub bytes_tx: u64,
    pub bytes_retrans: u64,
    pub total_retrans: u64,
}

impl Counts {
    /// Packets both ways.
    pub fn packets(&self) -> u64 {
        self.packets_rx + self.packets_tx
    }

    /// Bytes both ways.
    pub fn bytes(&self) -> u64 {
        self.bytes_rx + self.bytes_tx
    }

    /// The difference to an earlier reading.
    #[must_use]
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            packets_rx: self.packets_rx - before.packets_rx,
            packets_tx: self.packets_tx - before.packets_tx,
            bytes_rx: self.bytes_rx - before.bytes_rx,
            bytes_tx: self.bytes_tx - before.bytes_tx,
            bytes_retrans: self.bytes_retrans - before.bytes_retrans,
            total_retrans: self.total_retrans - before.total_retrans,
        }
    }
}

impl From<TcpInfo> for Counts {
    fn from(info: TcpInfo) -> Self {
        Self {
            packets_rx: info.segs_in.into(),
            packets_tx: info.segs_out.into(),
            bytes_rx: info.bytes_received,
            bytes_tx: info.bytes_sent,
            bytes_retrans: info.bytes_retrans,
            total_retrans: info.total_retrans.into(),
        }
    }
}

/// TCP_INFO of any socket.
pub fn tcp_info(socket: impl AsFd) -> Counts {
    use std::os::fd::AsRawFd as _;
    let mut bytes = [0u8; 512];
    let mut length = bytes.len() as libc::socklen_t;
    // SAFETY: the buffer has the size given in `length`; the kernel writes at most that and stores how much it wrote.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    assert_eq!(done, 0, "TCP_INFO: {}", std::io::Error::last_os_error());
    TcpInfo::parse(&bytes[..length as usize]).expect("a whole tcp_info").into()
}

/// TCP_INFO of both ends of all open connections.
pub type Truth = HashMap<Key, Counts>;

/// Reads TCP_INFO once.
pub fn read(load: &Load) -> Truth {
    let mut truth = Truth::new();
    for conn in load.connections().iter().filter(|c| c.is_open()) {
        let (client, server) = load.tcp_info(conn.index()).expect("TCP_INFO of an open connection");
        truth.insert(key(conn, End::Client), client.into());
        truth.insert(key(conn, End::Server), server.into());
    }
    truth
}

/// A little more than a delayed acknowledgement waits at most (TCP_DELACK_MAX is 200 ms).
const QUIET: Duration = Duration::from_millis(300);

/// Reads TCP_INFO once no data is in flight.
pub fn settled(load: &Load) -> Truth {
    at_rest(|| read(load))
}

/// Reads counters of connections until they stay unchanged for longer than an acknowledgement is ever delayed.
pub fn at_rest<T: PartialEq>(read: impl Fn() -> T) -> T {
    let begun = Instant::now();
    let mut before = read();
    loop {
        std::thread::sleep(QUIET);
        let now = read();
        if now == before {
            return now;
        }
        assert!(begun.elapsed() < pace::patience(Duration::from_secs(20)), "the connections do not come to rest");
        before = now;
    }
}

/// The payload of a socket, and the part of it that was sent twice. Loopback loses nothing: data that TCP retransmits,
/// because its acknowledgement is late on a slow host, arrives twice, and the receiver's counters omit the second copy.
pub fn carried(truth: &Truth, key: &Key) -> (u64, u64) {
    let own = &truth[key];
    (own.bytes(), own.bytes_retrans)
}

/// The difference between two readings, for the connections that are in both.
pub fn difference(before: &Truth, after: &Truth) -> Truth {
    after.iter().filter_map(|(key, now)| Some((*key, now.since(before.get(key)?)))).collect()
}
