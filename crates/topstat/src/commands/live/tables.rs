// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of the live view: their descriptions, their order, and files of their snapshots.

use std::fs;

use topstat_families::catalogue;
use topstat_kernel::TableInfo;
use topstat_model::{Snapshot, TableType, json, rfc3339};
use topstat_tui::TableMeta;

use crate::resolve;

/// Why the kernel counts nothing for a table, if a setting of the host is off. Tables that a daemon has loaded before that stay, and
/// fall to 0.
pub fn switched_off(table: &TableMeta) -> Result<(), String> {
    match catalogue().family_of(&table.sample).map(|family| (family.ready)()) {
        Some(Err(topstat_kernel::Error::SwitchedOff { reason, advice, .. })) => Err(format!("{reason}; {advice}")),
        _ => Ok(()),
    }
}

/// What the view knows of a table before the first reading.
pub fn meta(table: &TableInfo) -> TableMeta {
    TableMeta {
        sample: table.sample.clone(),
        table: table.name.clone(),
        about: table.about.clone(),
        kind: table.kind,
        unit: table.unit,
        columns: resolve::shape(&table.sample, &table.name)
            .map(|shape| shape.columns.iter().map(|column| column.name.to_string()).collect())
            .unwrap_or_default(),
    }
}

/// Puts dynamic tables before static tables.
pub fn sort(tables: &mut [TableMeta]) {
    tables.sort_by_key(|table| table.kind == TableType::Static);
}

/// Saves a snapshot in the current directory, and returns the name of the file.
pub fn save(snapshot: &Snapshot) -> Result<String, String> {
    let time = rfc3339(snapshot.time).replace(':', "");
    let path = format!("topstat-{}-{}-{time}.json", snapshot.sample, snapshot.table);
    let mut document = Vec::new();
    json::write(snapshot, &mut document).map_err(|error| error.to_string())?;
    // An existing file is not overwritten.
    let file = fs::File::options().write(true).create_new(true).open(&path);
    let written = file.and_then(|mut file| std::io::Write::write_all(&mut file, &document));
    written.map(|()| path.clone()).map_err(|error| format!("cannot save {path}: {error}"))
}
