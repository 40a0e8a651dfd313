// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns columns into rows again, and rows into entries.

use std::fs::File;
use std::io;
use std::time::{Duration, SystemTime};

use topstat_model::{Column, ColumnKind, CpuSection, Field, Lost, Row, Settings, Snapshot, TableType, Unit};

use super::columns::{Columns, Sealed, wrong};
use super::rows::{About, AboutColumn, stored};
use crate::entry::{Entry, Gap, Shapes};

/// Calls `each` with each entry of a file from one instant to another, both included.
///
/// # Errors
///
/// I/O errors of the file; also if topstat has not written it.
pub fn read(
    file: File,
    (from, to): (SystemTime, SystemTime),
    shapes: Shapes<'_>,
    each: &mut dyn FnMut(Entry),
) -> io::Result<()> {
    let file = Sealed::open(file)?;
    let about = file.about();
    // The types of columns that this version knows for the table take precedence. The file has the types of the others.
    let known = shapes(&about.sample, &about.table).unwrap_or_default().columns;
    for number in 0..file.groups() {
        if file.times(number).is_some_and(|(first, last)| last < from || first > to) {
            continue;
        }
        let columns = file.columns(number, &|_| true)?;
        let mut row = 0;
        while row < columns.rows() {
            let end = columns.end_of(row);
            let time = columns.time("time", row).ok_or_else(|| wrong("a row without a time"))?;
            if (from..=to).contains(&time) {
                each(columns.entry(about, &known, time, row..end)?);
            }
            row = end;
        }
    }
    Ok(())
}

/// Calls `each` with the time and the total of each snapshot of a file, and reads nothing else of it.
///
/// # Errors
///
/// As [`read`].
pub fn totals(file: File, each: &mut dyn FnMut(SystemTime, u64)) -> io::Result<()> {
    let file = Sealed::open(file)?;
    for number in 0..file.groups() {
        let columns = file.columns(number, &|name| ["time", "rank", "total"].contains(&name))?;
        for row in 0..columns.rows() {
            let time = columns.time("time", row).ok_or_else(|| wrong("a row without a time"))?;
            // All rows of a snapshot have its total, and a gap has no total.
            if let (Some(0 | 1), Some(total)) = (columns.number("rank", row), columns.number("total", row)) {
                each(time, total);
            }
        }
    }
    Ok(())
}

/// The time of the last record of a file.
///
/// # Errors
///
/// As [`read`].
pub fn last_time(file: File) -> io::Result<Option<SystemTime>> {
    let file = Sealed::open(file)?;
    Ok((0..file.groups()).filter_map(|group| file.times(group)).map(|(_, last)| last).max())
}

impl Columns {
    /// The end of the rows of the entry that begins at `begin`: its ranks ascend from 1.
    fn end_of(&self, begin: usize) -> usize {
        let of = |row| (self.number("time", row), self.number("rank", row).unwrap_or(0));
        let (time, mut rank) = of(begin);
        let mut end = begin + 1;
        while rank > 0 && end < self.rows() && of(end).0 == time && of(end).1 > rank {
            rank = of(end).1;
            end += 1;
        }
        end
    }

