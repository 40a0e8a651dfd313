// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads records, from all files that have them.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use topstat_model::Snapshot;

use crate::dir::Root;
use crate::entry::{Entry, Gap, Shapes};
use crate::layout::{self, File, Kind, Place};
use crate::{Error, salvage, sealed};

/// Fine records are read for times up to this, and for longer ones only if more than one record is wanted in [`COARSE`].
const SHORT: Duration = Duration::from_secs(600);
/// Coarse records are this far apart, unless the recorder was told otherwise.
const COARSE: Duration = Duration::from_secs(10);

/// The least time after which a missing record is late.
const NEAR: Duration = Duration::from_secs(30);

/// Which records to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// The records that are kept for days.
    Coarse,
    /// Fine records where they exist, and coarse ones before them.
    Fine,
}

impl Grain {
    /// The grain for a time of this length. `every` is the interval of the wanted records; `None`: all records are wanted.
    pub fn of(length: Duration, every: Option<Duration>) -> Self {
        let many = length > SHORT && every.is_none_or(|every| every >= COARSE);
        if many { Self::Coarse } else { Self::Fine }
    }
}

/// The records around an instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// The last record that is not after the instant.
    pub before: Option<Box<Snapshot>>,
    /// The gap that the instant is in.
    pub gap: Option<Gap>,
    /// The time of the first record after the instant.
    pub after: Option<SystemTime>,
}

/// A directory that a recorder writes to, or has written to.
#[derive(Clone, Debug)]
pub struct History {
    root: Root,
    places: Vec<Place>,
}

impl History {
    /// Opens a history, and lists its tables.
    ///
    /// # Errors
    ///
    /// The directory can't be read.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let root = Root::open(path)?;
        let places = layout::places(&root).map_err(Error::of("read", path))?;
        Ok(Self { root, places })
    }

    /// Its path.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Root {
        &self.root
    }

    /// The tables that have records, by host and name.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// The beginning and the end of the time that a table's files cover.
    ///
    /// # Errors
    ///
    /// As [`History::open`].
    pub fn span(&self, place: &Place) -> Result<Option<(SystemTime, SystemTime)>, Error> {
        let files = self.files(place)?;
        let until = files.iter().map(File::until).max();
        Ok(files.first().map(|file| file.from).zip(until))
    }

    /// The time of the first readable record of a table.
    ///
    /// # Errors
    ///
    /// As [`History::open`].
    pub fn first(&self, place: &Place, shapes: Shapes<'_>) -> Result<Option<SystemTime>, Error> {
        for span in spans(self.files(place)?, Grain::Coarse) {
            let entries = span.read(&self.root, (span.from, span.until()), shapes);
            if let Some(first) = entries.values().find(|entry| matches!(entry, Entry::Snapshot(_))) {
                return Ok(Some(first.time()));
            }
        }
        Ok(None)
    }

    /// Calls `each` with the records from one instant to another, both included, in order, until `each` has enough. A file, or a
    /// part of one, that can't be read is a gap that names it.
    ///
    /// # Errors
    ///
    /// A directory can't be read.
    pub fn range(
        &self,
        place: &Place,
        (from, to): (SystemTime, SystemTime),
        grain: Grain,
        shapes: Shapes<'_>,
        each: &mut dyn FnMut(Entry) -> bool,
    ) -> Result<(), Error> {
        // An hour with fine records is read in several spans: an unreadable file is still one gap.
        let mut unread: Option<Gap> = None;
        for span in spans(self.files(place)?, grain) {
            if span.from > to || span.until() < from {
                continue;
            }
            for (_, entry) in span.read(&self.root, (from, to), shapes) {
                match (&mut unread, &entry) {
                    (Some(known), Entry::Gap(gap)) if gap.unread == known.unread && gap.reason == known.reason => {
                        known.time = gap.time;
                        continue;
                    }
                    _ => {}
                }
                if unread.take().is_some_and(|gap| !each(Entry::Gap(gap))) {
                    return Ok(());
                }
                match entry {
                    Entry::Gap(gap) if gap.unread.is_some() => unread = Some(gap),
                    entry => {
                        if !each(entry) {
                            return Ok(());
                        }
                    }
                }
            }
        }
        unread.map(|gap| each(Entry::Gap(gap)));
        Ok(())
    }

    /// The record of an instant: the last record that is not after it, or the gap that it is in.
    ///
    /// # Errors
    ///
    /// A directory can't be read.
    pub fn at(&self, place: &Place, time: SystemTime, shapes: Shapes<'_>) -> Result<Option<Entry>, Error> {
        let around = self.around(place, time, shapes)?;
        Ok(around.gap.map(Entry::Gap).or(around.before.map(Entry::Snapshot)))
    }

    /// The records around an instant.
    ///
    /// # Errors
    ///
    /// A directory can't be read.
    pub fn around(&self, place: &Place, time: SystemTime, shapes: Shapes<'_>) -> Result<Around, Error> {
        let spans = spans(self.files(place)?, Grain::Fine);
        let (past, future) = spans.split_at(spans.partition_point(|span| span.from <= time));
        let mut around = Around::default();
        // Returns whether there is a record.
        let look = |around: &mut Around, entries: BTreeMap<SystemTime, Entry>| {
            for (_, entry) in entries {
                match entry {
                    Entry::Gap(gap) if in_gap(&gap, time) => around.gap = around.gap.take().or(Some(gap)),
                    Entry::Gap(_) => {}
                    Entry::Snapshot(snapshot) => {
                        around.after = Some(snapshot.time);
                        return true;
                    }
                }
            }
            false
        };
        let mut before = None;
        for (number, span) in past.iter().rev().enumerate() {
            let mut entries = span.read(&self.root, (span.from, span.until()), shapes);
            let later = entries.split_off(&(time + Duration::from_nanos(1)));
            before = entries.into_values().rev().find_map(Entry::snapshot);
            // Only the last of these spans has later records.
            if number == 0 {
                look(&mut around, later);
            }
            if before.is_some() {
                break;
            }
        }
        // A gap may end in a later file.
        for span in future {
            if around.after.is_some() || look(&mut around, span.read(&self.root, (span.from, span.until()), shapes)) {
                break;
            }
        }
        around.before = before.map(Box::new);
        Ok(around)
    }

    /// How long after the last record of all, which is of this time, the next one counts as missing: half a minute, or twice the
    /// time between the last two records.
    ///
    /// # Errors
    ///
    /// A directory can't be read.
    pub fn late(&self, place: &Place, last: SystemTime, shapes: Shapes<'_>) -> Result<Duration, Error> {
        let before = self.around(place, last - Duration::from_millis(1), shapes)?.before;
        let interval = before.and_then(|before| last.duration_since(before.time).ok()).unwrap_or_default();
        Ok(NEAR.max(2 * interval))
    }

    /// The files of a table, the oldest first.
    pub(crate) fn files(&self, place: &Place) -> Result<Vec<File>, Error> {
        layout::files(&self.root, place).map_err(Error::of("read", self.root.path()))
    }
}

