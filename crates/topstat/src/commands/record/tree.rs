// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's tree as the recorder and the server see it: files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use topstat_history::limits::MOST_LINE_BYTES;

use crate::aside::Aside;

/// A tree that is mounted, or will be.
pub struct Tree {
    root: PathBuf,
    files: Aside,
}

impl Tree {
    /// The tree at this path. A wait for it ends when `stop` is set.
    pub fn new(root: &Path, stop: Arc<AtomicBool>) -> Self {
        Self { root: root.to_owned(), files: Aside::until(stop) }
    }

    /// The paths of the tables whose pushes count, in order: `tcp_v4/conns_pps`.
    ///
    /// # Errors
    ///
    /// Errors of the directory. [`io::ErrorKind::Interrupted`]: the recorder was asked to end.
    pub fn tables(&self) -> io::Result<Vec<String>> {
        // Without a tree, reading its switch is an error. If the switch is off, there are no tables to record.
        if !self.is_on_or_error("")? {
            return Ok(vec![]);
        }
        let mut tables = Vec::new();
        for sample in self.files.directories(&self.root)? {
            if !self.is_on(&sample)? {
                continue;
            }
            for table in self.files.directories(&self.root.join(&sample))? {
                let path = format!("{sample}/{table}");
                // Opening finds out whether the file exists.
                if self.is_on(&path)? && or_not(self.files.read(&self.json(&path), 0).map(|_| true))? {
                    tables.push(path);
                }
            }
        }
        tables.sort();
        Ok(tables)
    }

    /// Reads the documents of tables in this order, and hands each, with its number, to `each`.
    ///
    /// # Errors
    ///
    /// When the remaining documents can't be read. [`io::ErrorKind::Interrupted`]: the recorder was asked to end.
    pub fn read(&self, tables: &[&str], each: impl FnMut(usize, io::Result<&[u8]>)) -> io::Result<()> {
        let paths: Vec<_> = tables.iter().map(|table| self.json(table)).collect();
        self.files.documents(&paths, MOST_LINE_BYTES, each)
    }

    /// The daemon's report of its own cost, as JSON.
    ///
    /// # Errors
    ///
    /// As [`Tree::tables`].
    pub fn own(&self) -> io::Result<Vec<u8>> {
        self.files.read(&self.root.join("self.json"), MOST_LINE_BYTES)
    }

    /// Closes the files of documents: an unmounted tree goes once no file of it is open.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Interrupted`]: the recorder was asked to end.
    pub fn close(&self) -> io::Result<()> {
        self.files.close()
    }

    /// Whether the recorder was asked to end.
    pub fn is_to_end(&self) -> bool {
        self.files.is_to_end()
    }

    fn json(&self, table: &str) -> PathBuf {
        self.root.join(table).join("json")
    }

    /// Whether a switch is on. A switch that can't be read is off.
    fn is_on(&self, path: &str) -> io::Result<bool> {
        or_not(self.is_on_or_error(path))
    }

    fn is_on_or_error(&self, path: &str) -> io::Result<bool> {
        /// A switch has a digit and the end of the line.
        const MOST: usize = 16;
        let text = self.files.read(&self.root.join(path).join("enabled"), MOST)?;
        Ok(text.trim_ascii() == b"1")
    }
}

/// An answer, or false where it can't be read. [`io::ErrorKind::Interrupted`] stays an error: the recorder was asked to end.
fn or_not(answer: io::Result<bool>) -> io::Result<bool> {
    match answer {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Ok(false),
        answer => answer,
    }
}
