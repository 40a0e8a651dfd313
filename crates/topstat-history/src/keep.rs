// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much is kept, and for how long.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::Error;
use crate::dir::Root;
use crate::layout::{self, File, Kind, UNFINISHED};

/// The limits of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// How long hours and their logs are kept.
    pub age: Duration,
    /// How long fine records are kept.
    pub fine_age: Duration,
    /// The most bytes of all files on the disk. Fine records take at most half of them.
    pub bytes: u64,
}

/// The result of [`Keep::apply`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The files that were removed because they were too old, or because all files took too many bytes.
    pub removed: Vec<PathBuf>,
    /// The bytes that all files take on the disk now.
    pub bytes: u64,
    /// The bytes that fine records take on the disk now.
    pub fine_bytes: u64,
}

impl Keep {
    /// Removes files that are too old, and then the oldest files beyond the limit of bytes. A file that is being written stays.
    ///
    /// # Errors
    ///
    /// A directory can't be read, or a file can't be removed.
    pub fn apply(&self, root: &Root, now: SystemTime) -> Result<Kept, Error> {
        let mut files = Vec::new();
        for place in layout::places(root).map_err(Error::of("read", root.path()))? {
            files.extend(layout::sized_files(root, &place).map_err(Error::of("read", root.path()))?);
        }
        // Fine records come first: the hours get the room that they leave.
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

/// Removes the directories of dates that have become empty. Any other directory can't be removed.
fn remove_empty(root: &Root, removed: &[PathBuf]) {
    let dirs: BTreeSet<_> = removed.iter().filter_map(|path| path.parent()).collect();
    for dir in dirs {
        let _ = root.remove_dir(dir);
    }
}

/// Removes the unfinished files of a program that was killed.
///
/// # Errors
///
/// A directory can't be read.
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
