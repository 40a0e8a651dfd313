// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all records of a table come to over time: days at a glance, and where the spikes are.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::entry::{Entry, Shapes};
use crate::layout::{self, Kind, Place};
use crate::{Error, History, history, sealed};

/// Of each of these one peak is kept: a week has ten thousand of them, and no screen has room for more.
const CELL: Duration = Duration::from_secs(60);
/// How often files are listed anew where one of them was sealed or removed meanwhile. An hour is sealed once.
const TRIES: u32 = 3;

/// The record of a minute that has the largest total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// When it was recorded.
    pub time: SystemTime,
    /// Its total.
    pub total: u64,
}

/// Outlines of tables. What was read of sealed hours is kept in memory, since they do not change: 40 kB for a day of a
/// table.
#[derive(Debug, Default)]
pub struct Outlines {
    sealed: HashMap<Place, HashMap<PathBuf, Vec<Peak>>>,
}

impl Outlines {
    /// The peaks of a table, the oldest first: one for each minute that has records.
    ///
    /// # Errors
    ///
    /// When a file can't be read.
    pub fn of(&mut self, history: &History, place: &Place, shapes: Shapes<'_>) -> Result<Vec<Peak>, Error> {
        let mut tries = 1;
        loop {
            match self.read(history, place, shapes) {
                // Between the list and the reading a log was sealed, or a file became too old.
                Err(error) if error.source.kind() == io::ErrorKind::NotFound && tries < TRIES => tries += 1,
                read => return read,
            }
        }
    }

    fn read(&mut self, history: &History, place: &Place, shapes: Shapes<'_>) -> Result<Vec<Peak>, Error> {
        let files = layout::files(history.root(), place).map_err(Error::of("read", history.root()))?;
        let known = self.sealed.entry(place.clone()).or_default();
        known.retain(|path, _| files.iter().any(|file| file.path == *path));
        let mut peaks = Peaks::default();
        for file in &files {
            match file.kind {
                // Coarse records are of the same time.
                Kind::Fine => {}
                Kind::Log => of_log(&file.path, shapes, &mut peaks).map_err(Error::of("read", &file.path))?,
                Kind::Sealed => {
                    // An hour that is sealed for the second time (the clock was set back) has its log beside it until then.
                    let again = files.iter().any(|other| other.kind == Kind::Log && other.from == file.from);
                    if again || !known.contains_key(&file.path) {
                        let read = of_sealed(&file.path).map_err(Error::of("read", &file.path))?;
                        known.insert(file.path.clone(), read);
                    }
                    known[&file.path].iter().for_each(|peak| peaks.add(*peak));
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

fn of_log(path: &Path, shapes: Shapes<'_>, peaks: &mut Peaks) -> io::Result<()> {
    let always = (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + Duration::from_secs(u32::MAX.into()));
    history::read_log(path, always, shapes, &mut |entry| {
        if let Entry::Snapshot(snapshot) = entry {
            peaks.add(Peak { time: snapshot.time, total: snapshot.total });
        }
    })
}

fn of_sealed(path: &Path) -> io::Result<Vec<Peak>> {
    let mut peaks = Peaks::default();
    sealed::totals(path, &mut |time, total| peaks.add(Peak { time, total }))?;
    Ok(peaks.0.into_values().collect())
}
