// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A summary of all records of a table over time: days at a glance, with their spikes.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::dir::Root;
use crate::entry::{Entry, Shapes};
use crate::layout::{self, File, Kind, Place};
use crate::{Error, History, history, sealed};

/// One peak is kept for each span of this length: a week has ten thousand of them, and no screen has room for more.
const CELL: Duration = Duration::from_secs(60);
/// How often files are listed anew if one of them is sealed or removed while they are read. An hour is sealed once.
const TRIES: u32 = 3;

/// The record of a minute that has the largest total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// When it was recorded.
    pub time: SystemTime,
    /// Its total.
    pub total: u64,
}

/// Outlines of tables. A file that can't be read has no peaks: [`History::at`] reports it for the times in it. Outlines of sealed
/// hours are kept in memory, since they do not change: 40 kB for a day of a table.
#[derive(Debug, Default)]
pub struct Outlines {
    sealed: HashMap<Place, HashMap<PathBuf, Vec<Peak>>>,
}

impl Outlines {
    /// The peaks of a table, the oldest first: one for each minute that has records.
    ///
    /// # Errors
    ///
    /// A directory can't be read.
    pub fn of(&mut self, history: &History, place: &Place, shapes: Shapes<'_>) -> Result<Vec<Peak>, Error> {
        let mut tries = 1;
        loop {
            match self.read(history, place, shapes) {
                // A log was sealed, or a file became too old, between the listing and the reading.
                Err(error) if error.source.kind() == io::ErrorKind::NotFound && tries < TRIES => tries += 1,
                read => return read,
            }
        }
    }

    fn read(&mut self, history: &History, place: &Place, shapes: Shapes<'_>) -> Result<Vec<Peak>, Error> {
        let files = history.files(place)?;
        let known = self.sealed.entry(place.clone()).or_default();
        known.retain(|path, _| files.iter().any(|file| file.path == *path));
        let mut peaks = Peaks::default();
        for file in &files {
            match file.kind {
                // Coarse records cover the same time.
                Kind::Fine | Kind::Unread => {}
                Kind::Log => match of_log(history.dir(), file, shapes, &mut peaks) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        return Err(Error::of("read", &file.path)(error));
                    }
                    _ => {}
                },
                Kind::Sealed => {
                    // If an hour is sealed for the second time (the clock was set back), its log is beside it until then.
                    let again = files.iter().any(|other| other.kind == Kind::Log && other.from == file.from);
                    if again || !known.contains_key(&file.path) {
                        match of_sealed(history.dir(), &file.path) {
                            Ok(read) => drop(known.insert(file.path.clone(), read)),
                            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                                return Err(Error::of("read", &file.path)(error));
                            }
                            Err(_) => {}
                        }
                    }
                    known.get(&file.path).into_iter().flatten().for_each(|peak| peaks.add(*peak));
                }
            }
        }
        Ok(peaks.0.into_values().collect())
    }
}

/// Peaks by their minutes.
#[derive(Default)]
struct Peaks(BTreeMap<SystemTime, Peak>);

impl Peaks {
    fn add(&mut self, peak: Peak) {
        let largest = self.0.entry(layout::begin(peak.time, CELL)).or_insert(peak);
        if peak.total > largest.total {
            *largest = peak;
        }
    }
}

fn of_log(root: &Root, file: &File, shapes: Shapes<'_>, peaks: &mut Peaks) -> io::Result<()> {
    history::read_log(root, file, (file.from, file.until()), shapes, &mut |entry| {
        if let Entry::Snapshot(snapshot) = entry {
            peaks.add(Peak { time: snapshot.time, total: snapshot.total });
        }
    })
}

fn of_sealed(root: &Root, path: &Path) -> io::Result<Vec<Peak>> {
    let mut peaks = Peaks::default();
    sealed::totals(root.read(path)?, &mut |time, total| peaks.add(Peak { time, total }))?;
    Ok(peaks.0.into_values().collect())
}
