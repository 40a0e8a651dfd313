// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A table's records on their way to the files: at two resolutions, with the gaps between them.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use topstat_model::{Lost, Snapshot, json};

use crate::dir::Root;
use crate::entry::{Gap, Shapes, time_of};
use crate::layout::{self, File, Kind, Place};
use crate::log::{self, Writer};
use crate::sealed::private::Privacy;
use crate::{Error, salvage, sealed};

/// The time after which a frame is ended and brought to the disk: a power failure costs as much at most.
const FRAME: Duration = Duration::from_secs(60);

/// The options of a table's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// The time from one coarse record to the next.
    pub interval: Duration,
    /// The number of rows of a coarse record.
    pub rows: usize,
    /// The time from one fine record to the next.
    pub fine_interval: Duration,
    /// The span of a sealed file: whole minutes that divide an hour.
    pub seal_every: Duration,
}

/// Records a table.
pub struct Table {
    place: Place,
    options: TableOptions,
    coarse: Stream,
    fine: Stream,
    /// The losses up to the last coarse record.
    lost: Option<Lost>,
}

impl Table {
    /// Goes on with the earlier records of a table, if there are any. `offset` shifts the times at which the table waits for the
    /// disk, so that not all tables wait at once.
    ///
    /// # Errors
    ///
    /// The earlier records can't be read.
    pub fn open(root: &Root, place: Place, options: TableOptions, offset: Duration) -> Result<Self, Error> {
        let dir = place.dir(root.path());
        let files = layout::files(root, &place).map_err(Error::of("read", &dir))?;
        let stream = |kind, span, interval| Stream {
            kind,
            span,
            interval,
            root: root.clone(),
            file: None,
            writer: None,
            last: last_of(root, &files, kind),
            why: Some("the recorder did not run".to_owned()),
            synced: None,
            offset: offset.min(FRAME),
        };
        let coarse = stream(Kind::Log, options.seal_every, options.interval);
        let fine = stream(Kind::Fine, layout::PIECE, options.fine_interval);
        Ok(Self { place, options, coarse, fine, lost: None })
    }

    /// The table that is recorded.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Reports that the next record is missing, and the reason.
    pub fn missed(&mut self, why: &str) {
        for stream in [&mut self.coarse, &mut self.fine] {
            stream.why = Some(why.to_owned());
        }
    }

    /// Records a document as it is, at the fine resolution.
    ///
    /// # Errors
    ///
    /// The document can't be written. Earlier records stay, and the next record says that this one is missing.
    pub fn fine(&mut self, time: SystemTime, document: &[u8]) -> Result<(), Error> {
        self.fine.write(&self.place, time, document)
    }

    /// Records the first rows of a snapshot, at the coarse resolution. Its losses are the losses since the record before.
    ///
    /// # Errors
    ///
    /// As [`Table::fine`].
    pub fn coarse(&mut self, mut snapshot: Snapshot) -> Result<(), Error> {
        snapshot.truncate(self.options.rows);
        let before = self.lost.replace(snapshot.lost.clone());
        snapshot.lost_now = before.map_or_else(|| snapshot.lost_now.clone(), |before| snapshot.lost.since(&before));
        let mut document = Vec::new();
        json::write(&snapshot, &mut document).expect("a Vec takes all");
        self.coarse.write(&self.place, snapshot.time, &document)
    }

    /// Brings the written records to the disk.
    ///
    /// # Errors
    ///
    /// I/O errors of the files.
    pub fn sync(&mut self) -> Result<(), Error> {
        let coarse = self.coarse.end();
        self.fine.end().and(coarse)
    }

    /// Called when no records come for now. Brings the written records to the disk, and closes the files, so that they can be
    /// sealed once their hour is over.
    ///
    /// # Errors
    ///
    /// I/O errors of the files.
    pub fn pause(&mut self) -> Result<(), Error> {
        let ended = self.sync();
        for stream in [&mut self.coarse, &mut self.fine] {
            stream.writer = None;
        }
        ended
    }

    /// The logs of spans that are over, which have to be sealed. The log that was written last is closed if it is one of these. A
    /// record of its span that comes all the same goes to a new log, which is sealed to the same file.
    ///
    /// # Errors
    ///
    /// A directory can't be read.
    pub fn to_seal(&mut self, now: SystemTime) -> Result<Vec<File>, Error> {
        // A part of an hour that this recorder writes ends with its span; one that was written before it began, not later.
        let end = |file: &File| {
            if file.is_whole() { file.until() } else { file.until().min(file.from + self.options.seal_every) }
        };
        let is_over = |file: &File| file.kind == Kind::Log && end(file) <= now;
        if self.coarse.file.as_ref().is_some_and(is_over) {
            // A log whose end can't be written is sealed as far as it can be read, and kept.
            if let Err(error) = self.coarse.end() {
                ::log::warn!("{error}: {}", error.source);
            }
            self.coarse.writer = None;
        }
        let dir = self.place.dir(self.coarse.root.path());
        let files = layout::files(&self.coarse.root, &self.place).map_err(Error::of("read", &dir))?;
        Ok(files.into_iter().filter(is_over).collect())
    }

