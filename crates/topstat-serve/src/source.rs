// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data that is served, as a trait: the program implements it on the daemon's tree, tests on a model.

use std::time::SystemTime;

use serde_json::{Value, json};
use topstat_model::document::Shape;
use topstat_model::{Column, ColumnKind, Snapshot, TableType, Unit};

/// A table that can be read.
#[derive(Clone, Debug)]
pub struct Table {
    /// The sample: `tcp_v4`.
    pub sample: String,
    /// The table in it: `conns_pps`.
    pub name: String,
    /// The contents of the table, in a line for people; may be empty.
    pub about: String,
    /// Dynamic or static.
    pub kind: TableType,
    /// The unit of values.
    pub unit: Unit,
    /// The title of values: `pps`.
    pub value_name: String,
    /// The columns that describe an object.
    pub columns: Vec<Column>,
}

impl Table {
    /// The path: `tcp_v4/conns_pps`.
    pub fn path(&self) -> String {
        format!("{}/{}", self.sample, self.name)
    }

    /// The knowledge that a document of this table lacks.
    pub fn shape(&self) -> Shape {
        Shape { columns: self.columns.clone(), value_name: self.value_name.clone(), stored: None }
    }

    /// The entry in the list of tables.
    pub(crate) fn json(&self) -> Value {
        let columns: Vec<_> = self
            .columns
            .iter()
            .map(|column| json!({"name": column.name, "kind": kind(column.kind), "optional": column.optional}))
            .collect();
        json!({
            "sample": self.sample,
            "table": self.name,
            "about": self.about,
            "type": self.kind.name(),
            "unit": self.unit.name(),
            "value_name": self.value_name,
            "columns": columns,
        })
    }
}

fn kind(kind: ColumnKind) -> &'static str {
    match kind {
        ColumnKind::Address => "address",
        ColumnKind::Port => "port",
        ColumnKind::Pid => "pid",
        ColumnKind::Id => "id",
        ColumnKind::Text => "text",
        ColumnKind::Path => "path",
        ColumnKind::Mark => "mark",
    }
}

/// Why something can't be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It does not exist: a table, a record.
    #[error("{0}")]
    Missing(String),
    /// The request is wrong.
    #[error("{0}")]
    Wrong(String),
    /// It can't be had now: no daemon runs, or the daemon does not answer.
    #[error("{0}")]
    Unavailable(String),
}

/// A record of the past.
#[derive(Clone, Debug)]
pub enum Record {
    /// A table at an instant.
    Snapshot(Box<Snapshot>),
    /// There are no records of this time.
    Gap {
        /// The time of the last record before the gap.
        from: SystemTime,
        /// The time of the first record after the gap.
        to: SystemTime,
        /// The reason, in words.
        reason: String,
    },
}

/// Takes the number of a table in a list, and its document.
pub type Each<'a> = dyn FnMut(usize, Result<&[u8], Fault>) + 'a;

/// The data that is served. All methods may block; the server calls them on threads for this.
pub trait Source: Send + Sync + 'static {
    /// The tables whose pushes count.
    ///
    /// # Errors
    ///
    /// When there is no daemon, or its tree can't be read.
    fn tables(&self) -> Result<Vec<Table>, Fault>;

    /// Reads tables by their paths, and hands each document (one line, as in docs/json.md), with its number, to `each`, in any
    /// order. Errors of one table go to `each`.
    ///
    /// # Errors
    ///
    /// When the remaining tables can't be read.
    fn documents(&self, tables: &[String], each: &mut Each<'_>) -> Result<(), Fault>;

    /// The document with the daemon's own cost.
    ///
    /// # Errors
    ///
    /// When it can't be read.
    fn own(&self) -> Result<Vec<u8>, Fault>;

    /// A document about the host: its CPUs, its network. `null` until there is something to tell.
    fn host(&self) -> Value;

    /// The record of a table for this instant: the last one before it, or the gap that the instant is in.
    ///
    /// # Errors
    ///
    /// [`Fault::Missing`]: there are no records that old, or none at all.
    fn at(&self, table: &str, time: SystemTime) -> Result<Record, Fault>;

    /// Calls `each` with the records of a table from one instant to another, both included, in order, until `each` returns false.
    ///
    /// # Errors
    ///
    /// As [`Source::at`].
    fn range(
        &self,
        table: &str,
        limits: (SystemTime, SystemTime),
        each: &mut dyn FnMut(Record) -> bool,
    ) -> Result<(), Fault>;
}
