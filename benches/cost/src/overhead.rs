// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of topstat on a host that answers requests: one load with and without it, alternating many times; the CPU time of
//! a transaction is compared.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use topstat_families::catalogue;
use topstat_kernel::{Family, Options as Loading, Source, TableInfo, load_state};
use topstat_load::{Config, Limits, Load, Plan};

use crate::stats::{Spread, spread};

#[derive(Args)]
pub struct Options {
    /// Numbers of connections.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 100, 500, 1000, 5000])]
    connections: Vec<usize>,
    /// Rounds; each setting has a turn in each round.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Milliseconds per turn.
    #[arg(long, default_value_t = 300)]
    turn_ms: u64,
    /// Also measure with one table only.
    #[arg(long)]
    one_table: bool,
}

const ALL: &[&str] = &["conns_pps", "conns_bps", "conns_bytes", "conns_retrans"];

/// CPU time of one transaction, both ends, in nanoseconds.
fn turn(load: &mut Load, plan: &Plan, options: &Options) -> Result<f64> {
    let limits = Limits { time: Duration::from_millis(options.turn_ms), ..Limits::default() };
    let report = load.run(plan, &limits)?;
    let cpu = report.cpu.user_ns + report.cpu.system_ns;
    Ok(cpu as f64 / report.transactions.max(1) as f64)
}

fn attach(names: &[&str]) -> Result<Box<dyn Source>> {
    attached(&names.iter().filter_map(|n| catalogue().find("tcp_v4", n)).collect::<Vec<_>>())
}

/// The family that has these tables.
pub fn family_of(tables: &[Arc<TableInfo>]) -> Result<Arc<Family>> {
    tables.first().and_then(|table| catalogue().family_of(&table.sample)).context("no family has these tables")
}

/// Attaches what these tables of one family need on a host whose connections stay: their owners are known.
pub fn attached(tables: &[Arc<TableInfo>]) -> Result<Box<dyn Source>> {
    let state = load_state(&family_of(tables)?, tables, &Loading::default())?;
    state.calm();
    Ok(state.reader()?)
}

/// The setting of a turn: the tables, and a label.
type Setting = (&'static [&'static str], &'static str);

const SETTINGS: [Setting; 2] = [(ALL, "all tables"), (&["conns_pps"], "one table")];

/// The cost of the settings for a load.
struct Taken {
    /// CPU time of a transaction without topstat, in nanoseconds.
    without: Spread,
    /// By setting: the additional CPU time, in percent.
    more: Vec<Spread>,
}

/// The CPU time in percent that all tables add, with a load of this many connections.
pub fn all_tables(connections: usize, rounds: usize) -> Result<Spread> {
    let options = Options { connections: vec![], rounds, turn_ms: 300, one_table: false };
    let taken = measure(connections, &options, &SETTINGS[..1])?;
    taken.more.into_iter().next().context("no setting was measured")
}

fn measure(connections: usize, options: &Options, settings: &[Setting]) -> Result<Taken> {
    // Both ends on one CPU: the comparison is about CPU time, not about waiting.
    let config = Config { connections, client_cpu: Some(0), server_cpu: Some(0), ..Config::default() };
    let mut load = Load::open(config)?;
    let plan = Plan::endless(connections);
    turn(&mut load, &plan, options)?;
    let mut without = Vec::new();
    let mut ratios = vec![Vec::new(); settings.len()];
    for _ in 0..options.rounds {
        for ((names, _), ratios) in settings.iter().zip(&mut ratios) {
            // One turn without topstat before and one after, so that a drift of the machine cancels out.
            let before = turn(&mut load, &plan, options)?;
            let source = attach(names)?;
            let with = turn(&mut load, &plan, options)?;
            drop(source);
            let after = turn(&mut load, &plan, options)?;
            without.extend([before, after]);
            ratios.push((with / f64::midpoint(before, after) - 1.0) * 100.0);
        }
    }
    Ok(Taken { without: spread(&without), more: ratios.iter().map(|ratios| spread(ratios)).collect() })
}

pub fn run(options: &Options) -> Result<()> {
    println!("## overhead: CPU time that a 64-byte request and response take more with topstat");
    println!("({} rounds of {} ms each, interleaved; median, least and most)\n", options.rounds, options.turn_ms);
    print!("| connections | without |");
    let settings = if options.one_table { &SETTINGS[..] } else { &SETTINGS[..1] };
    for (_, label) in settings {
        print!(" {label} |");
    }
    println!("\n|---:|---:|{}", "---:|".repeat(settings.len()));
    for &connections in &options.connections {
        let taken = measure(connections, options, settings)?;
        print!("| {connections} | {:.2} µs |", taken.without.median / 1000.0);
        for s in &taken.more {
            print!(" {:+.1}% ({:+.1} – {:+.1}) |", s.median, s.low, s.high);
        }
        println!();
    }
    Ok(())
}
