// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The last snapshot of each host in a window of time, or the mean of all.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use topstat_history::sealed::{About, Sealed};
use topstat_history::{Error, Root};
use topstat_model::{Field, FleetKey, Reach, Row, Snapshot};

use crate::bounds::{HostMean, HostRow, HostTop};
use crate::files::{self, TableFile};

mod cells;
mod kept;

use cells::{FileCells, Names, is_static};
use kept::{Kept, Last, Mean, Meets};

/// Between the columns of an object's name.
pub const BETWEEN: char = '\t';
/// The name of a column without a value.
pub const NONE: &str = "-";

/// The window of time: after `from`, up to `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its beginning, which is not in it.
    pub from: SystemTime,
    /// Its end, which is in it.
    pub at: SystemTime,
}

/// What was found.
#[derive(Debug)]
pub struct Scan<H = HostTop> {
    /// The columns that name an object, and how far they reach.
    pub key: FleetKey,
    /// The hosts with a snapshot in the window.
    pub hosts: Vec<H>,
    /// Their names.
    pub names: Vec<String>,
    /// The names of the objects: the values of the key's columns with [`BETWEEN`] between them. If an object exists on one host,
    /// the host is the first of them.
    pub objects: Vec<Arc<str>>,
    /// Files that could not be read, with the reason. Their hosts may be missing.
    pub faults: Vec<(PathBuf, String)>,
    /// Files that were read.
    pub files: usize,
}

/// The value of a row in this column, if it has one.
fn field(row: &Row, column: Option<usize>) -> Option<&Field> {
    row.object.get(column?).filter(|field| !field.is_none())
}

/// The amounts in the present snapshots of hosts.
pub struct Present {
    state: State<Last>,
    /// The period of each host's table, in ms.
    periods: Vec<u32>,
}

impl Present {
    /// No snapshots yet. These columns name an object.
    pub fn new(key: FleetKey) -> Self {
        Self { state: State::new(key, Window { from: UNIX_EPOCH, at: UNIX_EPOCH }), periods: vec![] }
    }

    /// Adds the snapshot of a further host. An amount that its table has ever lost is in doubt.
    pub fn add(&mut self, host: &str, snapshot: &Snapshot) {
        let state = &mut self.state;
        let places: Vec<_> = state.key.columns.iter().map(|name| snapshot.column(name)).collect();
        let container = snapshot.column(CONTAINER);
        let mut rows = Vec::with_capacity(snapshot.rows.len());
        for row in &snapshot.rows {
            let own = (state.key.reach == Reach::Local).then(|| host.to_owned());
            let texts = places.iter().map(|place| match field(row, *place) {
                None => NONE.to_owned(),
                Some(Field::Text(text)) => text.clone(),
                Some(other) => other.to_string(),
            });
            let name = own.into_iter().chain(texts).collect::<Vec<_>>().join(&BETWEEN.to_string());
            let spans = state.key.spans(field(row, container).is_some());
            rows.push(HostRow { object: state.object(&name), rank: row.rank, spans, value: row.value });
        }
        let doubt = snapshot.lost.counters().any(|(name, count)| WITHOUT_OBJECT.contains(&name) && count > 0);
        let (total, other, proven) = (snapshot.total, snapshot.other, snapshot.proven.into());
        let top = HostTop { total, other, proven, doubt, rows };
        state.hosts.push(HostKept { name: host.to_owned(), kept: Last::from(top) });
        self.periods.push(snapshot.period_ms);
    }

    /// The hosts whose tables have the most frequent period, which is returned, too; and the others, with their periods: their
    /// values can't be added.
    pub fn finish(mut self) -> (Scan, u32, Vec<(String, u32)>) {
        let mut hosts: BTreeMap<u32, usize> = BTreeMap::new();
        for period in &self.periods {
            *hosts.entry(*period).or_default() += 1;
        }
        let usual = hosts.into_iter().max_by_key(|(_, hosts)| *hosts).map_or(0, |(period, _)| period);
        let mut others = Vec::new();
        let mut periods = self.periods.into_iter();
        self.state.hosts.retain(|host| {
            let period = periods.next().unwrap_or(usual);
            if period != usual {
                others.push((host.name.clone(), period));
            }
            period == usual
        });
        (self.state.finish(), usual, others)
    }
}

