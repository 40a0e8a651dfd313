// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A consistent read of one table.

use std::borrow::Cow;
use std::io;
use std::time::{Duration, SystemTime};

use crate::field::{Column, Field};
use crate::sink::{Reading, Records};
use crate::text::TextOptions;
use crate::unit::{Unit, per_second};
use crate::{csv, json, text};

/// How pushes become a value. The numbers are the numbers in the `type` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TableType {
    /// The sum of the pushes of the last period.
    Dynamic = 1,
    /// The running total of all pushes.
    Static = 2,
}

impl TableType {
    /// The name in JSON: `dynamic`, `static`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dynamic => "dynamic",
            Self::Static => "static",
        }
    }

    /// The number in the `type` file and the header of `stat`.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The type with this [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Dynamic, Self::Static].into_iter().find(|kind| kind.name() == name)
    }

    /// The type with this [`number`](Self::number).
    pub fn from_number(number: u8) -> Option<Self> {
        [Self::Dynamic, Self::Static].into_iter().find(|kind| kind.number() == number)
    }
}

/// One object at the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Distinguishes the object from all others that are or were in the table, from one snapshot to the next. Outputs do not
    /// contain it: a row that was read from an output has [`Row::NO_ID`].
    pub id: [u64; 2],
    /// The object's place in the table, from 1. Stays unchanged when other rows are hidden.
    pub rank: u32,
    /// The object's value over all CPUs, in the snapshot's unit and per its period.
    pub value: u64,
    /// The description of the object: one field for each of [`Snapshot::columns`].
    pub object: Vec<Field>,
    /// The parts of the value: one number for each of [`Snapshot::parts`].
    pub parts: Vec<u64>,
    /// The CPUs where the object was pushed within the period (dynamic) or ever (static), ascending.
    pub cpus: Vec<u32>,
}

impl Row {
    /// The id of an object whose id is not known.
    pub const NO_ID: [u64; 2] = [0; 2];
}

/// One object as a CPU has ordered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuRow {
    /// The value that the object had, over all CPUs, at its last push on this CPU.
    pub value: u64,
    /// The description of the object: one field for each of [`Snapshot::columns`].
    pub object: Vec<Field>,
}

/// The counts of one CPU, and the objects that it has ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuSection {
    /// The CPU's number.
    pub cpu: u32,
    /// The sum of the pushes on this CPU.
    pub total: u64,
    /// The CPU could not be brought to the snapshot's instant (it is offline, or did not answer): its numbers are as of its last
    /// push.
    pub stale: bool,
    /// The objects that are ordered on this CPU, highest first.
    pub rows: Vec<CpuRow>,
}

/// The losses, by cause. All zero where all is well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Pushes that were summed but whose ordering was put off, because the CPU was already ordering.
    pub contended: u64,
    /// Pushes without an object, because the kernel had no memory for it. They are in `other`.
    pub no_memory: u64,
    /// Other losses of a sample, by name (as a JSON key: `ring_full`), in the order of the outputs.
    pub further: Vec<(Cow<'static, str>, u64)>,
}

impl Lost {
    /// All counters with their names, in the order of the outputs.
    pub fn counters(&self) -> impl Iterator<Item = (&str, u64)> {
        [("contended", self.contended), ("no_memory", self.no_memory)]
            .into_iter()
            .chain(self.further.iter().map(|(name, count)| (name.as_ref(), *count)))
    }

    /// A counter by its name; 0 where no counter has this name.
    pub fn count(&self, name: &str) -> u64 {
        self.counters().find(|(other, _)| *other == name).map_or(0, |(_, count)| count)
    }

    /// The losses after `before`: no counter runs backwards, unless the table was made anew in between.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            contended: self.contended.saturating_sub(before.contended),
            no_memory: self.no_memory.saturating_sub(before.no_memory),
            further: self
                .further
                .iter()
                .map(|(name, n)| (name.clone(), n.saturating_sub(before.count(name))))
                .collect(),
        }
    }

    /// The counters that are not zero.
    pub fn nonzero(&self) -> impl Iterator<Item = (&str, u64)> {
        self.counters().filter(|(_, count)| *count > 0)
    }
}

/// The switches and the owner, as the header of `stat` shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The table's own `enabled`.
    pub enabled: bool,
    /// The owner of the table: the sample, or the kernel module.
    pub owner: String,
    /// The owner's `enabled`.
    pub owner_enabled: bool,
    /// The `enabled` of the root.
    pub topstat_enabled: bool,
}

