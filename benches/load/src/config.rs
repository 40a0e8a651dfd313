// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configuration of a load: its connections and their messages.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::Serialize;

use crate::address::Addresses;
use crate::error::{Error, Result};

/// The largest datagram that both families accept.
const MAX_DATAGRAM: usize = 65_507;

/// The largest request or response on a stream: a larger one would only be one long transaction.
const MAX_MESSAGE: usize = 1 << 30;

/// Indices of connections and generations share one 64-bit token; this is far above the number of connections that a host can
/// open.
const MAX_CONNECTIONS: usize = 1 << 24;

/// The transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Proto {
    /// Streams.
    #[default]
    Tcp,
    /// Datagrams, from connected sockets.
    Udp,
}

/// The address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// 127.0.0.0/8.
    #[default]
    V4,
    /// `::1`.
    V6,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::V4 => "v4",
            Family::V6 => "v6",
        })
    }
}

/// The kind of transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A request and its response.
    #[default]
    Rr,
    /// A message one way, client to server, sent as fast as the kernel accepts it.
    Bulk,
}

/// How the server receives datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum UdpServer {
    /// One unconnected socket per server address and port, for all clients.
    #[default]
    Shared,
    /// One connected socket per client.
    PerClient,
}

/// The connections of a load. All fields have defaults: `Config { connections: 5000, ..Config::default() }`.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The transport protocol.
    pub proto: Proto,
    /// The address family.
    pub family: Family,
    /// The kind of transaction.
    pub mode: Mode,
    /// How the server receives datagrams.
    pub udp_server: UdpServer,
    /// The number of connections.
    pub connections: usize,
    /// Bytes that the client sends in a transaction.
    pub request_size: usize,
    /// Bytes of the server's answer; `None` is the size of the request. Must be `None` in [`Mode::Bulk`].
    pub response_size: Option<usize>,
    /// The clients' addresses.
    pub sources: Addresses,
    /// The server's addresses.
    pub destinations: Addresses,
    /// Listening ports on each of the server's addresses; 0 is as many as needed.
    pub ports: usize,
    /// The first listening port, which the others follow; 0 lets the kernel choose all ports.
    pub first_port: u16,
    /// Addresses outside loopback that may be used, because the caller knows that they do not leave the host.
    pub allow_addresses: Vec<IpAddr>,
    /// The CPU that the client thread is pinned to.
    pub client_cpu: Option<usize>,
    /// The CPU that the server thread is pinned to.
    pub server_cpu: Option<usize>,
    /// The network namespace of the clients (`/run/netns/NAME`); `None` is the caller's namespace.
    pub client_netns: Option<PathBuf>,
    /// The network namespace of the server; `None` is the caller's namespace.
    pub server_netns: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            proto: Proto::Tcp,
            family: Family::V4,
            mode: Mode::Rr,
            udp_server: UdpServer::Shared,
            connections: 1,
            request_size: 64,
            response_size: None,
            sources: Addresses::Auto,
            destinations: Addresses::Auto,
            ports: 0,
            first_port: 0,
            allow_addresses: Vec::new(),
            client_cpu: None,
            server_cpu: None,
            client_netns: None,
            server_netns: None,
        }
    }
}

impl Config {
    /// Bytes of the server's answer to a request.
    #[must_use]
    pub fn response_bytes(&self) -> usize {
        match self.mode {
            Mode::Rr => self.response_size.unwrap_or(self.request_size),
            Mode::Bulk => 0,
        }
    }

    /// Refuses settings that can't be opened or make no sense.
    pub(crate) fn check(&self) -> Result<()> {
        let max = match self.proto {
            Proto::Tcp => MAX_MESSAGE,
            Proto::Udp => MAX_DATAGRAM,
        };
        let sizes = [("request", self.request_size), ("response", self.response_size.unwrap_or(1))];
        let wrong = |text: String| Err(Error::Config(text));
        for (name, size) in sizes {
            if !(1..=max).contains(&size) {
                return wrong(format!("the {name} has {size} bytes; 1 to {max} are possible"));
            }
        }
        if self.mode == Mode::Bulk && self.response_size.is_some() {
            return wrong("there are no responses in bulk mode".into());
        }
        if !(1..=MAX_CONNECTIONS).contains(&self.connections) {
            return wrong(format!("{} connections; 1 to {MAX_CONNECTIONS} are possible", self.connections));
        }
        if self.ports > 0 && self.first_port > 0 && self.ports - 1 > usize::from(u16::MAX - self.first_port) {
            return wrong(format!("{} ports from {} on go beyond port 65535", self.ports, self.first_port));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        let error = |config: Config| config.check().unwrap_err().to_string();
        let ok = Config::default;
        assert!(ok().check().is_ok());
        assert_eq!(error(Config { connections: 0, ..ok() }), "0 connections; 1 to 16777216 are possible");
        assert_eq!(
            error(Config { proto: Proto::Udp, request_size: 65_508, ..ok() }),
            "the request has 65508 bytes; 1 to 65507 are possible"
        );
        assert_eq!(
            error(Config { mode: Mode::Bulk, response_size: Some(1), ..ok() }),
            "there are no responses in bulk mode"
        );
        assert_eq!(
            error(Config { first_port: 65_535, ports: 2, ..ok() }),
            "2 ports from 65535 on go beyond port 65535"
        );
    }
}
