// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The order in which rows are shown, and the two ends of a connection as one row.

use std::cmp::Ordering;
use std::collections::HashSet;

use crate::field::Field;
use crate::snapshot::{Row, Snapshot};

/// The order of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortBy {
    /// By rank: the order of the table.
    #[default]
    Rank,
    /// By a part of the value, the largest first.
    Part(usize),
    /// By a column of the object, the smallest first.
    Column(usize),
}

impl SortBy {
    /// The order by this name in a table: `rank`, `value` or the name of the value, a part of the value, or a column. `None`: the
    /// table has nothing of this name.
    pub fn named(name: &str, snapshot: &Snapshot) -> Option<Self> {
        if ["rank", "value", &snapshot.value_name].contains(&name) {
            return Some(Self::Rank);
        }
        let part = snapshot.parts.iter().position(|part| part == name).map(Self::Part);
        part.or_else(|| snapshot.column(name).map(Self::Column))
    }

    /// Compares two rows of a table. Rows that are equal stay in the order of their ranks if the sort is stable.
    pub fn compare(self, a: &Row, b: &Row) -> Ordering {
        match self {
            Self::Rank => a.rank.cmp(&b.rank),
            Self::Part(place) => b.parts.get(place).cmp(&a.parts.get(place)),
            Self::Column(place) => field_order(a.object.get(place), b.object.get(place)),
        }
    }
}

/// Orders numbers and addresses by size, texts by their characters, and empty fields last.
fn field_order(a: Option<&Field>, b: Option<&Field>) -> Ordering {
    let kind = |field: Option<&Field>| match field {
        Some(Field::Negative(_)) => -1,
        Some(Field::U64(_)) => 0,
        Some(Field::Ip(_)) => 1,
        Some(Field::Text(_)) => 2,
        Some(Field::True) => 3,
        Some(Field::None) | None => 4,
    };
    match (a, b) {
        (Some(Field::U64(a)), Some(Field::U64(b))) => a.cmp(b),
        (Some(Field::Negative(a)), Some(Field::Negative(b))) => a.cmp(b),
        (Some(Field::Ip(a)), Some(Field::Ip(b))) => a.cmp(b),
        (Some(Field::Text(a)), Some(Field::Text(b))) => a.cmp(b),
        _ => kind(a).cmp(&kind(b)),
    }
}

/// Finds the second end of each connection whose two ends are on this host, and so both in a table.
#[derive(Debug)]
pub struct SecondEnds<'a> {
    /// The columns of the addresses and ports of both ends.
    columns: [usize; 4],
    seen: HashSet<[&'a Field; 4]>,
}

impl<'a> SecondEnds<'a> {
    /// For the rows of this table. `None`: its objects are no connections.
    pub fn of(snapshot: &Snapshot) -> Option<Self> {
        let columns = ["sip", "sport", "dip", "dport"].map(|name| snapshot.column(name));
        let [Some(sip), Some(sport), Some(dip), Some(dport)] = columns else { return None };
        Some(Self { columns: [sip, sport, dip, dport], seen: HashSet::new() })
    }

    /// Whether a row before this one was the other end of its connection.
    pub fn is_second(&mut self, row: &'a Row) -> bool {
        let [sip, sport, dip, dport] = self.columns.map(|column| row.object.get(column).unwrap_or(&Field::None));
        let is_second = self.seen.contains(&[dip, dport, sip, sport]);
        self.seen.insert([sip, sport, dip, dport]);
        is_second
    }
}

impl Snapshot {
    /// Shows a connection whose two ends are on this host once: the value of the smaller end goes to `other`. A
    /// table whose objects are no connections stays unchanged.
    pub fn fold(&mut self) {
        let Some(mut ends) = SecondEnds::of(self) else { return };
        let second: HashSet<Vec<Field>> =
            self.rows.iter().filter(|row| ends.is_second(row)).map(|row| row.object.clone()).collect();
        self.retain("folded", |object, _| !second.contains(object));
    }

    /// Orders the rows, and shows at most `most` of them; the values of the others go to `other`. Afterwards the rows are no
    /// longer in the order of their ranks, which [`proven`](Self::proven) refers to.
    pub fn sort(&mut self, by: SortBy, most: Option<usize>) {
        let mut sorted: Vec<&Row> = self.rows.iter().collect();
        sorted.sort_by(|a, b| by.compare(a, b));
        sorted.truncate(most.unwrap_or(usize::MAX));
        let shown: HashSet<u32> = sorted.iter().map(|row| row.rank).collect();
        self.keep_rows(|row| shown.contains(&row.rank));
        self.rows.sort_by(|a, b| by.compare(a, b));
    }
}
