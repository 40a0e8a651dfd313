// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The results of the turns, as tables.

use super::strategy::Strategy;
use super::turn::{Load, Turn, Way};
use crate::stats::spread;

fn median(turns: &[Turn], of: impl Fn(&Turn) -> f64) -> f64 {
    spread(&turns.iter().map(of).collect::<Vec<_>>()).median
}

/// A percentile of all values of all rounds, in µs.
fn percentile(turns: &[Turn], of: impl Fn(&Turn) -> &[u64], percent: usize) -> f64 {
    let mut all: Vec<u64> = turns.iter().flat_map(|turn| of(turn).iter().copied()).collect();
    all.sort_unstable();
    let at = (all.len() * percent / 100).min(all.len().saturating_sub(1));
    all.get(at).map_or(0.0, |ns| *ns as f64 / 1e3)
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

pub fn print(load: Load, busy: bool, ways: &[Way], turns: &[Vec<Turn>]) {
    println!("\n### {}{}\n", load.title(), if busy { ", a competing load on the consumer's CPU" } else { "" });
    println!(
        "| consumer | produced/s | delivered | cut | dropped | of all rounds | consumer CPU | producer, ns of CPU to an \
         event | beside doubling | wake-ups/s | late, µs, p50 / p99 | oldest waited, ms, p50 / p99 |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (way, turns_of_way) in ways.iter().zip(turns) {
        let of = |f: fn(&Turn) -> f64| median(turns_of_way, f);
        let cost = |turn: &Turn| turn.producer_cpu * 1e9 / turn.account.produced.max(1) as f64;
        // Compares within a round, since other processes use the machine, too.
        let beside =
            ways.iter().position(|other| other.strategy == Strategy::Doubling && other.cut == way.cut).map(|i| {
                let each: Vec<f64> =
                    turns_of_way.iter().zip(&turns[i]).map(|(t, other)| cost(t) / cost(other)).collect();
                spread(&each).median
            });
        println!(
            "| {} | {:.0} | {:.2}% | {:.2}% | {:.3}% | {} | {:.2}% | {:.0} | {} | {:.0} | {:.0} / {:.0} | {:.2} / {:.2} |",
            way.name(),
            of(|turn| turn.account.produced as f64 / turn.seconds),
            of(|turn| percent(turn.account.delivered, turn.account.produced)),
            of(|turn| percent(turn.account.cut, turn.account.produced)),
            of(|turn| percent(turn.account.dropped, turn.account.produced)),
            turns_of_way.iter().map(|turn| turn.account.dropped).sum::<u64>(),
            of(|turn| turn.consumer_cpu * 100.0 / turn.seconds),
            median(turns_of_way, cost),
            beside.map_or(String::new(), |ratio| format!("{:+.1}%", (ratio - 1.0) * 100.0)),
            of(|turn| turn.wakes as f64 / turn.seconds),
            percentile(turns_of_way, |turn| &turn.late_ns, 50),
            percentile(turns_of_way, |turn| &turn.late_ns, 99),
            percentile(turns_of_way, |turn| &turn.waited_ns, 50) / 1e3,
            percentile(turns_of_way, |turn| &turn.waited_ns, 99) / 1e3,
        );
    }
}

/// Without cuts: the share of events that adaptive and doubling drop, and the CPU time of both, in all rounds.
pub fn compare(ways: &[Way], turns: &[Vec<Turn>]) {
    let of = |strategy| ways.iter().position(|way| way.strategy == strategy && !way.cut).map(|i| &turns[i]);
    let (Some(adaptive), Some(doubling)) = (of(Strategy::Adaptive), of(Strategy::Doubling)) else { return };
    let dropped = |turns: &[Turn]| {
        let sum = |of: fn(&Turn) -> u64| turns.iter().map(of).sum::<u64>();
        percent(sum(|turn| turn.account.dropped), sum(|turn| turn.account.produced))
    };
    let times = |of: fn(&Turn) -> f64| {
        let ratios: Vec<f64> = adaptive.iter().zip(doubling).map(|(a, d)| of(a) / of(d)).collect();
        spread(&ratios).median
    };
    println!(
        "\nWithout cuts adaptive drops {:.2}% of all events, doubling {:.2}%; it takes {:.1} times the CPU time, {:.1} times for \
         each event that it delivers (medians of the rounds).",
        dropped(adaptive),
        dropped(doubling),
        times(|turn| turn.consumer_cpu / turn.seconds),
        times(|turn| turn.consumer_cpu / turn.account.delivered.max(1) as f64)
    );
}

pub fn print_real_time(way: &Way, turn: &Turn) {
    println!(
        "\n{}, a ring buffer of {} MiB, a real-time consumer: {} of {} events were dropped, {:.0} events/s, consumer CPU {:.2}%; \
         it was woken up at most {:.2} ms late",
        way.name(),
        way.ring_bytes >> 20,
        turn.account.dropped,
        turn.account.produced,
        turn.account.produced as f64 / turn.seconds,
        turn.consumer_cpu * 100.0 / turn.seconds,
        // No priority prevents this delay: the host did not run the virtual CPU.
        turn.late_ns.iter().copied().max().unwrap_or(0) as f64 / 1e6
    );
}
