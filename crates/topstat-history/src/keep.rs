// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much is kept, and for how long.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::Error;
use crate::dir::Root;
use crate::layout::{self, File, Kind, UNFINISHED};

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Hours and their logs.
    pub age: Duration,
    /// Fine records.
    pub fine_age: Duration,
    /// All files together, by the room that they take. Fine records are to take at most half of it.
    pub bytes: u64,
}

/// What was done, and what is left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// What was removed, for it was too old or too much.
    pub removed: Vec<PathBuf>,
    /// The room that all files take now.
    pub bytes: u64,
    /// The room that fine records take now.
    pub fine_bytes: u64,
}

impl Keep {
    /// Removes what is too old, and then the oldest of what is too much. What is being written stays.
    ///
    /// # Errors
    ///
    /// When a directory can't be read, or a file not be removed.
    pub fn apply(&self, root: &Root, now: SystemTime) -> Result<Kept, Error> {
        let mut files = Vec::new();
        for place in layout::places(root).map_err(Error::of("read", root.path()))? {
            files.extend(layout::sized_files(root, &place).map_err(Error::of("read", root.path()))?);
        }
        // Fine records first: what they leave is the hours'.
        files.sort_by_key(|(_, file)| (file.kind != Kind::Fine, file.from));
        let mut kept = Kept::default();
        for (bytes, file) in &files {
            kept.bytes += bytes;
            kept.fine_bytes += if file.kind == Kind::Fine { *bytes } else { 0 };
        }
        for (bytes, file) in files {
            let is_fine = file.kind == Kind::Fine;
            let age = if is_fine { self.fine_age } else { self.age };
            let old = now.duration_since(file.until()).is_ok_and(|since| since >= age);
            let much = if is_fine { kept.fine_bytes > self.bytes / 2 } else { kept.bytes > self.bytes };
            if old || much && file.until() <= now {
                remove(root, &file)?;
                kept.bytes -= bytes;
                kept.fine_bytes -= if is_fine { bytes } else { 0 };
                kept.removed.push(file.path);
            }
        }
        remove_empty(root, &kept.removed);
        Ok(kept)
    }
}

fn remove(root: &Root, file: &File) -> Result<(), Error> {
    match root.remove(&file.path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::of("remove", &file.path)(error)),
        _ => Ok(()),
    }
}

/// Removes the directories of dates that have become empty. One that has not can't be removed.
fn remove_empty(root: &Root, removed: &[PathBuf]) {
    let dirs: BTreeSet<_> = removed.iter().filter_map(|path| path.parent()).collect();
    for dir in dirs {
        let _ = root.remove_dir(dir);
    }
}

/// Removes what a program that was killed has left unfinished.
///
/// # Errors
///
/// When a directory can't be read.
pub fn remove_unfinished(root: &Root) -> Result<(), Error> {
    for place in layout::places(root).map_err(Error::of("read", root.path()))? {
        for date in root.entries(&place.dir(root.path())).map_err(Error::of("read", root.path()))? {
            let files =
                if root.is_dir(&date) { root.entries(&date).map_err(Error::of("read", &date))? } else { vec![] };
            for file in files.iter().filter(|file| file.to_string_lossy().ends_with(UNFINISHED)) {
                let _ = root.remove(file);
            }
        }
    }
    Ok(())
}
