// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The errors, with messages that say what to do.

use std::io;
use std::net::{IpAddr, SocketAddr};

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a load could not be opened or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting makes no sense, alone or with another one.
    #[error("{0}")]
    Config(String),

    /// An address would let traffic leave the host.
    #[error(
        "address {0} is not a loopback address; traffic stays on this host unless the address is allowed explicitly"
    )]
    NotLoopback(IpAddr),

    /// The limit of open files is too low and can't be raised.
    #[error(
        "cannot open {connections} connections: they need {needed} file descriptors, the hard limit is {limit}; \
         raise it (ulimit -Hn {needed}, or LimitNOFILE= of the service), run with CAP_SYS_RESOURCE, or open fewer connections"
    )]
    FdLimit {
        /// The requested connections.
        connections: usize,
        /// The descriptors that these connections need, plus the open ones of the process.
        needed: u64,
        /// The hard limit in force.
        limit: u64,
    },

    /// One of the connections could not be opened.
    #[error("cannot open connection {index} from {from} to {to}: {source}{}", hint(.source))]
    Connect {
        /// The connection's index.
        index: usize,
        /// The source address.
        from: IpAddr,
        /// The server's address.
        to: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },

    /// The server's side of an address could not be opened.
    #[error("cannot listen on {addr}: {source}{}", hint(.source))]
    Listen {
        /// The server's address.
        addr: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },

    /// A system call failed that normally doesn't.
    #[error("cannot {what}: {source}")]
    System {
        /// The attempted action.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },

    /// The requested connection is closed.
    #[error("connection {0} is closed")]
    Closed(usize),

    /// The kernel's `struct tcp_info` ends before the required fields.
    #[error("the kernel's tcp_info has {got} bytes, {needed} are needed (Linux 4.19 or newer)")]
    TcpInfo {
        /// Bytes that the kernel returned.
        got: usize,
        /// Bytes needed.
        needed: usize,
    },

    /// The server thread ended without a request to end.
    #[error("the server thread has ended: {0}")]
    ServerGone(String),
}

impl Error {
    /// Whether the caller asked for something impossible, rather than the system having failed.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, Error::Config(_) | Error::NotLoopback(_))
    }

    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::System { what: what.into(), source: source.into() }
    }
}

/// A hint for errors that the user can correct.
fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EADDRNOTAVAIL) => {
            "; no such address on this host, or its ports have run out: spread over more addresses or ports, \
             or widen net.ipv4.ip_local_port_range"
        }
        Some(libc::EADDRINUSE) => {
            "; the port is taken, or the address has none left: choose another port, spread over more addresses, \
             or widen net.ipv4.ip_local_port_range"
        }
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => "; is the interface up (ip link set lo up)?",
        Some(libc::EAFNOSUPPORT) => "; this kernel has no such address family",
        Some(libc::EMFILE | libc::ENFILE) => "; raise the limit of open files (ulimit -n, fs.file-max)",
        Some(libc::ENOMEM | libc::ENOBUFS) => "; see net.ipv4.tcp_mem and the free memory",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_what_to_do() {
        let fds = Error::FdLimit { connections: 100_000, needed: 200_030, limit: 1024 };
        assert_eq!(
            fds.to_string(),
            "cannot open 100000 connections: they need 200030 file descriptors, the hard limit is 1024; \
             raise it (ulimit -Hn 200030, or LimitNOFILE= of the service), run with CAP_SYS_RESOURCE, or open fewer connections"
        );
        let address = Error::Connect {
            index: 3,
            from: "127.0.0.1".parse().unwrap(),
            to: "127.0.0.1:80".parse().unwrap(),
            source: io::Error::from_raw_os_error(libc::EADDRNOTAVAIL),
        };
        assert!(address.to_string().starts_with("cannot open connection 3 from 127.0.0.1 to 127.0.0.1:80: "));
        assert!(address.to_string().ends_with("widen net.ipv4.ip_local_port_range"));
    }
}