/// Whether an instant is in a gap. The beginning of a gap is not: it is the time of the last record before the gap.
fn in_gap(gap: &Gap, time: SystemTime) -> bool {
    gap.from < time && time < gap.time
}

/// The files of a span of time: of an hour, or its parts. A sealed hour and its log may both exist, while it is being sealed or if
/// the clock was set back. Ten minutes of fine records replace the hour's records of these minutes.
struct Span {
    from: SystemTime,
    span: Duration,
    files: Vec<File>,
    fine: Option<File>,
}

impl Span {
    fn until(&self) -> SystemTime {
        self.from + self.span
    }

    /// The end of a file of this span: that of the span, or, for a part of an hour, the beginning of the next part.
    fn end_of(&self, file: &File) -> SystemTime {
        let next = self.files.iter().map(|next| next.from).filter(|from| !file.is_whole() && *from > file.from).min();
        next.map_or(self.until(), |next| next.clamp(self.from, self.until()))
    }

    /// The records of this span within these limits. An unreadable file is a gap.
    fn read(
        &self,
        root: &Root,
        (from, to): (SystemTime, SystemTime),
        shapes: Shapes<'_>,
    ) -> BTreeMap<SystemTime, Entry> {
        // The end of a span is the beginning of the next.
        let last = self.until() - Duration::from_nanos(1);
        let limits = (from.max(self.from), to.min(last));
        let mut entries = BTreeMap::new();
        let mut fine_gaps = Vec::new();
        for file in self.fine.iter().chain(&self.files).filter(|file| file.from <= limits.1) {
            let fine = file.kind == Kind::Fine;
            let replaced = !fine && self.fine.is_some() && !entries.is_empty();
            let mut last_read = None;
            let mut add = |entry: Entry| {
                let (low, high) = limits;
                let unread = matches!(&entry, Entry::Gap(gap) if gap.unread.is_some());
                // The clock may have been set back: the first record of a time stays. Coarse records cover short gaps in fine
                // ones, and fine records a part of a gap in coarse ones. If there are fine records, unreadable coarse ones do not
                // matter.
                let wanted = if unread { !replaced } else { (low..=high).contains(&entry.time()) };
                match entry {
                    _ if !wanted => {}
                    Entry::Gap(gap) if fine && !unread => fine_gaps.push(gap),
                    Entry::Gap(gap) if !unread => {
                        last_read = Some(gap.time);
                        for gap in uncovered(gap, &fine_gaps, &entries) {
                            insert(&mut entries, Entry::Gap(gap));
                        }
                    }
                    entry => {
                        last_read = Some(entry.time());
                        insert(&mut entries, entry);
                    }
                }
            };
            let read = match file.kind {
                Kind::Sealed => read_sealed(root, &file.path, limits, shapes, &mut add),
                _ => read_log(root, file, limits, shapes, &mut add),
            };
            let (path, read) = match read {
                // The log was sealed, or removed, since the directory was read. If it was sealed, the sealed file exists by now.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let sealed = file.sealed().path;
                    if sealed == file.path || !root.exists(&sealed) {
                        continue;
                    }
                    let read = read_sealed(root, &sealed, limits, shapes, &mut add);
                    (sealed, read)
                }
                read => (file.path.clone(), read),
            };
            if let Err(error) = read
                && !replaced
            {
                let until = self.end_of(file) - Duration::from_millis(1);
                let from = last_read.unwrap_or(file.from.max(self.from)).min(until);
                let reason = format!("cannot read {}: {error}", path.display());
                if until >= limits.0 {
                    insert(&mut entries, Entry::Gap(Gap { time: until, from, reason, unread: Some(path) }));
                }
            }
        }
        entries
    }
}

