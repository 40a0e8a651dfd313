// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Travel through time: live, frozen, and as far back as memory and records reach.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::{App, Screen, When};
use crate::feed::{Peak, Recorded};
use crate::past::Past;

/// How often the bar of all records is made anew: each of its cells covers many minutes.
const OUTLINE_EVERY: Duration = Duration::from_secs(60);

/// The peaks of all records of a table.
#[derive(Clone, Debug)]
pub struct Outline {
    /// The peaks, the oldest first; or why they can't be read.
    pub peaks: Result<Vec<Peak>, String>,
    /// When the peaks were last asked for.
    asked: Option<Instant>,
}

impl Default for Outline {
    fn default() -> Self {
        Self { peaks: Ok(vec![]), asked: None }
    }
}

/// A cell of the bar of all records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// The largest record of the cell.
    Peak(Peak),
    /// A cell without a record, and when it begins.
    Empty(SystemTime),
    /// A cell whose records have not been read, and when it begins.
    Unknown(SystemTime),
}

impl Cell {
    /// The instant that it stands for.
    pub fn time(self) -> SystemTime {
        match self {
            Self::Peak(peak) => peak.time,
            Self::Empty(time) | Self::Unknown(time) => time,
        }
    }
}

impl App {
    /// The next record to look up: a table in sight, the chosen table first, and the instant. One lookup is under way at a time,
    /// so that the user's next step does not wait for lookups that are no longer needed.
    pub fn lookup(&mut self) -> Option<(usize, SystemTime)> {
        let (When::Past(time) | When::Frozen(time)) = self.when else { return None };
        let missing = |table: &usize| {
            let data = &self.data[*table];
            let known = data.recalled.as_ref().is_some_and(|(of, _)| *of == time);
            !known && !data.past.reaches(time)
        };
        if self.looking {
            return None;
        }
        let missing: Vec<_> = self.in_sight().into_iter().filter(missing).collect();
        let table = missing.iter().find(|table| **table == self.table).or(missing.first())?;
        self.looking = true;
        Some((*table, time))
    }

    /// Takes the record of an instant.
    pub fn recalled(&mut self, table: usize, time: SystemTime, found: Result<Recorded, String>) {
        self.looking = false;
        let Some(data) = self.data.get_mut(table) else { return };
        let found = match found {
            Ok(Recorded::Snapshot(snapshot)) => Ok(Arc::new(*snapshot)),
            Ok(Recorded::Nothing(why)) | Err(why) => Err(why),
        };
        data.recalled = Some((time, found));
        self.dirty = true;
    }

    /// The table whose peaks have to be read now, if any.
    pub fn outline_wanted(&mut self, now: Instant) -> Option<usize> {
        if *self.screen() != Screen::Table || matches!(self.when, When::Frozen(_)) {
            return None;
        }
        let outline = &mut self.data.get_mut(self.table)?.outline;
        if outline.asked.is_some_and(|asked| now.saturating_duration_since(asked) < OUTLINE_EVERY) {
            return None;
        }
        outline.asked = Some(now);
        Some(self.table)
    }

    /// Takes the peaks of a table.
    pub fn outlined(&mut self, table: usize, peaks: Result<Vec<Peak>, String>) {
        let Some(data) = self.data.get_mut(table) else { return };
        self.dirty |= data.outline.peaks != peaks && !matches!(self.when, When::Frozen(_));
        data.outline.peaks = peaks;
    }

    /// The time that the bar covers: from the first record to the last reading.
    pub fn bar_span(&self) -> Option<(SystemTime, SystemTime)> {
        let data = self.current()?;
        let peaks = data.outline.peaks.as_ref().ok()?;
        let (first, last) = (peaks.first()?.time, peaks.last()?.time);
        Some((first, data.past.last().map_or(last, |reading| reading.time).max(last)))
    }

