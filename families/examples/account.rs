// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shows the precise account as it is, for its developers: `account [INTERVAL_MS [COUNT]]`.

use std::time::{Duration, Instant};

use topstat_families::account::{AccountOptions, Accountant};
use topstat_model::interval::Each;

fn main() -> Result<(), topstat_kernel::Error> {
    let argument = |n: usize, or: u64| std::env::args().nth(n).and_then(|a| a.parse().ok()).unwrap_or(or);
    let mut reader = Accountant::load(&AccountOptions::default())?.reader()?;
    for _ in 0..argument(2, 5) {
        std::thread::sleep(Duration::from_millis(argument(1, 1000)));
        let begun = Instant::now();
        let mut interval = reader.interval(Each::Process)?;
        let took = begun.elapsed();
        let totals = interval.totals();
        println!(
            "{} tasks in {took:?}: wall {} live {} ended {} idle {} other {} irq {} softirq {} steal {} {:?}",
            interval.tasks.len(),
            totals.wall_ns,
            totals.live.run_ns,
            totals.ended.run_ns,
            totals.cpus.idle_ns,
            totals.other_ns,
            totals.cpus.irq_ns,
            totals.cpus.softirq_ns,
            totals.cpus.steal_ns,
            interval.lost,
        );
        interval.tasks.sort_unstable_by_key(|t| std::cmp::Reverse(t.total().run_ns));
        for task in interval.tasks.iter().take(10) {
            println!("{task:?}");
        }
    }
    Ok(())
}
