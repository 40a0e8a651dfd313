// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first topstat's table: what ranking connections takes, by their number and the delay.

use anyhow::Result;
use topstat_vm::kernel::Series;

use super::Options;
use crate::icount::{Column, More, Selection, count};
use crate::overhead::all_tables;
use crate::stats::Spread;

const DELAYS_MS: [u32; 3] = [0, 10, 100];
/// Where instructions are counted: the kernel that the module is asked to be measured on.
const KERNEL: Series = Series::V6_1;

/// What the first topstat took of a CPU, in percent, by connections and delay. No others of its figures are known.
const ORIGINAL: [(usize, u32, f64); 3] = [(500, 0, 16.0), (500, 10, 2.7), (500, 100, 0.3)];

fn original(connections: usize, delay_ms: u32) -> Option<f64> {
    ORIGINAL.iter().find(|(n, delay, _)| (*n, *delay) == (connections, delay_ms)).map(|(_, _, percent)| *percent)
}

/// What a backend adds to a transaction.
struct Added {
    more: More,
    /// In percent of what it adds.
    push: f64,
}

/// `prefix`: of the backend's cases.
fn added(column: &Column, prefix: &str, connections: usize, delay_ms: u32) -> Result<Added, String> {
    let more = column.more(connections, &format!("{prefix}_{delay_ms}"))?;
    // The hooks alone: of one connection hardly any of the packets of 100 ms is due.
    let hooks = column.more(1, &format!("{prefix}_100"))?.instructions;
    let push = (1.0 - hooks / more.instructions).max(0.0) * 100.0;
    Ok(Added { more, push })
}

impl Added {
    fn percent(&self) -> f64 {
        self.more.instructions / self.more.without * 100.0
    }

    /// Turns are apart by more than twice of what it adds, so that medians do not tell it.
    fn is_lost(&self) -> bool {
        self.percent() * 2.0 < self.more.turns_apart
    }
}

fn cells(added: &Result<Added, String>) -> String {
    match added {
        Ok(added) => {
            let share = if added.is_lost() { "n/a".to_owned() } else { format!("{:.0}%", added.push) };
            let More { instructions, turns_apart, .. } = added.more;
            format!("{instructions:+.0} ({:+.1}%) ±{turns_apart:.1}% | {share}", added.percent())
        }
        Err(_) => "n/a | n/a".to_owned(),
    }
}

fn row(connections: usize, delay_ms: u32, column: &Column, here: Spread) -> String {
    let module = added(column, "kmod", connections, delay_ms);
    let ebpf = added(column, "tcp", connections, delay_ms);
    let original = original(connections, delay_ms).map_or_else(|| "n/a".to_owned(), |percent| format!("{percent}%"));
    let ratio = match (&module, &ebpf) {
        (Ok(module), Ok(ebpf)) if !module.is_lost() && !ebpf.is_lost() => {
            format!("{:.2}", module.more.instructions / ebpf.more.instructions)
        }
        _ => "n/a".to_owned(),
    };
    format!(
        "| {connections} | {delay_ms} ms | {original} | {} | {} | {ratio} | {:+.1}% ({:+.1} – {:+.1}) |",
        cells(&module),
        cells(&ebpf),
        here.median,
        here.low,
        here.high
    )
}

pub fn run(options: &Options) -> Result<()> {
    let cases = ["nothing"].into_iter().map(str::to_owned);
    let ours = ["kmod", "tcp"].iter().flat_map(|prefix| DELAYS_MS.map(|delay| format!("{prefix}_{delay}")));
    // What the hooks take is told by one connection.
    let mut connections = options.connections.clone();
    if !connections.contains(&1) {
        connections.insert(0, 1);
    }
    let what = Selection {
        connections,
        turn_ms: 100,
        turns: options.turns,
        cases: cases.chain(ours).collect(),
        datagrams: false,
        profile: false,
    };
    let column = count(KERNEL, what)?;
    println!(
        "What ranking connections takes, by all tables of TCP: of a 64-byte request and its response, both ends on one CPU.\n"
    );
    println!(
        "| connections | delay | the first topstat, of a CPU | module, instructions on {KERNEL} | of it the push | eBPF, the same \
         | of it the push | module / eBPF | eBPF, CPU time on this host |",
        KERNEL = KERNEL.name()
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for &connections in &options.connections {
        let here = all_tables(connections, &DELAYS_MS, options.rounds)?;
        for (delay, here) in DELAYS_MS.iter().zip(here.more) {
            println!("{}", row(connections, *delay, &column, here));
        }
    }
    println!(
        "\n(instructions: medians of a boot, ± how far its turns are apart; n/a where that is more than twice of what is added. CPU time: {} rounds, interleaved, median, least and most)",
        options.rounds
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
        let column = Column::of_medians(&[
            (1, "nothing", 1000.0),
            (1, "tcp_100", 1010.0),
            (500, "nothing", 800.0),
            (500, "tcp_0", 840.0),
        ]);
        let row = row(500, 0, &column, Spread { median: 5.0, low: 4.0, high: 6.0 });
        let expected = "| 500 | 0 ms | 16% | n/a | n/a | +40 (+5.0%) ±0.0% | 75% | n/a | +5.0% (+4.0 – +6.0) |";
        assert_eq!(row, expected);
    }
}
