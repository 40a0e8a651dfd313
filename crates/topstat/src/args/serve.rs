// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command lines of `topstat serve` and `topstat watch`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::record::HistoryDir;
use super::{Mount, time};

/// The socket, unless the command line says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/topstat-serve/serve.sock";

/// Serve tables over HTTP: a page, metrics for Prometheus, a JSON API, server-sent events
///
/// Reads the file tree of the daemon, and needs no more privileges than that takes: a user of the tree's group. Nothing can
/// be set over HTTP. A Unix socket is always there; TCP is only if asked for, with a token or certificates beyond this host.
#[derive(Debug, clap::Args)]
#[command(after_long_help = SERVE_NOTES)]
pub struct ServeArgs {
    /// The Unix socket; sockets that systemd passes take its place
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET, help_heading = LISTEN)]
    pub socket: PathBuf,

    /// The mode of the Unix socket, in octal
    #[arg(long, value_name = "MODE", value_parser = mode, default_value = "0660", help_heading = LISTEN)]
    pub socket_mode: u32,

    /// A TCP address, such as 127.0.0.1:9899 or [::]:9899; may be repeated. Any that other hosts can reach needs
    /// --token-file or --tls-client-ca
    #[arg(long, value_name = "ADDR:PORT", help_heading = LISTEN)]
    pub listen: Vec<SocketAddr>,

    /// A further name of this host that requests over TCP may have, such as a name in DNS; may be repeated
    #[arg(long, value_name = "NAME", help_heading = LISTEN)]
    pub host: Vec<String>,

    /// The token that a client over TCP must have is the first line of this file, which others must not be able to read
    #[arg(long, value_name = "FILE", help_heading = PROOF)]
    pub token_file: Option<PathBuf>,

    /// The certificate for TLS, with those that lead to its root, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = PROOF)]
    pub tls_cert: Option<PathBuf>,

    /// Its private key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = PROOF)]
    pub tls_key: Option<PathBuf>,

    /// Clients must have a certificate that one of these has signed, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = PROOF)]
    pub tls_client_ca: Option<PathBuf>,

    /// Read only these tables for metrics; may be repeated. A scrape costs the daemon up to a few ms for each table. The counters
    /// of what was pushed are there for all tables [default: all]
    #[arg(long, value_name = "SAMPLE[/TABLE]", help_heading = METRICS)]
    pub metrics: Vec<String>,

    /// Metrics also for the objects of this static table, the first 20; may be repeated. For objects that live long, such as
    /// net_cgroups/bytes
    #[arg(long, value_name = "SAMPLE/TABLE", help_heading = METRICS)]
    pub objects: Vec<String>,

    /// Send metrics to this OpenTelemetry collector, by OTLP over HTTP: http://127.0.0.1:4318
    #[arg(long, value_name = "URL", help_heading = OTLP)]
    pub otlp: Option<String>,

    /// From one export to the next: seconds, or a time with a unit
    #[arg(long, value_name = "TIME", value_parser = time::interval, default_value = "15s", help_heading = OTLP)]
    pub otlp_interval: Duration,

    /// Send each snapshot of this table as a log record; may be repeated
    #[arg(long, value_name = "SAMPLE/TABLE", requires = "otlp", help_heading = OTLP)]
    pub otlp_logs: Vec<String>,

    /// Headers of the requests, a NAME: VALUE in each line; others must not be able to read this file
    #[arg(long, value_name = "FILE", requires = "otlp", help_heading = OTLP)]
    pub otlp_headers_file: Option<PathBuf>,

    #[command(flatten)]
    pub history: HistoryDir,

    #[command(flatten)]
    pub mount: Mount,
}

const LISTEN: &str = "Where to listen";
const PROOF: &str = "Proof of clients over TCP";
const METRICS: &str = "Metrics";
const OTLP: &str = "OpenTelemetry";

const SERVE_NOTES: &str = "\
PATHS
  /                                              the page
  /metrics                                       for Prometheus, also as OpenMetrics
  /api/v1/tables                                 all tables
  /api/v1/tables/SAMPLE/TABLE?filter=&n=&at=     a table, now or then; format=csv
  /api/v1/history/SAMPLE/TABLE?from=&to=         totals and tops over time
  /api/v1/stream?table=SAMPLE/TABLE&interval=2s  server-sent events
  /api/v1/openapi.json                           all of this, for programs

EXAMPLES
  topstat serve                                  on the Unix socket alone
  topstat serve --listen 127.0.0.1:9899          and for browsers and Prometheus on this host
  topstat serve --listen '[::]:9899' --token-file /etc/topstat/token --tls-cert cert.pem --tls-key key.pem
  curl --unix-socket /run/topstat-serve/serve.sock http://localhost/api/v1/tables/tcp_v4/conns_bps";

/// Run a command, or call a web hook, when a table meets a condition
///
/// Reads the file tree of the daemon as 'topstat serve' does. A JSON document with the condition, the row and the table goes
/// to the command's standard input, or is the body of the request.
#[derive(Debug, clap::Args)]
#[command(after_long_help = WATCH_NOTES)]
pub struct WatchArgs {
    /// SAMPLE/TABLE [FILTER] [value|share|total|objects] OP NUMBER [for TIME]; all that are given are watched
    #[arg(value_name = "CONDITION", required = true)]
    pub conditions: Vec<String>,

    /// Run this by sh
    #[arg(long, value_name = "COMMAND", required_unless_present = "webhook", help_heading = ACTION)]
    pub exec: Option<String>,

    /// Send a POST request to this address, by http or https
    #[arg(long, value_name = "URL", help_heading = ACTION)]
    pub webhook: Option<String>,

    /// At most one action of a condition in this time
    #[arg(long, value_name = "TIME", value_parser = time::interval, default_value = "1m", help_heading = ACTION)]
    pub every: Duration,

    /// Act also when a condition that was met is so no longer
    #[arg(long, help_heading = ACTION)]
    pub resolved: bool,

    /// From one reading of a table to the next: seconds, or a time with a unit
    #[arg(long, value_name = "TIME", value_parser = time::interval, default_value = "1s")]
    pub interval: Duration,

    #[command(flatten)]
    pub mount: Mount,
}

const ACTION: &str = "What to do";

const WATCH_NOTES: &str = "\
CONDITIONS
  FILTER is as in topstat top --filter; of the rows that match, the largest counts.
  value    its value, per period of the table; numbers may have a unit (k M G T, Ki Mi Gi Ti), times
           too (ns us ms s m h). It is the default
  share    its part of the table's total, from 0 to 1, or with %
  total    the total of the table; FILTER has no effect on it
  objects  how many objects there are
  OP       < <= > >=
  for      the condition must be met in every reading of this time

EXAMPLES
  topstat watch 'net_procs/bps share > 0.5 for 30s' --exec 'jq -r .row.object.comm | logger'
  topstat watch 'tcp/conns_retrans comm:nginx > 100' --webhook https://hooks.example/topstat
  topstat watch 'tasks/waits total > 500ms for 1m' 'net_devs/drops > 0' --exec ./alert --resolved";

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| mode & !0o777 == 0);
    mode.ok_or_else(|| "not a mode in octal, such as 0660".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal() {
        assert_eq!(mode("0660"), Ok(0o660));
        assert_eq!(mode("600"), Ok(0o600));
        assert!(["", "8", "1777", "rw", "-1"].iter().all(|text| mode(text).is_err()));
    }
}