impl Settings {
    /// Whether pushes count: all three switches are on.
    pub fn counts(&self) -> bool {
        self.enabled && self.owner_enabled && self.topstat_enabled
    }

    /// The names that documents have for the switches of topstat, of the owner and of the table.
    const SWITCHES: [&str; 3] = ["topstat", "sample", "table"];

    /// The names of the switches that are off.
    pub fn off(&self) -> Vec<&'static str> {
        let switches = Self::SWITCHES.into_iter().zip([self.topstat_enabled, self.owner_enabled, self.enabled]);
        switches.filter(|(_, is_on)| !is_on).map(|(name, _)| name).collect()
    }

    /// The settings of a table of this owner, with the switches of these names off.
    pub fn with_off(owner: String, off: &[String]) -> Self {
        let [topstat_enabled, owner_enabled, enabled] = Self::SWITCHES.map(|name| !off.iter().any(|off| off == name));
        Self { enabled, owner, owner_enabled, topstat_enabled }
    }
}

/// A filter that has hidden rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The filter in the user's words: `pid=77`.
    pub text: String,
    /// The number of rows that match.
    pub matched: u32,
    /// The number of rows before the filter.
    pub of: u32,
}

/// A consistent read of one table.
///
/// The values of [`rows`](Self::rows) plus [`other`](Self::other) are [`total`](Self::total), and so are the totals of
/// [`cpus`](Self::cpus) plus [`shared`](Self::shared): see [`Snapshot::check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The time of the read, by the wall clock. Outputs have it in UTC with milliseconds.
    pub time: SystemTime,
    /// The sample: `tcp_v4`.
    pub sample: String,
    /// The table in the sample: `conns_pps`.
    pub table: String,
    /// Dynamic or static.
    pub kind: TableType,
    /// The unit of values.
    pub unit: Unit,
    /// The title of the value's column: `pps`.
    pub value_name: String,
    /// The period in ms: 1 to 3600000. Has no effect on a static table.
    pub period_ms: u32,
    /// An object is ordered at most once per this many ms: 0 to 3600000.
    pub delay_ms: u32,
    /// The time that has really passed between two readings, where values are the changes between them, converted to the period.
    pub elapsed: Option<Duration>,
    /// The number of rows that the table keeps.
    pub top: u32,
    /// The number of objects, with or without a row.
    pub objects: u64,
    /// The sum of the pushes to all objects.
    pub total: u64,
    /// The part of the total that belongs to no single CPU: counters that all CPUs share, and levels, for which only the sum has
    /// a meaning. 0 in tables that are pushed to.
    pub shared: u64,
    /// The part of the total that is in no row.
    pub other: u64,
    /// The number of leading rows that are proven to be the true top; the number of rows if all are. No object without a row is
    /// larger than one of them, even where objects could not be stored.
    pub proven: u32,
    /// Set once rows were hidden by [`Snapshot::retain`].
    pub filter: Option<Filter>,
    /// The losses since the table was made.
    pub lost: Lost,
    /// The losses since the previous snapshot of the same reader. Outputs for people show these: losses of yesterday have no
    /// effect on the present rows.
    pub lost_now: Lost,
    /// The switches, and the owner of the table.
    pub settings: Settings,
    /// The columns that describe an object.
    pub columns: Vec<Column>,
    /// The names of the parts of values: `rx`, `tx`. May be empty.
    pub parts: Vec<Cow<'static, str>>,
    /// The top: highest value first, ranks ascending.
    pub rows: Vec<Row>,
    /// Every CPU that has counted, ascending by number.
    pub cpus: Vec<CpuSection>,
}

impl Snapshot {
    /// Shows at most `rows` rows, of `all` and of each CPU. The values of the rows cut off from `all` go to `other`.
    pub fn truncate(&mut self, rows: usize) {
        let mut left = rows;
        self.keep_rows(|_| {
            let keep = left > 0;
            left = left.saturating_sub(1);
            keep
        });
        for section in &mut self.cpus {
            section.rows.truncate(rows);
        }
    }

