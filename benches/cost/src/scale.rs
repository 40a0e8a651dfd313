// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cost that does not depend on the number of objects: reading; and cost that does: memory. And whether the shown top is the
//! true top.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use topstat_families::catalogue;
use topstat_families::inet::bench::local;
use topstat_kernel::{TableInfo, load};
use topstat_model::{Field, Snapshot};

use crate::holders::{Holders, Load, PAYLOAD};
use crate::stats::spread;

#[derive(Args)]
pub struct Options {
    /// Numbers of sockets.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1000, 10_000, 100_000])]
    sockets: Vec<u32>,
    /// Snapshots for each number.
    #[arg(long, default_value_t = 500)]
    snapshots: usize,
}

/// Long enough for a whole load within one period.
const PERIOD_MS: u32 = 300_000;

fn table(name: &str) -> Result<std::sync::Arc<TableInfo>> {
    catalogue().find("udp_v4", name).with_context(|| format!("no table udp_v4/{name}"))
}

/// Unreclaimable kernel memory in use, bytes.
fn kernel_memory() -> Result<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo")?;
    let kib = meminfo
        .lines()
        .find_map(|l| l.strip_prefix("SUnreclaim:"))
        .and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .context("/proc/meminfo has no SUnreclaim")?;
    Ok(kib * 1024)
}

pub fn read(options: &Options) -> Result<()> {
    println!("## read: microseconds to take a snapshot of 128 rows ({} each)\n", options.snapshots);
    println!("| sockets | dynamic (conns_pps) | static (conns_bytes) |\n|---:|---:|---:|");
    for &sockets in &options.sockets {
        let tables = [table("conns_pps")?, table("conns_bytes")?];
        let settings = topstat_kernel::Options { period_ms: PERIOD_MS, ..topstat_kernel::Options::default() };
        let mut source = load(&tables, &settings)?;
        let mut holders = Holders::new(sockets)?;
        holders.send(Load::Flat)?;
        let mut cells = Vec::new();
        for table in &tables {
            let mut times = Vec::new();
            for _ in 0..options.snapshots {
                let begun = Instant::now();
                let snapshot = source.peek(table)?;
                times.push(begun.elapsed().as_secs_f64() * 1e6);
                snapshot.check()?;
                ensure!(snapshot.rows.len() >= 100.min(sockets as usize), "only {} rows", snapshot.rows.len());
            }
            let s = spread(&times);
            cells.push(format!("{:.0} ({:.0}–{:.0})", s.median, s.low, s.high));
        }
        println!("| {sockets} | {} |", cells.join(" | "));
    }
    Ok(())
}

pub fn memory(options: &Options) -> Result<()> {
    println!("## memory: bytes of kernel memory\n");
    println!("| sockets | without topstat, per socket | topstat, per object |\n|---:|---:|---:|");
    let tables = [table("conns_pps")?, table("conns_bps")?, table("conns_bytes")?];
    for &sockets in options.sockets.iter().filter(|s| **s >= 10_000) {
        let before = kernel_memory()?;
        let _holders = Holders::new(sockets)?;
        std::thread::sleep(Duration::from_millis(500));
        let opened = kernel_memory()?;
        // Topstat adopts existing sockets: each gets its object now.
        let source = load(&tables, &topstat_kernel::Options::default())?;
        std::thread::sleep(Duration::from_millis(500));
        let adopted = kernel_memory()?;
        drop(source);
        let per = |more: u64, less: u64| more.saturating_sub(less) / u64::from(sockets);
        println!("| {sockets} | {} | {} |", per(opened, before), per(adopted, opened));
    }
    let bank = topstat_families::inet::bench::bank_bytes(128)?;
    println!("\nTables of one sample on one CPU, 128 rows each: {bank} bytes, whatever the number of objects.");
    Ok(())
}

/// The numbers of right rows, by value: how much of the generator's top is in the snapshot. Any of equal values may be at the
/// border.
fn recall(snapshot: &Snapshot, truth: &HashMap<(String, u64), u64>) -> Result<(usize, usize, usize)> {
    let mut all: Vec<u64> = truth.values().copied().collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    all.truncate(snapshot.top as usize);
    let border = all.last().copied().unwrap_or(0);
    let (mut right, mut ours) = (0, 0);
    for row in &snapshot.rows {
        let (Some(Field::Ip(ip)), Some(Field::U64(port))) = (row.object.first(), row.object.get(1)) else { continue };
        let Some(sent) = truth.get(&(ip.to_string(), *port)) else { continue };
        ours += 1;
        if row.value == *sent && row.value >= border {
            right += 1;
        }
    }
    Ok((right, ours, all.len()))
}

pub fn exact(options: &Options) -> Result<()> {
    println!("## exact: the top 128 against what the generator sent\n");
    println!("| sockets | load | table | recall | precision | proven rows | objects ordered again |");
    println!("|---:|---|---|---:|---:|---:|---:|");
    for &sockets in &options.sockets {
        for kind in [Load::Flat, Load::Skewed] {
            let tables = [table("conns_pps")?, table("conns_bps")?, table("conns_bytes")?];
            let settings = topstat_kernel::Options { period_ms: PERIOD_MS, ..topstat_kernel::Options::default() };
            let mut source = load(&tables, &settings)?;
            let mut holders = Holders::new(sockets)?;
            holders.send(kind)?;
            for (table, per_packet, first) in
                [(&tables[0], 1, 1), (&tables[1], PAYLOAD as u64 * 8, 72), (&tables[2], PAYLOAD as u64, 9)]
            {
                let truth: HashMap<(String, u64), u64> = (0..sockets)
                    .map(|f| {
                        let at = local(f);
                        ((at.ip().to_string(), at.port().into()), kind.packets(f) * per_packet + first)
                    })
                    .collect();
                let peeked = source.peek(table)?;
                peeked.check()?;
                // The sink is a row, too, but no row of the generator.
                let (right, ours, top) = recall(&peeked, &truth)?;
                let of = top.min(peeked.rows.len());
                let again = if peeked.is_proven() { 0 } else { source.refill(table)? };
                let row = format!("| {sockets} | {} | {} |", kind.name(), table.name);
                let percent = |a: usize, b: usize| 100.0 * a as f64 / b.max(1) as f64;
                println!(
                    "{row} {:.1}% | {:.1}% | {} of {} | {again} |",
                    percent(right, of - (of - ours).min(1)),
                    percent(right, ours),
                    peeked.proven,
                    peeked.rows.len()
                );
            }
        }
    }
    Ok(())
}
