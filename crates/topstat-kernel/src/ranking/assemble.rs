// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Assembles a snapshot of a table from the data that was read. The result adds up, or is an error, whatever the memory holds:
//! other processes can write to pinned memory.

use std::sync::Arc;
use std::time::SystemTime;

use topstat_engine::proof;
use topstat_model::{CpuRow, CpuSection, Lost, Row as ModelRow, Settings, Snapshot, TableType, Unit};

use topstat_engine::abi::{TS_SLIDES, ts_section, ts_tick};

use super::merge::{Merged, merge};
use super::rows::{Row, Rows};
use crate::cgroup::Paths;
use crate::family::{RowColumn, TablePlace, describe};
use crate::{Error, SampleInfo, TableInfo, TableSettings};

/// The part of one CPU, as it was read.
pub struct Section {
    pub cpu: u32,
    pub head: ts_section,
    pub rows: Rows,
    /// It could not be read on that CPU: its rows are as old as their last push.
    pub stale: bool,
    /// A second section of its CPU: see T9 in the engine's `keep.h`.
    pub again: bool,
}

/// The first section of each CPU.
pub fn first(sections: &[Section]) -> impl Iterator<Item = &Section> {
    sections.iter().filter(|section| !section.again)
}

/// The table to read, its place, and its settings.
pub struct Table<'a> {
    pub info: &'a TableInfo,
    /// Its sample.
    pub of: Arc<SampleInfo>,
    pub place: TablePlace,
    pub settings: TableSettings,
}

/// All data that was read of a table.
pub struct Read<'a> {
    pub table: &'a Table<'a>,
    pub time: SystemTime,
    /// At least one.
    pub sections: &'a [Section],
    /// The total of each section's CPU.
    pub totals: Vec<u64>,
    /// A bound of the amounts that were refused to objects without a row: see T6 in the engine's `table.h`.
    pub refused: u64,
    /// See [`Doubt::missing`](crate::family::Doubt::missing).
    pub missing_at: Option<usize>,
    /// Whether all objects that were pushed have been ordered just now, whatever the delay.
    pub settled: bool,
    /// See [`Ranked::unranked`](crate::family::Ranked::unranked): one row, or none.
    pub unranked: Rows,
    /// The names of the parts of a value.
    pub parts: &'a [String],
    /// Rows that the table keeps.
    pub top: u32,
    pub objects: u64,
    pub lost: Lost,
    /// Losses since the snapshot before.
    pub lost_now: Lost,
    /// Whether the rows of every CPU are wanted, too.
    pub cpu_rows: bool,
}

/// Assembles the snapshot. Also returns whether it has unproven rows that ordering all objects again would prove.
pub fn assemble(read: Read<'_>, paths: &mut Paths) -> Result<(Snapshot, bool), Error> {
    let Read { table, time, sections, mut totals, refused, settled, unranked, parts, .. } = read;
    let Read { top, objects, lost, lost_now, cpu_rows, missing_at, .. } = read;
    let info = table.info;
    let tick = sections[0].head.tick;
    let scale = scale(info.unit);
    let since = (info.kind == TableType::Dynamic).then(|| period_began(&tick));
    let merged = merge(sections.iter().map(|s| (s.cpu, &s.rows)), since, unranked.iter().next());

    let does_not_add_up = |fault: &dyn std::fmt::Display| Error::Kernel {
        what: format!("take a snapshot of {}/{}", info.sample, info.name),
        why: format!("it does not add up ({fault})"),
    };
    let shown = sum(merged.iter().take(top as usize).map(|m| m.row.head.value));
    let total = sum(totals.iter().copied());
    let absent = match info.kind {
        // The total has each push before its object has it (P1), and is read after the rows.
        TableType::Static => {
            total.checked_sub(shown).ok_or_else(|| does_not_add_up(&"its rows are more than its total"))?
        }
        TableType::Dynamic => u64::MAX,
    };
    // In a dynamic table a push that was under way at a slide's boundary may be in one slide for its object and in the next for
    // the total, and the two fade differently. The larger of the two is the pushed amount.
    if let (Some(most), true) = (totals.iter_mut().max(), shown > total) {
        *most = most.saturating_add(shown - total);
    }
    // No real count comes near the limit.
    let counted = sum(totals.iter().copied()).checked_mul(scale).filter(|counted| *counted < u64::MAX);
    let total = counted.ok_or_else(|| does_not_add_up(&"the totals of its CPUs are more than a number holds"))?;
    let shape = Shape { columns: &table.of.columns, parts: parts.len(), top: top as usize, scale };
    let rows = shape.rows(&merged, paths);
    let missed = sections.iter().map(|s| s.head.missed).max().unwrap_or(0);
    let ended = sections.iter().map(|s| s.head.missed_ended).max().unwrap_or(0);
    // Otherwise objects may have grown without being ordered.
    let ordered = settled || table.settings.order_ms() == 0;
    let proven = |missed, refused| {
        let missed = if ordered { missed } else { u64::MAX };
        proven(&merged, rows.len(), proof(missed, absent, hidden(&merged, rows.len()), refused))
    };
    // Ordering again does not find objects that have ended (T8).
    let unordered = (proven(missed, 0) as usize) < rows.len();
    let proven = proven(missed.max(ended), refused).min(in_order(&merged, rows.len(), missing_at));
    let mut cpus = Vec::with_capacity(sections.len());
    for (section, total) in first(sections).zip(&totals) {
        let rows = if cpu_rows { shape.cpu_rows(section, paths) } else { vec![] };
        cpus.push(CpuSection { cpu: section.cpu, total: total.saturating_mul(scale), stale: section.stale, rows });
    }
    let mut snapshot = Snapshot {
        time,
        sample: info.sample.clone(),
        table: info.name.clone(),
        kind: info.kind,
        unit: info.unit,
        value_name: info.value_name.clone(),
        period_ms: table.settings.period_ms,
        delay_ms: table.settings.order_ms(),
        elapsed: None,
        top,
        objects,
        total,
        shared: 0,
        other: 0,
        proven,
        filter: None,
        lost_now,
        lost,
        settings: header(table),
        columns: table.of.columns(),
        parts: parts.iter().map(|part| part.clone().into()).collect(),
        rows,
        cpus,
    };
    snapshot.settle().map_err(|fault| does_not_add_up(&fault))?;
    Ok((snapshot, unordered))
}

