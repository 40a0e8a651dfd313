// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file tree: its files, the values that may be written to them, and the results of reads. It knows nothing of FUSE, so that
//! `topstat get` and `set` use it even where no tree is mounted.
//!
//! Everything is derived from the catalogue of samples; no file of any sample is named here.

pub mod fuse;
pub mod handle;
pub mod owners;
pub mod shares;
pub mod value;
pub mod writing;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::sync::Arc;

use topstat_kernel::{SampleInfo, TableInfo};
use topstat_model::typeset::escape;

use crate::suggest::did_you_mean;
use value::Setting;

/// The number of the root's inode, as FUSE defines it.
pub const ROOT: u64 = 1;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A setting, which can be read and written.
    Setting(Setting),
    /// The table's type: 1 dynamic, 2 static.
    Type,
    /// The snapshot as text.
    Stat,
    /// The raw content of the table, for debugging.
    Dump,
    /// The snapshot as a JSON document. In the directory of a sample: the documents of its tables that are on, a line each.
    Json,
    /// The cost of topstat.
    Own,
    /// The cost of topstat as a JSON document.
    OwnJson,
}

impl Kind {
    /// Its name in its directory.
    pub fn name(self) -> &'static str {
        match self {
            Self::Setting(setting) => setting.name(),
            Self::Type => "type",
            Self::Stat => "stat",
            Self::Dump => "dump",
            Self::Json => "json",
            Self::Own => "self",
            Self::OwnJson => "self.json",
        }
    }

    /// Whether it can be written.
    pub fn writable(self) -> bool {
        matches!(self, Self::Setting(_))
    }

    /// Whether a read of the file looks at tables or processes. This takes a thousand times as long as the read of a setting.
    pub fn slow(self) -> bool {
        matches!(self, Self::Stat | Self::Dump | Self::Json | Self::Own | Self::OwnJson)
    }
}

/// A directory.
#[derive(Clone, Debug)]
pub enum Place {
    /// The root.
    Root,
    /// The directory of a sample.
    Sample(Arc<SampleInfo>),
    /// The directory of a table.
    Table(Arc<TableInfo>),
}

impl Place {
    /// The files in the directory, in the order of a listing.
    pub fn files(&self) -> &'static [Kind] {
        use Setting::{Delay, Enabled, Period, Sync};
        match self {
            Self::Root => &[Kind::Setting(Enabled), Kind::Own, Kind::OwnJson],
            Self::Sample(_) => &[Kind::Setting(Enabled), Kind::Json],
            Self::Table(_) => &[
                Kind::Type,
                Kind::Setting(Period),
                Kind::Setting(Delay),
                Kind::Setting(Enabled),
                Kind::Setting(Sync),
                Kind::Stat,
                Kind::Dump,
                Kind::Json,
            ],
        }
    }

    /// Its path below the root: empty, `tcp_v4`, `tcp_v4/conns_pps`.
    pub fn path(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Sample(sample) => sample.name.clone(),
            Self::Table(table) => table.path(),
        }
    }
}

/// A file: its directory and its kind.
#[derive(Clone, Debug)]
pub struct File {
    /// Its directory.
    pub place: Place,
    /// Its kind.
    pub kind: Kind,
}

impl File {
    /// Its path below the root: `tcp_v4/conns_pps/period`.
    pub fn path(&self) -> String {
        match &self.place {
            Place::Root => self.kind.name().to_owned(),
            place => format!("{}/{}", place.path(), self.kind.name()),
        }
    }
}

/// A directory or a file.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A directory.
    Directory(Place),
    /// A file.
    File(File),
}

/// A directory or file of the tree.
#[derive(Debug)]
pub struct Node {
    /// Its name in its parent; empty for the root.
    pub name: Cow<'static, str>,
    /// The inode of its parent; the root is its own parent.
    pub parent: u64,
    /// The directory or file.
    pub entry: Entry,
    /// The inodes of its entries.
    pub children: Vec<u64>,
}

/// All directories and files. They don't change as long as the daemon runs.
#[derive(Debug)]
pub struct Tree {
    /// The node of inode N is at N - 1.
    nodes: Vec<Node>,
}

impl Tree {
    /// The tree of these samples.
    pub fn new(samples: &[Arc<SampleInfo>]) -> Self {
        let root =
            Node { name: Cow::Borrowed(""), parent: ROOT, entry: Entry::Directory(Place::Root), children: vec![] };
        let mut tree = Self { nodes: vec![root] };
        tree.add_files(ROOT, &Place::Root);
        for sample in samples {
            let directory = tree.add_directory(ROOT, &sample.name, Place::Sample(Arc::clone(sample)));
            for table in &sample.tables {
                tree.add_directory(directory, &table.name, Place::Table(Arc::clone(table)));
            }
        }
        tree
    }

    fn add_directory(&mut self, parent: u64, name: &str, place: Place) -> u64 {
        let directory = self.add(parent, name.to_owned().into(), Entry::Directory(place.clone()));
        self.add_files(directory, &place);
        directory
    }

    fn add_files(&mut self, directory: u64, place: &Place) {
        for &kind in place.files() {
            self.add(directory, kind.name().into(), Entry::File(File { place: place.clone(), kind }));
        }
    }