    fn entry(
        &self,
        about: &About,
        known: &[Column],
        time: SystemTime,
        rows: std::ops::Range<usize>,
    ) -> io::Result<Entry> {
        let first = rows.start;
        if let Some(reason) = self.text("gap", first) {
            let from = self.time("gap_from", first).unwrap_or(time);
            return Ok(Entry::Gap(Gap { time, from, reason: reason.to_owned(), unread: None }));
        }
        let number = |name| self.number(name, first).ok_or_else(|| wrong(&format!("{name} is missing")));
        let small = |name| number(name).map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        let column = |column: &AboutColumn| {
            known.iter().find(|known| known.name == column.name).cloned().unwrap_or_else(|| column.column())
        };
        let columns: Vec<_> = about.columns.iter().map(column).collect();
        let rows = rows.filter(|row| self.number("rank", *row).unwrap_or(0) > 0);
        let rows = rows.map(|row| self.row(about, &columns, row)).collect();
        let snapshot = Snapshot {
            time,
            sample: about.sample.clone(),
            table: about.table.clone(),
            kind: self.text("type", first).and_then(TableType::from_name).ok_or_else(|| wrong("type is unknown"))?,
            unit: self.text("unit", first).and_then(Unit::from_name).ok_or_else(|| wrong("unit is unknown"))?,
            value_name: about.value_name.clone(),
            period_ms: small("period_ms")?,
            delay_ms: small("delay_ms")?,
            elapsed: self.number("elapsed_ms", first).map(Duration::from_millis),
            top: small("top")?,
            objects: number("objects")?,
            total: number("total")?,
            shared: number("shared")?,
            other: number("other")?,
            proven: small("proven")?,
            filter: None,
            lost: self.lost("lost", about, first),
            lost_now: self.lost("lost_now", about, first),
            settings: Settings {
                enabled: true,
                owner: about.sample.clone(),
                owner_enabled: true,
                topstat_enabled: true,
            },
            columns,
            parts: about.parts.iter().map(|part| part.clone().into()).collect(),
            rows,
            cpus: self.cpus(first),
        };
        // As in logs: a file has no checksum.
        snapshot.check_sums().map_err(|fault| wrong(&fault.to_string()))?;
        Ok(Entry::Snapshot(Box::new(snapshot)))
    }

    fn row(&self, about: &About, columns: &[Column], row: usize) -> Row {
        let numbers = |text: Option<&str>| split(text).filter_map(|cpu| cpu.parse().ok()).collect();
        Row {
            id: Row::NO_ID,
            rank: self.number("rank", row).and_then(|rank| u32::try_from(rank).ok()).unwrap_or(u32::MAX),
            value: self.number("value", row).unwrap_or(0),
            object: about
                .columns
                .iter()
                .zip(columns)
                .map(|(stored, column)| self.field(stored, column.kind, row))
                .collect(),
            parts: about.parts.iter().map(|part| self.number(&stored(part), row).unwrap_or(0)).collect(),
            cpus: numbers(self.text("cpus", row)),
        }
    }

    fn field(&self, column: &AboutColumn, kind: ColumnKind, row: usize) -> Field {
        if let Some(field) = self.number_field(&column.stored, row) {
            return field;
        }
        let Some(text) = self.text(&column.stored, row) else { return Field::None };
        let number = || text.parse().map(Field::U64).or_else(|_| text.parse::<i64>().map(Field::from)).ok();
        match (kind, text.parse()) {
            (ColumnKind::Address, Ok(ip)) => Field::Ip(ip),
            (ColumnKind::Mark, _) => Field::True,
            // A column without a definition has texts alone.
            (ColumnKind::Port | ColumnKind::Pid | ColumnKind::Id, _) if !column.defined => {
                number().unwrap_or_else(|| Field::Text(text.to_owned()))
            }
            _ => Field::Text(text.to_owned()),
        }
    }

    fn lost(&self, before: &str, about: &About, row: usize) -> Lost {
        let mut lost = Lost::default();
        for name in &about.lost {
            let Some(count) = self.number(&format!("{before}_{name}"), row) else { continue };
            match name.as_str() {
                "contended" => lost.contended = count,
                "no_memory" => lost.no_memory = count,
                _ => lost.further.push((name.clone().into(), count)),
            }
        }
        lost
    }

    fn cpus(&self, row: usize) -> Vec<CpuSection> {
        let stale: Vec<u32> = split(self.text("stale_cpus", row)).filter_map(|cpu| cpu.parse().ok()).collect();
        let section = |text: &str| {
            let (cpu, total) = text.split_once(':')?;
            let (cpu, total) = (cpu.parse().ok()?, total.parse().ok()?);
            Some(CpuSection { cpu, total, stale: stale.contains(&cpu), rows: vec![] })
        };
        split(self.text("cpu_totals", row)).filter_map(section).collect()
    }
}

/// The items of a list with commas between them.
fn split(text: Option<&str>) -> impl Iterator<Item = &str> {
    text.into_iter().flat_map(|text| text.split(',')).filter(|item| !item.is_empty())
}