/// The files of a table, and the meaning of its key.
pub struct Table<'r> {
    name: String,
    files: Vec<(&'r Root, TableFile)>,
    key: Option<FleetKey>,
    columns: Vec<String>,
    has_running_totals: bool,
}

impl<'r> Table<'r> {
    /// Finds the files of a table (`net_cgroups.bps`) in these directories. `known` is the key by the definition of this version,
    /// for files that do not name one.
    ///
    /// # Errors
    ///
    /// A directory can't be read.
    pub fn find(roots: &'r [Root], name: &str, known: Option<FleetKey>) -> Result<Self, Error> {
        let mut found = Vec::new();
        for root in roots {
            found.extend(files::files(root, name)?.into_iter().map(|file| (root, file)));
        }
        let mut table =
            Self { name: name.to_owned(), files: found, key: known, columns: vec![], has_running_totals: false };
        // Any readable file has the columns, and one of this version the key; the last ones are the newest.
        for (root, file) in table.files.iter().rev() {
            let Ok(sealed) = root.read(&file.path).and_then(Sealed::open) else { continue };
            let about = sealed.about();
            table.columns = about.columns.iter().map(|column| column.name.clone()).collect();
            table.key = about.key.clone().or(table.key.take());
            table.has_running_totals = sealed.groups() > 0 && is_static(&sealed, 0, 0).unwrap_or(false);
            break;
        }
        Ok(table)
    }

    /// Whether there is no file.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The columns of the table's objects.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Whether the values of the last file are running totals, which have no mean.
    pub fn has_running_totals(&self) -> bool {
        self.has_running_totals
    }

    /// The files.
    pub fn files(&self) -> impl Iterator<Item = (&Root, &TableFile)> {
        self.files.iter().map(|(root, file)| (*root, file))
    }

    /// Whether files are in directories of hosts; or in one directory, compacted.
    pub fn has_host_directories(&self) -> bool {
        self.files.iter().any(|(_, file)| file.host.is_some())
    }

    /// See [`key_by`].
    pub fn key(&self, by: &[String]) -> FleetKey {
        key_by(self.key.as_ref(), &self.columns, by)
    }

    /// The time of the last record of all readable files.
    pub fn last(&self) -> Option<SystemTime> {
        let last = |(root, file): &(&Root, TableFile)| {
            let sealed = root.read(&file.path).and_then(Sealed::open).ok()?;
            (0..sealed.groups()).filter_map(|group| sealed.times(group)).map(|(_, last)| last).max()
        };
        // Hours before the last one end before it.
        let newest = self.files.iter().filter_map(|(_, file)| file.from).max();
        self.files.iter().filter(|(_, file)| file.from.is_none() || file.from == newest).filter_map(last).max()
    }

    /// The files that may have records in a window.
    fn files_in(&self, window: Window) -> impl Iterator<Item = (&Root, &TableFile)> {
        self.files().filter(move |(_, file)| file.may_have(window.from, window.at))
    }

    /// Whether a file with records in a window has less than the table's key: a host hides a column
    /// ([`Privacy`](topstat_history::Privacy)).
    pub fn hides_columns(&self, window: Window) -> bool {
        self.files_in(window).any(|(root, file)| {
            root.read(&file.path).and_then(Sealed::open).is_ok_and(|sealed| is_part(sealed.about()))
        })
    }

    /// Reads the last snapshot of each host in a window, by this key; by a part, if a host hides a column of the key.
    pub fn scan(&self, key: FleetKey, window: Window) -> Scan {
        self.read::<Last>(key, window)
    }

