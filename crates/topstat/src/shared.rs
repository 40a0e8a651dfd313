// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of a running daemon. Commands that show tables show these by default.

use std::fs::File;
use std::sync::Arc;

use topstat_kernel::{State, TableInfo, TableSettings};

use crate::args::{Mount, Pins};
use crate::backend::Backend;
use crate::error::Error;

/// The daemon's state of this table's family, if there is one.
///
/// # Errors
///
/// When there is a state, and it can't be opened.
pub fn open(
    table: &TableInfo,
    pins: &Pins,
    mount: &Mount,
    backend: &mut dyn Backend,
) -> Result<Option<Arc<dyn State>>, Error> {
    let Some(family) = topstat_families::catalogue().family_of(&table.sample) else { return Ok(None) };
    backend.open(&pins.dir(), &family).map_err(|error| {
        // A user without access to the pins may be in the group that reads the tree.
        let json = mount.dir().join(table.path()).join("json");
        match File::open(&json) {
            Ok(_) => Error::Daemon(format!("{error}. You may read {}, and stat beside it", json.display())),
            Err(_) => error.into(),
        }
    })
}

/// If a table counts nothing, says so, and names the command that switches it on. `behind` is put behind the command.
pub fn off(settings: TableSettings, table: &TableInfo, behind: &str) -> Option<String> {
    let TableInfo { sample, name, .. } = table;
    let path = match settings {
        TableSettings { root_enabled: false, .. } => "enabled".to_owned(),
        TableSettings { sample_enabled: false, .. } => format!("{sample}/enabled"),
        TableSettings { enabled: false, .. } => format!("{sample}/{name}/enabled"),
        _ => return None,
    };
    Some(format!("{sample}/{name} is off, and counts nothing (topstat set {path} 1{behind})"))
}