/// How rows are shown.
struct Shape<'a> {
    columns: &'a [RowColumn],
    /// The number of parts of a value.
    parts: usize,
    /// The most rows that are shown.
    top: usize,
    scale: u64,
}

impl Shape<'_> {
    /// The shown rows of the merge.
    fn rows(&self, merged: &[Merged<'_>], paths: &mut Paths) -> Vec<ModelRow> {
        let shown = merged.iter().take(self.top).filter(|m| m.row.head.value > 0);
        (1..)
            .zip(shown)
            .map(|(rank, m)| ModelRow {
                id: [m.row.head.id, 0],
                rank,
                value: m.row.head.value.saturating_mul(self.scale),
                object: describe(self.columns, m.row.bytes, paths),
                parts: m.row.head.part.iter().take(self.parts).map(|p| p.saturating_mul(self.scale)).collect(),
                cpus: m.cpus.clone(),
            })
            .collect()
    }

    /// The rows of a CPU, by the value that they were ordered by.
    fn cpu_rows(&self, section: &Section, paths: &mut Paths) -> Vec<CpuRow> {
        let mut by_key: Vec<Row<'_>> = section.rows.iter().filter(|r| r.head.key > 0).collect();
        by_key.sort_unstable_by(|a, b| b.head.key.cmp(&a.head.key).then(a.head.id.cmp(&b.head.id)));
        let row = |r: Row<'_>| CpuRow {
            value: r.head.key.saturating_mul(self.scale),
            object: describe(self.columns, r.bytes, paths),
        };
        by_key.into_iter().take(self.top).map(row).collect()
    }
}

/// The sum of numbers that may be anything. On overflow it is the largest number, and not the remainder.
pub fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// The factor from pushed amounts to the table's unit.
pub fn scale(unit: Unit) -> u64 {
    if unit == Unit::Bits { 8 } else { 1 }
}

/// The tick at which the period that ends at this instant began.
fn period_began(tick: &ts_tick) -> u64 {
    tick.now.saturating_sub(u64::from(TS_SLIDES).saturating_mul(tick.end.saturating_sub(tick.start)))
}

pub fn header(table: &Table<'_>) -> Settings {
    Settings {
        enabled: table.settings.enabled,
        owner: table.info.sample.clone(),
        owner_enabled: table.settings.sample_enabled,
        topstat_enabled: table.settings.root_enabled,
    }
}

