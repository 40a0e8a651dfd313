// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows of a reading that are shown, and their order.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use topstat_model::filter::{Filter, RowFilter};
use topstat_model::{Field, Row, SecondEnds, Snapshot, SortBy};

use crate::past::{Gone, Past};

/// How long ended rows are still shown.
pub const ENDED_FOR: Duration = Duration::from_secs(10);
/// The most ended rows that are shown.
const MOST_ENDED: usize = 64;

/// The identity of an object from reading to reading: its full description.
pub type ObjectId = Vec<Field>;

/// A row as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown<'a> {
    /// The row as it was last read.
    pub row: &'a Row,
    /// When the row was last read, if it has ended.
    pub ended: Option<SystemTime>,
}

/// The rows of a reading that are shown, in their order. They are not copied, since each frame asks for them.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    reading: Option<Arc<Snapshot>>,
    /// The places of rows of the reading.
    places: Vec<usize>,
    /// Ended rows, which come after the others.
    ended: Vec<(SystemTime, Arc<Row>)>,
}

impl Rows {
    /// The number of rows.
    pub fn len(&self) -> usize {
        self.places.len() + self.ended.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of rows that have not ended.
    pub fn of_reading(&self) -> usize {
        self.places.len()
    }

    /// The row at this place.
    pub fn get(&self, place: usize) -> Option<Shown<'_>> {
        let Some(place) = self.places.get(place) else {
            let (since, row) = self.ended.get(place - self.places.len())?;
            return Some(Shown { row, ended: Some(*since) });
        };
        let row = self.reading.as_ref()?.rows.get(*place)?;
        Some(Shown { row, ended: None })
    }

    /// The rows without the second end of each connection whose two ends are on this host, and so both in the reading. Rows of
    /// things that are no connections stay.
    #[must_use]
    pub fn folded(mut self) -> Self {
        let Some(reading) = self.reading.clone() else { return self };
        let Some(mut ends) = SecondEnds::of(&reading) else { return self };
        self.places.retain(|place| !ends.is_second(&reading.rows[*place]));
        self
    }

    /// Whether a column of the reading is shown. An optional one is, if any row has it.
    pub fn has(&self, reading: &Snapshot, column: usize) -> bool {
        let has = |shown: Shown<'_>| shown.row.object.get(column).is_some_and(|field| !field.is_none());
        !reading.columns[column].optional || self.iter().any(has)
    }

    /// All rows.
    pub fn iter(&self) -> impl Iterator<Item = Shown<'_>> {
        (0..self.len()).filter_map(|place| self.get(place))
    }
}

/// Rows that have ended.
#[derive(Clone, Debug, Default)]
pub struct Ended {
    rows: Vec<(SystemTime, Arc<Row>)>,
}

impl Ended {
    /// Follows a reading that was added to the past; `gone` has the rows that are gone since the reading before.
    pub fn follow(&mut self, past: &Past, gone: Gone) {
        let now = past.last().map_or(SystemTime::UNIX_EPOCH, |last| last.time);
        let oldest = now.checked_sub(ENDED_FOR).unwrap_or(SystemTime::UNIX_EPOCH);
        self.rows.retain(|(since, row)| *since >= oldest && !past.has_now(&row.object));
        self.rows.extend(gone.rows.into_iter().map(|row| (gone.last_seen, Arc::new(row))));
        let much = self.rows.len().saturating_sub(MOST_ENDED);
        self.rows.drain(..much);
    }

    /// Removes all ended rows, since another table is chosen.
    pub fn clear(&mut self) {
        self.rows.clear();
    }
}

/// The rows of a reading that the filter chooses, in this order, and after them the ended rows that it chooses.
pub fn shown(reading: Arc<Snapshot>, ended: &Ended, filter: &Filter, sort: SortBy, reverse: bool) -> Rows {
    let chosen = chosen_by(filter, &reading);
    let rows = &reading.rows;
    let mut places: Vec<_> = (0..rows.len()).filter(|place| chosen(&rows[*place])).collect();
    // The sort is stable: equal rows stay in the order of ranks.
    places.sort_by(|a, b| {
        let order = sort.compare(&rows[*a], &rows[*b]);
        if reverse { order.reverse() } else { order }
    });
    let ended = ended.rows.iter().filter(|(_, row)| chosen(row)).cloned().collect();
    Rows { reading: Some(reading), places, ended }
}

/// Whether a filter chooses a row of this reading. A filter that does not apply to its table chooses none.
pub fn chosen_by<'a>(filter: &'a Filter, reading: &Snapshot) -> impl Fn(&Row) -> bool + use<'a> {
    let of_table = RowFilter::new(std::slice::from_ref(filter), reading).ok();
    move |row| filter.is_empty() || of_table.as_ref().is_some_and(|of_table| of_table.matches(row))
}
