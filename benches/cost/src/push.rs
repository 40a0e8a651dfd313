// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of a push.

use anyhow::Result;
use clap::Args;
use topstat_families::catalogue;
use topstat_families::inet::bench::{Bench, FLOWS_MAX, WAYS};
use topstat_kernel::TableInfo;

use crate::holders::Holders;
use crate::stats::spread;

#[derive(Args)]
pub struct Options {
    /// Numbers of flows.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 100, 1000, 10_000, 100_000])]
    flows: Vec<u32>,
    /// Rounds; each way has a turn in each round.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Packets per turn.
    #[arg(long, default_value_t = 1_000_000)]
    packets: u32,
}

/// One line of the table.
struct Case {
    label: String,
    way: &'static str,
    /// The enabled tables; for the other ways no table is enabled.
    tables: &'static [&'static str],
}

const ONE: &[&str] = &["conns_pps"];
const ALL: &[&str] = &["conns_pps", "conns_bps", "conns_retrans", "conns_bytes"];

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = WAYS
        .iter()
        .filter(|(way, _)| *way != "bench_topstat")
        .map(|(way, label)| Case { label: (*label).to_owned(), way, tables: &[] })
        .collect();
    for (tables, which) in [(ONE, "one table"), (ALL, "all tables")] {
        cases.push(Case { label: format!("topstat, {which}"), way: "bench_topstat", tables });
    }
    cases
}

fn tables(names: &[&str]) -> Vec<std::sync::Arc<TableInfo>> {
    names.iter().filter_map(|n| catalogue().find("udp_v4", n)).collect()
}

pub fn run(options: &Options) -> Result<()> {
    let cases = cases();
    let all = tables(ALL);
    println!("## push: nanoseconds per packet over an empty program ({} rounds, median)\n", options.rounds);
    print!("| way to count a packet |");
    for flows in &options.flows {
        print!(" {flows} flows |");
    }
    println!("\n|---|{}", "---:|".repeat(options.flows.len()));
    let mut columns: Vec<Vec<String>> = vec![Vec::new(); cases.len()];
    for &flows in &options.flows {
        // A new observer for each, so that no table remembers the flows of the previous one.
        let mut bench = Bench::new(&all, &topstat_kernel::Options::default())?;
        let _holders = Holders::new(flows.min(FLOWS_MAX))?;
        let mut rounds = vec![Vec::new(); cases.len()];
        for round in 0..=options.rounds {
            for (case, rounds) in cases.iter().zip(&mut rounds) {
                bench.set(&tables(case.tables))?;
                let ns = bench.run(case.way, flows, options.packets)?;
                // The first round fills maps and caches.
                if round > 0 {
                    rounds.push(ns);
                }
            }
        }
        let empty = rounds[0].clone();
        for (column, rounds) in columns.iter_mut().zip(&rounds) {
            // Compared round by round, so that a slow moment of the machine affects both.
            let over: Vec<f64> = rounds.iter().zip(&empty).map(|(ns, empty)| ns - empty).collect();
            let s = spread(&over);
            column.push(format!("{:.1} ({:.1}–{:.1})", s.median, s.low, s.high));
        }
    }
    for (case, column) in cases.iter().zip(columns) {
        println!("| {} | {} |", case.label, column.join(" | "));
    }
    Ok(())
}
