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
use topstat_tui::host::{Host, Looker};

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
        let samples = topstat_families::catalogue().samples();
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
        lock(&self.host).look().map_or(Value::Null, |host| host_document(&host, SystemTime::now()))
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

/// The document of the host: shares are from 0 to 1. Parts that this host does not measure are null.
fn host_document(host: &Host, time: SystemTime) -> Value {
    let cpu = host.cpu.map(|cpu| {
        json!({
            "busy": cpu.busy(), "user": cpu.user, "system": cpu.system, "irq": cpu.irq, "steal": cpu.steal,
            "pressure": host.pressure.cpu, "cpus": host.cpus,
        })
    });
    let memory = host.memory.map(|memory| {
        json!({
            "total": memory.total, "available": memory.available, "swap_total": memory.swap_total,
            "swap_used": memory.swap_used, "pressure": host.pressure.memory,
        })
    });
    let network = host.net.map(|(rx, tx)| json!({ "rx_bps": rx, "tx_bps": tx, "retrans_per_second": host.retrans }));
    let disk = host.disk.as_ref().map(|disk| {
        let busiest = disk.busiest.as_ref().map(|(device, busy)| json!({ "device": device, "busy": busy }));
        json!({
            "read_bytes_per_second": disk.read, "write_bytes_per_second": disk.written, "busiest": busiest,
            "pressure": host.pressure.io,
        })
    });
    json!({
        "time": rfc3339(time), "cpu": cpu, "memory": memory, "network": network, "disk": disk, "load": host.load,
        "serve_cpu": host.own,
    })
}

#[cfg(test)]
mod tests {
    use topstat_tui::host::{Cpu, Disk};

    use super::*;

    #[test]
    fn parts_that_are_not_measured_are_null() {
        let host = Host {
            cpu: Some(Cpu { user: 0.25, system: 0.25, irq: 0.0, steal: 0.0 }),
            disk: Some(Disk { read: 1, written: 2, busiest: Some(("vda".to_owned(), 0.5)) }),
            ..Host::default()
        };
        let document = host_document(&host, SystemTime::UNIX_EPOCH);
        assert_eq!(document["cpu"]["busy"], 0.5);
        assert_eq!(document["cpu"]["pressure"], Value::Null);
        assert_eq!(document["disk"]["busiest"], json!({ "device": "vda", "busy": 0.5 }));
        assert_eq!((&document["memory"], &document["network"]), (&Value::Null, &Value::Null));
    }
}
