// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compaction: one file for an hour of a table of many hosts, sorted by time, host and rank.
//!
//! - M1 A file appears under its name when it is whole: it is written under a temporary name, and renamed.
//! - M2 A row of a host is taken from the host's own file if there is one, and else from the compacted file of an earlier run. So a
//!   second run with equal files writes equal rows, and a host whose file was removed keeps its rows.
//! - M3 Memory does not depend on the number of hosts or rows: the hour is divided into slices of time with about
//!   [`SLICE_ROWS`] rows each. The rows are spilled to a file for each slice, and a slice is sorted in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use topstat_history::layout::{File as Sealing, Kind, Place, UNFINISHED};
use topstat_history::sealed::{About, Cells, HostRows, Sealed, Value};
use topstat_history::{Error, Root};

use crate::files::{self, TableFile};

mod spill;

use spill::{Row, Slice};

/// The rows that are sorted at once.
pub const SLICE_ROWS: u64 = 200_000;
/// The most slices: each has an open file. More rows make longer slices.
const MOST_SLICES: u64 = 400;

/// A compacted hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// The file.
    pub path: PathBuf,
    /// The number of hosts.
    pub hosts: usize,
    /// The number of rows.
    pub rows: u64,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// The files that were written.
    pub written: Vec<Compacted>,
    /// Files of hosts that could not be read, with the reason. They are left out; a later run takes them.
    pub faults: Vec<(PathBuf, String)>,
}

/// The files of an hour of a table, by host.
type Hours<'r> = BTreeMap<SystemTime, BTreeMap<(String, PathBuf), (&'r Root, TableFile)>>;

/// Compacts all hours that end before `until`, of the hosts' directories below `roots`, into `to`.
///
/// # Errors
///
/// A directory can't be read, or a file of `to` can't be written.
pub fn run(roots: &[Root], to: &Root, until: SystemTime) -> Result<Report, Error> {
    let mut report = Report::default();
    let mut tables = BTreeSet::new();
    for root in roots {
        tables.extend(files::tables(root)?);
    }
    for table in tables {
        let mut hours: Hours<'_> = BTreeMap::new();
        for root in roots {
            for file in files::files(root, &table)? {
                let (Some(host), Some(from)) = (&file.host, file.from) else { continue };
                if from + topstat_history::layout::HOUR <= until {
                    // The first directory that has a host's file counts.
                    let name = file.path.file_name().unwrap_or_default().into();
                    hours.entry(from).or_default().entry((host.clone(), name)).or_insert((root, file));
                }
            }
        }
        for (from, inputs) in hours {
            let inputs: Vec<_> = inputs.into_values().collect();
            if let Some(compacted) = hour(to, &table, from, &inputs, &mut report.faults)? {
                report.written.push(compacted);
            }
        }
    }
    Ok(report)
}

/// The path of a compacted hour.
fn target(to: &Root, table: &str, from: SystemTime) -> PathBuf {
    let place = Place { host: String::new(), sample: String::new(), table: String::new() };
    let sealed = Sealing::of(Path::new(""), &place, Kind::Sealed, from).path;
    // The last two names are the date and the hour.
    let (name, date) = (sealed.file_name().unwrap_or_default(), sealed.parent().and_then(Path::file_name));
    to.path().join(format!("table={table}")).join(date.unwrap_or_default()).join(name)
}

/// A file that is read, and the host of its rows; `None`: an earlier compacted file, of which hosts with own files are left out.
struct Input {
    sealed: Sealed,
    host: Option<String>,
}

/// Why an hour was not compacted.
enum Failed {
    /// A file of a host can't be read.
    File(PathBuf, io::Error),
    All(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::All(error)
    }
}

fn hour(
    to: &Root,
    table: &str,
    from: SystemTime,
    files: &[(&Root, TableFile)],
    faults: &mut Vec<(PathBuf, String)>,
) -> Result<Option<Compacted>, Error> {
    let mut files = files.to_vec();
    loop {
        // A part of a damaged file may be among the rows when the damage is found: the hour is begun again without the file.
        match attempt(to, &target(to, table, from), table, &files) {
            Err(Failed::File(path, error)) => {
                files.retain(|(_, file)| file.path != path);
                faults.push((path, error.to_string()));
            }
            Err(Failed::All(error)) => return Err(error),
            Ok(compacted) => return Ok(compacted),
        }
    }
}

fn attempt(to: &Root, path: &Path, table: &str, files: &[(&Root, TableFile)]) -> Result<Option<Compacted>, Failed> {
    let mut plan = Plan::new(table);
    // All metadata is looked at before: the columns and the slices depend on it. Files are opened again to be read, since there
    // may be more of them than descriptors.
    if files.is_empty() {
        return Ok(None);
    }
    let unread = |file: &TableFile, error| Failed::File(file.path.clone(), error);
    for (root, file) in files {
        plan.add(&open(root, &file.path, table).map_err(|error| unread(file, error))?);
    }
    let own: BTreeSet<&str> = files.iter().filter_map(|(_, file)| file.host.as_deref()).collect();
    let before = match to.read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        file => Some(file.and_then(Sealed::open).map_err(Error::of("read", path))?),
    };
    if let Some(before) = &before {
        plan.add(before);
    }
    let mut slices = plan.slices(to, path).map_err(Error::of("write", path))?;
    let mut hosts = Hosts::default();
    for (root, file) in files {
        let read = open(root, &file.path, table).and_then(|sealed| {
            let input = Input { sealed, host: file.host.clone() };
            plan.spill(&input, &own, &mut hosts, &mut slices)
        });
        read.map_err(|error| unread(file, error))?;
    }
    if let Some(sealed) = before {
        plan.spill(&Input { sealed, host: None }, &own, &mut hosts, &mut slices).map_err(Error::of("read", path))?;
    }
    let unfinished = path.with_extension(format!("parquet{UNFINISHED}"));
    let written = to.create(&unfinished).and_then(|file| {
        let rows = plan.write(&file, slices, &hosts)?;
        file.sync_all()?;
        to.rename(&unfinished, path)?;
        to.sync_names(path)?;
        Ok(rows)
    });
    if written.is_err() {
        let _ = to.remove(&unfinished);
    }
    let rows = written.map_err(Error::of("write", path))?;
    Ok(Some(Compacted { path: path.to_owned(), hosts: hosts.names.len(), rows }))
}

