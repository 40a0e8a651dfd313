// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A snapshot as CSV (RFC 4180, lines ending in a newline): one record per line, always.
//!
//! The columns are `time,sample,table,rank,value`, followed by the columns of the object, the parts, and `cpus` (joined by
//! spaces). Every snapshot ends with a record `other` and a record `total`, named in the `rank` column: the values above `total`
//! add up to it. After these, only where they apply, come records that qualify the snapshot:
//!
//! | rank | value | cpus |
//! |---|---|---|
//! | `shared` | the part of the total that belongs to no single CPU | |
//! | `elapsed` | ms between two readings, where values are the changes between them, converted to the period | |
//! | `lost contended`, `lost no_memory`, … | number of losses | |
//! | `proven` | number of leading rows that are proven to be the true top, where not all are | |
//! | `stale cpus` | number of CPUs that could not be brought to the snapshot's instant | their numbers |
//! | `filtered` | number of rows that a filter has hidden | |
//!
//! Cells of all readings, and the names of columns, are escaped as in [`typeset::escape`](crate::typeset::escape). A cell that a
//! spreadsheet would take for a formula (it begins with `=`, `+`, `-` or `@`, and is not a number) has a single quote before it.
//! A name has a single quote also where it is a number with a sign.

use std::borrow::Cow;
use std::io;

use crate::field::Field;
use crate::sink::Records;
use crate::snapshot::Snapshot;
use crate::time::rfc3339;
use crate::typeset::escape;

const BEFORE: [&str; 5] = ["time", "sample", "table", "rank", "value"];
const AFTER: &str = "cpus";

pub(crate) fn columns(snapshot: &Snapshot) -> Vec<String> {
    let columns = snapshot.columns.iter().map(|column| column.name.as_ref());
    let parts = snapshot.parts.iter().map(AsRef::as_ref);
    BEFORE.into_iter().chain(columns).chain(parts).chain([AFTER]).map(str::to_owned).collect()
}

pub(crate) fn records(snapshot: &Snapshot, records: &mut Records) -> io::Result<()> {
    let mut writer = Writer { snapshot, time: rfc3339(snapshot.time), records };
    for row in &snapshot.rows {
        let object = row.object.iter().map(of_field);
        let parts = row.parts.iter().map(|part| part.to_string().into());
        let cells: Vec<_> = object.chain(parts).collect();
        writer.record(&row.rank.to_string(), row.value, &cells, &row.cpus)?;
    }
    writer.summary("other", snapshot.other, &[])?;
    writer.summary("total", snapshot.total, &[])?;
    if snapshot.shared > 0 {
        writer.summary("shared", snapshot.shared, &[])?;
    }
    if let Some(elapsed_ms) = snapshot.elapsed_ms() {
        writer.summary("elapsed", elapsed_ms, &[])?;
    }
    for (name, count) in snapshot.lost_now.nonzero() {
        writer.summary(&format!("lost {name}"), count, &[])?;
    }
    if !snapshot.is_proven() {
        writer.summary("proven", snapshot.proven.into(), &[])?;
    }
    let stale: Vec<_> = snapshot.stale_cpus().collect();
    if !stale.is_empty() {
        writer.summary("stale cpus", stale.len() as u64, &stale)?;
    }
    if let Some(filter) = &snapshot.filter {
        let hidden = filter.of.saturating_sub(filter.matched);
        writer.summary("filtered", hidden.into(), &[])?;
    }
    Ok(())
}

struct Writer<'a> {
    snapshot: &'a Snapshot,
    time: String,
    records: &'a mut Records,
}

impl Writer<'_> {
    fn record(&mut self, rank: &str, value: u64, cells: &[Cow<str>], cpus: &[u32]) -> io::Result<()> {
        let value = value.to_string();
        let cpus = cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        let Snapshot { sample, table, .. } = self.snapshot;
        let record = [&self.time, sample.as_str(), table, rank, &value]
            .into_iter()
            .chain(cells.iter().map(AsRef::as_ref))
            .chain([cpus.as_str()]);
        Ok(self.records.write_record(record)?)
    }

    /// A record without an object.
    fn summary(&mut self, rank: &str, value: u64, cpus: &[u32]) -> io::Result<()> {
        let empty = vec![Cow::Borrowed(""); self.snapshot.columns.len() + self.snapshot.parts.len()];
        self.record(rank, value, &empty, cpus)
    }
}

fn of_field(field: &Field) -> Cow<'_, str> {
    match field {
        Field::Text(text) => self::text(text),
        Field::True => "true".into(),
        Field::None => "".into(),
        Field::Ip(_) | Field::U64(_) | Field::Negative(_) => field.to_string().into(),
    }
}

/// A name as the writers of CSV put it into a record: escaped, and neither a formula nor a number.
pub(crate) fn text(text: &str) -> Cow<'_, str> {
    if text.starts_with(['=', '+', '-', '@']) { format!("'{}", escape(text)).into() } else { escape(text) }
}

/// Any cell as it is written: as [`text`], but numbers stay numbers. A cell that is already safe stays unchanged.
pub(crate) fn cell(cell: &str) -> Cow<'_, str> {
    let is_number = cell.bytes().all(|c| c.is_ascii_digit() || b"+-.eE".contains(&c)) && cell.parse::<f64>().is_ok();
    if is_number { cell.into() } else { text(cell) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreadsheets_see_no_formulas() {
        let name = |text: &str| of_field(&Field::from(text)).into_owned();
        for formula in ["=1+1", "+1", "-1", "@SUM(A1)"] {
            assert_eq!(name(formula), format!("'{formula}"));
        }
        assert_eq!(name("\t=1"), "\\x09=1");
        assert_eq!(name("a=1"), "a=1");
        for (written, safe) in [
            ("=1+1", "'=1+1"),
            ("-1+1", "'-1+1"),
            ("-inf", "'-inf"),
            ("@a", "'@a"),
            ("'=1", "'=1"),
            ("\u{1b}[31m", "\\x1b[31m"),
            ("-1", "-1"),
            ("+1.5e3", "+1.5e3"),
            ("7", "7"),
            ("", ""),
        ] {
            assert_eq!(cell(written), safe);
        }
    }
}
