// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's tree as the recorder and the server see it: files.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use topstat_history::limits::MOST_LINE_BYTES;

use crate::aside::Aside;

/// The most bytes of the documents of a sample: it has at most ten tables.
const MOST_SAMPLE_BYTES: usize = 4 * MOST_LINE_BYTES;

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

    /// Reads the documents of tables, and hands each, with its number in `tables`, to `each`, in any order. Several tables of a
    /// sample that stand side by side are read at once, by the sample's file: that takes one look for usage that was not pushed
    /// yet, and three requests, instead of as many for each table.
    ///
    /// # Errors
    ///
    /// When the remaining documents can't be read. [`io::ErrorKind::Interrupted`]: the recorder was asked to end.
    pub fn read(&self, tables: &[&str], mut each: impl FnMut(usize, io::Result<&[u8]>)) -> io::Result<()> {
        let numbers: Vec<usize> = (0..tables.len()).collect();
        let runs: Vec<&[usize]> = numbers.chunk_by(|a, b| sample(tables[*a]) == sample(tables[*b])).collect();
        let (several, mut single): (Vec<&[usize]>, Vec<&[usize]>) = runs.into_iter().partition(|run| run.len() > 1);
        let samples: Vec<_> = several.iter().map(|run| self.json(sample(tables[run[0]]))).collect();
        self.files.documents(&samples, MOST_SAMPLE_BYTES, |place, documents| {
            let Ok(documents) = documents else {
                // The files of the tables say why, or which one of them is the reason.
                single.push(several[place]);
                return;
            };
            let documents: HashMap<_, _> =
                documents.split_inclusive(|byte| *byte == b'\n').map(|l| (name(l), l)).collect();
            for run in several[place].chunks(1) {
                match documents.get(&tables[run[0]].rsplit('/').next().map(str::as_bytes)) {
                    Some(document) => each(run[0], Ok(document)),
                    None => single.push(run),
                }
            }
        })?;
        let single: Vec<_> = single.concat();
        let paths: Vec<_> = single.iter().map(|number| self.json(tables[*number])).collect();
        self.files.documents(&paths, MOST_LINE_BYTES, |place, document| each(single[place], document))
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

/// The sample of a table's path.
fn sample(path: &str) -> &str {
    path.split_once('/').map_or(path, |(sample, _)| sample)
}

/// The table's name in the document of a snapshot, where it is among the first members, before any row.
fn name(document: &[u8]) -> Option<&[u8]> {
    const MEMBER: &[u8] = b"\"table\":\"";
    let at = document.windows(MEMBER.len()).position(|bytes| bytes == MEMBER)? + MEMBER.len();
    document[at..].split(|byte| *byte == b'"').next()
}

/// An answer, or false where it can't be read. [`io::ErrorKind::Interrupted`] stays an error: the recorder was asked to end.
fn or_not(answer: io::Result<bool>) -> io::Result<bool> {
    match answer {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Ok(false),
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let path = std::env::temp_dir().join(format!("topstat-tree-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A document that says which file it came from.
    fn text(table: &str, from: &str) -> String {
        format!("{{\"time\":0,\"sample\":\"any\",\"table\":\"{table}\",\"rows\":[{{\"table\":\"{from}\"}}]}}\n")
    }

    #[test]
    fn tables_side_by_side_come_from_the_file_of_their_sample() {
        let folder = Folder::new();
        let large = text("two", &"x".repeat(9000));
        folder.write("a/json", &(text("one", "sample") + &large));
        for path in ["a/one", "a/two", "a/off", "b/one", "b/two", "c/one"] {
            let table = path.split('/').next_back().unwrap();
            folder.write(&format!("{path}/json"), &text(table, "own"));
        }
        folder.write("c/json", &text("one", "sample"));
        let tree = Tree::new(&folder.0, Arc::new(AtomicBool::new(false)));
        let tables = ["a/one", "a/two", "a/off", "b/one", "b/two", "b/none", "c/one"];
        let mut read: Vec<Option<Result<String, io::ErrorKind>>> = vec![None; tables.len()];
        tree.read(&tables, |number, document| {
            let document = document.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()).map_err(|e| e.kind());
            assert!(read[number].replace(document).is_none(), "{}", tables[number]);
        })
        .unwrap();
        let wanted = [
            Ok(text("one", "sample")),
            Ok(large),
            // Not in the file of the sample, which is older, or the table was switched off.
            Ok(text("off", "own")),
            // A daemon without this file.
            Ok(text("one", "own")),
            Ok(text("two", "own")),
            Err(io::ErrorKind::NotFound),
            // One table of a sample costs less by itself.
            Ok(text("one", "own")),
        ];
        for ((table, read), wanted) in tables.iter().zip(read).zip(wanted) {
            assert_eq!(read, Some(wanted), "{table}");
        }
    }
}
