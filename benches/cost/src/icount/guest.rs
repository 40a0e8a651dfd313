// SPDX-License-Identifier: Apache-2.0 OR MIT
//! In a guest whose time is the number of instructions executed: what a transaction costs, with
//! one thing after the other attached.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde_json::json;
use topstat_load::{Config, Limits, Load, Plan};
use topstat_samples::{Source, TableInfo, load, samples};

use super::hooks;

#[derive(Args)]
pub struct Guest {
    /// Connections.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 500])]
    connections: Vec<usize>,
    /// Transactions of a turn.
    #[arg(long, default_value_t = 5000)]
    transactions: u64,
    /// Turns of each case; the best counts.
    #[arg(long, default_value_t = 3)]
    turns: usize,
    /// Only cases whose name has this in it.
    #[arg(long)]
    only: Option<String>,
}

/// What is there beside the load.
enum Case {
    Nothing,
    Hooks(&'static str),
    Topstat { one: bool, delay_ms: u32 },
    Peer(&'static [&'static str]),
}

fn cases() -> Vec<(String, Case)> {
    let mut cases = vec![("nothing".to_owned(), Case::Nothing)];
    for name in ["empty_cgroup", "count_cgroup", "empty_packet", "count_packet", "empty_call", "count_call"] {
        cases.push((name.to_owned(), Case::Hooks(name)));
    }
    for one in [true, false] {
        for delay_ms in [0, 10, 100] {
            let name = format!("topstat_{}_{delay_ms}", if one { "one" } else { "all" });
            cases.push((name, Case::Topstat { one, delay_ms }));
        }
    }
    cases.push(("tcptop_libbpf".to_owned(), Case::Peer(&["/usr/sbin/tcptop", "-C", "3600"])));
    cases.push(("tcptop_bcc".to_owned(), Case::Peer(&["/usr/sbin/tcptop-bpfcc", "-C", "3600"])));
    cases.push(("nothing_again".to_owned(), Case::Nothing));
    cases
}

/// Keeps what a case attached; dropping it detaches.
enum Held {
    Nothing,
    Hooks { _attached: hooks::Attached },
    Topstat { _source: Box<dyn Source> },
    Peer(Child),
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Self::Peer(child) = self {
            let _ = child.kill();
            let _ = child.wait();
            sleep(Duration::from_secs(1));
        }
    }
}

fn kprobes() -> Result<String> {
    fs::read_to_string("/sys/kernel/debug/kprobes/list").context("cannot read the list of kprobes")
}

/// How long a peer may take until it counts; bcc compiles its program.
const PEER_LIMIT_S: u32 = 600;

fn hold(case: &Case) -> Result<Held> {
    Ok(match case {
        Case::Nothing => Held::Nothing,
        Case::Hooks(name) => Held::Hooks { _attached: hooks::attach(name)? },
        Case::Topstat { one, delay_ms } => {
            let all = samples().iter().flat_map(|sample| sample.tables);
            let tables: Vec<&TableInfo> =
                all.filter(|table| !one || (table.sample, table.name) == ("tcp_v4", "conns_pps")).collect();
            let options = topstat_samples::Options { delay_ms: *delay_ms, ..topstat_samples::Options::default() };
            Held::Topstat { _source: load(&tables, &options)? }
        }
        Case::Peer(argv) => {
            let before = kprobes()?;
            let child = Command::new(argv[0]).args(&argv[1..]).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
            let mut held = Held::Peer(child.with_context(|| format!("cannot run {}", argv[0]))?);
            let mut seen = before.clone();
            for _ in 0..PEER_LIMIT_S {
                sleep(Duration::from_secs(1));
                if let Held::Peer(child) = &mut held
                    && let Some(status) = child.try_wait()?
                {
                    bail!("{} ended: {status}", argv[0]);
                }
                let now = kprobes()?;
                if now != before && now == seen {
                    return Ok(held);
                }
                seen = now;
            }
            bail!("{} attached nothing", argv[0]);
        }
    })
}

fn turn(load: &mut Load, plan: &Plan, transactions: u64) -> Result<f64> {
    let report = load.run(plan, &Limits { total: transactions, ..Limits::default() })?;
    ensure!(report.transactions == transactions, "{} of {transactions} transactions", report.transactions);
    Ok(report.elapsed.as_nanos() as f64 / transactions as f64)
}

pub fn run(options: &Guest) -> Result<()> {
    for &connections in &options.connections {
        let mut load = Load::open(Config { connections, ..Config::default() })?;
        let plan = Plan::endless(connections);
        for (name, case) in cases() {
            if options.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
                continue;
            }
            let held = match hold(&case) {
                Ok(held) => held,
                Err(error) => {
                    println!("{}", json!({ "connections": connections, "case": name, "error": format!("{error:#}") }));
                    continue;
                }
            };
            let mut turns = Vec::new();
            for index in 0..=options.turns {
                let instructions = turn(&mut load, &plan, options.transactions)?;
                if index > 0 {
                    turns.push(instructions);
                }
            }
            drop(held);
            println!("{}", json!({ "connections": connections, "case": name, "instructions": turns }));
        }
    }
    Ok(())
}
