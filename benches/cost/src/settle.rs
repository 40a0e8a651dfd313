// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of a snapshot of connections, which first settles pending differences: by the number of connections, and by the
//! number of connections with traffic since the previous snapshot.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use topstat_families::catalogue;
use topstat_kernel::{Source, TableInfo, load};
use topstat_load::{Config, Limits, Load, Plan};

use crate::stats::spread;

#[derive(Args)]
pub struct Options {
    /// Numbers of sockets: two per connection.
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 20_000, 100_000])]
    sockets: Vec<usize>,
    /// Numbers of connections with traffic between two snapshots.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1000, 20_000])]
    active: Vec<usize>,
    /// Snapshots of each kind.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
}

const ALL: [&str; 4] = ["conns_pps", "conns_bps", "conns_bytes", "conns_retrans"];
/// Readers remove a connection from the list of connections to settle after a second of silence, in two steps.
const SILENT: [Duration; 2] = [Duration::from_millis(1300), Duration::from_millis(300)];
/// The maximum time until every connection has had traffic once.
const PATIENCE: Duration = Duration::from_secs(60);

/// Microseconds of one snapshot of a table, and whether all of its rows are proven.
fn snapshot(source: &mut dyn Source, table: &std::sync::Arc<TableInfo>) -> Result<(f64, bool)> {
    let begun = Instant::now();
    let snapshots = source.snapshots(std::slice::from_ref(table))?;
    let took = begun.elapsed().as_secs_f64() * 1e6;
    let snapshot = snapshots.first().context("no snapshot")?;
    snapshot.check()?;
    Ok((took, snapshot.is_proven()))
}

pub fn run(options: &Options) -> Result<()> {
    println!("## settle: microseconds of a snapshot of 128 rows of tcp_v4/conns_bytes, by connections' ends");
    println!("({} snapshots each; median, least and most; and how many of them were proven)\n", options.rounds);
    println!("| sockets | of them spoke | µs | proven |\n|---:|---:|---:|---:|");
    let tables: Vec<_> = ALL.iter().filter_map(|name| catalogue().find("tcp_v4", name)).collect();
    let table = catalogue().find("tcp_v4", "conns_bytes").context("no table tcp_v4/conns_bytes")?;
    for &sockets in &options.sockets {
        let connections = sockets / 2;
        let mut load_of = Load::open(Config { connections, ..Config::default() })?;
        let mut source = load(&tables, &topstat_kernel::Options::default())?;
        for pause in SILENT {
            sleep(pause);
            snapshot(&mut *source, &table)?;
        }
        for &active in options.active.iter().filter(|active| **active <= sockets) {
            let speaking = active / 2;
            let plan = Plan::new((0..connections).map(|i| u64::from(i < speaking)).collect());
            let (mut times, mut proven) = (Vec::new(), 0);
            for _ in 0..options.rounds {
                if speaking > 0 {
                    let report = load_of.run(&plan, &Limits { time: PATIENCE, ..Limits::default() })?;
                    ensure!(report.failed == 0 && report.unfinished == 0, "the load failed: {report:?}");
                }
                let (took, is_proven) = snapshot(&mut *source, &table)?;
                times.push(took);
                proven += u32::from(is_proven);
            }
            let s = spread(&times);
            println!(
                "| {sockets} | {active} | {:.0} ({:.0}–{:.0}) | {proven} of {} |",
                s.median, s.low, s.high, options.rounds
            );
        }
    }
    Ok(())
}
