// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the screen is complete, in words.

use std::time::Duration;

use topstat_model::{Snapshot, TableType};

use super::Panel;
use crate::state::App;

/// What each cause of a loss means.
fn cause(name: &str) -> String {
    match name {
        "contended" => "were put into order late".to_owned(),
        "crowded" => "were not put into order".to_owned(),
        "no_memory" => "found no memory in the kernel".to_owned(),
        "full" => "have no row: all places for objects are taken".to_owned(),
        "unmatched" => "have no row: the event that names their owner was not seen".to_owned(),
        "opaque" => "are packets of IPsec, whose payload is not known".to_owned(),
        "unseen" => "are connections that could not be read at their end".to_owned(),
        "skipped" => "were not seen: the kernel did not run the program".to_owned(),
        "impossible" => "are waits that the kernel has measured wrongly, and are left out".to_owned(),
        other => format!("are lost ({})", other.replace('_', " ")),
    }
}

/// Whether the "now" screen can be trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Why the screen is not complete, in sentences; empty where it is complete.
    pub doubts: Vec<String>,
    /// All tables have been read, or can't be.
    pub settled: bool,
}

impl App {
    /// Whether what the "now" screen shows is complete.
    pub fn trust(&self) -> Trust {
        let mut trust = Trust { doubts: Vec::new(), settled: true };
        for panel in Panel::ALL {
            let readings = self.readings(panel);
            for (_, snapshot, _) in &readings.found {
                self.doubt(&format!("{}/{}", snapshot.sample, snapshot.table), snapshot, &mut trust.doubts);
            }
            trust.settled &= readings.passing.is_none();
            trust.doubts.extend(readings.doubt(panel));
        }
        trust
    }

    fn doubt(&self, path: &str, snapshot: &Snapshot, doubts: &mut Vec<String>) {
        for (name, count) in snapshot.lost_now.nonzero() {
            doubts.push(format!("{path}: {count} events {}", cause(name)));
        }
        let shown = snapshot.row_count().min(10);
        if snapshot.proven < shown {
            doubts.push(format!("{path}: rows after the first {} may be in another order", snapshot.proven));
        }
        let stale: Vec<_> = snapshot.stale_cpus().map(|cpu| cpu.to_string()).collect();
        if !stale.is_empty() {
            doubts.push(format!("{path}: CPUs {} did not answer", stale.join(",")));
        }
        let since = self.table_at(path).and_then(|table| self.data[table].since);
        let counted = since.and_then(|since| snapshot.time.duration_since(since).ok());
        let period = Duration::from_millis(snapshot.period_ms.into());
        if let Some(counted) = counted.filter(|counted| snapshot.kind == TableType::Dynamic && *counted < period) {
            doubts.push(format!("{path}: counts for {} ms only", counted.as_millis()));
        }
    }
}