    fn add(&mut self, parent: u64, name: Cow<'static, str>, entry: Entry) -> u64 {
        self.nodes.push(Node { name, parent, entry, children: vec![] });
        let inode = self.nodes.len() as u64;
        self.nodes[Self::index(parent)].children.push(inode);
        inode
    }

    fn index(inode: u64) -> usize {
        usize::try_from(inode).unwrap_or(usize::MAX).wrapping_sub(1)
    }

    /// The node of an inode.
    pub fn get(&self, inode: u64) -> Option<&Node> {
        self.nodes.get(Self::index(inode))
    }

    /// The entry of this name in a directory, and its inode.
    pub fn lookup(&self, directory: u64, name: &OsStr) -> Option<(u64, &Node)> {
        let children = &self.get(directory)?.children;
        let named = |inode: &u64| self.get(*inode).is_some_and(|node| *node.name == *name);
        let inode = *children.iter().find(|inode| named(inode))?;
        Some((inode, self.get(inode)?))
    }

    /// The node of a path below the root. Slashes at the ends of the path don't matter.
    ///
    /// # Errors
    ///
    /// The unknown part of the path, and the names that may have been meant.
    pub fn find(&self, path: &str) -> Result<&Node, String> {
        let mut inode = ROOT;
        for name in path.split('/').filter(|name| !name.is_empty() && *name != ".") {
            match self.lookup(inode, OsStr::new(name)) {
                Some((found, _)) => inode = found,
                None => return Err(self.unknown(path, inode, name)),
            }
        }
        Ok(self.get(inode).expect("just looked up"))
    }

    fn unknown(&self, path: &str, directory: u64, name: &str) -> String {
        let node = self.get(directory).expect("just looked up");
        let within = match &node.entry {
            Entry::File(file) => return format!("no {}: {} is a file", escape(path), file.path()),
            Entry::Directory(Place::Root) => "there are".to_owned(),
            Entry::Directory(place) => format!("{} has", place.path()),
        };
        let names: Vec<_> = node.children.iter().filter_map(|inode| self.get(*inode)).map(|node| &*node.name).collect();
        match did_you_mean(name, names.iter().copied()) {
            meant if meant.is_empty() => format!("no {}: {within} {}", escape(path), names.join(", ")),
            meant => format!("no {}{meant}", escape(path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        Tree::new(&topstat_families::catalogue().samples())
    }

    #[test]
    fn every_table_of_the_catalogue_has_the_files_of_the_design() {
        let tree = tree();
        for sample in topstat_families::catalogue().samples() {
            for table in &sample.tables {
                let path = format!("{}/{}", sample.name, table.name);
                let node = tree.find(&path).unwrap();
                let names: Vec<_> = node.children.iter().map(|inode| &*tree.get(*inode).unwrap().name).collect();
                assert_eq!(names, ["type", "period", "delay", "enabled", "sync", "stat", "dump", "json"], "{path}");
            }
            let json = tree.find(&format!("{}/json", sample.name)).unwrap();
            assert!(matches!(&json.entry, Entry::File(file) if file.kind == Kind::Json));
            let enabled = tree.find(&format!("{}/enabled", sample.name)).unwrap();
            assert!(matches!(&enabled.entry, Entry::File(file) if file.kind == Kind::Setting(Setting::Enabled)));
        }
        assert!(tree.find("enabled").is_ok() && tree.find("self").is_ok());
    }

    #[test]
    fn every_inode_is_found_by_its_path_and_knows_its_parent() {
        let tree = tree();
        let mut inodes = 0;
        for inode in ROOT.. {
            let Some(node) = tree.get(inode) else { break };
            let path = match &node.entry {
                Entry::File(file) => file.path(),
                Entry::Directory(place) => place.path(),
            };
            assert!(std::ptr::eq(tree.find(&path).unwrap(), node), "{path}");
            assert!(inode == ROOT || tree.get(node.parent).unwrap().children.contains(&inode), "{path}");
            inodes += 1;
        }
        assert!(inodes > 100 && tree.get(0).is_none() && tree.get(u64::MAX).is_none());
    }

    #[test]
    fn what_is_not_there_is_told_with_what_is() {
        let tree = tree();
        for (path, error) in [
            ("tcp_v4/conns_pps/perod", "no tcp_v4/conns_pps/perod: did you mean period?"),
            ("tcp_v4/conn_pps", "no tcp_v4/conn_pps: did you mean conns_pps?"),
            ("tpc_v4", "no tpc_v4: did you mean tcp_v4?"),
            ("tcp_v4/enabled/x", "no tcp_v4/enabled/x: tcp_v4/enabled is a file"),
            (
                "tcp_v4/conns_pps/\x1b[31m",
                "no tcp_v4/conns_pps/\\x1b[31m: tcp_v4/conns_pps has type, period, delay, enabled, sync, stat, dump, json",
            ),
        ] {
            assert_eq!(tree.find(path).unwrap_err(), error);
        }
        for path in ["", "/", "./", "//tcp_v4//conns_pps/", "tcp_v4/./enabled"] {
            assert!(tree.find(path).is_ok(), "{path}");
        }
        assert!(tree.find("..").is_err() && tree.find("tcp_v4/../enabled").is_err());
    }
}
