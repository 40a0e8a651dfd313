// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The columns of a table's Parquet file, and what the file says about them in addition to its schema.

use serde::{Deserialize, Serialize};
use topstat_model::document::Shape;
use topstat_model::{Column, ColumnKind, Field, FleetKey, Reach};

use crate::entry::Entry;
use crate::layout::Place;

/// The key of [`About`] in a file's metadata.
pub const KEY: &str = "topstat";

/// Columns that every file has, and columns that engines make of paths. If an object's column has one of these names, it gets
/// another one.
const FIXED: [&str; 22] = [
    "host",
    "date",
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
    /// Microseconds since 1970, in UTC.
    Time,
    /// Numbers, most of them different.
    Value,
    /// Numbers, many of them equal.
    Number,
    /// Texts.
    Text,
}

/// Data about the columns of a file that Parquet can't express: as JSON, under [`KEY`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The sample: `tcp_v4`.
    pub sample: String,
    /// The table in it: `conns_pps`.
    pub table: String,
    /// The title of values.
    pub value_name: String,
    /// The names of the parts of a value.
    pub parts: Vec<String>,
    /// The columns of objects.
    pub columns: Vec<AboutColumn>,
    /// The names of lost counts, in order.
    pub lost: Vec<String>,
    /// The meaning of the key on other hosts. Files of earlier versions, and of tables that no definition of this version
    /// describes, have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<FleetKey>,
}

/// A column of objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AboutColumn {
    /// Its name in the table.
    pub name: String,
    /// Its name in the file.
    pub stored: String,
    /// The kind of its values: `address`, `port`, `pid`, `id`, `text`, `path`, `mark`.
    pub kind: String,
    /// See [`Column::optional`].
    pub optional: bool,
    /// Whether it is stored as a number.
    pub number: bool,
    /// Whether the table's definition says so. If not, a text of digits in a column of ids is a number.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub defined: bool,
}

impl About {
    /// The data of a table with this definition. Without a definition, columns are what entries have, and all of them are texts:
    /// the values of an hour must not decide their type.
    pub fn new(place: &Place, shape: Option<Shape>) -> Self {
        let Shape { columns, value_name, stored } = shape.unwrap_or_default();
        let stored_as = stored.unwrap_or_default();
        let numbers = stored_as.numbers.iter().map(|number| Some(*number)).chain(std::iter::repeat(None));
        let columns = columns.iter().zip(numbers).map(|(column, number)| AboutColumn::new(column, number));
        Self {
            sample: place.sample.clone(),
            table: place.table.clone(),
            value_name,
            parts: stored_as.parts,
            columns: columns.collect(),
            lost: COMMON_LOST.map(str::to_owned).into_iter().chain(stored_as.lost).collect(),
            key: stored_as.key,
        }
    }

    /// Adds the data that this entry needs beside the definition's: another version may have written it.
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
            match self.columns.iter_mut().find(|known| known.name == column.name) {
                // Contradicts the definition: nothing may be lost.
                Some(known) => known.number &= snapshot.rows.iter().all(|row| fits(row.object.get(place))),
                None => self.columns.push(AboutColumn::new(column, None)),
            }
        }
    }

    /// Adds the columns that the file of another host has. A column that has texts in one of them has texts.
    pub fn merge(&mut self, other: &Self) {
        self.value_name.clone_from(&other.value_name);
        // A host that hides a column of the key has a part of the key, and so has the file of both hosts.
        let is_part = |key: &&FleetKey| key.reach == Reach::Part;
        self.key = other.key.as_ref().filter(is_part).cloned().or(self.key.take()).or_else(|| other.key.clone());
        for (own, more) in [(&mut self.parts, &other.parts), (&mut self.lost, &other.lost)] {
            for name in more {
                if !own.contains(name) {
                    own.push(name.clone());
                }
            }
        }
        for column in &other.columns {
            match self.columns.iter_mut().find(|own| own.name == column.name) {
                Some(own) => own.number &= column.number,
                None => self.columns.push(AboutColumn { stored: stored(&column.name), ..column.clone() }),
            }
        }
    }

    /// The name, in this file, of a column that this version stores under a name. Versions differ in the names that are taken.
    pub fn name_here<'n>(&'n self, name: &'n str) -> &'n str {
        let column = self.columns.iter().find(|column| stored(&column.name) == name);
        column.map_or(name, |column| column.stored.as_str())
    }

    /// The columns of the file, in order.
    pub(super) fn schema(&self) -> Vec<(String, Holds)> {
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

/// The lost counts of each table.
const COMMON_LOST: [&str; 2] = ["contended", "no_memory"];

/// Whether a column of numbers can hold this field: engines have signed numbers of 64 bits.
fn fits(field: Option<&Field>) -> bool {
    match field {
        Some(Field::U64(number)) => i64::try_from(*number).is_ok(),
        Some(Field::Negative(_) | Field::None) | None => true,
        Some(Field::Ip(_) | Field::Text(_) | Field::True) => false,
    }
}

impl AboutColumn {
    /// `number` is what the table's definition says.
    fn new(column: &Column, number: Option<bool>) -> Self {
        Self {
            name: column.name.to_string(),
            stored: stored(&column.name),
            kind: kind_name(column.kind).to_owned(),
            optional: column.optional,
            number: number.unwrap_or(false),
            defined: number.is_some(),
        }
    }

    /// The column of the table.
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
        assert_eq!(stored("host"), "object_host");
        assert_eq!(stored("lost_contended"), "object_lost_contended");
    }
}