/// The value of the largest object that was found and is not shown.
fn hidden(merged: &[Merged<'_>], shown: usize) -> u64 {
    merged.get(shown).map_or(0, |m| m.row.head.value)
}

/// The number of shown rows that are certain to be the true top. An object without a row is worth `least` at most ([`proof`]).
fn proven(merged: &[Merged<'_>], shown: usize, least: u64) -> u32 {
    let certain = |m: &&Merged<'_>| m.row.head.value >= least && m.row.head.busy == 0;
    u32::try_from(merged.iter().take(shown).take_while(certain).count()).unwrap_or(u32::MAX)
}

/// The number of shown rows that no later row can exceed, where values may be too low by the amount at this offset of a row.
fn in_order(merged: &[Merged<'_>], shown: usize, missing_at: Option<usize>) -> u32 {
    let Some(at) = missing_at else { return u32::MAX };
    let missing = |row: &Row<'_>| {
        let bytes = row.bytes.get(at..).and_then(<[u8]>::first_chunk).copied();
        bytes.map_or(u64::MAX, u64::from_ne_bytes)
    };
    // From the last row on: the most that any row behind this one is worth.
    let (mut most, mut certain) = (0_u64, 0);
    for (i, m) in merged.iter().enumerate().rev() {
        if m.row.head.value < most {
            certain = 0;
        } else if i < shown {
            certain += 1;
        }
        most = most.max(m.row.head.value.saturating_add(missing(&m.row)));
    }
    certain
}

#[cfg(test)]
mod tests {
    use topstat_engine::abi::ts_row;

    use super::*;
    use crate::bpf;
    use crate::family::Objects;

    /// Reads one CPU of a static table, given its rows, its total, its missed[] and its refused amount.
    fn read_static(values: &[u64], total: u64, missed: u64, refused: u64, delay_ms: u32) -> Result<Snapshot, Error> {
        let info = TableInfo::running_total(0, "sum", Unit::Count, "count", "of the test");
        let of = Arc::new(SampleInfo::new("trial", "of the test", Objects::Keyed, vec![], [info.clone()]));
        let settings = TableSettings {
            enabled: true,
            sample_enabled: true,
            root_enabled: true,
            sync: true,
            period_ms: 1000,
            delay_ms,
            raised_ms: 0,
        };
        let table = Table { info: &info, of, place: TablePlace::at(0), settings };
        let row = |(id, value): (u64, &u64)| {
            bpf::as_bytes(&ts_row { id, value: *value, part: [*value, 0], key: *value, ..Default::default() }).to_vec()
        };
        let rows = Rows::new((1..).zip(values).flat_map(row).collect(), size_of::<ts_row>());
        let head = ts_section { missed, ..Default::default() };
        let sections = [Section { cpu: 0, head, rows, stale: false, again: false }];
        let read = Read {
            table: &table,
            time: SystemTime::UNIX_EPOCH,
            sections: &sections,
            totals: vec![total],
            refused,
            missing_at: None,
            settled: false,
            unranked: Rows::new(vec![], size_of::<ts_row>()),
            parts: &[],
            top: 2,
            objects: 0,
            lost: Lost::default(),
            lost_now: Lost::default(),
            cpu_rows: false,
        };
        assemble(read, &mut Paths::new(None)).map(|(snapshot, _)| snapshot)
    }

    /// missed[] of a static table is never forgotten. An object without a row is not larger than the sum of all objects without a
    /// row.
    #[test]
    fn rows_of_a_static_table_are_proven_by_what_no_row_has() {
        let proven = |values, total, missed, refused, delay_ms| {
            read_static(values, total, missed, refused, delay_ms).unwrap().proven
        };
        for delay_ms in [0, 100] {
            assert_eq!(proven(&[9, 5], 14, u64::MAX, 0, delay_ms), 2);
            assert_eq!(proven(&[9, 5], 20, u64::MAX, 0, delay_ms), 1);
            assert_eq!(proven(&[9, 5], 24, u64::MAX, 0, delay_ms), 0);
            assert_eq!(proven(&[9, 5], 14, u64::MAX, 6, delay_ms), 1, "so much of any object may be missing");
            // The third object is in a table, but not among the rows.
            assert_eq!(proven(&[9, 5, 4], 18, u64::MAX, 0, delay_ms), 2);
            assert_eq!(proven(&[9, 5, 4], 18, u64::MAX, 2, delay_ms), 1);
        }
        assert_eq!(proven(&[9, 5], 100, 5, 0, 0), 2);
        assert_eq!(proven(&[9, 5], 100, 5, 0, 100), 0);
    }

    /// No total is raised to fit its rows.
    #[test]
    fn a_static_table_whose_rows_are_more_than_its_total_is_an_error() {
        assert_eq!(read_static(&[9, 5], 14, 0, 0, 0).unwrap().other, 0);
        let why = read_static(&[14_098_760_008_128_755_625, 5], 160, 0, 0, 0).unwrap_err().to_string();
        assert!(why.contains("its rows are more than its total"), "{why}");
    }
}