    /// Shows only the objects for which `keep` returns true, given their fields (one for each of [`Snapshot::columns`]) and their
    /// value; in `all` and in each CPU.
    ///
    /// Ranks stay as they were. The values of the hidden rows go to `other`, because rows and `other` are the total in every
    /// snapshot. `filter` is the user's text of the filter, as the outputs show it. A second filter narrows the first.
    ///
    /// Only rows of the top are searched: a matching object below the top stays in `other`.
    pub fn retain(&mut self, filter: impl Into<String>, mut keep: impl FnMut(&[Field], u64) -> bool) {
        let before = self.row_count();
        self.keep_rows(|row| keep(&row.object, row.value));
        for section in &mut self.cpus {
            section.rows.retain(|row| keep(&row.object, row.value));
        }
        let matched = self.row_count();
        let text = filter.into();
        self.filter = Some(match self.filter.take() {
            None => Filter { text, matched, of: before },
            Some(first) => Filter { text: format!("{} and {text}", first.text), matched, of: first.of },
        });
    }

    /// Hides rows of `all`: the only function that keeps `other` and `proven` right.
    pub(crate) fn keep_rows(&mut self, mut keep: impl FnMut(&Row) -> bool) {
        let (mut place, mut proven, mut hidden) = (0, 0, 0_u64);
        self.rows.retain(|row| {
            place += 1;
            let kept = keep(row);
            if !kept {
                hidden = hidden.saturating_add(row.value);
            } else if place <= self.proven {
                proven += 1;
            }
            kept
        });
        self.proven = proven;
        self.other = self.other.saturating_add(hidden);
    }

    /// A value as a rate per second, where that differs from the value itself: in a dynamic table whose period is not 1 s.
    pub fn per_second(&self, value: u64) -> Option<f64> {
        (self.kind == TableType::Dynamic && self.period_ms != 1000).then(|| per_second(value, self.period_ms))
    }

    /// [`Snapshot::elapsed`] in milliseconds, as outputs have it.
    pub fn elapsed_ms(&self) -> Option<u64> {
        self.elapsed.map(|elapsed| u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
    }

    /// The index in [`Row::object`] of the column of this name.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// The number of rows whose objects have ended. [`objects`](Self::objects) counts living objects, and so not these.
    pub fn closed(&self) -> u64 {
        let Some(place) = self.column("closed") else { return 0 };
        self.rows.iter().filter(|row| row.object.get(place) == Some(&Field::True)).count() as u64
    }

    /// Whether an object has ended, and its row stays until it has aged out.
    pub fn is_closed(&self, object: &[Field]) -> bool {
        self.column("closed").and_then(|place| object.get(place)) == Some(&Field::True)
    }

    /// Whether all rows are proven to be the true top.
    pub fn is_proven(&self) -> bool {
        self.proven >= self.row_count()
    }

    /// The CPUs that could not be brought to the snapshot's instant.
    pub fn stale_cpus(&self) -> impl Iterator<Item = u32> {
        self.cpus.iter().filter(|section| section.stale).map(|section| section.cpu)
    }

    /// The number of rows. A table keeps far fewer than 2^32.
    pub fn row_count(&self) -> u32 {
        u32::try_from(self.rows.len()).unwrap_or(u32::MAX)
    }
}

impl Reading for Snapshot {
    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn lines_besides(&self, options: TextOptions) -> usize {
        text::lines_besides(self, options)
    }

    fn text(&self, room: usize, options: TextOptions, written: &mut Vec<u8>) {
        let mut fitting = Cow::Borrowed(self);
        if room < self.rows.len() {
            fitting.to_mut().truncate(room);
        }
        text::write(&fitting, options, written).expect("a Vec takes all");
    }

    fn json(&self, written: &mut Vec<u8>) -> io::Result<()> {
        json::write(self, written)
    }

    fn csv_columns(&self) -> Vec<String> {
        csv::columns(self)
    }

    fn csv_records(&self, records: &mut Records) -> io::Result<()> {
        csv::records(self, records)
    }
}

#[cfg(test)]
mod tests {
    use super::Lost;

    #[test]
    fn what_was_lost_since_is_told_by_name() {
        let lost = |contended, further: &[(&'static str, u64)]| Lost {
            contended,
            no_memory: 2,
            further: further.iter().map(|(name, count)| ((*name).into(), *count)).collect(),
        };
        let now = lost(7, &[("crowded", 5), ("skipped", 1)]).since(&lost(4, &[("skipped", 1)]));
        assert_eq!(now, Lost { no_memory: 0, ..lost(3, &[("crowded", 5), ("skipped", 0)]) });
        // A table that was made anew begins at 0.
        assert_eq!(lost(1, &[]).since(&lost(4, &[])).contended, 0);
    }
}
