// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The library in a few lines: the hottest connections, three times. Needs root.
//!
//!     cargo run --example watch tcp_v4/conns_pps

use std::io::stdout;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "tcp_v4/conns_pps".to_owned());
    let (sample, table) = name.split_once('/').ok_or("SAMPLE/TABLE, please")?;
    let table = topstat_families::catalogue().find(sample, table).ok_or("no such table")?;
    let mut source = topstat_kernel::load(std::slice::from_ref(&table), &topstat_kernel::Options::default())?;
    for _ in 0..3 {
        std::thread::sleep(Duration::from_secs(1));
        let mut snapshot = source.snapshot(&table)?;
        snapshot.truncate(10);
        topstat_model::text::write(&snapshot, topstat_model::text::TextOptions::default(), &mut stdout())?;
    }
    Ok(())
}
