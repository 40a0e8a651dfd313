// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The records of `topstat record` in the live view: beside current readings, or alone.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use topstat_history::{Entry, History, Outlines, Place};
use topstat_model::{Snapshot, rfc3339};
use topstat_tui::feed::{Origin, Peak, Recorded, Setting, TableSettings, quoted};
use topstat_tui::{Feed, TableMeta};

use super::tables::{meta, save, sort};
use crate::args::record::DEFAULT_HISTORY;
use crate::commands::record;
use crate::error::Error;
use crate::resolve;

/// The records of a host.
pub struct Records {
    dir: PathBuf,
    /// The host that was asked for; `None`: this host, or the only host with records.
    host: Option<String>,
    outlines: Outlines,
}

impl Records {
    pub fn new(dir: &Path, host: Option<&str>) -> Self {
        Self { dir: dir.to_owned(), host: host.map(str::to_owned), outlines: Outlines::default() }
    }

    /// The options with which `topstat top` finds the same records.
    pub fn options(&self) -> String {
        let mut options = String::new();
        if self.dir != Path::new(DEFAULT_HISTORY) {
            options += &format!(" --history {}", quoted(self.dir.display()));
        }
        if let Some(host) = &self.host {
            options += &format!(" --recorded-on {host}");
        }
        options
    }

    fn open(&self) -> Result<History, String> {
        let history = History::open(&self.dir);
        history.map_err(|error| format!("{error}: {}; topstat record makes records", error.source))
    }

    /// The tables of the host. If no host can be chosen, the error has the names of all hosts.
    fn places(&self, history: &History) -> Result<Vec<Place>, Vec<String>> {
        let mut hosts: Vec<_> = history.places().iter().map(|place| place.host.clone()).collect();
        hosts.dedup();
        let own = record::host();
        let host = match (&self.host, &hosts[..]) {
            (Some(host), _) if hosts.contains(host) => host,
            (None, _) if hosts.contains(&own) => &own,
            (None, [only]) => only,
            _ => return Err(hosts),
        };
        Ok(history.places().iter().filter(|place| place.host == *host).cloned().collect())
    }

    fn place(&self, history: &History, table: &TableMeta) -> Option<Place> {
        let of_table = |place: &Place| place.sample == table.sample && place.table == table.table;
        self.places(history).ok()?.into_iter().find(of_table)
    }

    /// The record of a table at an instant.
    pub fn at(&self, table: &TableMeta, time: SystemTime) -> Result<Recorded, String> {
        let history = self.open()?;
        let none = || format!("there are no records of {} in {}", table.path(), self.dir.display());
        let place = self.place(&history, table).ok_or_else(none)?;
        Ok(match history.at(&place, time, &resolve::shape).map_err(|error| error.to_string())? {
            Some(Entry::Snapshot(snapshot)) => Recorded::Snapshot(snapshot),
            Some(Entry::Gap(gap)) => Recorded::Nothing(format!(
                "nothing {} from {} to {}: {}",
                if gap.unread.is_some() { "can be read" } else { "was recorded" },
                rfc3339(gap.from),
                rfc3339(gap.time),
                gap.reason
            )),
            None => Recorded::Nothing(format!("there are no records as old as {}", rfc3339(time))),
        })
    }

    /// The peaks of all records of a table; empty where there are no records.
    pub fn outline(&mut self, table: &TableMeta) -> Result<Vec<Peak>, String> {
        let history = match History::open(&self.dir) {
            // Without a directory there are no records.
            Err(error) if error.source.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
            opened => opened.map_err(|error| format!("{error}: {}", error.source))?,
        };
        let Some(place) = self.place(&history, table) else { return Ok(vec![]) };
        let peaks = self.outlines.of(&history, &place, &resolve::shape);
        let peaks = peaks.map_err(|error| format!("{error}: {}", error.source))?;
        Ok(peaks.into_iter().map(|peak| Peak { time: peak.time, total: peak.total }).collect())
    }
}

const NOT_SET: &str = "these are records: nothing can be set";

/// A feed of records alone: it loads nothing, and queries no daemon.
pub struct RecordedFeed {
    records: Records,
    tables: Vec<TableMeta>,
}

impl RecordedFeed {
    /// Finds the tables of the host.
    pub fn open(records: Records) -> Result<Self, Error> {
        let history = records.open().map_err(Error::Usage)?;
        let places = records.places(&history).map_err(|hosts| {
            let dir = records.dir.display();
            Error::Usage(match &hosts[..] {
                [] => format!("there are no records in {dir}: topstat record makes records"),
                _ => format!("name a host with --recorded-on: there are records of {} in {dir}", hosts.join(", ")),
            })
        })?;
        let known = |place: &Place| match topstat_families::catalogue().find(&place.sample, &place.table) {
            Some(info) => Some(meta(&info)),
            None => unknown(&history, place),
        };
        let mut tables: Vec<_> = places.iter().filter_map(known).collect();
        sort(&mut tables);
        Ok(Self { records, tables })
    }
}

/// A table that this version does not know, as its last record describes it.
fn unknown(history: &History, place: &Place) -> Option<TableMeta> {
    let (_, until) = history.span(place).ok()??;
    let last: Snapshot = history.at(place, until, &resolve::shape).ok()??.snapshot()?;
    Some(TableMeta {
        sample: place.sample.clone(),
        table: place.table.clone(),
        about: String::new(),
        kind: last.kind,
        unit: last.unit,
        columns: last.columns.iter().map(|column| column.name.to_string()).collect(),
    })
}

impl Feed for RecordedFeed {
    fn tables(&self) -> Vec<TableMeta> {
        self.tables.clone()
    }

    fn origin(&self) -> Origin {
        let history = self.records.options();
        Origin { name: "history", options: history.clone(), history, loads: false, recorded: true }
    }

    fn read(&mut self, table: &TableMeta) -> Result<Snapshot, String> {
        match self.records.at(table, SystemTime::now())? {
            Recorded::Snapshot(snapshot) => Ok(*snapshot),
            Recorded::Nothing(why) => Err(why),
        }
    }

    fn at(&mut self, table: &TableMeta, time: SystemTime) -> Result<Recorded, String> {
        self.records.at(table, time)
    }

    fn outline(&mut self, table: &TableMeta) -> Result<Vec<Peak>, String> {
        self.records.outline(table)
    }

    fn settings(&mut self, tables: &[&TableMeta]) -> Vec<Result<TableSettings, String>> {
        vec![Err(NOT_SET.to_owned()); tables.len()]
    }

    fn set(&mut self, _: &TableMeta, _: Setting, _: u32) -> Result<(), String> {
        Err(NOT_SET.to_owned())
    }

    fn save(&mut self, snapshot: &Snapshot) -> Result<String, String> {
        save(snapshot)
    }
}
