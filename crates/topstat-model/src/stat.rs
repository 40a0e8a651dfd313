// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A snapshot as the `stat` file of the file tree shows it.
//!
//! ```text
//! name<TAB>conns_pps
//! type<TAB>1
//! delay<TAB>0
//! period<TAB>1000
//! enabled<TAB>1
//! owner<TAB>tcp_v4
//! owner enabled<TAB>1
//! topstat enabled<TAB>1
//!
//! cpu 0:
//! sip<TAB>sport<TAB>dip<TAB>dport<TAB>pps
//! 10.0.0.1<TAB>80<TAB>10.0.0.2<TAB>4242<TAB>990
//!
//! all:
//! sip<TAB>sport<TAB>dip<TAB>dport<TAB>pps
//! 10.0.0.1<TAB>80<TAB>10.0.0.2<TAB>4242<TAB>990
//!
//! total<TAB>1200
//! other<TAB>210
//! ```
//!
//! The format is stable:
//!
//! - Paragraphs are separated by one empty line: the header, one section per CPU that has rows (ascending), `all:`
//!   (there even without rows), and the sums. No line within a paragraph is empty.
//! - The header and the sums are lines of a key, a tab and a value. Header values are the contents of the files of the same
//!   names; times are in ms.
//! - A section is its name and a colon, a line of column names, and the rows, highest value first. The description
//!   columns come first, the value last. An unknown value is `-`.
//! - No field contains a tab or a newline: see [`typeset::escape`](crate::typeset::escape).
//! - Lines may follow `other`, in this order, and only where they apply: `shared` (the part of the total that belongs to no
//!   single CPU), `elapsed` (ms between two readings, where values are the changes between them, converted to the period), `lost
//!   NAME` (number of losses), `proven` (number of leading rows that are proven to be the true top, where not all are), `stale
//!   cpus` (the CPUs that could not be brought to the snapshot's instant, separated by spaces) and `filter` (its text, where rows
//!   were hidden).
//!
//! So `awk -v RS= '/^all:/'` prints the merge, and `awk -F'\t' '$1 == "other" {print $2}'` the amount that is in no row.

use std::fmt::{self, Display, Write as _};
use std::io::{self, Write};

use crate::field::Field;
use crate::snapshot::{Settings, Snapshot, TableType};
use crate::typeset::escape;

/// Writes the snapshot as the `stat` file, with a single call of `write_all`.
///
/// # Errors
///
/// The errors of `out`.
pub fn write(snapshot: &Snapshot, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let mut text = String::new();
    format(snapshot, &mut text).expect("a String takes all");
    out.write_all(text.as_bytes())
}

fn format(snapshot: &Snapshot, text: &mut String) -> fmt::Result {
    let s = snapshot;
    header(&s.table, s.kind, s.delay_ms, s.period_ms, &s.settings, text)?;
    for section in snapshot.cpus.iter().filter(|section| !section.rows.is_empty()) {
        let rows = section.rows.iter().map(|row| (row.object.as_slice(), row.value));
        self::section(snapshot, text, &format!("cpu {}", section.cpu), rows)?;
    }
    let rows = snapshot.rows.iter().map(|row| (row.object.as_slice(), row.value));
    section(snapshot, text, "all", rows)?;
    sums(snapshot, text)
}

/// The header of `stat` and `dump`.
pub(crate) fn header(
    table: &str,
    kind: TableType,
    delay_ms: u32,
    period_ms: u32,
    settings: &Settings,
    text: &mut String,
) -> fmt::Result {
    line(text, "name", escape(table))?;
    line(text, "type", kind.number())?;
    line(text, "delay", delay_ms)?;
    line(text, "period", period_ms)?;
    line(text, "enabled", u8::from(settings.enabled))?;
    line(text, "owner", escape(&settings.owner))?;
    line(text, "owner enabled", u8::from(settings.owner_enabled))?;
    line(text, "topstat enabled", u8::from(settings.topstat_enabled))
}

fn section<'a>(
    snapshot: &Snapshot,
    text: &mut String,
    name: &str,
    rows: impl Iterator<Item = (&'a [Field], u64)>,
) -> fmt::Result {
    writeln!(text, "\n{name}:")?;
    for column in &snapshot.columns {
        write!(text, "{}\t", escape(&column.name))?;
    }
    writeln!(text, "{}", escape(&snapshot.value_name))?;
    for (object, value) in rows {
        for field in object {
            write!(text, "{field}\t")?;
        }
        writeln!(text, "{value}")?;
    }
    Ok(())
}

fn sums(snapshot: &Snapshot, text: &mut String) -> fmt::Result {
    text.push('\n');
    line(text, "total", snapshot.total)?;
    line(text, "other", snapshot.other)?;
    if snapshot.shared > 0 {
        line(text, "shared", snapshot.shared)?;
    }
    if let Some(elapsed_ms) = snapshot.elapsed_ms() {
        line(text, "elapsed", elapsed_ms)?;
    }
    for (name, count) in snapshot.lost.nonzero() {
        line(text, &format!("lost {name}"), count)?;
    }
    if !snapshot.is_proven() {
        line(text, "proven", snapshot.proven)?;
    }
    let stale: Vec<_> = snapshot.stale_cpus().map(|cpu| cpu.to_string()).collect();
    if !stale.is_empty() {
        line(text, "stale cpus", stale.join(" "))?;
    }
    if let Some(filter) = &snapshot.filter {
        line(text, "filter", escape(&filter.text))?;
    }
    Ok(())
}

pub(crate) fn line(text: &mut String, key: &str, value: impl Display) -> fmt::Result {
    writeln!(text, "{key}\t{value}")
}