/// The parts of a gap in coarse records without fine records.
fn uncovered(gap: Gap, fine_gaps: &[Gap], entries: &BTreeMap<SystemTime, Entry>) -> Vec<Gap> {
    let common = fine_gaps.iter().map(|fine| (fine.from.max(gap.from), fine.time.min(gap.time)));
    let mut parts: Vec<_> = common.filter(|(from, to)| from < to).collect();
    if parts.is_empty() {
        // No fine record follows, so there is no fine gap either: the last record before the end begins the gap.
        let last = entries.range(..gap.time).rev().find(|(_, entry)| matches!(entry, Entry::Snapshot(_)));
        parts.push((last.map_or(gap.from, |(time, _)| gap.from.max(*time)), gap.time));
    }
    parts.into_iter().map(|(from, time)| Gap { from, time, ..gap.clone() }).collect()
}

/// Adds an entry. A gap and the snapshot that follows it have the same time: the gap goes before the snapshot.
fn insert(entries: &mut BTreeMap<SystemTime, Entry>, entry: Entry) {
    let time = match &entry {
        Entry::Snapshot(snapshot) => snapshot.time,
        // Times are whole milliseconds.
        Entry::Gap(gap) => gap.time - Duration::from_nanos(1),
    };
    entries.entry(time).or_insert(entry);
}

/// Reads the entries of a log within limits.
///
/// # Errors
///
/// I/O errors of the file.
pub(crate) fn read_log(
    root: &Root,
    file: &File,
    limits: (SystemTime, SystemTime),
    shapes: Shapes<'_>,
    each: &mut dyn FnMut(Entry),
) -> io::Result<()> {
    salvage::entries(&root.read(&file.path)?, (file, &file.path), limits, shapes, each).map(drop)
}

fn read_sealed(
    root: &Root,
    path: &Path,
    limits: (SystemTime, SystemTime),
    shapes: Shapes<'_>,
    each: &mut dyn FnMut(Entry),
) -> io::Result<()> {
    sealed::read(root.read(path)?, limits, shapes, each)
}

/// The files of a table as spans that don't overlap, the oldest first.
fn spans(files: Vec<File>, grain: Grain) -> Vec<Span> {
    let mut hours: BTreeMap<SystemTime, Vec<File>> = BTreeMap::new();
    let mut pieces: BTreeMap<SystemTime, File> = BTreeMap::new();
    for file in files {
        match file.kind {
            Kind::Sealed | Kind::Log => hours.entry(layout::begin(file.from, layout::HOUR)).or_default().push(file),
            Kind::Fine if grain == Grain::Fine => {
                pieces.insert(file.from, file);
            }
            Kind::Fine | Kind::Unread => {}
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
