// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A snapshot as JSON: one document per line.
//!
//! ```json
//! {"time":"2026-11-21T08:00:00.000Z","sample":"tcp_v4","table":"conns_pps","type":"dynamic","unit":"packets",
//!  "period_ms":1000,"delay_ms":0,"top":128,"objects":5000,"total":123456,"other":122466,"proven":1,
//!  "lost":{"contended":7,"no_memory":0},"lost_now":{"contended":0,"no_memory":0},
//!  "rows":[{"rank":1,"value":990,"object":{"sip":"10.0.0.1","sport":80},"rx":490,"tx":500,"cpus":[0,3]}],
//!  "cpu_totals":{"0":60000,"3":63456}}
//! ```
//!
//! Keys come in this order, and without the line breaks. All numbers are integers, also beyond 2^53. Characters that a terminal
//! would obey are written as `\u001b`, so a document may be shown on a terminal; a parser restores the characters. Further keys
//! are there only where they apply:
//!
//! | key | where | when |
//! |---|---|---|
//! | `"filter":{"text":"pid=77","matched":3,"of":128}` | after `proven` | rows were hidden by a filter |
//! | `"stale_cpus":[3]` | at the end | these CPUs could not be brought to the snapshot's instant |
//! | `"elapsed_ms":1003` | after `delay_ms` | values are the changes between two readings, converted to the period: the time
//! between the readings |
//! | `"off":["sample"]` | after `delay_ms` or `elapsed_ms` | the table counts nothing, for these are switched off: `topstat`, its
//! sample, the table itself |
//! | `"shared":12` | after `total` | a part of the total belongs to no single CPU: `cpu_totals` and this part add up to the total
//! |
//! | an object's optional columns | in `object` | they have a value; other columns are `null` without one |

use std::io::{self, Write};

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::ser::Formatter;

use crate::field::{Column, Field};
use crate::snapshot::{CpuSection, Filter, Lost, Row, Snapshot};
use crate::time::rfc3339;
use crate::typeset::is_unsafe;

/// Writes the snapshot as one line of JSON, with a single call of `write_all`.
///
/// # Errors
///
/// The errors of `out`.
pub fn write(snapshot: &Snapshot, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let mut written = Vec::new();
    line(&Document::from(snapshot), &mut written)?;
    out.write_all(&written)
}

/// Appends any document as one line of JSON that is safe for a terminal.
///
/// # Errors
///
/// When the document cannot be JSON, such as a map whose keys are not texts.
pub fn line(document: &impl Serialize, written: &mut Vec<u8>) -> io::Result<()> {
    document.serialize(&mut serde_json::Serializer::with_formatter(&mut *written, TerminalSafe))?;
    written.push(b'\n');
    Ok(())
}

/// Compact JSON that also escapes characters that JSON itself would pass on to a terminal: DEL, C1, and characters that reorder
/// text.
struct TerminalSafe;

impl Formatter for TerminalSafe {
    fn write_string_fragment<W: Write + ?Sized>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(is_unsafe) {
            let (safe, from) = rest.split_at(at);
            out.write_all(safe.as_bytes())?;
            let mut chars = from.chars();
            for unit in chars.next().into_iter().flat_map(|c| c.encode_utf16(&mut [0; 2]).to_vec()) {
                write!(out, "\\u{unit:04x}")?;
            }
            rest = chars.as_str();
        }
        out.write_all(rest.as_bytes())
    }
}

#[derive(Serialize)]
struct Document<'a> {
    time: String,
    sample: &'a str,
    table: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    unit: &'static str,
    period_ms: u32,
    delay_ms: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    elapsed_ms: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    off: Vec<&'static str>,
    top: u32,
    objects: u64,
    #[serde(skip_serializing_if = "is_zero")]
    closed: u64,
    total: u64,
    #[serde(skip_serializing_if = "is_zero")]
    shared: u64,
    other: u64,
    proven: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<FilterView<'a>>,
    lost: LostView<'a>,
    lost_now: LostView<'a>,
    rows: Vec<RowView<'a>>,
    cpu_totals: CpuTotals<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stale_cpus: Vec<u32>,
}

impl<'a> From<&'a Snapshot> for Document<'a> {
    fn from(snapshot: &'a Snapshot) -> Self {
        Self {
            time: rfc3339(snapshot.time),
            sample: &snapshot.sample,
            table: &snapshot.table,
            kind: snapshot.kind.name(),
            unit: snapshot.unit.name(),
            period_ms: snapshot.period_ms,
            delay_ms: snapshot.delay_ms,
            elapsed_ms: snapshot.elapsed_ms(),
            off: snapshot.settings.off(),
            top: snapshot.top,
            objects: snapshot.objects,
            closed: snapshot.closed(),
            total: snapshot.total,
            shared: snapshot.shared,
            other: snapshot.other,
            proven: snapshot.proven,
            filter: snapshot.filter.as_ref().map(FilterView::from),
            lost: LostView(&snapshot.lost),
            lost_now: LostView(&snapshot.lost_now),
            rows: snapshot.rows.iter().map(|row| RowView { snapshot, row }).collect(),
            cpu_totals: CpuTotals(&snapshot.cpus),
            stale_cpus: snapshot.stale_cpus().collect(),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Serialize)]
struct FilterView<'a> {
    text: &'a str,
    matched: u32,
    of: u32,
}

impl<'a> From<&'a Filter> for FilterView<'a> {
    fn from(filter: &'a Filter) -> Self {
        Self { text: &filter.text, matched: filter.matched, of: filter.of }
    }
}

// Only the snapshot knows the keys of these objects.

struct LostView<'a>(&'a Lost);

impl Serialize for LostView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.counters())
    }
}

struct CpuTotals<'a>(&'a [CpuSection]);

impl Serialize for CpuTotals<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|section| (section.cpu, section.total)))
    }
}

struct RowView<'a> {
    snapshot: &'a Snapshot,
    row: &'a Row,
}

impl Serialize for RowView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { snapshot, row } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("rank", &row.rank)?;
        map.serialize_entry("value", &row.value)?;
        map.serialize_entry("object", &ObjectView { columns: &snapshot.columns, object: &row.object })?;
        for (name, part) in snapshot.parts.iter().zip(&row.parts) {
            map.serialize_entry(name, part)?;
        }
        map.serialize_entry("cpus", &row.cpus)?;
        map.end()
    }
}

/// An object as a map of its columns. An optional column without a value is left out.
pub struct ObjectView<'a> {
    /// The columns of the snapshot.
    pub columns: &'a [Column],
    /// The fields, in the order of the columns.
    pub object: &'a [Field],
}

impl Serialize for ObjectView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.columns.iter().zip(self.object);
        serializer.collect_map(
            fields
                .filter(|(column, field)| !(column.optional && field.is_none()))
                .map(|(column, field)| (&column.name, FieldView(field))),
        )
    }
}

pub(crate) struct FieldView<'a>(pub &'a Field);

impl Serialize for FieldView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Field::Ip(ip) => serializer.collect_str(ip),
            Field::U64(number) => serializer.serialize_u64(*number),
            Field::Negative(number) => serializer.serialize_i64(*number),
            Field::Text(text) => serializer.serialize_str(text),
            Field::True => serializer.serialize_bool(true),
            Field::None => serializer.serialize_none(),
        }
    }
}
