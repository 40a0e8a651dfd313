// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A reading as CSV: a record for each counter. `docs/snmp.md` describes it.

use std::io;

use super::{CounterKind, Picture, Scope, rate};
use crate::csv::text;
use crate::sink::Records;
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

pub fn columns(picture: &Picture) -> Vec<String> {
    let cpus = picture.counters.cpus.iter().filter(|_| picture.cpus).map(|cpu| format!("cpu{cpu}"));
    COLUMNS.into_iter().map(str::to_owned).chain(cpus).collect()
}

pub fn records(picture: &Picture, records: &mut Records) -> io::Result<()> {
    let time = rfc3339(picture.counters.time);
    let elapsed = picture.counters.elapsed.map_or(String::new(), |elapsed| elapsed.as_nanos().to_string());
    picture.counters.scopes.iter().try_for_each(|scope| of_scope(picture, records, scope, [&time, &elapsed]))
}

fn of_scope(picture: &Picture, records: &mut Records, scope: &Scope, instant: [&str; 2]) -> io::Result<()> {
    for (protocol, counter) in picture.choice.lines(scope).0 {
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
        let per_second = change.zip(picture.counters.elapsed).map(|(change, elapsed)| rate(change, elapsed));
        records.write_field(per_second.map_or(String::new(), |rate| rate.to_string()))?;
        if picture.cpus {
            let parts = picture.choice.parts(counter);
            for cpu in 0..picture.counters.cpus.len() {
                records.write_field(number(parts.as_ref().and_then(|parts| parts.get(cpu)).copied()))?;
            }
        }
        records.write_record(None::<&str>)?;
    }
    Ok(())
}