fn open(root: &Root, path: &Path, table: &str) -> io::Result<Sealed> {
    let sealed = root.read(path).and_then(Sealed::open)?;
    let about = sealed.about();
    if format!("{}.{}", about.sample, about.table) == table {
        return Ok(sealed);
    }
    let why = format!("it has records of {}/{}", about.sample, about.table);
    Err(io::Error::new(io::ErrorKind::InvalidData, why))
}

/// The names of hosts, in the order in which they were met.
#[derive(Default)]
struct Hosts {
    names: Vec<String>,
    numbers: BTreeMap<String, u32>,
}

impl Hosts {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// The place of each host in the order of names.
    fn places(&self) -> Vec<u32> {
        let mut places = vec![0; self.names.len()];
        for (place, number) in (0..).zip(self.numbers.values()) {
            places[*number as usize] = place;
        }
        places
    }
}

/// The columns and slices of an hour.
struct Plan {
    about: About,
    /// The middle of each group of rows in µs, and the number of its rows.
    groups: Vec<(i64, u64)>,
    /// The beginnings of all slices but the first.
    bounds: Vec<i64>,
}

impl Plan {
    fn new(table: &str) -> Self {
        let (sample, table) = table.split_once('.').unwrap_or((table, ""));
        let about = About { sample: sample.to_owned(), table: table.to_owned(), ..About::default() };
        Self { about, groups: vec![], bounds: vec![] }
    }

    fn add(&mut self, sealed: &Sealed) {
        self.about.merge(sealed.about());
        for group in 0..sealed.groups() {
            let middle = sealed.times(group).map_or(0, |(first, last)| micros(first).midpoint(micros(last)));
            self.groups.push((middle, sealed.rows(group) as u64));
        }
    }

    /// Makes the slices, each with about as many rows as the others.
    fn slices(&mut self, to: &Root, path: &Path) -> io::Result<Vec<Slice>> {
        self.groups.sort_unstable();
        let all: u64 = self.groups.iter().map(|(_, rows)| rows).sum();
        let each = SLICE_ROWS.max(all.div_ceil(MOST_SLICES));
        let mut rows = 0;
        for (middle, more) in &self.groups {
            if rows >= each {
                self.bounds.push(*middle);
                rows = 0;
            }
            rows += more;
        }
        self.bounds.dedup();
        let count = self.bounds.len() + 1;
        (0..count)
            .map(|number| Slice::new(to, &path.with_extension(format!("spill-{number}{UNFINISHED}")), count > 1))
            .collect()
    }

    fn spill(&self, input: &Input, own: &BTreeSet<&str>, hosts: &mut Hosts, slices: &mut [Slice]) -> io::Result<()> {
        let names: Vec<String> = HostRows::schema(&self.about).into_iter().map(|(name, _)| name).collect();
        for group in 0..input.sealed.groups() {
            let columns = input.sealed.columns(group, &|_| true)?;
            let here = |name: &String| columns.cells(input.sealed.about().name_here(name));
            let cells: Vec<Option<&Cells>> = names.iter().map(here).collect();
            let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("a row has no {what}"));
            for row in 0..columns.rows() {
                let time = columns.cells("time").and_then(|times| times.micros(row)).ok_or_else(|| wrong("time"))?;
                let rank = columns.cells("rank").and_then(|ranks| ranks.number(row)).unwrap_or(0);
                let host = match &input.host {
                    Some(host) => host.as_str(),
                    None => columns.cells("host").and_then(|hosts| hosts.text(row)).ok_or_else(|| wrong("host"))?,
                };
                // M2
                if input.host.is_none() && own.contains(host) {
                    continue;
                }
                let slice = self.bounds.partition_point(|begin| *begin <= time);
                let key = Row { time, host: hosts.number(host), rank };
                slices[slice]
                    .add(key, cells.iter().map(|cells| cells.map_or(Value::Null, |cells| cells.value(row))))?;
            }
        }
        Ok(())
    }

    fn write(&self, file: &File, slices: Vec<Slice>, hosts: &Hosts) -> io::Result<u64> {
        let mut rows = HostRows::new(self.about.clone(), file)?;
        let places = hosts.places();
        let mut count = 0;
        for slice in slices {
            let slice = slice.read()?;
            let mut order = slice.rows();
            order.sort_by_key(|(row, _)| (row.time, places[row.host as usize], row.rank));
            for (row, at) in order {
                let host = Value::Text(&hosts.names[row.host as usize]);
                // The second column is the host.
                let cells = slice.cells(at).enumerate();
                rows.add(cells.map(|(place, value)| if place == 1 { host } else { value }))?;
                count += 1;
            }
        }
        rows.finish()?;
        Ok(count)
    }
}

fn micros(time: SystemTime) -> i64 {
    i64::try_from(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros()).unwrap_or(i64::MAX)
}
