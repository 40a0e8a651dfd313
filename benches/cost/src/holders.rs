// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tens of thousands of sockets: more than one process may open, so several processes open them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::UdpSocket;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use topstat_families::inet::bench::{FLOWS_MAX, REMOTE, local};

/// Bytes in each packet of a load.
pub const PAYLOAD: usize = 100;
/// Sockets that one process holds: below the usual hard limit on descriptors.
const PER_PROCESS: u32 = 16_384;

#[derive(Args)]
pub struct Hold {
    first: u32,
    count: u32,
}

/// The number of packets that each flow sends.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// Nearly equal: 20 to 39 from each flow, in no order.
    Flat,
    /// Few flows send very much: `10,000 / rank` packets, and at least 2.
    Skewed,
}

impl Load {
    /// The name, as sent to a holder on a line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Skewed => "skewed",
        }
    }

    /// The number of packets of a flow.
    pub fn packets(self, flow: u32) -> u64 {
        // A permutation of the flows (an odd factor modulo a power of two), so that the packets of a flow do not depend on
        // the order in which the flows were opened.
        let scattered = flow.wrapping_mul(2_654_435_761) % FLOWS_MAX;
        match self {
            Self::Flat => 20 + u64::from(scattered % 20),
            Self::Skewed => (10_000 / u64::from(scattered + 1)).max(2),
        }
    }
}

/// Opens the sockets of the flows, and sends a packet from each; then runs the loads whose names come as lines on its input,
/// and ends with the input.
pub fn hold(options: &Hold) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = u64::from(options.count) + 64;
    ensure!(
        limit.maximum.is_none_or(|max| max >= wanted),
        "{wanted} descriptors are needed, {} are allowed (ulimit -Hn)",
        limit.maximum.unwrap_or(0)
    );
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })?;
    let mut sockets = Vec::new();
    for flow in options.first..options.first + options.count {
        let socket = UdpSocket::bind(local(flow)).with_context(|| format!("cannot bind {}", local(flow)))?;
        socket.connect(REMOTE)?;
        socket.send(b"here I am")?;
        sockets.push(socket);
    }
    println!("ready");
    for line in std::io::stdin().lines() {
        let load = match line?.as_str() {
            "flat" => Load::Flat,
            "skewed" => Load::Skewed,
            other => anyhow::bail!("unknown load {other}"),
        };
        send(options.first, &sockets, load)?;
        println!("done");
    }
    Ok(())
}

/// Sends round robin, so that all flows progress together.
fn send(first: u32, sockets: &[UdpSocket], load: Load) -> Result<()> {
    let mut left: Vec<(&UdpSocket, u64)> = (first..).zip(sockets).map(|(f, s)| (s, load.packets(f))).collect();
    while !left.is_empty() {
        for (socket, packets) in &mut left {
            socket.send(&[0; PAYLOAD]).context("a packet could not be sent")?;
            *packets -= 1;
        }
        left.retain(|(_, packets)| *packets > 0);
    }
    Ok(())
}

/// Processes that hold sockets, and end on drop.
pub struct Holders {
    children: Vec<(Child, BufReader<ChildStdout>)>,
    /// Receives the packets, so that no sender gets an error.
    _sink: UdpSocket,
}

impl Holders {
    /// Opens the sockets of flows 0 to `flows` - 1.
    pub fn new(flows: u32) -> Result<Self> {
        let program = std::env::current_exe()?;
        let mut holders =
            Self { children: Vec::new(), _sink: UdpSocket::bind(REMOTE).context("cannot bind the sink")? };
        for first in (0..flows).step_by(PER_PROCESS as usize) {
            let count = (flows - first).min(PER_PROCESS);
            let mut child = Command::new(&program)
                .args(["hold", &first.to_string(), &count.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let out = BufReader::new(child.stdout.take().context("no output")?);
            holders.children.push((child, out));
        }
        holders.expect("ready")?;
        Ok(holders)
    }

    fn expect(&mut self, what: &str) -> Result<()> {
        for (_, out) in &mut self.children {
            let mut line = String::new();
            out.read_line(&mut line)?;
            ensure!(line.trim() == what, "a process that holds sockets has failed");
        }
        Ok(())
    }

    /// Makes all flows send their load, and waits until they have.
    pub fn send(&mut self, load: Load) -> Result<()> {
        for (child, _) in &mut self.children {
            writeln!(child.stdin.as_mut().context("no input")?, "{}", load.name())?;
        }
        self.expect("done")
    }
}

impl Drop for Holders {
    fn drop(&mut self) {
        for (child, _) in &mut self.children {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}
