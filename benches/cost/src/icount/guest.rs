// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs in a guest whose time is the number of executed instructions: the cost of a transaction with one case after the other
//! attached.

use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use libbpf_rs::query::ProgInfoIter;
use serde::{Deserialize, Serialize};
use topstat_load::{Config, Dist, Limits, Load, Plan, Proto, UdpServer};

use super::cases::{CASES, Case, Held};
use crate::stats::spread;

#[derive(Args)]
pub struct Guest {
    #[command(flatten)]
    pub what: Selection,
}

/// The selected measurements; the host passes them to its guests.
#[derive(Args, Clone)]
pub struct Selection {
    /// Numbers of connections.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 500])]
    pub connections: Vec<usize>,
    /// Length of a turn in virtual milliseconds: whole slides (100 ms), so that every turn has as many.
    #[arg(long, default_value_t = 100)]
    pub turn_ms: u64,
    /// Turns of each case after a warm-up turn; their median counts. Three times as many with several connections, two for
    /// programs that act every second.
    #[arg(long, default_value_t = 7)]
    pub turns: usize,
    /// Rounds in which every case has this many turns between turns of nothing, on the same connections: for effects smaller
    /// than the drift between cases. 0: all turns of a case, then all turns of the next case.
    #[arg(long, default_value_t = 0)]
    pub rounds: usize,
    /// The request and its response are datagrams.
    #[arg(long)]
    pub datagrams: bool,
    /// Only these cases, by their names (see `cases.rs`).
    #[arg(long, value_delimiter = ',')]
    pub cases: Vec<String>,
    /// Also the share of each eBPF program. This reads a clock before and after each run, which costs time; the other figures
    /// stay unchanged, but it takes another turn.
    #[arg(long, conflicts_with = "rounds")]
    pub profile: bool,
}

/// A line of the guest's output.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    pub connections: usize,
    pub case: String,
    /// Instructions per transaction, for each turn, or the median of each round's turns; empty if the case could not be
    /// measured.
    pub turns: Vec<f64>,
    /// By round: the figure without attached programs, as the middle of the turns before and after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<f64>,
    /// Why the case could not be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// For each program: its runs per transaction, and its instructions per run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, (f64, f64)>,
}

impl Measured {
    fn begin(connections: usize, case: &Case) -> Self {
        let case = case.id.to_owned();
        Self { connections, case, turns: Vec::new(), without: Vec::new(), error: None, programs: BTreeMap::new() }
    }
}

/// Instructions per transaction of one turn, and the number of transactions.
fn turn(load: &mut Load, plan: &Plan, time: Duration) -> Result<(f64, u64)> {
    let report = load.run(plan, &Limits { time, ..Limits::default() })?;
    ensure!(report.failed == 0 && report.transactions > 0, "the load failed: {report:?}");
    Ok((report.elapsed.as_nanos() as f64 / report.transactions as f64, report.transactions))
}

fn measure(load: &mut Load, case: &Case, options: &Selection) -> Result<Measured> {
    let connections = load.connections().len();
    let plan = Plan::endless(connections);
    let time = case.turn(Duration::from_millis(options.turn_ms));
    let mut measured = Measured::begin(connections, case);
    turn(load, &plan, Duration::from_millis(options.turn_ms))?;
    let turns = match connections {
        // A turn ten times as long takes ten times as long to run, and fewer turns are enough.
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

/// The order in which hundreds of connections have their traffic changes the work of a table: with 7 turns two boots differed
/// by up to 0.7% of a transaction, with 21 by up to 0.2%.
pub const MANY_SPEAK: usize = 3;
/// Turns of cases that act every second.
const EVERY_SECOND_TURNS: usize = 2;

/// The bytes that a connection receives before its measurement: more than its first window of 64 KiB. Before it has received
/// these, the kernel knows no round trip of the receiver (tcp_rcv_rtt_measure), so tcp_rcv_space_adjust returns at once, and
/// a transaction takes 0.5% less: the first cases of a boot appeared cheaper.
const SETTLED_BYTES: u64 = 80 * 1024;
/// More transactions take minutes. With more connections than this allows, all connections stay in their first state.
const SETTLING_MAX: u64 = 200_000;
/// While programs are attached, no data is sent for longer than 200 ms, after which TCP acknowledges at once for a while.
/// This pause before both sides of a comparison gives them equal conditions.
const PAUSE: Duration = Duration::from_secs(1);

/// Brings connections to the state in which their cost no longer changes.
fn settle(load: &mut Load) -> Result<()> {
    let (connections, config) = (load.connections().len(), load.config());
    let each = SETTLED_BYTES.div_ceil(config.request_size.min(config.response_bytes()).max(1) as u64);
    if each * connections as u64 <= SETTLING_MAX {
        turn(load, &Plan::from_dist(&Dist::Uniform(each), connections)?, Limits::default().time)?;
    }
    Ok(())
}

/// The median of some turns, after a warm-up turn.
fn some(load: &mut Load, plan: &Plan, turns: usize, time: Duration) -> Result<f64> {
    sleep(PAUSE);
    turn(load, plan, time)?;
    let turns: Vec<f64> = (0..turns).map(|_| Ok(turn(load, plan, time)?.0)).collect::<Result<_>>()?;
    Ok(spread(&turns).median)
}

/// Every case once per round, between turns of nothing, so that a drift affects both sides.
fn interleaved(load: &mut Load, cases: &[&Case], options: &Selection) -> Result<Vec<Measured>> {
    let connections = load.connections().len();
    let usual = Duration::from_millis(options.turn_ms);
    settle(load)?;
    let mut all: Vec<Measured> = cases.iter().map(|case| Measured::begin(connections, case)).collect();
    for round in 0..options.rounds {
        // The order differs in each round, which changes how many requests are answered at a time.
        let plan = Plan::endless(connections).seed(round as u64 + 1);
        let mut before = some(load, &plan, options.turns, usual)?;
        for (case, measured) in cases.iter().zip(&mut all).filter(|(_, measured)| measured.error.is_none()) {
            let held = match case.hold() {
                Ok(held) => held,
                Err(error) => {
                    measured.error = Some(format!("{error:#}"));
                    continue;
                }
            };
            let with = some(load, &plan, options.turns, case.turn(usual))?;
            drop(held);
            let after = some(load, &plan, options.turns, usual)?;
            measured.turns.push(with);
            measured.without.push(f64::midpoint(before, after));
            before = after;
        }
    }
    Ok(all)
}

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
        if options.rounds > 0 {
            for measured in interleaved(&mut load, &cases, options)? {
                println!("{}", serde_json::to_string(&measured)?);
            }
            continue;
        }
        for case in &cases {
            if held.as_ref().is_none_or(|(id, _)| *id != case.id) {
                // One case is detached before the next is attached.
                drop(held.take());
                held = Some((case.id, case.hold()));
            }
            let measured = match &held {
                Some((_, Err(error))) => {
                    Measured { error: Some(format!("{error:#}")), ..Measured::begin(connections, case) }
                }
                _ => measure(&mut load, case, options)?,
            };
            println!("{}", serde_json::to_string(&measured)?);
        }
        // Then in reverse order: the last case stays attached. It is bcc's tcptop, which compiles for minutes.
        cases.reverse();
    }
    Ok(())
}
