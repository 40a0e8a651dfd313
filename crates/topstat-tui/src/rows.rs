// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which rows of a reading are shown, and in which order.

use std::cmp::Ordering;
use std::time::{Duration, SystemTime};

use topstat_model::filter::{Filter, RowFilter};
use topstat_model::{Field, Row, Snapshot};

/// How long rows that have ended are still shown.
pub const ENDED_FOR: Duration = Duration::from_secs(10);
/// The most rows that have ended and are still shown.
const MOST_ENDED: usize = 64;

/// What an object is told by, from reading to reading: all that describes it.
pub type ObjectId = Vec<Field>;

/// By what rows are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortBy {
    /// By rank: as the table does.
    #[default]
    Rank,
    /// By a part of the value, the largest first.
    Part(usize),
    /// By a column of the object, the smallest first.
    Column(usize),
}

/// A row as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The row as it was read last.
    pub row: Row,
    /// When it was there last, if it no longer is.
    pub ended: Option<SystemTime>,
}

/// Rows that were there and no longer are.
#[derive(Clone, Debug, Default)]
pub struct Ended {
    rows: Vec<(SystemTime, Row)>,
}

impl Ended {
    /// A reading follows another one.
    pub fn follow(&mut self, before: &Snapshot, now: &Snapshot) {
        let oldest = now.time.checked_sub(ENDED_FOR).unwrap_or(SystemTime::UNIX_EPOCH);
        let there = |row: &Row| now.rows.iter().any(|other| other.object == row.object);
        self.rows.retain(|(since, row)| *since >= oldest && !there(row));
        let gone = before.rows.iter().filter(|row| !there(row)).map(|row| (before.time, row.clone()));
        self.rows.extend(gone);
        let much = self.rows.len().saturating_sub(MOST_ENDED);
        self.rows.drain(..much);
    }

    /// Forgets them: another table is looked at.
    pub fn clear(&mut self) {
        self.rows.clear();
    }
}

/// The rows of a reading that the filter chooses, and after them those that have ended, in this order.
pub fn shown(snapshot: &Snapshot, ended: &Ended, filter: &Filter, sort: SortBy, reverse: bool) -> Vec<Shown> {
    // What this table can't be asked for is in none of its rows.
    let filter = RowFilter::new(std::slice::from_ref(filter), snapshot).ok();
    let chosen = |row: &Row| filter.as_ref().is_some_and(|filter| filter.matches(row));
    let mut rows: Vec<_> = snapshot.rows.iter().filter(|row| chosen(row)).collect();
    // It is stable: what is equal stays in the order of ranks.
    rows.sort_by(|a, b| {
        let order = compare(a, b, sort);
        if reverse { order.reverse() } else { order }
    });
    let live = rows.into_iter().map(|row| Shown { row: row.clone(), ended: None });
    let gone = ended.rows.iter().filter(|(_, row)| chosen(row));
    live.chain(gone.map(|(since, row)| Shown { row: row.clone(), ended: Some(*since) })).collect()
}

fn compare(a: &Row, b: &Row, sort: SortBy) -> Ordering {
    match sort {
        SortBy::Rank => a.rank.cmp(&b.rank),
        SortBy::Part(place) => b.parts.get(place).cmp(&a.parts.get(place)),
        SortBy::Column(place) => field_order(a.object.get(place), b.object.get(place)),
    }
}

/// Numbers and addresses by size, texts by their characters, and what is not there last.
fn field_order(a: Option<&Field>, b: Option<&Field>) -> Ordering {
    let kind = |field: Option<&Field>| match field {
        Some(Field::U64(_)) => 0,
        Some(Field::Ip(_)) => 1,
        Some(Field::Text(_)) => 2,
        Some(Field::None) | None => 3,
    };
    match (a, b) {
        (Some(Field::U64(a)), Some(Field::U64(b))) => a.cmp(b),
        (Some(Field::Ip(a)), Some(Field::Ip(b))) => a.cmp(b),
        (Some(Field::Text(a)), Some(Field::Text(b))) => a.cmp(b),
        _ => kind(a).cmp(&kind(b)),
    }
}
