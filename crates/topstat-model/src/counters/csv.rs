// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A reading as CSV: a record for each counter. `docs/snmp.md` describes it.

use std::io;

use super::{Choice, CounterKind, Counters, Scope, rate};
use crate::csv::text;
use crate::time::rfc3339;

const COLUMNS: [&str; 11] = [
    "time",
    "elapsed_ns",
    "netns",
    "netns_name",
    "device",
    "sample",
    "counter",
    "kind",
    "total",
    "change",
    "per_second",
];

/// Writes readings, the names of the columns before the first.
pub struct Csv {
    choice: Choice,
    cpus: bool,
    begun: bool,
}

impl Csv {
    /// With columns of what has come on each CPU, or without.
    pub fn new(choice: Choice, cpus: bool) -> Self {
        Self { choice, cpus, begun: false }
    }

    /// The records of a reading.
    ///
    /// # Errors
    /// None that are known: what is written to is memory.
    pub fn write(&mut self, counters: &Counters) -> io::Result<Vec<u8>> {
        let mut records = ::csv::Writer::from_writer(Vec::new());
        if !std::mem::replace(&mut self.begun, true) {
            let cpus = counters.cpus.iter().filter(|_| self.cpus).map(|cpu| format!("cpu{cpu}"));
            records.write_record(COLUMNS.into_iter().map(str::to_owned).chain(cpus))?;
        }
        let time = rfc3339(counters.time);
        let elapsed = counters.elapsed.map_or(String::new(), |elapsed| elapsed.as_nanos().to_string());
        for scope in &counters.scopes {
            self.scope(&mut records, counters, scope, [&time, &elapsed])?;
        }
        records.into_inner().map_err(|error| error.into_error())
    }

    fn scope(
        &self,
        records: &mut ::csv::Writer<Vec<u8>>,
        counters: &Counters,
        scope: &Scope,
        instant: [&str; 2],
    ) -> io::Result<()> {
        for (protocol, counter) in self.choice.lines(scope).0 {
            let gauge = counter.kind == CounterKind::Gauge;
            let change = counter.change();
            let number = |number: Option<u64>| number.map_or(String::new(), |number| number.to_string());
            for field in instant {
                records.write_field(field)?;
            }
            records.write_field(scope.netns.to_string())?;
            records.write_field(text(scope.name.as_deref().unwrap_or_default()).as_ref())?;
            records.write_field(text(scope.device.as_deref().unwrap_or_default()).as_ref())?;
            records.write_field(format!("snmp_{protocol}"))?;
            records.write_field(&*counter.name)?;
            records.write_field(if gauge { "gauge" } else { "count" })?;
            records.write_field(if gauge { counter.level().to_string() } else { counter.now.all.to_string() })?;
            records.write_field(number(change))?;
            let per_second = change.zip(counters.elapsed).map(|(change, elapsed)| rate(change, elapsed));
            records.write_field(per_second.map_or(String::new(), |rate| rate.to_string()))?;
            if self.cpus {
                let parts = self.choice.parts(counter);
                for cpu in 0..counters.cpus.len() {
                    records.write_field(number(parts.as_ref().and_then(|parts| parts.get(cpu)).copied()))?;
                }
            }
            records.write_record(None::<&[u8]>)?;
        }
        Ok(())
    }
}
