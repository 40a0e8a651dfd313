// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An hour of a table in Parquet: long rows, each with all that its snapshot says.
//!
//! | column | of | what |
//! |---|---|---|
//! | `time` | all | when the snapshot was taken, in ms |
//! | `rank` | all | the row's place, from 1; 0: a snapshot without rows, or a gap |
//! | `value`, and the table's parts (`rx`, `tx`) | rows | as in the document |
//! | the object's columns (`sip`, `comm`, …) | rows | as in the document; one that has the name of another column here is `object_…` |
//! | `cpus` | rows | CPUs, with commas between |
//! | `total`, `shared`, `other`, `proven`, `objects`, `top` | snapshots | as in the document; `shared` is 0 where it is not there |
//! | `period_ms`, `delay_ms`, `elapsed_ms`, `type`, `unit` | snapshots | as in the document |
//! | `lost_…`, `lost_now_…` | snapshots | since the table was made; since the record before |
//! | `cpu_totals`, `stale_cpus` | snapshots | `0:60000,3:63456`; CPUs with commas between |
//! | `gap`, `gap_from` | gaps | why nothing was recorded, since when; all but `time` and `rank` is null |
//!
//! What is of a snapshot is the same in all of its rows, so that each row can be judged alone; Parquet's dictionaries and
//! run lengths make that cost almost nothing.

mod read;
mod rows;
mod write;

use std::collections::BTreeMap;
use std::fs::{self, File as OpenFile};
use std::io;
use std::path::Path;
use std::time::SystemTime;

use crate::entry::{Entry, Shapes};
use crate::layout::{File, Kind, Place, UNFINISHED};
use crate::{Error, history};

pub use read::{last_time, read, totals};

/// Seals a log: writes the Parquet file of its hour under a temporary name, brings it to the disk, gives it its name, and
/// removes the log. Where the hour was sealed before (the clock was set back) the file gets all records of both. A log
/// without any record is only removed.
///
/// # Errors
///
/// When something can't be read or written: then the log stays.
pub fn seal(root: &Path, place: &Place, log: &File, shapes: Shapes<'_>) -> Result<(), Error> {
    let sealed = File::of(root, place, Kind::Sealed, log.from);
    let always = (SystemTime::UNIX_EPOCH, log.until());
    let mut entries = BTreeMap::new();
    // A gap ends at the time of the snapshot that follows it: the gap comes first.
    let mut add = |entry: Entry| {
        entries.entry((entry.time(), matches!(entry, Entry::Snapshot(_)))).or_insert(entry);
    };
    match read(&sealed.path, always, shapes, &mut add) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        read => read.map_err(Error::of("read", &sealed.path))?,
    }
    history::read_log(&log.path, always, shapes, &mut add).map_err(Error::of("read", &log.path))?;
    let entries: Vec<_> = entries.into_values().collect();
    if !entries.is_empty() {
        let unfinished = sealed.path.with_extension(format!("parquet{UNFINISHED}"));
        let written = write_whole(place, &entries, &unfinished, &sealed.path);
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        written.map_err(Error::of("write", &unfinished))?;
    }
    fs::remove_file(&log.path).map_err(Error::of("remove", &log.path))
}

fn write_whole(place: &Place, entries: &[Entry], unfinished: &Path, path: &Path) -> io::Result<()> {
    let file = OpenFile::create(unfinished)?;
    write::write(place, entries, &file)?;
    file.sync_all()?;
    fs::rename(unfinished, path)?;
    match path.parent() {
        Some(dir) => OpenFile::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

/// Parquet's errors as those of a file, which most of them are.
fn io_error(error: parquet::errors::ParquetError) -> io::Error {
    match error {
        parquet::errors::ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(source) => io::Error::other(source),
        },
        other => io::Error::other(other),
    }
}