    /// Seals one of these logs. Returns the name under which the log was kept, if it could not be read whole.
    ///
    /// # Errors
    ///
    /// See [`sealed::seal`].
    pub fn seal(&self, file: &File, shapes: Shapes<'_>, privacy: &Privacy) -> Result<Option<PathBuf>, Error> {
        sealed::seal(&self.coarse.root, &self.place, file, shapes, privacy)
    }
}

/// The time of the last record of a kind.
fn last_of(root: &Root, files: &[File], kind: Kind) -> Option<SystemTime> {
    // A sealed hour has coarse records, as a log has.
    let of_kind = |file: &&File| file.kind == kind || (kind == Kind::Log && file.kind == Kind::Sealed);
    let mut last = None;
    for file in files.iter().rev().filter(of_kind) {
        // Files of one hour overlap if their spans were changed within it: each may have the last record.
        if last.is_some_and(|last| file.until() <= last) {
            break;
        }
        last = last.max(last_in(root, file));
    }
    last
}

/// The time of the last record in a file.
fn last_in(root: &Root, file: &File) -> Option<SystemTime> {
    let read = root.read(&file.path);
    if file.kind == Kind::Sealed {
        // A sealed hour that can't be read now counts as recorded to its end. The end of a part is not known.
        let unread = if file.is_whole() { file.until() } else { file.from };
        return read.and_then(sealed::last_time).unwrap_or(Some(unread));
    }
    let mut last = None;
    let _ = log::lines(&read.ok()?, |line| {
        last = time_of(line).or(last);
        true
    });
    last
}

/// Records of one resolution.
struct Stream {
    kind: Kind,
    /// The span of a file.
    span: Duration,
    interval: Duration,
    root: Root,
    /// The file that was written last.
    file: Option<File>,
    writer: Option<Writer>,
    /// The time of the last record.
    last: Option<SystemTime>,
    /// The reason for missing records, if there are any.
    why: Option<String>,
    /// When the last frame was ended.
    synced: Option<SystemTime>,
    offset: Duration,
}

impl Stream {
    fn write(&mut self, place: &Place, time: SystemTime, line: &[u8]) -> Result<(), Error> {
        let has_time = |file: &File| file.from == layout::begin(time, self.span);
        let file = self.file.take().filter(has_time);
        let file = file.unwrap_or_else(|| File::spanning(self.root.path(), place, self.kind, self.span, time));
        let written = self.write_to(&file, place, time, line);
        self.file = Some(file);
        match written {
            Ok(()) => {
                self.last = Some(time);
                self.why = None;
            }
            Err(ref error) => {
                // The file is opened anew, which cuts off the incomplete end.
                self.writer = None;
                let reason = &error.source;
                self.why = Some(format!("cannot {}: {reason}", error.what));
            }
        }
        written
    }

    fn write_to(&mut self, file: &File, place: &Place, time: SystemTime, line: &[u8]) -> Result<(), Error> {
        if self.writer.as_ref().is_none_or(|writer| writer.path() != file.path) {
            self.end()?;
            self.writer = None;
            if let Some(kept) = salvage::mend(&self.root, place, file)? {
                ::log::warn!("{} was damaged: it is kept as {}", file.path.display(), kept.display());
            }
            let opened = self.root.write(&file.path).and_then(|open| Writer::open(open, &file.path));
            self.writer = Some(opened.map_err(Error::of("write", &file.path))?);
            self.synced = Some(time - self.offset);
        }
        let gap = self.gap(time).map(|gap| gap.line(&place.sample, &place.table));
        let Some(writer) = &mut self.writer else { return Ok(()) };
        // Both are written, or neither: a gap without its record would be followed by another gap of the same time.
        let lines = gap.map_or(Cow::Borrowed(line), |gap| Cow::Owned([&gap, line].concat()));
        writer.append(&lines).map_err(Error::of("write", &file.path))?;
        let due = self.synced.is_none_or(|synced| time.duration_since(synced).map_or(true, |since| since >= FRAME));
        if due {
            writer.sync().map_err(Error::of("write", &file.path))?;
            self.synced = Some(time);
        }
        Ok(())
    }

    /// The gap before this time, if there was time for more than one record since the last.
    fn gap(&self, time: SystemTime) -> Option<Gap> {
        let from = self.last?;
        let reason = match time.duration_since(from) {
            Err(_) => "the clock was set back",
            Ok(since) if since >= 2 * self.interval => self.why.as_deref().unwrap_or("the recorder was late"),
            Ok(_) => return None,
        };
        Some(Gap { time, from, reason: reason.to_owned(), unread: None })
    }

    fn end(&mut self) -> Result<(), Error> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let ended = writer.sync().map_err(Error::of("write", writer.path()));
        if ended.is_err() {
            self.writer = None;
        }
        ended
    }
}
