// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes the metrics of all tables out of their documents.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::Value;
use topstat_model::{Snapshot, TableType, Unit, document};

use super::objects::Objects;
use super::text::{Families, Kind, Number, Sample, label_name};
use crate::source::{Fault, Source, Table};

/// The ranks that have a series.
pub const RANKS: usize = 10;

/// The parts of a document that metrics need. The rows after the first ten are skipped without being stored.
#[derive(Deserialize)]
struct Head<'a> {
    period_ms: u32,
    objects: u64,
    total: u64,
    #[serde(borrow)]
    lost: BTreeMap<Cow<'a, str>, u64>,
    rows: Tops,
}

/// The values of the first ten rows.
struct Tops(Vec<u64>);

#[derive(Deserialize)]
struct Top {
    value: u64,
}

impl<'de> Deserialize<'de> for Tops {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Rows;
        impl<'de> Visitor<'de> for Rows {
            type Value = Tops;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of rows")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<Tops, A::Error> {
                let mut tops = Vec::with_capacity(RANKS);
                while tops.len() < RANKS {
                    match rows.next_element::<Top>()? {
                        Some(top) => tops.push(top.value),
                        None => return Ok(Tops(tops)),
                    }
                }
                while rows.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Tops(tops))
            }
        }
        from.deserialize_seq(Rows)
    }
}

/// The base unit of a unit in metrics, and the number of base units in one unit.
pub fn base(unit: Unit) -> (&'static str, f64) {
    match unit {
        Unit::Packets => ("packets", 1.0),
        Unit::Bits => ("bytes", 0.125),
        Unit::Bytes => ("bytes", 1.0),
        Unit::Segments => ("segments", 1.0),
        Unit::Nanoseconds => ("seconds", 1e-9),
        Unit::Count => ("events", 1.0),
    }
}

/// A value in base units: whole numbers stay whole.
#[allow(clippy::cast_precision_loss)] // Prometheus stores all numbers so
fn in_base(value: u64, unit: Unit) -> Number {
    match base(unit).1 {
        1.0 => Number::Whole(value),
        factor => Number::Real(value as f64 * factor),
    }
}

/// Reads the chosen tables, and makes metrics of them; and the sums of pushes of all tables.
///
/// # Errors
///
/// When the source can't be read.
pub fn gather(
    source: &dyn Source,
    (all, tables): (&[Arc<Table>], &[Arc<Table>]),
    wanted: &[String],
    objects: &mut Objects,
) -> Result<Families, Fault> {
    let mut families = Families::default();
    let paths: Vec<_> = tables.iter().map(|table| table.path()).collect();
    let mut failed = 0_u64;
    source.documents(&paths, &mut |number, document| {
        let table = &tables[number];
        let added = document.and_then(|document| {
            of_table(table, document, &mut families)?;
            if table.kind == TableType::Static && wanted.contains(&paths[number]) {
                of_objects(table, document, objects, &mut families)?;
            }
            Ok(())
        });
        if let Err(fault) = added {
            log::debug!("no metrics of {}: {fault}", paths[number]);
            failed += 1;
        }
    })?;
    // Usage that was not pushed yet is in the sums once tables were read: so this comes after them.
    let own: Value = serde_json::from_slice(&source.own()?)
        .map_err(|error| Fault::Unavailable(format!("the daemon's own cost is no document: {error}")))?;
    pushed(&own, all, &mut families);
    cost(&own, &mut families);
    let help = "Tables that could not be read for this scrape.";
    families.add(("topstat_serve_tables_failed", Kind::Gauge, help), &[], failed);
    if !wanted.is_empty() {
        let refusals = [("budget", objects.refused_budget), ("slots", objects.refused_slots)];
        for (reason, count) in refusals {
            let help =
                "How often an object got no series: all places of its table were taken, or too many series were new.";
            families.add(("topstat_serve_objects_refused", Kind::Counter, help), &[("reason", reason)], count);
        }
    }
    Ok(families)
}

fn of_table(table: &Table, document: &[u8], families: &mut Families) -> Result<(), Fault> {
    let head: Head<'_> = serde_json::from_slice(document)
        .map_err(|error| Fault::Unavailable(format!("{}: no document of this version: {error}", table.path())))?;
    let labels = [("sample", table.sample.as_str()), ("table", table.name.as_str())];
    let (unit, factor) = base(table.unit);
    families.add(("topstat_objects", Kind::Gauge, "Objects that exist, with or without a row."), &labels, head.objects);
    for (cause, count) in &head.lost {
        let help = "What a table could not order or store, by cause: see the glossary of topstat.";
        let labels = [labels[0], labels[1], ("cause", cause)];
        families.add(("topstat_lost", Kind::Counter, help), &labels, *count);
    }
    if table.kind == TableType::Static {
        let name = format!("topstat_sum_{unit}");
        let help =
            format!("Sum of a static table, in {unit}. It may fall, where objects take their part along: a device.");
        families.add((name, Kind::Gauge, help), &labels, in_base(head.total, table.unit));
        return Ok(());
    }
    let mut left = head.total;
    let rate = |value: u64| topstat_model::per_second(value, head.period_ms) * factor;
    let name = format!("topstat_rank_{unit}_per_second");
    let help = format!("The objects of the first ranks and all others together (other), in {unit} per second.");
    for place in 0..RANKS {
        // A rank without an object has a sample, too, so that the number of series does not change.
        let value = head.rows.0.get(place).copied().unwrap_or(0);
        left = left.saturating_sub(value);
        let rank = (place + 1).to_string();
        let labels = [labels[0], labels[1], ("rank", &rank)];
        families.add((name.clone(), Kind::Gauge, help.clone()), &labels, rate(value));
    }
    families.add((name, Kind::Gauge, help), &[labels[0], labels[1], ("rank", "other")], rate(left));
    Ok(())
}

