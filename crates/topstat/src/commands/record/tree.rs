// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's tree as the recorder sees it: files.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use topstat_history::limits::MOST_LINE_BYTES;

/// A tree that is mounted, or will be.
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The paths of the tables whose pushes count, in order: `tcp_v4/conns_pps`.
    ///
    /// # Errors
    ///
    /// Those of the directory.
    pub fn tables(&self) -> io::Result<Vec<String>> {
        // Where there is no tree, that is an error; where all is off, it has no tables to record.
        if fs::read_to_string(self.root.join("enabled"))?.trim() != "1" {
            return Ok(vec![]);
        }
        let mut tables = Vec::new();
        for sample in self.below("")?.into_iter().filter(|sample| self.is_on(sample)) {
            for table in self.below(&sample)? {
                let path = format!("{sample}/{table}");
                if self.is_on(&path) && self.root.join(&path).join("json").exists() {
                    tables.push(path);
                }
            }
        }
        tables.sort();
        Ok(tables)
    }

    /// Reads the document of a table.
    ///
    /// # Errors
    ///
    /// Those of the file.
    pub fn read(&self, table: &str, document: &mut Vec<u8>) -> io::Result<()> {
        document.clear();
        let file = File::open(self.root.join(table).join("json"))?;
        file.take(MOST_LINE_BYTES as u64).read_to_end(document)?;
        if document.ends_with(b"\n") {
            Ok(())
        } else {
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the document is not whole"))
        }
    }

    fn is_on(&self, path: &str) -> bool {
        fs::read_to_string(self.root.join(path).join("enabled")).is_ok_and(|text| text.trim() == "1")
    }

    /// The names of the directories in one.
    fn below(&self, path: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.root.join(path))? {
            let entry = entry?;
            if entry.file_type()?.is_dir()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        Ok(names)
    }
}
