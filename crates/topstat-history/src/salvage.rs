// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logs that can't be read whole: each missing part becomes a gap, and the log is kept.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::Error;
use crate::dir::Root;
use crate::entry::{Entry, Gap, Shapes, time_of};
use crate::layout::{self, File, Place, UNFINISHED};
use crate::log::{self, Part, Writer};

/// Lines that are missing between two records, and the reason.
#[derive(Debug, Default)]
struct Missing {
    /// The time of the record before.
    last: Option<SystemTime>,
    /// The first reason since that record, and the time of the last unreadable line.
    why: Option<(String, Option<SystemTime>)>,
    /// Lines since that record that are no records.
    lines: u64,
    /// Whether parts are missing anywhere in the log.
    any: bool,
}

impl Missing {
    fn add(&mut self, why: impl FnOnce() -> String, time: Option<SystemTime>) {
        self.any = true;
        let (_, known) = self.why.get_or_insert_with(|| (why(), None));
        *known = time.or(*known);
    }

    /// The gap before a record at this time, if there is one. `file` is the log, `kept` its name for the user.
    fn before(&mut self, time: SystemTime, file: &File, kept: &Path) -> Option<Gap> {
        let (why, _) = self.why.take()?;
        let lines = std::mem::take(&mut self.lines);
        let from = self.last.unwrap_or(file.from).min(time);
        let what = if lines > 0 { format!("{lines} lines are no records of this version ({why})") } else { why };
        let reason = format!("{}: {what}", kept.display());
        Some(Gap { time, from, reason, unread: Some(file.path.clone()) })
    }
}

/// Calls `each` with the entries of a log within limits, and with gaps that touch the limits where the log could not be read.
/// `kept` is the log's name for the user, in gaps. Returns whether all of it was read.
///
/// # Errors
///
/// I/O errors of the file.
pub fn entries(
    log: &fs::File,
    (file, kept): (&File, &Path),
    (from, to): (SystemTime, SystemTime),
    shapes: Shapes<'_>,
    each: &mut dyn FnMut(Entry),
) -> io::Result<bool> {
    let mut missing = Missing::default();
    let mut give = |entry: Entry| {
        let touches = match &entry {
            Entry::Gap(gap) if gap.unread.is_some() => gap.from <= to && gap.time >= from,
            entry => (from..=to).contains(&entry.time()),
        };
        if touches {
            each(entry);
        }
    };
    log::read(log, &mut |part| {
        let line = match part {
            Part::Line(line) => line,
            Part::Fault(fault) => {
                missing.add(|| fault.to_string(), None);
                return true;
            }
        };
        let time = time_of(line);
        if let Some(time) = time.filter(|time| !(from..=to).contains(time)) {
            missing.before(time, file, kept).into_iter().for_each(|gap| give(Entry::Gap(gap)));
            missing.last = Some(time);
            return true;
        }
        match Entry::read(line, shapes) {
            Ok(entry) => {
                // A recorded gap covers the time before it.
                let until = if let Entry::Gap(gap) = &entry { gap.from } else { entry.time() };
                missing.before(until, file, kept).into_iter().for_each(|gap| give(Entry::Gap(gap)));
                missing.last = Some(entry.time());
                give(entry);
            }
            Err(why) => {
                missing.lines += 1;
                missing.add(|| why, time);
            }
        }
        true
    })?;
    // No record follows: the gap ends at the last line that has a time, or at the end of the hour.
    let last = file.until() - Duration::from_millis(1);
    let until = missing.why.as_ref().map(|(_, time)| time.unwrap_or(last).clamp(file.from, last));
    until.and_then(|until| missing.before(until, file, kept)).into_iter().for_each(|gap| give(Entry::Gap(gap)));
    Ok(!missing.any)
}

/// Prepares a log for a writer. A damaged log is kept under another name, and a log of all readable lines and of the gaps between
/// them takes its place. Returns the other name.
///
/// # Errors
///
/// I/O errors of the files. The log then stays as it was.
pub fn mend(root: &Root, place: &Place, file: &File) -> Result<Option<PathBuf>, Error> {
    let of = |what| Error::of(what, &file.path);
    let log = match root.read(&file.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        log => log.map_err(of("read"))?,
    };
    let mut damaged = false;
    log::read(&log, &mut |part| {
        damaged |= matches!(part, Part::Fault(_));
        !damaged
    })
    .map_err(of("read"))?;
    if !damaged {
        return Ok(None);
    }
    let kept = layout::unread_name(root, &file.path);
    let mut name = file.path.as_os_str().to_owned();
    name.push(UNFINISHED);
    let unfinished = PathBuf::from(name);
    copy_lines(root, place, (&log, file, &kept), &unfinished).map_err(Error::of("write", &unfinished))?;
    // The log has a name at all times.
    root.link(&file.path, &kept).map_err(Error::of("make", &kept))?;
    root.rename(&unfinished, &file.path).map_err(of("write"))?;
    root.sync_names(&file.path).map_err(of("write"))?;
    Ok(Some(kept))
}

/// Copies the readable lines unchanged.
fn copy_lines(root: &Root, place: &Place, (log, file, kept): (&fs::File, &File, &Path), to: &Path) -> io::Result<()> {
    let mut writer = Writer::open(root.create(to)?, to)?;
    let (mut missing, mut result) = (Missing::default(), Ok(()));
    log::read(log, &mut |part| {
        match part {
            Part::Line(line) => {
                let time = time_of(line).unwrap_or(file.from);
                let gap = missing.before(time, file, kept).map(|gap| gap.line(&place.sample, &place.table));
                missing.last = Some(time);
                result = writer.append(&[gap.as_deref().unwrap_or_default(), line, b"\n"].concat());
            }
            Part::Fault(fault) => missing.add(|| fault.to_string(), None),
        }
        result.is_ok()
    })?;
    result?;
    writer.sync()
}
