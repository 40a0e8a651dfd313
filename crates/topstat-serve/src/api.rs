// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The JSON API: the list of tables, a table now or then, its history.

use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use topstat_model::text::TextOptions;
use topstat_model::{ColumnKind, Format, Row, Sink, Snapshot, Space, TableType, rfc3339};

use crate::query::{Query, Rows};
use crate::route::{Answer, JSON};
use crate::server::App;
use crate::source::{Fault, Record};

/// The default and the most points of a history.
const POINTS: (usize, usize) = (300, 2000);
/// The default and the most rows of a point.
const POINT_ROWS: (usize, usize) = (10, 100);
/// The longest range of a history.
const RANGE: Duration = Duration::from_secs(31 * 86400);
/// The default range of a history: the last hour.
const HOUR: Duration = Duration::from_secs(3600);
/// How long records are read for one request.
const READING: Duration = Duration::from_secs(20);
/// The most gaps in an answer.
const MOST_GAPS: usize = 1000;

/// The list of tables.
pub async fn tables(app: &App, query: Query) -> Result<Answer, Fault> {
    query.end()?;
    let tables = app.live.tables().await?;
    Ok(Answer::json(&tables.iter().map(|table| table.json()).collect::<Vec<_>>()))
}

/// A table, now or at an instant.
pub async fn table(app: &App, path: &str, mut query: Query) -> Result<Answer, Fault> {
    let rows = Rows::take(&mut query)?;
    let (at, format) = (query.time("at")?, query.one("format")?);
    query.end()?;
    let format = match format.as_deref() {
        None | Some("json") => Format::Json,
        Some("csv") => Format::Csv,
        Some(other) => return Err(Fault::Wrong(format!("format={other} is neither json nor csv"))),
    };
    let mut snapshot = match at {
        None => {
            let shot = app.live.shot(path).await?;
            if format == Format::Json && rows.all() {
                return Ok(Answer::new(JSON, shot.document.clone()).tagged(&shot.time));
            }
            Snapshot::clone(&*shot.snapshot()?)
        }
        Some(at) => match past(app, path, at).await? {
            Record::Snapshot(snapshot) => *snapshot,
            Record::Gap { from, to, reason } => {
                let (from, to) = (rfc3339(from), rfc3339(to));
                return Err(Fault::Missing(format!("nothing was recorded from {from} to {to}: {reason}")));
            }
        },
    };
    rows.apply(&mut snapshot)?;
    let kind = if format == Format::Csv { "text/csv; charset=utf-8" } else { JSON };
    Ok(Answer::new(kind, written(&snapshot, format)).tagged(rfc3339(snapshot.time)))
}

/// A snapshot as bytes.
pub fn written(snapshot: &Snapshot, format: Format) -> Vec<u8> {
    Sink::new(format, TextOptions::default()).write(&[snapshot], Space::default()).expect("a Vec takes all")
}

async fn past(app: &App, path: &str, at: SystemTime) -> Result<Record, Fault> {
    let path = path.to_owned();
    app.live.read_past(move |source| source.at(&path, at)).await
}

/// The totals and the tops of a table over time: one point for each of `points` equal parts of the time, the last record of the
/// part.
pub async fn history(app: &App, path: &str, mut query: Query) -> Result<Answer, Fault> {
    let to = query.time("to")?.unwrap_or_else(SystemTime::now);
    let from = query.time("from")?.unwrap_or(to - HOUR);
    let points = query.number("points", 1..=POINTS.1)?.unwrap_or(POINTS.0);
    let most = query.number("n", 0..=POINT_ROWS.1)?.unwrap_or(POINT_ROWS.0);
    query.end()?;
    let range = to.duration_since(from).map_err(|_| Fault::Wrong("from is after to".to_owned()))?;
    if range > RANGE {
        return Err(Fault::Wrong(format!("from and to are more than {} days apart", RANGE.as_secs() / 86400)));
    }
    let mut found = History { from, range, points, most, kept: Vec::new(), gaps: Vec::new(), facts: None };
    let (name, begun) = (path.to_owned(), Instant::now());
    let (found, whole) = app
        .live
        .read_past(move |source| {
            let mut whole = true;
            source.range(&name, (from, to), &mut |record| {
                found.add(record);
                whole = begun.elapsed() < READING;
                whole
            })?;
            Ok((found, whole))
        })
        .await?;
    let last = found.kept.last().map_or_else(String::new, |(_, point)| point["time"].to_string());
    let tag = format!("{}-{}-{}", found.kept.len(), found.gaps.len(), last.trim_matches('"'));
    let mut document = json!({"sample": Value::Null, "table": Value::Null, "from": rfc3339(from), "to": rfc3339(to)});
    let (sample, table) = path.split_once('/').unwrap_or_default();
    document["sample"] = sample.into();
    document["table"] = table.into();
    if let (Value::Object(all), Some(Value::Object(facts))) = (&mut document, found.facts) {
        all.extend(facts);
    }
    document["points"] = found.kept.into_iter().map(|(_, point)| point).collect();
    document["gaps"] = found.gaps.into();
    document["whole"] = whole.into();
    Ok(Answer::json(&document).tagged(tag))
}

/// The points found so far.
struct History {
    from: SystemTime,
    range: Duration,
    points: usize,
    most: usize,
    /// The number of the part, and its point.
    kept: Vec<(u128, Value)>,
    gaps: Vec<Value>,
    /// What all points share.
    facts: Option<Value>,
}

impl History {
    fn add(&mut self, record: Record) {
        let mut snapshot = match record {
            Record::Snapshot(snapshot) => snapshot,
            Record::Gap { from, to, reason } if self.gaps.len() < MOST_GAPS => {
                self.gaps.push(json!({"from": rfc3339(from), "to": rfc3339(to), "reason": reason}));
                return;
            }
            Record::Gap { .. } => return,
        };
        let into = snapshot.time.duration_since(self.from).unwrap_or_default();
        let part = into.as_nanos() * self.points as u128 / self.range.as_nanos().max(1);
        snapshot.truncate(self.most);
        if self.kept.last().is_some_and(|(last, _)| *last == part) {
            self.kept.pop();
        }
        let rows = snapshot.rows.iter().map(|row| json!({"label": label(&snapshot, row), "value": row.value}));
        // Counters of the kernel have values of the time that has really passed, and not of a period.
        let point = json!({
            "time": rfc3339(snapshot.time),
            "elapsed_ms": snapshot.elapsed_ms(),
            "total": snapshot.total,
            "other": snapshot.other,
            "objects": snapshot.objects,
            "rows": rows.collect::<Vec<_>>(),
        });
        self.kept.push((part, point));
        let dynamic = snapshot.kind == TableType::Dynamic;
        self.facts = Some(json!({
            "type": snapshot.kind.name(),
            "unit": snapshot.unit.name(),
            "period_ms": if dynamic { snapshot.period_ms } else { 0 },
        }));
    }
}

/// Columns that are no part of an object's name: the number of a network namespace, and a figure that changes with each reading.
const UNNAMED: [&str; 2] = ["netns", "in_flight"];

/// An object in a line: the parts of its description that have a value, without marks and [`UNNAMED`] columns. A port follows
/// its address.
pub fn label(snapshot: &Snapshot, row: &Row) -> String {
    let mut text = String::new();
    for (column, field) in snapshot.columns.iter().zip(&row.object) {
        if field.is_none() || column.kind == ColumnKind::Mark || UNNAMED.contains(&&*column.name) {
            continue;
        }
        if !text.is_empty() {
            text.push(if column.kind == ColumnKind::Port { ':' } else { ' ' });
        }
        text += &field.to_string();
    }
    text
}
