// SPDX-License-Identifier: Apache-2.0 OR MIT
//! In a guest whose time is the number of instructions executed: what a transaction takes, with
//! one thing after the other attached.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use libbpf_rs::query::ProgInfoIter;
use serde::{Deserialize, Serialize};
use topstat_load::{Config, Limits, Load, Plan, Proto, UdpServer};

use super::cases::{CASES, Case, Held};

#[derive(Args)]
pub struct Guest {
    #[command(flatten)]
    pub what: Selection,
}

/// What is to be measured; the host hands it on to its guests.
#[derive(Args, Clone)]
pub struct Selection {
    /// Numbers of connections.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 500])]
    pub connections: Vec<usize>,
    /// Length of a turn in virtual milliseconds: whole slides (100 ms), so that every turn has as many.
    #[arg(long, default_value_t = 100)]
    pub turn_ms: u64,
    /// Turns of each case after one to warm up; their median counts. Three times as many where several connections
    /// speak, two where something happens every second.
    #[arg(long, default_value_t = 7)]
    pub turns: usize,
    /// The request and its response are datagrams.
    #[arg(long)]
    pub datagrams: bool,
    /// Only these cases, by their names (see `cases.rs`).
    #[arg(long, value_delimiter = ',')]
    pub cases: Vec<String>,
    /// Also the share of each eBPF program. It costs by itself, a clock before and after: the other figures remain
    /// as they are, but it takes another turn.
    #[arg(long)]
    pub profile: bool,
}

/// A line of the guest's output.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    pub connections: usize,
    pub case: String,
    /// Instructions per transaction, one for each turn; none if it could not be measured.
    pub turns: Vec<f64>,
    /// Why it could not be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Of each program: how often it runs per transaction, and its instructions per run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, (f64, f64)>,
}

/// Instructions per transaction of one turn, and how many transactions there were.
fn turn(load: &mut Load, plan: &Plan, time: Duration) -> Result<(f64, u64)> {
    let report = load.run(plan, &Limits { time, ..Limits::default() })?;
    ensure!(report.failed == 0 && report.transactions > 0, "the load failed: {report:?}");
    Ok((report.elapsed.as_nanos() as f64 / report.transactions as f64, report.transactions))
}

fn measure(load: &mut Load, case: &Case, options: &Selection) -> Result<Measured> {
    let connections = load.connections().len();
    let plan = Plan::endless(connections);
    let time = case.turn(Duration::from_millis(options.turn_ms));
    let mut measured =
        Measured { connections, case: case.id.to_owned(), turns: Vec::new(), error: None, programs: BTreeMap::new() };
    turn(load, &plan, Duration::from_millis(options.turn_ms))?;
    let turns = match connections {
        // A turn ten times as long takes ten times as long, and needs fewer.
        _ if case.every_second => options.turns.min(EVERY_SECOND_TURNS),
        1 => options.turns,
        _ => options.turns * MANY_SPEAK,
    };
    for _ in 0..turns {
        measured.turns.push(turn(load, &plan, time)?.0);
    }
    if options.profile {
        measured.programs = profile(load, &plan, time)?;
    }
    Ok(measured)
}

/// The order in which hundreds of connections speak changes what a table has to do: with 7 turns two boots were up to 0.7%
/// of a transaction apart, with 21 up to 0.2%.
pub const MANY_SPEAK: usize = 3;
/// Turns of what happens every second.
const EVERY_SECOND_TURNS: usize = 2;

const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// Runs and instructions of all programs so far, by id.
fn programs() -> BTreeMap<u32, (String, u64, u64)> {
    ProgInfoIter::default()
        .map(|info| (info.id, (info.name.to_string_lossy().into_owned(), info.run_cnt, info.run_time_ns)))
        .collect()
}

fn profile(load: &mut Load, plan: &Plan, time: Duration) -> Result<BTreeMap<String, (f64, f64)>> {
    let set = |value: &str| fs::write(STATS, value).with_context(|| format!("cannot write {STATS}"));
    set("1")?;
    let before = programs();
    let (_, transactions) = turn(load, plan, time)?;
    set("0")?;
    let mut shares = BTreeMap::new();
    for (id, (name, runs, ns)) in programs() {
        let (_, runs_before, ns_before) = before.get(&id).cloned().unwrap_or_default();
        let (runs, ns) = (runs - runs_before, ns - ns_before);
        if runs > 0 {
            // A function can have two programs, at its entry and at its return.
            shares.insert(format!("{name}#{id}"), (runs as f64 / transactions as f64, ns as f64 / runs as f64));
        }
    }
    Ok(shares)
}

pub fn run(options: &Guest) -> Result<()> {
    let options = &options.what;
    let mut cases: Vec<&Case> =
        CASES.iter().filter(|case| options.cases.is_empty() || options.cases.iter().any(|id| id == case.id)).collect();
    let mut held: Option<(&str, Result<Held>)> = None;
    for &connections in &options.connections {
        let proto = if options.datagrams { Proto::Udp } else { Proto::Tcp };
        let mut load =
            Load::open(Config { connections, proto, udp_server: UdpServer::PerClient, ..Config::default() })?;
        for case in &cases {
            if held.as_ref().is_none_or(|(id, _)| *id != case.id) {
                // One is detached before the next is attached.
                drop(held.take());
                held = Some((case.id, case.hold()));
            }
            let measured = match &held {
                Some((_, Err(error))) => Measured {
                    connections,
                    case: case.id.to_owned(),
                    turns: Vec::new(),
                    error: Some(format!("{error:#}")),
                    programs: BTreeMap::new(),
                },
                _ => measure(&mut load, case, options)?,
            };
            println!("{}", serde_json::to_string(&measured)?);
        }
        // Back again: the last case stays attached. It is bcc's, which compiles for minutes.
        cases.reverse();
    }
    Ok(())
}
