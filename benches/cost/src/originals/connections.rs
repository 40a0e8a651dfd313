// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first topstat's table: the cost of ranking connections, by number of connections and by delay.

use anyhow::Result;
use topstat_vm::kernel::Series;

use super::Options;
use crate::icount::{Column, More, Selection, count};
use crate::overhead::all_tables;
use crate::stats::Spread;

const DELAYS_MS: [u32; 3] = [0, 10, 100];
/// The case without attached programs.
const BASE: &str = "nothing";
/// The kernel for counting instructions: the required kernel for measuring the module.
const KERNEL: Series = Series::V6_1;

/// CPU time of the first topstat, in percent, by connections and delay. No other figures of it are known.
const ORIGINAL: [(usize, u32, f64); 3] = [(500, 0, 16.0), (500, 10, 2.7), (500, 100, 0.3)];

fn original(connections: usize, delay_ms: u32) -> Option<f64> {
    ORIGINAL.iter().find(|(n, delay, _)| (*n, *delay) == (connections, delay_ms)).map(|(_, _, percent)| *percent)
}

/// The cost that a backend adds to a transaction.
struct Added {
    more: More,
    /// The share of the push in the added cost, in percent.
    push: f64,
}

/// `prefix`: the beginning of the names of the backend's cases.
fn added(column: &Column, prefix: &str, connections: usize, delay_ms: u32) -> Result<Added, String> {
    let more = column.more(connections, &format!("{prefix}_{delay_ms}"))?;
    // The hooks alone: with one connection hardly any packet within 100 ms is due for a push.
    let hooks = column.more(1, &format!("{prefix}_100"))?.instructions;
    let push = (1.0 - hooks / more.instructions).max(0.0) * 100.0;
    Ok(Added { more, push })
}

fn cells(added: &Result<Added, String>) -> String {
    match added {
        Ok(Added { more, push }) => {
            let share = if more.is_lost() { "n/a".to_owned() } else { format!("{push:.0}%") };
            format!("{} | {share}", more.cell())
        }
        Err(_) => "n/a | n/a".to_owned(),
    }
}

/// Instructions in a second of the guest.
const INSTRUCTIONS_PER_SECOND: f64 = 1e9;
/// Packets of a transaction, at either end: a request, and its response, which also acknowledges.
const PACKETS: f64 = 2.0;

/// Packets per second at each end of a connection in the guest, whose one CPU is never idle.
fn packets_per_second(nothing: &More, connections: usize) -> f64 {
    PACKETS * INSTRUCTIONS_PER_SECOND / nothing.without / connections as f64
}

fn row(connections: usize, delay_ms: u32, column: &Column, here: Spread) -> String {
    let module = added(column, "kmod", connections, delay_ms);
    let ebpf = added(column, "tcp", connections, delay_ms);
    let original = original(connections, delay_ms).map_or_else(|| "n/a".to_owned(), |percent| format!("{percent}%"));
    let ratio = match (&module, &ebpf) {
        (Ok(module), Ok(ebpf)) if !module.more.is_lost() && !ebpf.more.is_lost() => {
            format!("{:.2}", module.more.instructions / ebpf.more.instructions)
        }
        _ => "n/a".to_owned(),
    };
    let nothing = column.more(connections, BASE).ok();
    let packets = nothing
        .as_ref()
        .map_or_else(|| "n/a".to_owned(), |nothing| format!("{:.0}", packets_per_second(nothing, connections)));
    let floor = nothing.map_or_else(|| "n/a".to_owned(), |nothing| format!("±{:.2}%", nothing.floor_percent));
    format!(
        "| {connections} | {packets} | {delay_ms} ms | {original} | {floor} | {} | {} | {ratio} | {:+.1}% ({:+.1} – {:+.1}) |",
        cells(&module),
        cells(&ebpf),
        here.median,
        here.low,
        here.high
    )
}

pub fn run(options: &Options) -> Result<()> {
    let cases = [BASE].into_iter().map(str::to_owned);
    let ours = ["kmod", "tcp"].iter().flat_map(|prefix| DELAYS_MS.map(|delay| format!("{prefix}_{delay}")));
    // One connection gives the cost of the hooks.
    let mut connections = options.connections.clone();
    if !connections.contains(&1) {
        connections.insert(0, 1);
    }
    let what = Selection {
        connections,
        turn_ms: 100,
        turns: options.turns,
        rounds: options.rounds,
        cases: cases.chain(ours).collect(),
        datagrams: false,
        profile: false,
    };
    let column = count(KERNEL, what)?;
    println!(
        "What ranking connections takes, by all tables of TCP: of a 64-byte request and its response, both ends on one CPU.\n"
    );
    println!(
        "| connections | packets a second of each | delay | the first topstat, of a CPU | nothing against nothing | module, instructions on {KERNEL} \
         | of it the push | eBPF, the same | of it the push | module / eBPF | eBPF, CPU time on this host |",
        KERNEL = KERNEL.name()
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for &connections in &options.connections {
        let here = all_tables(connections, &DELAYS_MS, options.rounds)?;
        for (delay, here) in DELAYS_MS.iter().zip(here.more) {
            println!("{}", row(connections, *delay, &column, here));
        }
    }
    println!(
        "\n({} rounds, interleaved, {} turns of 100 ms each for instructions; median, least and most. The floor is the most that nothing \
         has differed from nothing in a round: what is less is not told from nothing, and n/a what follows from it)",
        options.rounds, options.turns
    );
    if let Err(why) = column.more(1, "kmod_0") {
        println!("(n/a: {why})");
    }
    println!();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_of_the_original_is_not_made_up() {
        assert_eq!(original(500, 10), Some(2.7));
        assert_eq!(original(100, 10), None);
        assert_eq!(original(500, 1), None);
    }

    #[test]
    fn a_share_is_what_the_hooks_do_not_take() {
        let column = Column::of_rounds(&[
            (1, "nothing", 1000.0, 1000.0),
            (1, "kmod_100", 1000.0, 1002.0),
            (1, "tcp_100", 1000.0, 1010.0),
            (500, "nothing", 800.0, 800.8),
            (500, "tcp_0", 800.0, 840.0),
            (500, "kmod_0", 800.0, 800.4),
        ]);
        let row = row(500, 0, &column, Spread { median: 5.0, low: 4.0, high: 6.0 });
        let expected = "| 500 | 5000 | 0 ms | 16% | ±0.10% | +0 (+0.05%, +0.05 – +0.05, less than the floor) | n/a \
            | +40 (+5.00%, +5.00 – +5.00) | 75% | n/a | +5.0% (+4.0 – +6.0) |";
        assert_eq!(row, expected);
    }
}
