// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the shown top is the true top, with more connections than tcptop has entries. topstat and both tcptops watch one
//! load at one time, in a guest (their probes need kprobes); the load generator's own counts are the truth.

use std::collections::HashMap;
use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use topstat_families::catalogue;
use topstat_load::{Config, Dist, Limits, Load, Plan, RunReport};
use topstat_model::{Field, Row, Snapshot};
use topstat_vm::cache::Cache;
use topstat_vm::deps;
use topstat_vm::kernel::{self, Series};
use topstat_vm::qemu::{Flavour, Machine, Tier};

use crate::icount::in_guest;
use crate::icount::peers::{Peer, TCPTOP_BCC, TCPTOP_LIBBPF};

#[derive(Args)]
pub struct Options {
    /// The kernel.
    #[arg(long, value_enum, default_value_t = Series::V6_1)]
    kernel: Series,
    #[command(flatten)]
    what: Size,
}

#[derive(Args)]
pub struct Size {
    /// Connections: both ends are on the host, so there are twice as many sockets.
    #[arg(long, default_value_t = 20_000)]
    connections: usize,
}

/// The compared rows: topstat's default number of rows.
const TOP: usize = 128;
/// tcptop counts and prints in KiB: messages of one KiB avoid rounding.
const MESSAGE: usize = 1024;
/// Memory of the guest: for the sockets, and for the data of three programs about each socket.
const MEMORY_MIB: u32 = 3072;
/// The rows of each tool, of 40,000 sockets.
const ROWS: &str = "10240";
/// An interval longer than the load: the benchmark interrupts it at the end of the load.
const INTERVAL_S: &str = "86400";

/// The traffic of a socket.
#[derive(Clone, Copy, Default)]
struct Carried {
    /// Bytes that the generator has sent and received on the socket.
    bytes: u64,
    /// Bytes that TCP has retransmitted, at either end (TCP_INFO): an emulated guest is at times slower than a retransmission
    /// timer. topstat counts sent bytes, tcptop the bytes of the user's calls; both are right.
    again: u64,
}

impl Carried {
    fn agrees(&self, shown: u64) -> bool {
        (self.bytes..=self.bytes + self.again).contains(&shown)
    }
}

/// A socket, by its own address and its peer's.
type Key = (SocketAddr, SocketAddr);

/// The output of a tool: the rows, largest first, and the total that it has counted.
#[derive(Default)]
struct Shown {
    rows: Vec<(Key, u64)>,
    total: u64,
}

/// A line of the guest's output.
#[derive(Serialize, Deserialize)]
struct Line {
    load: String,
    tool: String,
    /// The number of sockets of the true top in the tool's rows.
    found: usize,
    /// The number of these with the right bytes.
    right: usize,
    /// The counted share of all bytes, in percent.
    counted_percent: f64,
    /// Why the tool has no result.
    error: Option<String>,
}

pub fn run(options: &Options) -> Result<()> {
    let tools = deps::tools()?;
    let cache = Cache::from_env();
    let kernel = kernel::fetch(&cache, options.kernel, Flavour::CloudAmd64, false)?;
    if let Err(error) = kernel::fetch_headers(&cache, &kernel) {
        eprintln!("no headers of {} for bcc: {error:#}", kernel.release);
    }
    let machine = Machine { tier: Tier::Stock, cpus: 2, memory_mib: MEMORY_MIB, append: vec![] };
    let connections = options.what.connections;
    let argv = ["accuracy-guest".into(), "--connections".into(), connections.to_string().into()];
    println!(
        "## accuracy: the top {TOP} sockets by bytes, of {connections} connections, on Linux {}\n",
        kernel.release
    );
    println!("| load | | of the true top {TOP} shown | of these, bytes right | bytes counted, of all |");
    println!("|---|---|---:|---:|---:|");
    let mut missing = Vec::new();
    for line in in_guest(&tools, &kernel, &machine, &argv)? {
        let line: Line = serde_json::from_str(&line).with_context(|| format!("the guest says {line:?}"))?;
        if let Some(error) = line.error {
            println!("| {} | {} | n/a | n/a | n/a |", line.load, line.tool);
            missing.push(format!("- {} ({}): n/a: {error}", line.tool, line.load));
            continue;
        }
        let percent = |part: usize, of: usize| 100.0 * part as f64 / of.max(1) as f64;
        println!(
            "| {} | {} | {:.1}% | {:.1}% | {:.1}% |",
            line.load,
            line.tool,
            percent(line.found, TOP),
            percent(line.right, line.found),
            line.counted_percent
        );
    }
    println!("{}", missing.join("\n"));
    Ok(())
}

