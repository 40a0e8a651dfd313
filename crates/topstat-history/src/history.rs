// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading what was recorded, from whatever files have it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::entry::{Entry, Shapes, time_of};
use crate::layout::{self, File, Kind, Place};
use crate::{Error, log, sealed};

/// Which records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// Those that are kept for days.
    Coarse,
    /// Where there are fine ones, those; and coarse ones before them.
    Fine,
}

/// A directory that a recorder writes to, or has written to.
#[derive(Clone, Debug)]
pub struct History {
    root: PathBuf,
    places: Vec<Place>,
}

impl History {
    /// Finds out what there is.
    ///
    /// # Errors
    ///
    /// When it can't be read.
    pub fn open(root: &Path) -> Result<Self, Error> {
        // A directory that is not there is not the same as one without records.
        std::fs::read_dir(root).map_err(Error::of("read", root))?;
        let places = layout::places(root).map_err(Error::of("read", root))?;
        Ok(Self { root: root.to_owned(), places })
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The tables of which there are records, by host and name.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// From when to when there are files of a table.
    ///
    /// # Errors
    ///
    /// As [`History::open`].
    pub fn span(&self, place: &Place) -> Result<Option<(SystemTime, SystemTime)>, Error> {
        let files = self.files(place)?;
        let until = files.iter().map(File::until).max();
        Ok(files.first().map(|file| file.from).zip(until))
    }

    /// The records from one instant to another, both included, in order, of which `each` gets one after the other until
    /// it has enough.
    ///
    /// # Errors
    ///
    /// When a file can't be read.
    pub fn range(
        &self,
        place: &Place,
        (from, to): (SystemTime, SystemTime),
        grain: Grain,
        shapes: Shapes<'_>,
        each: &mut dyn FnMut(Entry) -> bool,
    ) -> Result<(), Error> {
        for span in spans(self.files(place)?, grain) {
            if span.from > to || span.until() < from {
                continue;
            }
            for (_, entry) in span.read((from, to), shapes)? {
                if !each(entry) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// What was recorded at an instant: the last record that is not after it, or the gap that it is in.
    ///
    /// # Errors
    ///
    /// When a file can't be read.
    pub fn at(&self, place: &Place, time: SystemTime, shapes: Shapes<'_>) -> Result<Option<Entry>, Error> {
        let spans = spans(self.files(place)?, Grain::Fine);
        let mut before = None;
        for span in spans.iter().rev().filter(|span| span.from <= time) {
            let entries = span.read((span.from, span.until()), shapes)?;
            let after = entries.range(time..).find(|(at, _)| **at > time).map(|(_, entry)| entry.clone());
            let there = || entries.range(..=time).next_back().map(|(_, entry)| entry.clone());
            match after {
                Some(gap) if in_gap(&gap, time) => return Ok(Some(gap)),
                Some(_) if there().is_some() => return Ok(there()),
                _ => {}
            }
            before = there();
            if before.is_some() {
                break;
            }
        }
        // A gap may end in a later file.
        for span in spans.iter().filter(|span| span.from > time) {
            let entries = span.read((span.from, span.until()), shapes)?;
            if let Some((_, first)) = entries.first_key_value() {
                return Ok(if in_gap(first, time) { Some(first.clone()) } else { before });
            }
        }
        Ok(before)
    }

    fn files(&self, place: &Place) -> Result<Vec<File>, Error> {
        layout::files(&self.root, place).map_err(Error::of("read", &self.root))
    }
}

/// Whether an instant is in a gap. When it begins there is a record, the last one before it.
fn in_gap(entry: &Entry, time: SystemTime) -> bool {
    matches!(entry, Entry::Gap(gap) if gap.from < time && time < gap.time)
}

/// The files of a span of time: a sealed hour and its log may both be there, while it is sealed or where the clock was
/// set back; and ten minutes of fine records replace what the hour has of them.
struct Span {
    from: SystemTime,
    span: Duration,
    files: Vec<PathBuf>,
    fine: Option<PathBuf>,
}

impl Span {
    fn until(&self) -> SystemTime {
        self.from + self.span
    }

    /// The records of this span within these limits.
    fn read(
        &self,
        (from, to): (SystemTime, SystemTime),
        shapes: Shapes<'_>,
    ) -> Result<BTreeMap<SystemTime, Entry>, Error> {
        // Its end is the beginning of the next.
        let last = self.until() - Duration::from_nanos(1);
        let limits = (from.max(self.from), to.min(last));
        let mut entries = BTreeMap::new();
        for file in self.fine.iter().chain(&self.files) {
            let fine = self.fine.as_ref() == Some(file);
            let mut add = |entry: Entry| {
                let (low, high) = limits;
                // The clock may have been set back: what was first at a time stays. Of fine records gaps are known from
                // coarse ones, too.
                if (low..=high).contains(&entry.time()) && !(fine && matches!(entry, Entry::Gap(_))) {
                    insert(&mut entries, entry);
                }
            };
            let read = if file.extension().is_some_and(|ending| ending == "parquet") {
                sealed::read(file, limits, shapes, &mut add)
            } else {
                read_log(file, limits, shapes, &mut add)
            };
            match read {
                // It was sealed, or removed, since the directory was read; what it was sealed to is there then.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let sealed = file.with_file_name(sealed_name(file));
                    if sealed != *file && sealed.exists() {
                        sealed::read(&sealed, limits, shapes, &mut add).map_err(Error::of("read", &sealed))?;
                    }
                }
                read => read.map_err(Error::of("read", file))?,
            }
        }
        Ok(entries)
    }
}

/// Adds an entry. A gap and the snapshot that follows it have the same time: the gap goes before it.
fn insert(entries: &mut BTreeMap<SystemTime, Entry>, entry: Entry) {
    let time = match &entry {
        Entry::Snapshot(snapshot) => snapshot.time,
        // Times have milliseconds.
        Entry::Gap(gap) => gap.time - Duration::from_nanos(1),
    };
    entries.entry(time).or_insert(entry);
}

/// The name of the file that a log is sealed to.
fn sealed_name(log: &Path) -> String {
    let name = log.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    format!("{}.parquet", name.split('.').next().unwrap_or_default())
}

/// Reads the entries of a log within limits.
///
/// # Errors
///
/// Those of the file.
pub fn read_log(
    path: &Path,
    (from, to): (SystemTime, SystemTime),
    shapes: Shapes<'_>,
    each: &mut dyn FnMut(Entry),
) -> io::Result<()> {
    log::lines(path, |line| {
        if time_of(line).is_none_or(|time| (from..=to).contains(&time))
            && let Some(entry) = Entry::read(line, shapes)
        {
            each(entry);
        }
        true
    })
}

/// The files of a table as spans that don't overlap, the oldest first.
fn spans(files: Vec<File>, grain: Grain) -> Vec<Span> {
    let mut hours: BTreeMap<SystemTime, Vec<PathBuf>> = BTreeMap::new();
    let mut pieces: BTreeMap<SystemTime, PathBuf> = BTreeMap::new();
    for file in files {
        match file.kind {
            Kind::Sealed | Kind::Log => hours.entry(file.from).or_default().push(file.path),
            Kind::Fine if grain == Grain::Fine => {
                pieces.insert(file.from, file.path);
            }
            Kind::Fine => {}
        }
    }
    let mut spans = Vec::new();
    for piece in pieces.keys() {
        hours.entry(layout::begin(*piece, layout::HOUR)).or_default();
    }
    for (from, files) in hours {
        let of_hour = || pieces.range(from..from + layout::HOUR);
        if of_hour().next().is_none() {
            spans.push(Span { from, span: layout::HOUR, files, fine: None });
            continue;
        }
        for number in 0..(layout::HOUR.as_secs() / layout::PIECE.as_secs()) as u32 {
            let from = from + layout::PIECE * number;
            let fine = pieces.get(&from).cloned();
            spans.push(Span { from, span: layout::PIECE, files: files.clone(), fine });
        }
    }
    spans
}
