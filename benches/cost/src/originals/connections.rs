// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first topstat's table: the cost of ranking connections, by number of connections.

use anyhow::Result;
use topstat_vm::kernel::Series;

use super::Options;
use crate::icount::{Column, More, Selection, count};
use crate::overhead::all_tables;
use crate::stats::Spread;

/// The case without attached programs.
const BASE: &str = "nothing";
/// The kernel for counting instructions: the required kernel for measuring the module.
const KERNEL: Series = Series::V6_1;

/// CPU time of the first topstat, by connections, with its delays in ms, on which its cost depended. No other figures of it are known.
const ORIGINAL: (usize, &str) = (500, "0: 16%, 10: 2.7%, 100: 0.3%");

fn original(connections: usize) -> &'static str {
    if connections == ORIGINAL.0 { ORIGINAL.1 } else { "n/a" }
}

/// The cost that a backend adds to a transaction.
struct Added {
    more: More,
    /// The share of the push in the added cost, in percent.
    push: f64,
}

/// `case`: the backend's.
fn added(column: &Column, case: &str, connections: usize) -> Result<Added, String> {
    let more = column.more(connections, case)?;
    // The hooks alone: with one connection hardly any segment is the first of a slide.
    let hooks = column.more(1, case)?.instructions;
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

fn row(connections: usize, column: &Column, here: Spread) -> String {
    let module = added(column, "kmod", connections);
    let ebpf = added(column, "tcp", connections);
    let original = original(connections);
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
        "| {connections} | {packets} | {original} | {floor} | {} | {} | {ratio} | {:+.1}% ({:+.1} – {:+.1}) |",
        cells(&module),
        cells(&ebpf),
        here.median,
        here.low,
        here.high
    )
}

pub fn run(options: &Options) -> Result<()> {
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
        cases: [BASE, "kmod", "tcp"].map(str::to_owned).to_vec(),
        datagrams: false,
        profile: false,
    };
    let column = count(KERNEL, what)?;
    println!(
        "What ranking connections takes, by all tables of TCP: of a 64-byte request and its response, both ends on one CPU.\n"
    );
    println!(
        "| connections | packets a second of each | the first topstat, of a CPU, by its delay in ms | nothing against nothing | module, instructions on {KERNEL} \
         | of it the push | eBPF, the same | of it the push | module / eBPF | eBPF, CPU time on this host |",
        KERNEL = KERNEL.name()
    );
    println!("|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|");
    for &connections in &options.connections {
        println!("{}", row(connections, &column, all_tables(connections, options.rounds)?));
    }
    println!(
        "\n({} rounds, interleaved, {} turns of 100 ms each for instructions; median, least and most. The floor is the most that nothing \
         has differed from nothing in a round: what is less is not told from nothing, and n/a what follows from it)",
        options.rounds, options.turns
    );
    if let Err(why) = column.more(1, "kmod") {
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
        assert!(original(500).contains("10: 2.7%"));
        assert_eq!(original(100), "n/a");
    }

    #[test]
    fn a_share_is_what_the_hooks_do_not_take() {
        let column = Column::of_rounds(&[
            (1, "nothing", 1000.0, 1000.0),
            (1, "kmod", 1000.0, 1002.0),
            (1, "tcp", 1000.0, 1010.0),
            (500, "nothing", 800.0, 800.8),
            (500, "tcp", 800.0, 840.0),
            (500, "kmod", 800.0, 800.4),
        ]);
        let row = row(500, &column, Spread { median: 5.0, low: 4.0, high: 6.0 });
        let expected = "| 500 | 5000 | 0: 16%, 10: 2.7%, 100: 0.3% | ±0.10% | +0 (+0.05%, +0.05 – +0.05, less than the floor) | n/a \
            | +40 (+5.00%, +5.00 – +5.00) | 75% | n/a | +5.0% (+4.0 – +6.0) |";
        assert_eq!(row, expected);
    }
}
