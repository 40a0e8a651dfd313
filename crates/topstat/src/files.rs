// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A tree of files that this program does not serve (`--root`): `/proc/topstat`, which the kernel module makes. The tree's
//! directories show its samples, for any kernel module may have samples there that topstat does not know.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use topstat_kernel::{Objects, SampleInfo, TableInfo, TableSettings};
use topstat_model::document::{self, Titles};
use topstat_model::{Snapshot, TableType, Unit};

use crate::aside::Aside;
use crate::daemon::tree::value::Setting;
use crate::daemon::tree::{File, Kind, Place, Tree};
use crate::error::Error;

/// The path of the kernel module's tree.
pub const OF_MODULE: &str = "/proc/topstat";

/// A tree, and the samples found in it.
pub struct Files {
    root: PathBuf,
    files: Aside,
    samples: Vec<Arc<SampleInfo>>,
}

/// The description of a table, which is read once for all of its snapshots.
pub struct Described {
    table: Arc<TableInfo>,
    titles: Titles,
    /// How many rows the table keeps.
    pub top: u32,
}

impl Files {
    /// Lists the samples of the tree: the known ones first, in their usual order, then the others by name. An unknown table has
    /// the unit [`Unit::Count`] until it is described.
    ///
    /// # Errors
    ///
    /// When there is no tree, or it can't be read.
    pub fn open(root: &Path) -> Result<Self, Error> {
        let enabled = root.join(Setting::Enabled.name());
        if let Err(error) = enabled.symlink_metadata() {
            let advice = if root == Path::new(OF_MODULE) && error.kind() == io::ErrorKind::NotFound {
                "; load the kernel module (topstat.ko, and topstat_tcp.ko for connections: docs/kmod.md)"
            } else {
                ""
            };
            return Err(Error::Daemon(format!("no tree of topstat at {}: {error}{advice}", root.display())));
        }
        let catalogue = topstat_families::catalogue().samples();
        let usual = catalogue.iter().map(|sample| sample.name.as_str());
        let mut tree = Self { root: root.to_owned(), files: Aside::default(), samples: Vec::new() };
        let names = in_order(tree.directories(root)?, usual);
        let found = |name: &String| {
            let known = catalogue.iter().find(|sample| sample.name == *name);
            tree.sample(name, known.map(AsRef::as_ref)).map(Arc::new)
        };
        tree.samples = names.iter().map(found).collect::<Result<_, _>>()?;
        Ok(tree)
    }

    /// From now on a wait for the tree ends when `stop` is set.
    pub fn read_until(&mut self, stop: Arc<AtomicBool>) {
        self.files = Aside::until(stop);
    }

    /// The path of the tree.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The samples in the tree.
    pub fn samples(&self) -> &[Arc<SampleInfo>] {
        &self.samples
    }

    /// The files of these samples.
    pub fn tree(&self) -> Tree {
        Tree::new(&self.samples)
    }

    /// Finds all units and titles. For this it takes snapshots of the unknown tables.
    ///
    /// # Errors
    ///
    /// When a table can't be read.
    pub fn described(mut self) -> Result<Self, Error> {
        let mut samples = self.samples.clone();
        for sample in &mut samples {
            for table in &mut Arc::make_mut(sample).tables {
                if !is_known(table) {
                    *table = self.describe(table)?.table;
                }
            }
        }
        self.samples = samples;
        Ok(self)
    }

    /// Reads the description of a table.
    ///
    /// # Errors
    ///
    /// When the table can't be read, or its files don't have the form of this version.
    pub fn describe(&self, table: &Arc<TableInfo>) -> Result<Described, Error> {
        let stat = self.text(table, Kind::Stat)?;
        let titles =
            Titles::of_stat(&stat).ok_or_else(|| self.wrong(table, Kind::Stat, "it has no rows of all CPUs"))?;
        let described = Described { table: Arc::clone(table), titles, top: 0 };
        let snapshot = self.snapshot(&described)?;
        let mut table = TableInfo::clone(table);
        table.unit = snapshot.unit;
        table.value_name = snapshot.value_name;
        Ok(Described { table: Arc::new(table), top: snapshot.top, ..described })
    }

    /// Takes a snapshot.
    ///
    /// # Errors
    ///
    /// See [`Files::describe`].
    pub fn snapshot(&self, described: &Described) -> Result<Snapshot, Error> {
        let table = &described.table;
        let columns = self.samples.iter().find(|sample| sample.name == table.sample).map(|sample| sample.columns());
        let text = self.text(table, Kind::Json)?;
        let read = document::read_titled(text.as_bytes(), &described.titles, &columns.unwrap_or_default());
        let snapshot = read.map_err(|why| self.wrong(table, Kind::Json, &why.to_string()))?;
        snapshot.check().map_err(|fault| self.wrong(table, Kind::Json, &fault.to_string()))?;
        Ok(snapshot)
    }