/// The name of each load, and its plans.
fn loads(connections: usize) -> Result<Vec<(&'static str, Vec<Plan>)>> {
    let skewed = Plan::from_dist(&Dist::Zipf { exponent: 1.0, max: 2000 }, connections)?;
    Ok(vec![
        ("skewed (Zipf), in no order", vec![skewed.clone()]),
        ("every connection once, then skewed", vec![Plan::from_dist(&Dist::Uniform(1), connections)?, skewed]),
    ])
}

pub fn guest(size: &Size) -> Result<()> {
    for (name, plans) in loads(size.connections)? {
        let table = catalogue().find("tcp_v4", "conns_bytes").context("there is no table tcp_v4/conns_bytes")?;
        let mut source = topstat_kernel::load(std::slice::from_ref(&table), &topstat_kernel::Options::default())?;
        // bcc compiles for minutes; the others lose no event in this time.
        let bcc = Peer::start(TCPTOP_BCC, &["-C", INTERVAL_S], false);
        let libbpf = Peer::start(TCPTOP_LIBBPF, &["-C", "-r", ROWS, INTERVAL_S], false);
        let config = Config {
            connections: size.connections,
            request_size: MESSAGE,
            response_size: Some(MESSAGE),
            ..Config::default()
        };
        let mut load = Load::open(config)?;
        let mut truth: HashMap<Key, Carried> = HashMap::new();
        for plan in &plans {
            let report = load.run(plan, &Limits { time: std::time::Duration::from_secs(3000), ..Limits::default() })?;
            ensure!(report.failed == 0 && report.unfinished == 0, "the load failed");
            add(&mut truth, &report);
        }
        for connection in load.connections() {
            let (client, server) = load.tcp_info(connection.index())?;
            let again = client.bytes_retrans + server.bytes_retrans;
            let ends = (connection.client_addr(), connection.server_addr());
            truth.entry(ends).or_default().again = again;
            truth.entry((ends.1, ends.0)).or_default().again = again;
        }
        let snapshot = source.snapshot(&table)?;
        snapshot.check()?;
        let shown = [
            ("topstat", of_topstat(&snapshot)),
            ("tcptop of libbpf-tools", libbpf.and_then(|peer| of_tcptop(&peer.finish()?))),
            ("tcptop of bcc", bcc.and_then(|peer| of_tcptop(&peer.finish()?))),
        ];
        for (tool, shown) in shown {
            println!("{}", serde_json::to_string(&judge(name, tool, shown, &truth))?);
        }
    }
    Ok(())
}

/// Both ends of each connection have its whole traffic.
fn add(truth: &mut HashMap<Key, Carried>, report: &RunReport) {
    for connection in &report.connections {
        let bytes = connection.bytes_sent + connection.bytes_received;
        truth.entry((connection.client, connection.server)).or_default().bytes += bytes;
        truth.entry((connection.server, connection.client)).or_default().bytes += bytes;
    }
}

fn judge(load: &str, tool: &str, shown: Result<Shown>, truth: &HashMap<Key, Carried>) -> Line {
    let mut line =
        Line { load: load.to_owned(), tool: tool.to_owned(), found: 0, right: 0, counted_percent: 0.0, error: None };
    let shown = match shown {
        Ok(shown) => shown,
        Err(error) => {
            line.error = Some(format!("{error:#}"));
            return line;
        }
    };
    let mut values: Vec<u64> = truth.values().map(|carried| carried.bytes).collect();
    values.sort_unstable_by(|a, b| b.cmp(a));
    // A socket with the value of the last row of the top belongs to the top, too: any of equal values may be at the border.
    let border = values.get(TOP - 1).copied().unwrap_or(0);
    let of_top =
        shown.rows.iter().take(TOP).filter(|(key, _)| truth.get(key).is_some_and(|carried| carried.bytes >= border));
    for (key, bytes) in of_top {
        line.found += 1;
        line.right += usize::from(truth[key].agrees(*bytes));
    }
    line.counted_percent = 100.0 * shown.total as f64 / values.iter().sum::<u64>().max(1) as f64;
    line
}

