// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sockets by the ten thousand: more than one process may open, so several do.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use topstat_samples::bench::{REMOTE, local};

/// Sockets that one process holds: below the usual hard limit on descriptors.
const PER_PROCESS: u32 = 16_384;

#[derive(Args)]
pub struct Hold {
    first: u32,
    count: u32,
}

/// Opens the sockets of the flows, has each send a packet, and holds them until its input ends.
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
        // Nobody listens there: the first one arrives, a later one may report that.
        let _ = socket.send(b"here I am");
        sockets.push(socket);
    }
    println!("ready");
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Processes that hold sockets; they end with this.
pub struct Holders(Vec<Child>);

impl Holders {
    /// Has the sockets of flows 0 to `flows` - 1 opened.
    pub fn new(flows: u32) -> Result<Self> {
        let program = std::env::current_exe()?;
        let mut holders = Self(Vec::new());
        for first in (0..flows).step_by(PER_PROCESS as usize) {
            let count = (flows - first).min(PER_PROCESS);
            let child = Command::new(&program)
                .args(["hold", &first.to_string(), &count.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            holders.0.push(child);
        }
        for child in &mut holders.0 {
            let mut line = String::new();
            let out = child.stdout.as_mut().context("no output")?;
            BufReader::new(out).read_line(&mut line)?;
            ensure!(line.trim() == "ready", "a process could not open its sockets");
        }
        Ok(holders)
    }
}

impl Drop for Holders {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}
