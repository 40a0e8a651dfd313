// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables by which topstat's two predecessors were judged, with their figures beside topstat's. The predecessors are the
//! first topstat, which was a part of the kernel, and ptop. Neither was ever published, and most of their figures are
//! unknown: these are n/a.

mod connections;
mod make;
mod ways;

use std::path::Path;

use anyhow::{Result, bail, ensure};
use clap::Args;
use topstat_kernel::pinned::{DEFAULT_DIR, Pins, attached, status};

#[derive(Args)]
pub struct Options {
    /// Numbers of connections. 30 and 60: at the rate of the first topstat's measurement, with about 30 connections on a CPU,
    /// and 1,000 packets a second each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 30, 60, 100, 500, 1000, 5000])]
    connections: Vec<usize>,
    /// Rounds of each connection's load, on this host and in the guest.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Turns of a round in the guest, of 100 ms of its time.
    #[arg(long, default_value_t = 3)]
    turns: usize,
    /// Sleeping processes.
    #[arg(long, default_value_t = 1000)]
    sleepers: u32,
    /// Number of looks at them, one every two seconds.
    #[arg(long, default_value_t = 10)]
    refreshes: u32,
    /// Only these tables.
    #[arg(long, value_delimiter = ',', value_parser = ["connections", "sleepers", "make"])]
    only: Vec<String>,
}

/// A daemon's pinned state would be in the figures, and would prevent the attachment of the measured programs. A note names
/// other programs that are attached while they run: they are in both sides of each comparison.
fn nothing_is_pinned() -> Result<()> {
    let pins = Pins::at(Path::new(DEFAULT_DIR));
    if let Some(one) = status(&pins)?.first() {
        bail!("{} is pinned: stop the daemon, and remove it with 'topstat unload'", one.path.display());
    }
    let module = Path::new("/proc/topstat");
    ensure!(!module.exists(), "the kernel module is loaded ({}): remove it with rmmod", module.display());
    let others = attached()?.len();
    if others > 0 {
        println!("(others have attached {others} of topstat's programs meanwhile)\n");
    }
    Ok(())
}

pub fn run(options: &Options) -> Result<()> {
    ensure!(!options.connections.is_empty(), "there is nothing to measure");
    ensure!(options.rounds > 0 && options.turns > 0 && options.refreshes > 0, "nothing is measured in no rounds");
    println!("## originals: the tables of the first topstat and of ptop (half an hour in all)\n");
    nothing_is_pinned()?;
    let wanted = |table: &str| options.only.is_empty() || options.only.iter().any(|only| only == table);
    if wanted("connections") {
        connections::run(options)?;
    }
    if wanted("sleepers") {
        ways::run(options)?;
    }
    if wanted("make") {
        make::run()?;
    }
    Ok(())
}
