// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows of a snapshot that are shown, and their order.

use std::sync::Arc;

use topstat_kernel::TableInfo;
use topstat_model::{Snapshot, SortBy};

use super::filter::Filters;
use crate::args::{TopArgs, TopFormat};
use crate::error::Error;
use crate::names::Hosts;
use crate::resolve;

/// The options that choose rows, checked.
#[derive(Debug)]
pub struct Selection {
    filters: Filters,
    fold: bool,
    sort: Option<String>,
    /// Names of hosts, which are shown instead of their addresses.
    hosts: Option<Hosts>,
    /// The most rows of each table.
    pub rows: Option<u32>,
}

impl Selection {
    /// The selection of a command line, for these tables.
    ///
    /// # Errors
    ///
    /// A wrong filter; an order for documents in JSON, whose rows are in the order of their ranks; names of hosts for JSON or CSV.
    pub fn new(args: &TopArgs, tables: &[Arc<TableInfo>]) -> Result<Self, Error> {
        if args.sort.is_some() && args.output == TopFormat::Json {
            return Err(Error::Usage(
                "--sort is for text and CSV: in JSON, rows are in the order of their ranks; jq sorts them: \
                 jq '.rows|sort_by(.object.dport)'"
                    .to_owned(),
            ));
        }
        if args.resolve && args.output != TopFormat::Text {
            return Err(Error::Usage("--resolve is for text: JSON and CSV have addresses".to_owned()));
        }
        if let Some(table) = tables.iter().find(|table| args.fold && !has_ends(table)) {
            return Err(Error::Usage(format!(
                "--fold is for tables of connections, and {} has no two ends of one",
                table.path()
            )));
        }
        let filters = Filters::new(args, tables)?;
        let hosts = args.resolve.then(Hosts::of_system);
        Ok(Self { filters, fold: args.fold, sort: args.sort.clone(), rows: args.rows, hosts })
    }

    /// Applies the selection to a snapshot.
    ///
    /// # Errors
    ///
    /// A filter or an order that does not apply to the snapshot.
    pub fn apply(&self, snapshot: &mut Snapshot) -> Result<(), Error> {
        self.filters.apply(snapshot)?;
        if self.fold {
            snapshot.fold();
        }
        let most = self.rows.map(|rows| rows as usize);
        if let Some(sort) = &self.sort {
            let by = SortBy::named(sort, snapshot).ok_or_else(|| unknown(sort, snapshot))?;
            snapshot.sort(by, most);
        }
        if let Some(most) = most {
            snapshot.truncate(most);
        }
        if let Some(hosts) = &self.hosts {
            hosts.name_in(snapshot);
        }
        Ok(())
    }
}

/// Whether objects of a table have the addresses of two ends. True for a table whose columns are known only once it is read.
fn has_ends(table: &TableInfo) -> bool {
    let shape = resolve::shape(&table.sample, &table.name);
    shape.is_none_or(|shape| ["sip", "dip"].iter().all(|end| shape.columns.iter().any(|column| column.name == *end)))
}

fn unknown(sort: &str, snapshot: &Snapshot) -> Error {
    let parts = snapshot.parts.iter().map(AsRef::as_ref);
    let names: Vec<&str> = parts.chain(snapshot.columns.iter().map(|column| column.name.as_ref())).collect();
    Error::Usage(format!(
        "--sort '{}': {}/{} has no such column: it has {}",
        topstat_model::typeset::escape(sort),
        snapshot.sample,
        snapshot.table,
        names.join(", ")
    ))
}
