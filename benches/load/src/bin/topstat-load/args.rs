// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Parser;
use topstat_load::{Addresses, Config, Dist, Error, Family, Limits, Mode, Order, Plan, Proto, UdpServer};

/// Make network load between two threads of this process and count it per connection.
///
/// Traffic stays on this host: addresses outside loopback are refused unless they are allowed one by one. The result is
/// one JSON document on standard output, with a summary on standard error. A run is always bounded: by the distribution
/// (--dist), by --total and by --seconds, whichever comes first. Ctrl-C ends it early and still prints what was done.
#[derive(Debug, Parser)]
#[command(name = "topstat-load", version, after_help = EXAMPLES, max_term_width = 120)]
pub struct Args {
    /// What a transaction is: a request and its response, or a message one way
    #[arg(value_enum, default_value_t = Mode::Rr)]
    mode: Mode,

    /// Transport protocol
    #[arg(short, long, value_enum, default_value_t = Proto::Tcp)]
    proto: Proto,

    /// Use IPv6 (::1) rather than IPv4
    #[arg(short = '6', long)]
    ipv6: bool,

    /// Connections to open
    #[arg(short, long, default_value_t = 1, value_name = "N")]
    connections: usize,

    /// Bytes of a request or message
    #[arg(short, long, default_value_t = 64, value_name = "BYTES")]
    size: usize,

    /// Bytes of a response [default: as many as the request has]
    #[arg(long, value_name = "BYTES")]
    response_size: Option<usize>,

    /// How the server receives datagrams
    #[arg(long, value_enum, default_value_t = UdpServer::Shared)]
    udp_server: UdpServer,

    /// Transactions of each connection: uniform:K, flat:LOW..HIGH, zipf:S:MAX or list:A,B,… [default: no end]
    #[arg(short, long, value_name = "DIST")]
    dist: Option<Dist>,

    /// Begin the distribution again at its end
    #[arg(long)]
    repeat: bool,

    /// Order of the transactions of different connections
    #[arg(long, value_enum, default_value_t = Order::Shuffled)]
    order: Order,

    /// Seed of the order
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Begin at most this many transactions
    #[arg(short = 'n', long, value_name = "N")]
    total: Option<u64>,

    /// Begin no transaction after this time [default: 10, with --dist or --total 60]
    #[arg(short = 't', long, value_name = "S", value_parser = seconds)]
    seconds: Option<Duration>,

    /// Run this long before anything is counted
    #[arg(long, value_name = "S", value_parser = seconds)]
    warm_up: Option<Duration>,

    /// Transactions per second over all connections [default: as fast as possible]
    #[arg(short, long, value_name = "RATE")]
    rate: Option<f64>,

    /// Connections with a transaction in flight at the same time
    #[arg(long, default_value_t = Limits::DEFAULT_DEPTH, value_name = "N")]
    depth: usize,

    /// Connections per second that are closed and replaced
    #[arg(long, default_value_t = 0.0, value_name = "RATE")]
    churn: f64,

    /// CPU of the client thread
    #[arg(long, value_name = "CPU")]
    client_cpu: Option<usize>,

    /// CPU of the server thread
    #[arg(long, value_name = "CPU")]
    server_cpu: Option<usize>,

    /// The clients' addresses: auto, a number of loopback addresses, or addresses separated by commas
    #[arg(long, default_value = "auto", value_name = "ADDRESSES")]
    sources: Addresses,

    /// The server's addresses: auto, a number of loopback addresses, or addresses separated by commas
    #[arg(long, default_value = "auto", value_name = "ADDRESSES")]
    destinations: Addresses,

    /// Listening ports on each of the server's addresses; 0 is as many as needed
    #[arg(long, default_value_t = 0, value_name = "N")]
    ports: usize,

    /// First listening port; 0 lets the kernel choose
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    first_port: u16,

    /// Network namespace of the clients (/run/netns/NAME)
    #[arg(long, value_name = "PATH")]
    client_netns: Option<PathBuf>,

    /// Network namespace of the server (/run/netns/NAME)
    #[arg(long, value_name = "PATH")]
    server_netns: Option<PathBuf>,

    /// Allow an address outside loopback, known not to leave this host; can be repeated
    #[arg(long, value_name = "ADDRESS")]
    allow_address: Vec<IpAddr>,

    /// End when process PID, which has started this one, ends, however it does; do nothing where it has ended already
    #[arg(long, value_name = "PID")]
    pub end_with_parent: Option<i32>,

    /// Add what each connection did to the result
    #[arg(long)]
    pub per_connection: bool,
}

const EXAMPLES: &str = "\
Examples:
  topstat-load --client-cpu 0 --server-cpu 1            one connection, 10 seconds
  topstat-load -c 5000 -d flat:100..110 --per-connection
  topstat-load bulk -s 65536 -c 4 -t 5
  topstat-load -p udp -6 -c 100 -r 20000 -t 30          a steady flow
  topstat-load -c 1000 --churn 200 -t 10

Exit codes: 0 done, 1 failed (also if a connection failed or a transaction could not be completed), 2 wrong usage.";

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| format!("'{text}' is not a number of seconds"))?;
    Duration::try_from_secs_f64(number).map_err(|error| error.to_string())
}

impl Args {
    pub fn config(&self) -> Config {
        Config {
            proto: self.proto,
            family: if self.ipv6 { Family::V6 } else { Family::V4 },
            mode: self.mode,
            udp_server: self.udp_server,
            connections: self.connections,
            request_size: self.size,
            response_size: self.response_size,
            sources: self.sources.clone(),
            destinations: self.destinations.clone(),
            ports: self.ports,
            first_port: self.first_port,
            allow_addresses: self.allow_address.clone(),
            client_cpu: self.client_cpu,
            server_cpu: self.server_cpu,
            client_netns: self.client_netns.clone(),
            server_netns: self.server_netns.clone(),
        }
    }

    pub fn plan(&self, connections: usize) -> Result<Plan, Error> {
        let plan = match &self.dist {
            Some(dist) => Plan::from_dist(dist, connections)?.repeat(self.repeat),
            None => Plan::endless(connections),
        };
        Ok(plan.order(self.order).seed(self.seed))
    }

    pub fn limits(&self, stop: Arc<AtomicBool>) -> Limits {
        let bounded = self.total.is_some() || (self.dist.is_some() && !self.repeat);
        let defaults = Limits::default();
        Limits {
            time: self.seconds.unwrap_or(if bounded { defaults.time } else { Duration::from_secs(10) }),
            total: self.total.unwrap_or(defaults.total),
            rate: self.rate,
            depth: self.depth,
            churn: self.churn,
            stop: Some(stop),
            ..defaults
        }
    }

    /// The limits of the warm-up run, which is not counted.
    pub fn warm_up(&self, limits: &Limits) -> Option<Limits> {
        let time = self.warm_up?;
        Some(Limits { time, total: Limits::default().total, churn: 0.0, ..limits.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    #[test]
    fn a_run_is_always_bounded() {
        let limits = |line: &str| Args::parse_from(line.split(' ')).limits(Arc::default());
        assert_eq!(limits("topstat-load").time, Duration::from_secs(10));
        assert_eq!(limits("topstat-load -d uniform:5").time, Duration::from_secs(60));
        assert_eq!(limits("topstat-load -d uniform:5 --repeat").time, Duration::from_secs(10));
        assert_eq!(limits("topstat-load -t 0.5 -n 7").time, Duration::from_millis(500));
        assert_eq!(limits("topstat-load -n 7").total, 7);
    }
}
