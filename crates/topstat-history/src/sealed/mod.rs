// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An hour of a table in Parquet: long rows, each with all data of its snapshot.
//!
//! | column | of | what |
//! |---|---|---|
//! | `time` | all | when the snapshot was taken, with whole ms |
//! | `rank` | all | the row's place, from 1; 0: a snapshot without rows, or a gap |
//! | `value`, and the table's parts (`rx`, `tx`) | rows | as in the document |
//! | the object's columns (`sip`, `comm`, …) | rows | as in the document; one that has the name of another column here is `object_…` |
//! | `cpus` | rows | CPUs, with commas between |
//! | `total`, `shared`, `other`, `proven`, `objects`, `top` | snapshots | as in the document; `shared` is 0 if absent there |
//! | `period_ms`, `delay_ms`, `elapsed_ms`, `type`, `unit` | snapshots | as in the document |
//! | `lost_…`, `lost_now_…` | snapshots | since the table was made; since the record before |
//! | `cpu_totals`, `stale_cpus` | snapshots | `0:60000,3:63456`; CPUs with commas between |
//! | `gap`, `gap_from` | gaps | the reason, and the beginning of the gap; all columns but `time` and `rank` are null |
//!
//! All files of a table have one schema: the types come from the table's definition, and no value decides them. Numbers are signed,
//! and times are in microseconds of UTC. The files of earlier versions had unsigned numbers, milliseconds, and a column without a
//! value as a number. Each file has [`About`] in its metadata, with the meaning of the table's key on other hosts.
//!
//! The columns of a snapshot are equal in all of its rows, so that each row can be judged alone; Parquet's dictionaries and run
//! lengths make that cost almost nothing.

mod columns;
pub mod private;
mod read;
mod rows;
mod write;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use crate::dir::Root;
use crate::entry::{Entry, Shapes};
use crate::layout::{self, File, Place, UNFINISHED};
use crate::{Error, salvage};

pub use columns::{Cells, Columns, Sealed};
use private::Privacy;
pub use read::{last_time, read, totals};
pub use rows::{About, AboutColumn};
use write::Rows;
pub use write::{HostRows, Value};

/// Seals a log: writes the Parquet file of its span under a temporary name, brings it to the disk, gives it its name, and removes
/// the log. If the span was sealed before (the clock was set back), the file gets all records of both. A log without any record
/// is only removed. A log that could not be read whole is not removed: it gets another name, which is returned, and the file has
/// gaps that name it. `privacy` is for the records of the log: what was sealed before stays as it is.
///
/// # Errors
///
/// A file can't be read or written. The log stays then.
pub fn seal(
    root: &Root,
    place: &Place,
    log: &File,
    shapes: Shapes<'_>,
    privacy: &Privacy,
) -> Result<Option<PathBuf>, Error> {
    let sealed = log.sealed();
    let always = (SystemTime::UNIX_EPOCH, log.until());
    let kept = layout::unread_name(root, &log.path);
    let open = root.read(&log.path).map_err(Error::of("read", &log.path))?;
    // Calls `each` with all entries, and returns whether the log could be read whole.
    let all = |each: &mut dyn FnMut(Entry)| {
        match root.read(&sealed.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            file => {
                let file = file.map_err(Error::of("read", &sealed.path))?;
                read(file, always, shapes, each).map_err(Error::of("read", &sealed.path))?;
            }
        }
        let mut hidden = |mut entry: Entry| {
            if let Entry::Snapshot(snapshot) = &mut entry {
                privacy.apply(snapshot);
            }
            each(entry);
        };
        salvage::entries(&open, (log, &kept), always, shapes, &mut hidden).map_err(Error::of("read", &log.path))
    };
    let shape = shapes(&place.sample, &place.table);
    let (mut about, mut last, mut ordered) = (About::new(place, shape), None, true);
    let whole = all(&mut |entry| {
        about.add(&entry);
        let key = Some(key(&entry));
        ordered &= last < key;
        last = key;
    })?;
    privacy.widen(&mut about);
    if last.is_some() {
        let unfinished = sealed.path.with_extension(format!("parquet{UNFINISHED}"));
        let written = root.create(&unfinished).map_err(Error::of("write", &unfinished)).and_then(|file| {
            let mut rows = Rows::new(about, &file).map_err(Error::of("write", &unfinished))?;
            let mut result = Ok(());
            let mut add = |entry: Entry| {
                if result.is_ok() {
                    result = rows.add(&entry);
                }
            };
            if ordered {
                // The entries are read once more, so that an hour of them is never in memory.
                all(&mut add)?;
            } else {
                let mut entries = BTreeMap::new();
                all(&mut |entry| {
                    entries.entry(key(&entry)).or_insert(entry);
                })?;
                entries.into_values().for_each(add);
            }
            let written = result.and_then(|()| rows.finish()).and_then(|()| file.sync_all());
            let written = written.and_then(|()| root.rename(&unfinished, &sealed.path));
            written.and_then(|()| root.sync_names(&sealed.path)).map_err(Error::of("write", &unfinished))
        });
        if written.is_err() {
            let _ = root.remove(&unfinished);
        }
        written?;
    }
    if whole {
        root.remove(&log.path).map_err(Error::of("remove", &log.path))?;
        return Ok(None);
    }
    root.rename_new(&log.path, &kept).map_err(Error::of("rename", &log.path))?;
    Ok(Some(kept))
}

/// The order of entries: a gap ends at the time of the snapshot that follows it.
fn key(entry: &Entry) -> (SystemTime, bool) {
    (entry.time(), matches!(entry, Entry::Snapshot(_)))
}

/// Parquet's errors as errors of a file, which most of them are.
fn io_error(error: parquet::errors::ParquetError) -> io::Error {
    match error {
        parquet::errors::ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(source) => io::Error::other(source),
        },
        other => io::Error::other(other),
    }
}
