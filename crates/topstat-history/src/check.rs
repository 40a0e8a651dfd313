// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is wrong with the files of a directory.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::Error;
use crate::dir::Root;
use crate::entry::{Entry, Gap, Shapes};
use crate::history::read_log;
use crate::layout::{self, File, Kind, Place, UNFINISHED};
use crate::sealed::{self, Sealed};

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A part of it is lost.
    #[error("it can't be read: {0}")]
    Unreadable(String),
    /// A tool that reads several files of the table needs equal columns.
    #[error("its columns are not those of the newest file of this table: {0}")]
    Differs(String),
    /// A log that an earlier run could not read whole.
    #[error("it could not be read whole when its hour was sealed, and is kept until it is too old")]
    Unread,
    /// A file that was not finished.
    #[error(
        "it is not finished: a recorder is sealing it now, or was killed; the next start of the recorder removes it"
    )]
    Unfinished,
    /// A file of another program.
    #[error("it has no name of a recorder's file")]
    Stranger,
}

/// What was found in a directory.
#[derive(Debug, Default)]
pub struct Found {
    /// The number of tables, each counted on each of its hosts.
    pub tables: usize,
    /// The number of files that were read.
    pub files: usize,
    /// Faults, with their files.
    pub faults: Vec<(PathBuf, Fault)>,
    /// Times without records.
    pub gaps: Vec<(Place, Gap)>,
}

/// The columns of a sealed file.
type Schema = Vec<(String, &'static str)>;

/// Reads all files of a directory.
///
/// # Errors
///
/// A directory can't be read.
pub fn check(root: &Root, shapes: Shapes<'_>) -> Result<Found, Error> {
    let mut found = Found::default();
    // By the table's name: the newest file, over all hosts, has the columns that the others are compared with.
    let mut schemas: BTreeMap<String, Vec<(SystemTime, PathBuf, Schema)>> = BTreeMap::new();
    for place in layout::places(root).map_err(Error::of("read", root.path()))? {
        found.tables += 1;
        for (path, file) in layout::all_files(root, &place).map_err(Error::of("read", root.path()))? {
            let Some(file) = file else {
                let is_unfinished = path.to_string_lossy().ends_with(UNFINISHED);
                found.faults.push((path, if is_unfinished { Fault::Unfinished } else { Fault::Stranger }));
                continue;
            };
            found.files += 1;
            if let Err(fault) = found.read(root, &place, &file, shapes) {
                found.faults.push((path, fault));
            } else if file.kind == Kind::Sealed
                && let Ok(sealed) = root.read(&path).and_then(Sealed::open)
            {
                schemas.entry(place.path()).or_default().push((file.from, path, sealed.schema()));
            }
        }
    }
    for mut files in schemas.into_values() {
        files.sort();
        let Some((_, _, newest)) = files.last().cloned() else { continue };
        for (_, path, schema) in files {
            if let Some(difference) = difference(&schema, &newest) {
                found.faults.push((path, Fault::Differs(difference)));
            }
        }
    }
    Ok(found)
}

impl Found {
    fn read(&mut self, root: &Root, place: &Place, file: &File, shapes: Shapes<'_>) -> Result<(), Fault> {
        let always = (UNIX_EPOCH, UNIX_EPOCH + Duration::from_secs(u32::MAX.into()));
        let mut unread = None;
        let mut each = |entry: Entry| match entry {
            Entry::Gap(gap) if gap.unread.is_some() => unread = Some(Fault::Unreadable(gap.reason)),
            // Gaps in fine records are in coarse ones, too.
            Entry::Gap(gap) if file.kind != Kind::Fine => self.gaps.push((place.clone(), gap)),
            Entry::Gap(_) | Entry::Snapshot(_) => {}
        };
        let read = match file.kind {
            Kind::Unread => return Err(Fault::Unread),
            Kind::Sealed => root.read(&file.path).and_then(|open| sealed::read(open, always, shapes, &mut each)),
            Kind::Log | Kind::Fine => read_log(root, file, always, shapes, &mut each),
        };
        read.map_err(|error| Fault::Unreadable(error.to_string()))?;
        unread.map_or(Ok(()), Err)
    }
}

/// The first difference between the columns of two files.
fn difference(one: &Schema, newest: &Schema) -> Option<String> {
    let kind = |schema: &Schema, name: &str| schema.iter().find(|(own, _)| own == name).map(|(_, kind)| *kind);
    for (name, wanted) in newest {
        match kind(one, name) {
            Some(has) if has == *wanted => {}
            Some(has) => return Some(format!("{name} is {has}, and {wanted} there")),
            None => return Some(format!("{name} is missing")),
        }
    }
    let more = one.iter().find(|(name, _)| kind(newest, name).is_none());
    more.map(|(name, _)| format!("{name} is missing there"))
}
