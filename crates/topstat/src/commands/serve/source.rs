// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's tree and the records of `topstat record`, as what is served.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use serde_json::{Value, json};
use topstat_kernel::SampleInfo;
use topstat_model::rfc3339;
use topstat_serve::source::Each;
use topstat_serve::{Fault, Record, Source, Table};
use topstat_tui::host::Looker;

use super::past;
use crate::commands::record::tree::Tree;
use crate::files::Files;
use crate::lock::lock;

/// The source.
pub struct TreeSource {
    mount: PathBuf,
    history: PathBuf,
    tree: Tree,
    host: Mutex<Looker>,
    /// Tables that are not in the catalogue: a user's own. Their descriptions do not change.
    described: Mutex<HashMap<String, Table>>,
}

impl TreeSource {
    /// The tree at this path, and records below `history`. A wait for the tree ends when `stop` is set.
    pub fn new(mount: &Path, history: &Path, stop: Arc<AtomicBool>) -> Self {
        let mut looker = Looker::default();
        // The first look has nothing to compare with.
        looker.look();
        let (mount, history, tree) = (mount.to_owned(), history.to_owned(), Tree::new(mount, stop));
        Self { mount, history, tree, host: Mutex::new(looker), described: Mutex::default() }
    }

    /// What keeps the tree from being read.
    fn fault(&self, error: &io::Error) -> Fault {
        let at = self.mount.display();
        Fault::Unavailable(match error.kind() {
            io::ErrorKind::NotFound => format!("there is no tree of topstat at {at}: start topstat daemon"),
            io::ErrorKind::PermissionDenied => format!(
                "cannot read the tree at {at}: {error}; only root may, and the group that 'group' in the daemon's configuration \
                 names"
            ),
            _ => format!("cannot read the tree at {at}: {error}"),
        })
    }

    /// Describes a table that is not in the catalogue, by a snapshot.
    fn describe(&self, path: &str) -> Result<Table, Fault> {
        if let Some(known) = lock(&self.described).get(path) {
            return Ok(known.clone());
        }
        let failed = |error: crate::error::Error| Fault::Unavailable(error.to_string());
        let files = Files::open(&self.mount).map_err(failed)?;
        let info = files.samples().iter().flat_map(|sample| &sample.tables).find(|info| info.path() == path);
        let info = info.ok_or_else(|| Fault::Missing(format!("there is no table {path}")))?;
        let described = files.describe(info).map_err(failed)?;
        let snapshot = files.snapshot(&described).map_err(failed)?;
        let table = Table {
            sample: snapshot.sample,
            name: snapshot.table,
            about: String::new(),
            kind: snapshot.kind,
            unit: snapshot.unit,
            value_name: snapshot.value_name,
            columns: snapshot.columns,
        };
        lock(&self.described).insert(path.to_owned(), table.clone());
        Ok(table)
    }
}

/// A table of the catalogue.
fn known(samples: &[Arc<SampleInfo>], path: &str) -> Option<Table> {
    let (sample, table) = path.split_once('/')?;
    let sample = samples.iter().find(|info| info.name == sample)?;
    let table = sample.tables.iter().find(|info| info.name == table)?;
    Some(Table {
        sample: sample.name.clone(),
        name: table.name.clone(),
        about: table.about.clone(),
        kind: table.kind,
        unit: table.unit,
        value_name: table.value_name.clone(),
        columns: sample.columns(),
    })
}

impl Source for TreeSource {
    fn tables(&self) -> Result<Vec<Table>, Fault> {
        // An unmounted tree goes once no file of it is open.
        self.tree.close().map_err(|error| self.fault(&error))?;
        let paths = self.tree.tables().map_err(|error| self.fault(&error))?;
        let samples = topstat_kernel::samples();
        let mut tables = Vec::with_capacity(paths.len());
        for path in paths {
            match known(&samples, &path).map_or_else(|| self.describe(&path), Ok) {
                Ok(table) => tables.push(table),
                Err(fault) => log::warn!("{path} is left out: {fault}"),
            }
        }
        Ok(tables)
    }

    fn documents(&self, tables: &[String], each: &mut Each<'_>) -> Result<(), Fault> {
        let paths: Vec<_> = tables.iter().map(String::as_str).collect();
        let fault = |path: &str, error: io::Error| Fault::Unavailable(format!("cannot read {path}: {error}"));
        let read = self.tree.read(&paths, |number, document| {
            each(number, document.map_err(|error| fault(paths[number], error)));
        });
        read.map_err(|error| self.fault(&error))
    }

    fn own(&self) -> Result<Vec<u8>, Fault> {
        self.tree.own().map_err(|error| self.fault(&error))
    }

    fn host(&self) -> Value {
        let Some(host) = lock(&self.host).look() else { return Value::Null };
        let net = host.net.map(|(rx, tx)| json!({ "rx_bits_per_second": rx, "tx_bits_per_second": tx }));
        json!({ "time": rfc3339(SystemTime::now()), "cpus": host.cpus, "net": net, "serve_cpu": host.own })
    }

    fn at(&self, table: &str, time: SystemTime) -> Result<Record, Fault> {
        past::at(&self.history, table, time)
    }

    fn range(
        &self,
        table: &str,
        limits: (SystemTime, SystemTime),
        each: &mut dyn FnMut(Record) -> bool,
    ) -> Result<(), Fault> {
        past::range(&self.history, table, limits, each)
    }
}