    /// Reads the mean of each host's snapshots in a window. A file with running totals is a fault. Else as [`scan`](Self::scan).
    pub fn mean(&self, key: FleetKey, window: Window) -> Scan<HostMean> {
        self.read::<Mean>(key, window)
    }

    fn read<K: Kept>(&self, mut key: FleetKey, window: Window) -> Scan<K::Host> {
        if let Some(scan) = self.read_by::<K>(&key, window) {
            return scan;
        }
        key.reach = Reach::Part;
        self.read_by::<K>(&key, window).expect("a part contains each key")
    }

    /// `None`: a host hides a column of the key, and the key is not a part.
    fn read_by<K: Kept>(&self, key: &FleetKey, window: Window) -> Option<Scan<K::Host>> {
        let mut state = State::<K>::new(key.clone(), window);
        for (root, file) in self.files_in(window) {
            state.file += 1;
            let read = root.read(&file.path).and_then(Sealed::open).and_then(|sealed| {
                let about = sealed.about();
                if format!("{}.{}", about.sample, about.table) != self.name {
                    let why = format!("it has records of {}/{}", about.sample, about.table);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                }
                if key.reach != Reach::Part && is_part(about) {
                    return Ok(false);
                }
                state.read(&sealed, file.host.as_deref()).map(|()| true)
            });
            match read {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => state.faults.push((file.path.clone(), error.to_string())),
            }
        }
        Some(state.finish())
    }
}

fn is_part(about: &About) -> bool {
    about.key.as_ref().is_some_and(|key| key.reach == Reach::Part)
}

/// The columns `by` that name an object where the user asks for other ones than the table's key `own`. Fewer columns than the key's
/// are a part of it. A table of these columns whose key is unknown gets the widest bounds.
pub fn key_by(own: Option<&FleetKey>, columns: &[String], by: &[String]) -> FleetKey {
    let own = own.cloned().unwrap_or_else(|| FleetKey { reach: Reach::Part, columns: columns.to_vec() });
    if by.is_empty() {
        return own;
    }
    let whole = own.columns.iter().all(|column| by.contains(column));
    FleetKey { reach: if whole { own.reach } else { Reach::Part }, columns: by.to_vec() }
}

struct HostKept<K> {
    name: String,
    kept: K,
}

struct State<K> {
    key: FleetKey,
    from: i64,
    at: i64,
    hosts: Vec<HostKept<K>>,
    by_name: HashMap<String, usize>,
    objects: Vec<Arc<str>>,
    by_object: HashMap<Arc<str>, u32, foldhash::fast::RandomState>,
    faults: Vec<(PathBuf, String)>,
    file: usize,
}

/// Amounts without an object: the names of their counts, behind `lost_` or `lost_now_`.
pub const WITHOUT_OBJECT: [&str; 2] = ["no_memory", "full"];
/// An object in a container is on one host, wherever its path leads.
pub const CONTAINER: &str = "container";

impl<K: Kept> State<K> {
    fn new(key: FleetKey, window: Window) -> Self {
        Self {
            key,
            from: micros(window.from),
            at: micros(window.at),
            hosts: vec![],
            by_name: HashMap::new(),
            objects: vec![],
            by_object: HashMap::default(),
            faults: vec![],
            file: 0,
        }
    }

    fn read(&mut self, sealed: &Sealed, host: Option<&str>) -> io::Result<()> {
        let names = Names::new(sealed.about(), &self.key, K::OF_SEVERAL);
        for group in 0..sealed.groups() {
            let Some(rows) = self.rows(sealed, group)? else { continue };
            let columns = sealed.columns_of(group, rows.clone(), &|name| names.wants(name))?;
            let cells = FileCells::new(&names, &columns, host)?;
            let is_static = |row| match cells.is_static(row) {
                Some(is_static) => Ok(is_static),
                None => is_static(sealed, group, rows.start + row),
            };
            self.add(&cells, columns.rows(), &is_static)?;
        }
        Ok(())
    }