/// Objects of a static table, as far as they have a series; the others in one sum.
fn of_objects(table: &Table, document: &[u8], objects: &mut Objects, families: &mut Families) -> Result<(), Fault> {
    let wrong = |error| Fault::Unavailable(format!("{}: {error}", table.path()));
    let snapshot = document::read(document, |_, _| Some(table.shape())).map_err(wrong)?;
    let labels: Vec<_> = snapshot.rows.iter().map(|row| labels(&snapshot, &row.object)).collect();
    let keys: Vec<_> = labels.iter().map(|labels| format!("{labels:?}")).collect();
    let has = objects.scrape(&table.path(), &keys, Instant::now());
    let unit = base(table.unit).0;
    let mut other = snapshot.total;
    for ((row, labels), _) in snapshot.rows.iter().zip(labels).zip(has).filter(|(_, has)| *has) {
        other = other.saturating_sub(row.value);
        let of_table = [("sample", &table.sample), ("table", &table.name)];
        let of_table = of_table.into_iter().map(|(name, value)| (Cow::Borrowed(name), value.clone()));
        let sample = Sample { labels: of_table.chain(labels).collect(), number: in_base(row.value, table.unit) };
        let help = format!("Running totals of objects that have stayed at the top, in {unit}.");
        families.add_sample(format!("topstat_object_{unit}"), Kind::Counter, help, sample);
    }
    let help =
        format!("Running total of all objects without a series, in {unit}. It falls when an object gets a series.");
    let of_table = [("sample", table.sample.as_str()), ("table", table.name.as_str())];
    families.add((format!("topstat_object_other_{unit}"), Kind::Gauge, help), &of_table, in_base(other, table.unit));
    Ok(())
}

/// The description of an object as labels, without what is empty.
fn labels(snapshot: &Snapshot, object: &[topstat_model::Field]) -> Vec<(Cow<'static, str>, String)> {
    let fields = snapshot.columns.iter().zip(object).filter(|(_, field)| !field.is_none());
    fields.map(|(column, field)| (Cow::Owned(label_name(&column.name)), field.to_string())).collect()
}

/// The running sum of all pushes of each table, from the daemon's report.
fn pushed(own: &Value, tables: &[Arc<Table>], families: &mut Families) {
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    for sample in list(own, "samples") {
        for of in list(&sample, "tables") {
            let (Some(count), Some(name)) = (of["pushed"].as_u64(), of["table"].as_str()) else { continue };
            let Some(table) = tables.iter().find(|table| sample["sample"] == *table.sample && table.name == name)
            else {
                continue;
            };
            let unit = base(table.unit).0;
            let labels = [("sample", table.sample.as_str()), ("table", table.name.as_str())];
            let help = format!("All that was pushed to a table since it was loaded, in {unit}.");
            families.add((format!("topstat_pushed_{unit}"), Kind::Counter, help), &labels, in_base(count, table.unit));
        }
    }
}

/// What topstat costs: the daemon, and its programs in the kernel.
#[allow(clippy::cast_precision_loss)] // nanoseconds of years are exact
fn cost(own: &Value, families: &mut Families) {
    if let Some(version) = own["version"].as_str() {
        families.add(("topstat_info", Kind::Gauge, "The version of the daemon."), &[("version", version)], 1);
    }
    if let Some(ns) = own["cpu_ns"].as_u64() {
        let help = "CPU time of the daemon, in seconds.";
        families.add(("topstat_daemon_cpu_seconds", Kind::Counter, help), &[], ns as f64 / 1e9);
    }
    for (key, name, help) in [
        ("rss_bytes", "topstat_daemon_resident_memory_bytes", "Resident memory of the daemon, in bytes."),
        ("fds", "topstat_daemon_open_fds", "Descriptors that the daemon has open."),
        ("map_bytes", "topstat_map_bytes", "Memory of the kernel for tables, in bytes."),
        ("object_bytes", "topstat_object_memory_bytes", "Memory of the kernel for objects, in bytes."),
    ] {
        if let Some(value) = own[key].as_u64() {
            families.add((name, Kind::Gauge, help), &[], value);
        }
    }
    if let Some(share) = own["measured"]["share"].as_f64() {
        let help =
            "Mean share of each CPU that topstat's programs in the kernel took when they were last measured (1: all).";
        families.add(("topstat_programs_cpu_ratio", Kind::Gauge, help), &[], share);
    }
}