fn of_topstat(snapshot: &Snapshot) -> Result<Shown> {
    let key = |row: &Row| -> Result<Key> {
        let field = |name| snapshot.column(name).and_then(|at| row.object.get(at));
        let end = |ip, port| match (field(ip), field(port)) {
            (Some(Field::Ip(ip)), Some(Field::U64(port))) => Some(SocketAddr::new(*ip, u16::try_from(*port).ok()?)),
            _ => None,
        };
        end("sip", "sport").zip(end("dip", "dport")).with_context(|| format!("no addresses in {row:?}"))
    };
    let rows = snapshot.rows.iter().map(|row| Ok((key(row)?, row.value))).collect::<Result<_>>()?;
    Ok(Shown { rows, total: snapshot.total })
}

/// Reads lines `PID COMM LADDR RADDR RX_KB TX_KB`, which both tcptops print.
fn of_tcptop(text: &str) -> Result<Shown> {
    let mut sums: HashMap<Key, u64> = HashMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        // A name may contain spaces, so the words are taken from the end.
        let [.., local, remote, received, sent] = words[..] else { continue };
        let (Ok(local), Ok(remote)) = (local.parse(), remote.parse()) else { continue };
        let (Ok(received), Ok(sent)) = (received.parse::<u64>(), sent.parse::<u64>()) else { continue };
        // A socket that two threads use has two lines.
        *sums.entry((local, remote)).or_default() += (received + sent) * 1024;
    }
    ensure!(!sums.is_empty(), "it shows no connection: {}", text.lines().next_back().unwrap_or("it said nothing"));
    let total = sums.values().sum();
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_unstable_by_key(|(key, bytes)| (std::cmp::Reverse(*bytes), *key));
    Ok(Shown { rows, total })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
15:04:05 loadavg: 0.00 0.01 0.05 1/68 1234

PID     COMM         LADDR                 RADDR                  RX_KB  TX_KB
12      load-client  127.0.0.1:4000        127.0.0.1:80               1      2
12      a name       127.0.0.1:80          127.0.0.1:4000             7      1
13      other        127.0.0.1:4000        127.0.0.1:80               0      3
";

    fn key(local: &str, remote: &str) -> Key {
        (local.parse().unwrap(), remote.parse().unwrap())
    }

    #[test]
    fn lines_of_tcptop_are_summed_by_socket() {
        let shown = of_tcptop(TEXT).unwrap();
        assert_eq!(shown.total, 14 * 1024);
        assert_eq!(shown.rows[0], (key("127.0.0.1:80", "127.0.0.1:4000"), 8 * 1024));
        assert_eq!(shown.rows[1], (key("127.0.0.1:4000", "127.0.0.1:80"), 6 * 1024));
        assert!(of_tcptop("Tracing...\n").is_err());
    }

    #[test]
    fn what_is_missing_and_what_is_wrong_is_told_apart() {
        // 200 sockets, each with more traffic than the one before.
        let at = |i: u16| key(&format!("127.0.0.1:{}", 1000 + i), "127.0.0.1:80");
        let carried = |i: u16| Carried { bytes: 1024 * u64::from(i + 1), again: 0 };
        let mut truth: HashMap<Key, Carried> = (0..200).map(|i| (at(i), carried(i))).collect();
        let all: u64 = truth.values().map(|carried| carried.bytes).sum();
        // The largest is missing, and the next has too few bytes.
        let mut rows: Vec<(Key, u64)> = (0..199).rev().map(|i| (at(i), carried(i).bytes)).collect();
        rows[0].1 -= 1024;
        // Retransmitted bytes may have been counted, but no more than these.
        rows[1].1 += 1024;
        rows[2].1 += 1024;
        truth.entry(rows[2].0).or_default().again = 1024;
        let line = judge("l", "t", Ok(Shown { rows, total: all / 2 }), &truth);
        assert_eq!((line.found, line.right), (127, 125));
        assert!((line.counted_percent - 50.0).abs() < 0.01);
    }
}