    /// The rows of a group from the first to the last that is in the window.
    fn rows(&self, sealed: &Sealed, group: usize) -> io::Result<Option<Range<usize>>> {
        if let Some((first, last)) = sealed.times(group) {
            let (first, last) = (micros(first), micros(last));
            if last <= self.from || first > self.at {
                return Ok(None);
            }
            if first > self.from && last <= self.at {
                return Ok(Some(0..sealed.rows(group)));
            }
        }
        let columns = sealed.columns(group, &|name| name == "time")?;
        let Some(times) = columns.cells("time") else { return Ok(None) };
        let in_window = |row: &usize| times.micros(*row).is_some_and(|time| time > self.from && time <= self.at);
        let first = (0..columns.rows()).find(in_window);
        Ok(first.zip((0..columns.rows()).rfind(in_window)).map(|(first, last)| first..last + 1))
    }

    fn add(
        &mut self,
        cells: &FileCells<'_>,
        rows: usize,
        is_static: &dyn Fn(usize) -> io::Result<bool>,
    ) -> io::Result<()> {
        let mut last_host: Option<(&str, usize)> = None;
        let mut name = String::new();
        for row in 0..rows {
            let Some(time) = cells.time.micros(row).filter(|time| *time > self.from && *time <= self.at) else {
                continue;
            };
            if cells.gap.is_some_and(|gap| gap.text(row).is_some()) {
                continue;
            }
            let Some(host) = cells.host(row) else {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a row has no host"));
            };
            let number = match last_host {
                Some((last, number)) if last == host => number,
                _ => self.host(host),
            };
            last_host = Some((host, number));
            let reach = self.key.reach;
            let kept = &mut self.hosts[number].kept;
            match kept.meet(time, self.file, reach) {
                Meets::Other => continue,
                Meets::Same => {}
                Meets::Next => {
                    if K::OF_SEVERAL && is_static(row)? {
                        let why = "it has running totals, which have no mean";
                        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                    }
                    let top = kept.snapshot();
                    top.rows.clear();
                    top.total = cells.number("total", cells.total, row)?;
                    top.other = cells.number("other", cells.other, row)?;
                    top.proven = cells.number("proven", cells.proven, row)?;
                    top.doubt = cells.lost.iter().any(|lost| lost.number(row).unwrap_or(0) > 0)
                        && cells.doubt(row, is_static(row)?);
                }
            }
            let rank = cells.rank.number(row).and_then(|rank| u32::try_from(rank).ok()).unwrap_or(0);
            let (Some(value), 1..) = (cells.value.number(row), rank) else { continue };
            name.clear();
            cells.name(self.key.reach, host, row, &mut name);
            let object = self.object(&name);
            let spans = self.key.spans(cells.container.is_some_and(|container| container.text(row).is_some()));
            self.hosts[number].kept.snapshot().rows.push(HostRow { object, rank, spans, value });
        }
        Ok(())
    }

    fn host(&mut self, name: &str) -> usize {
        if let Some(number) = self.by_name.get(name) {
            return *number;
        }
        let number = self.hosts.len();
        self.hosts.push(HostKept { name: name.to_owned(), kept: K::default() });
        self.by_name.insert(name.to_owned(), number);
        number
    }

    fn object(&mut self, name: &str) -> u32 {
        if let Some(number) = self.by_object.get(name) {
            return *number;
        }
        let number = u32::try_from(self.objects.len()).unwrap_or(u32::MAX);
        let name: Arc<str> = name.into();
        self.objects.push(Arc::clone(&name));
        self.by_object.insert(name, number);
        number
    }

    fn finish(self) -> Scan<K::Host> {
        let reach = self.key.reach;
        let reported = self.hosts.into_iter().filter_map(|host| Some((host.kept.finish(reach)?, host.name)));
        let (hosts, names) = reported.unzip();
        Scan { key: self.key, hosts, names, objects: self.objects, faults: self.faults, files: self.file }
    }
}

fn micros(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
