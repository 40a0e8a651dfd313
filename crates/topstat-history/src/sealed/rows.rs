// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The columns of a table's Parquet file, and what the file says about them in addition to its schema.

use serde::{Deserialize, Serialize};
use topstat_model::{Column, ColumnKind, Field};

use crate::entry::Entry;
use crate::layout::Place;

/// The key of [`About`] in a file's metadata.
pub const KEY: &str = "topstat";

/// Columns that every file has. If an object's column has one of these names, it gets another one.
const FIXED: [&str; 20] = [
    "time",
    "rank",
    "value",
    "cpus",
    "total",
    "shared",
    "other",
    "proven",
    "objects",
    "top",
    "period_ms",
    "delay_ms",
    "elapsed_ms",
    "type",
    "unit",
    "cpu_totals",
    "stale_cpus",
    "gap",
    "gap_from",
    "table",
];

/// The kind of values in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Milliseconds since 1970.
    Time,
    /// Unsigned numbers, most of them different.
    Value,
    /// Unsigned numbers, many of them equal.
    Number,
    /// Texts.
    Text,
}

/// Data about the columns of a file that Parquet can't express: as JSON, under [`KEY`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    pub sample: String,
    pub table: String,
    pub value_name: String,
    pub parts: Vec<String>,
    pub columns: Vec<AboutColumn>,
    /// The names of lost counts, in order.
    pub lost: Vec<String>,
}

/// A column of objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AboutColumn {
    /// Its name in the table.
    pub name: String,
    /// Its name in the file.
    pub stored: String,
    pub kind: String,
    pub optional: bool,
    /// Whether all of its values are numbers.
    pub number: bool,
}

impl About {
    /// The data of a file without entries.
    pub fn new(place: &Place) -> Self {
        Self { sample: place.sample.clone(), table: place.table.clone(), ..Self::default() }
    }

    /// Adds the data that this entry needs.
    pub fn add(&mut self, entry: &Entry) {
        let Entry::Snapshot(snapshot) = entry else { return };
        self.value_name.clone_from(&snapshot.value_name);
        for part in &snapshot.parts {
            if !self.parts.iter().any(|known| known == part) {
                self.parts.push(part.to_string());
            }
        }
        for (name, _) in snapshot.lost.counters() {
            if !self.lost.iter().any(|known| known == name) {
                self.lost.push(name.to_owned());
            }
        }
        for (place, column) in snapshot.columns.iter().enumerate() {
            let number =
                snapshot.rows.iter().all(|row| matches!(row.object.get(place), Some(Field::U64(_) | Field::None)));
            match self.columns.iter_mut().find(|known| known.name == column.name) {
                Some(known) => known.number &= number,
                None => self.columns.push(AboutColumn::new(column, number)),
            }
        }
    }

    /// The columns of the file, in order.
    pub fn schema(&self) -> Vec<(String, Holds)> {
        let named = |name: &str, holds| (name.to_owned(), holds);
        let mut columns = vec![named("time", Holds::Time), named("rank", Holds::Number), named("value", Holds::Value)];
        columns.extend(self.parts.iter().map(|part| (stored(part), Holds::Value)));
        columns.extend(
            self.columns
                .iter()
                .map(|column| (column.stored.clone(), if column.number { Holds::Number } else { Holds::Text })),
        );
        columns.push(named("cpus", Holds::Text));
        for name in ["total", "shared", "other", "proven", "objects", "top", "period_ms", "delay_ms", "elapsed_ms"] {
            columns.push(named(name, Holds::Number));
        }
        columns.extend([named("type", Holds::Text), named("unit", Holds::Text)]);
        for before in ["lost", "lost_now"] {
            columns.extend(self.lost.iter().map(|name| (format!("{before}_{name}"), Holds::Number)));
        }
        columns.extend(["cpu_totals", "stale_cpus", "gap"].map(|name| named(name, Holds::Text)));
        columns.push(named("gap_from", Holds::Time));
        columns
    }
}

impl AboutColumn {
    fn new(column: &Column, number: bool) -> Self {
        Self {
            name: column.name.to_string(),
            stored: stored(&column.name),
            kind: kind_name(column.kind).to_owned(),
            optional: column.optional,
            number,
        }
    }

    pub fn column(&self) -> Column {
        let kind = KINDS.iter().find(|(_, name)| *name == self.kind).map_or(ColumnKind::Text, |(kind, _)| *kind);
        Column { name: self.name.clone().into(), kind, optional: self.optional }
    }
}

/// The name of a column or part in a file. Database systems do not distinguish `rx` and `RX`.
pub fn stored(name: &str) -> String {
    let taken = FIXED.iter().any(|fixed| fixed.eq_ignore_ascii_case(name)) || name.starts_with("lost_");
    if taken { format!("object_{name}") } else { name.to_owned() }
}

const KINDS: [(ColumnKind, &str); 7] = [
    (ColumnKind::Address, "address"),
    (ColumnKind::Port, "port"),
    (ColumnKind::Pid, "pid"),
    (ColumnKind::Id, "id"),
    (ColumnKind::Text, "text"),
    (ColumnKind::Path, "path"),
    (ColumnKind::Mark, "mark"),
];

fn kind_name(kind: ColumnKind) -> &'static str {
    KINDS.iter().find(|(known, _)| *known == kind).map_or("text", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_objects_get_names_of_their_own() {
        assert_eq!(stored("sip"), "sip");
        assert_eq!(stored("Type"), "object_Type");
        assert_eq!(stored("lost_contended"), "object_lost_contended");
    }
}