    /// The bar of all records of the chosen table, in `cells` cells; empty where there are no records.
    pub fn bar(&self, cells: usize) -> Vec<Cell> {
        let Some((from, to)) = self.bar_span() else { return vec![] };
        let width = cell_width(from, to, cells);
        let mut bar: Vec<_> = (0..).map(|cell| Cell::Empty(from + width * cell)).take(cells).collect();
        let peaks = self.current().and_then(|data| data.outline.peaks.as_ref().ok()).map_or(&[][..], |peaks| peaks);
        for peak in peaks {
            let Some(cell) = bar.get_mut(place(peak.time, from, width, cells)) else { continue };
            if !matches!(cell, Cell::Peak(other) if other.total >= peak.total) {
                *cell = Cell::Peak(*peak);
            }
        }
        // A peak stands for all records of its minute, which may cover many cells.
        let span = span_of(peaks);
        for peak in peaks {
            let begin = begin_of(peak.time, PEAK_OF);
            let end = (begin + span - Duration::from_nanos(1)).min(to);
            let own = place(begin, from, width, cells)..=place(end, from, width, cells);
            for cell in bar.get_mut(own).into_iter().flatten().filter(|cell| matches!(cell, Cell::Empty(_))) {
                *cell = Cell::Peak(*peak);
            }
        }
        // Records that were made since the last look at the records are not known yet.
        let known = peaks.last().map_or(from, |last| begin_of(last.time, PEAK_OF) + span);
        for cell in &mut bar {
            if matches!(cell, Cell::Empty(time) if *time >= known && *time < known + OUTLINE_EVERY + span) {
                *cell = Cell::Unknown(cell.time());
            }
        }
        bar
    }

    /// Which of the `cells` cells of the bar has the instant that is shown.
    pub fn bar_mark(&self, cells: usize) -> Option<usize> {
        let (from, to) = self.bar_span()?;
        let width = cell_width(from, to, cells);
        match self.when {
            When::Live => cells.checked_sub(1),
            When::Past(time) | When::Frozen(time) => Some(place(time, from, width, cells)),
        }
    }

    /// Freezes the view at the instant that is shown. Its readings are kept until the view goes on, longer than memory reaches.
    pub(super) fn freeze(&mut self) {
        let time = self.shown(self.table).map_or(self.now, |shown| shown.time);
        for data in &mut self.data {
            if let Some(reading) = data.past.at(time) {
                data.recalled = Some((time, Ok(Arc::new(reading))));
            }
            data.frozen.clone_from(&data.ended);
        }
        self.when = When::Frozen(time);
    }

    /// Goes back to the present.
    pub(super) fn live(&mut self) {
        self.when = When::Live;
        if self.origin.recorded {
            // A recorder may have added records.
            self.data.iter_mut().for_each(|data| (data.past, data.wrong) = (Past::default(), None));
        }
    }

    pub(super) fn travel(&mut self, seconds: i64) {
        let from = match self.when {
            When::Live => self.shown(self.table).map_or(self.now, |shown| shown.time),
            When::Frozen(time) | When::Past(time) => time,
        };
        let by = Duration::from_secs(seconds.unsigned_abs());
        let to = if seconds < 0 { from.checked_sub(by) } else { from.checked_add(by) };
        if let Some(to) = to {
            self.to(to);
        }
    }

    /// Goes to an instant.
    pub(super) fn to(&mut self, time: SystemTime) {
        let last = self.current().and_then(|data| data.past.last()).map_or(self.now, |last| last.time);
        if time >= last { self.live() } else { self.when = When::Past(time) }
    }
}

/// The time of each peak: feeds give one peak for each whole minute since 1970.
const PEAK_OF: Duration = Duration::from_secs(60);

/// The time that a peak stands for: up to the next peak, where records are rarer than one in [`PEAK_OF`].
fn span_of(peaks: &[Peak]) -> Duration {
    let begins = peaks.iter().map(|peak| begin_of(peak.time, PEAK_OF));
    let mut distances: Vec<_> =
        begins.clone().zip(begins.skip(1)).filter_map(|(one, next)| next.duration_since(one).ok()).collect();
    distances.sort_unstable();
    distances.get(distances.len() / 2).map_or(PEAK_OF, |median| PEAK_OF.max(*median))
}

/// The beginning of the interval that an instant is in. Intervals have this length, and are counted from 1970.
fn begin_of(time: SystemTime, length: Duration) -> SystemTime {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs() / length.as_secs() * length.as_secs())
}

/// The time that one of `cells` cells covers.
fn cell_width(from: SystemTime, to: SystemTime, cells: usize) -> Duration {
    let cells = u32::try_from(cells.max(1)).unwrap_or(u32::MAX);
    (to.duration_since(from).unwrap_or_default() / cells).max(Duration::from_millis(1))
}

/// The cell of an instant. The first and the last cell also have the instants before and after the bar.
fn place(time: SystemTime, from: SystemTime, width: Duration, cells: usize) -> usize {
    let since = time.duration_since(from).unwrap_or_default();
    usize::try_from(since.as_nanos() / width.as_nanos()).unwrap_or(usize::MAX).min(cells.saturating_sub(1))
}
