// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of losing no event: all strategies of the consumer on equal loads, in turns. The producer has the first CPU
//! alone, the consumer the second; under a competing load the consumer shares its CPU with a process that never waits.

mod report;
mod strategy;
mod turn;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum as _};

use self::strategy::Strategy;
use self::turn::{Cpus, Load, Turn, Way};

#[derive(Args)]
pub struct Options {
    /// Rounds; each way has a turn in each round.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of a turn, in ms.
    #[arg(long, default_value_t = 500)]
    ms: u64,
    /// Size of the ring buffer, in MiB, a power of two.
    #[arg(long, default_value_t = 8)]
    ring: u32,
    /// At the end, this many million events of 10 KB with a ring buffer of 32 MiB and a real-time consumer; 0: none.
    #[arg(long, default_value_t = 5)]
    millions: u64,
    /// Only these loads: large, small, bursts, idle.
    #[arg(long, value_delimiter = ',')]
    load: Vec<String>,
    /// Only these strategies.
    #[arg(long, value_delimiter = ',', value_enum)]
    strategy: Vec<Strategy>,
}

/// For the last turn, which must lose no event although it cuts none.
const REAL_TIME_PRIORITY: i32 = 10;
const REAL_TIME_RING_MIB: u32 = 32;

impl Options {
    fn ways(&self) -> Vec<Way> {
        let wanted = |strategy: &Strategy| self.strategy.is_empty() || self.strategy.contains(strategy);
        let way = |strategy, cut| Way { strategy, cut, ring_bytes: self.ring << 20, real_time: None };
        let strategies = Strategy::value_variants().iter().copied().filter(wanted);
        strategies.flat_map(|strategy| [way(strategy, true), way(strategy, false)]).collect()
    }

    fn loads(&self) -> Vec<Load> {
        let wanted = |load: &Load| self.load.is_empty() || self.load.iter().any(|name| *name == load.name());
        Load::ALL.into_iter().filter(wanted).collect()
    }
}

pub fn run(options: &Options) -> Result<()> {
    let cpus = Cpus::choose()?;
    let (ways, loads) = (options.ways(), options.loads());
    println!(
        "## events: what is lost, and what it takes ({} rounds, interleaved; medians)\n\nA ring buffer of {} MiB, turns of {} \
         ms; the producer on CPU {}, the consumer on CPU {}.",
        options.rounds, options.ring, options.ms, cpus.producer, cpus.consumer
    );
    for load in loads {
        for busy in [false, true] {
            let ways: Vec<Way> = ways.iter().copied().filter(|way| load.has_payload_to_cut() || way.cut).collect();
            let mut turns: Vec<Vec<Turn>> = vec![Vec::new(); ways.len()];
            for round in 0..options.rounds {
                for i in 0..ways.len() {
                    // Each round begins with another way.
                    let i = (i + round) % ways.len();
                    let turn = turn::take(&ways[i], load, busy, options.ms, None, &cpus);
                    turns[i].push(turn.with_context(|| format!("{} with {}", load.name(), ways[i].name()))?);
                }
            }
            report::print(load, busy, &ways, &turns);
            report::compare(&ways, &turns);
        }
    }
    if options.millions > 0 {
        let ring_bytes = REAL_TIME_RING_MIB << 20;
        let way = Way { strategy: Strategy::Adaptive, cut: false, ring_bytes, real_time: Some(REAL_TIME_PRIORITY) };
        let turn = turn::take(&way, Load::Large, false, u64::MAX, Some(options.millions * 1_000_000), &cpus)?;
        report::print_real_time(&way, &turn);
    }
    Ok(())
}