    /// The settings of a table.
    ///
    /// # Errors
    ///
    /// When the settings can't be read.
    pub fn settings(&self, table: &TableInfo) -> Result<TableSettings, Error> {
        let number = |place: &str, setting: Setting| {
            let path = self.root.join(place).join(setting.name());
            let text = self.read(&path)?;
            setting.parse(text.as_bytes()).map_err(|bad| Error::Daemon(format!("{}: {bad}", path.display())))
        };
        let own = table.path();
        Ok(TableSettings {
            enabled: number(&own, Setting::Enabled)? == 1,
            sample_enabled: number(&table.sample, Setting::Enabled)? == 1,
            root_enabled: number("", Setting::Enabled)? == 1,
            sync: number(&own, Setting::Sync)? == 1,
            period_ms: number(&own, Setting::Period)?,
            delay_ms: number(&own, Setting::Delay)?,
            raised_ms: 0,
        })
    }

    fn path(&self, table: &Arc<TableInfo>, kind: Kind) -> PathBuf {
        self.root.join(File { place: Place::Table(Arc::clone(table)), kind }.path())
    }

    fn text(&self, table: &Arc<TableInfo>, kind: Kind) -> Result<String, Error> {
        self.read(&self.path(table, kind))
    }

    fn read(&self, path: &Path) -> Result<String, Error> {
        let read = self.files.read(path, usize::MAX);
        let text = read.and_then(|text| String::from_utf8(text).map_err(|_| io::ErrorKind::InvalidData.into()));
        text.map_err(|error| self.failed("read", path, &error))
    }

    /// The directories in a directory, by name: samples or tables.
    fn directories(&self, at: &Path) -> Result<Vec<String>, Error> {
        let mut names = self.files.directories(at).map_err(|error| self.failed("list", at, &error))?;
        names.retain(|name| name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_'));
        names.sort();
        Ok(names)
    }

    fn sample(&self, name: &str, known: Option<&SampleInfo>) -> Result<SampleInfo, Error> {
        let at = self.root.join(name);
        let usual: Vec<_> = known.into_iter().flat_map(|sample| &sample.tables).collect();
        let names = in_order(self.directories(&at)?, usual.iter().map(|table| table.name.as_str()));
        let table = |(number, table): (usize, &String)| {
            let path = at.join(table).join(Kind::Type.name());
            let text = self.read(&path)?;
            let kind = text.trim().parse().ok().and_then(TableType::from_number);
            let kind = kind.ok_or_else(|| Error::Daemon(format!("{} is neither 1 nor 2", path.display())))?;
            Ok(match usual.iter().find(|info| info.name == *table) {
                Some(info) => TableInfo { kind, ..TableInfo::clone(info) },
                None => {
                    let number = u32::try_from(number).unwrap_or(u32::MAX);
                    TableInfo { kind, ..TableInfo::dynamic(number, table, Unit::Count, "", "") }
                }
            })
        };
        let tables = names.iter().enumerate().map(table).collect::<Result<Vec<_>, Error>>()?;
        let (about, objects, columns) = match known {
            Some(known) => (known.about.as_str(), known.objects, known.columns.clone()),
            None => ("", Objects::Keyed, vec![]),
        };
        let variant = known.and_then(|known| known.variant.clone());
        Ok(SampleInfo { variant, ..SampleInfo::new(name, about, objects, columns, tables) })
    }

    fn failed(&self, what: &str, path: &Path, error: &io::Error) -> Error {
        if self.files.is_to_end() {
            return Error::Stopped;
        }
        let advice = if error.kind() == io::ErrorKind::PermissionDenied { ": only root may" } else { "" };
        Error::Daemon(format!("cannot {what} {}: {error}{advice}", path.display()))
    }

    fn wrong(&self, table: &Arc<TableInfo>, kind: Kind, why: &str) -> Error {
        let path = self.path(table, kind);
        Error::Daemon(format!("{} is not of this version of topstat: {why}", path.display()))
    }
}

fn is_known(table: &TableInfo) -> bool {
    topstat_families::catalogue()
        .samples()
        .iter()
        .flat_map(|sample| &sample.tables)
        .any(|known| known.path() == table.path())
}

/// The usual names first, in their usual order, and then the others, unchanged.
fn in_order<'a>(mut names: Vec<String>, usual: impl Iterator<Item = &'a str>) -> Vec<String> {
    let usual: Vec<_> = usual.collect();
    names.sort_by_cached_key(|name| usual.iter().position(|usual| usual == name).unwrap_or(usize::MAX));
    names
}
