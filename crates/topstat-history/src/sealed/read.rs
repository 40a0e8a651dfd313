// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns columns into rows again, and rows into entries.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parquet::column::reader::ColumnReader;
use parquet::data_type::ByteArray;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::statistics::Statistics;
use topstat_model::{Column, ColumnKind, CpuSection, Field, Lost, Row, Settings, Snapshot, TableType, Unit};

use super::io_error;
use super::rows::{About, KEY, stored};
use crate::entry::{Entry, Gap, Shapes};
use crate::limits::{MOST_GROUP_BYTES, MOST_GROUP_ROWS};

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
    let file = open(file)?;
    let about = about(&file)?;
    // The types of columns that this version knows for the table take precedence. The file has the types of the others.
    let known = shapes(&about.sample, &about.table).unwrap_or_default().columns;
    for number in 0..file.num_row_groups() {
        let group = file.get_row_group(number).map_err(io_error)?;
        if times(group.metadata()).is_some_and(|(first, last)| last < from || first > to) {
            continue;
        }
        let columns = contained(|| Columns::read(group.as_ref(), &|_| true))?;
        let mut row = 0;
        while row < columns.rows {
            let end = columns.end_of(row);
            let time = columns.time("time", row).ok_or_else(|| wrong("a row without a time"))?;
            if (from..=to).contains(&time) {
                each(columns.entry(&about, &known, time, row..end)?);
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
    let file = open(file)?;
    // The meaning of columns is unknown in another program's file, which is an error here.
    about(&file)?;
    for number in 0..file.num_row_groups() {
        let group = file.get_row_group(number).map_err(io_error)?;
        let wanted = |name: &str| ["time", "rank", "total"].contains(&name);
        let columns = contained(|| Columns::read(group.as_ref(), &wanted))?;
        for row in 0..columns.rows {
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
    let file = open(file)?;
    Ok(file.metadata().row_groups().iter().filter_map(times).map(|(_, last)| last).max())
}

fn open(file: File) -> io::Result<SerializedFileReader<File>> {
    contained(|| SerializedFileReader::new(file).map_err(io_error))
}

/// Turns a panic into an error: the library trusts some numbers in a file (lengths in run-length encoding, in 60.1).
fn contained<T>(read: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    thread_local!(static READING: Cell<bool> = const { Cell::new(false) });
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |said| {
            if !READING.get() {
                before(said);
            }
        }));
    });
    READING.set(true);
    let read = panic::catch_unwind(AssertUnwindSafe(read));
    READING.set(false);
    read.unwrap_or_else(|_| Err(wrong("the library that reads Parquet can't read it")))
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a sealed file of topstat: {what}"))
}

fn about(file: &SerializedFileReader<File>) -> io::Result<About> {
    let pairs = file.metadata().file_metadata().key_value_metadata();
    let text = pairs.into_iter().flatten().find(|pair| pair.key == KEY).and_then(|pair| pair.value.as_deref());
    let text = text.ok_or_else(|| wrong("its metadata has no key topstat"))?;
    serde_json::from_str(text).map_err(|error| wrong(&error.to_string()))
}

/// The first and the last time of a group of rows.
fn times(group: &RowGroupMetaData) -> Option<(SystemTime, SystemTime)> {
    let column = group.columns().iter().find(|column| column.column_path().string() == "time")?;
    match column.statistics()? {
        Statistics::Int64(times) => Some((instant(*times.min_opt()?), instant(*times.max_opt()?))),
        _ => None,
    }
}

fn instant(ms: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// The cells of a column; `None` where it is null.
enum Cells {
    Numbers(Vec<Option<i64>>),
    Texts(Vec<Option<ByteArray>>),
}

/// The columns of a group of rows.
struct Columns {
    cells: HashMap<String, Cells>,
    rows: usize,
}

impl Columns {
    fn read(group: &dyn RowGroupReader, wanted: &dyn Fn(&str) -> bool) -> io::Result<Self> {
        let rows = usize::try_from(group.metadata().num_rows()).map_err(io::Error::other)?;
        let bytes = group.metadata().total_byte_size();
        if rows > MOST_GROUP_ROWS || bytes > MOST_GROUP_BYTES {
            return Err(wrong(&format!(
                "a group has {rows} rows and {bytes} bytes, more than any that topstat writes"
            )));
        }
        // The library does not check the offsets in the metadata.
        let offsets = |column: &ColumnChunkMetaData| {
            let pages = [Some(column.data_page_offset()), column.dictionary_page_offset(), column.index_page_offset()];
            pages.into_iter().flatten().chain([column.compressed_size(), column.uncompressed_size()]).min()
        };
        if group.metadata().columns().iter().any(|column| offsets(column).is_some_and(|offset| offset < 0)) {
            return Err(wrong("an offset or a size of a column is negative"));
        }
        let mut cells = HashMap::new();
        for (number, column) in group.metadata().columns().iter().enumerate() {
            let name = column.column_path().string();
            if !wanted(&name) {
                continue;
            }
            let mut levels = Vec::with_capacity(rows);
            let read = match group.get_column_reader(number).map_err(io_error)? {
                ColumnReader::Int64ColumnReader(mut reader) => {
                    let mut values = Vec::new();
                    reader.read_records(rows, Some(&mut levels), None, &mut values).map_err(io_error)?;
                    Cells::Numbers(spread(values, &levels))
                }
                ColumnReader::ByteArrayColumnReader(mut reader) => {
                    let mut values = Vec::new();
                    reader.read_records(rows, Some(&mut levels), None, &mut values).map_err(io_error)?;
                    Cells::Texts(spread(values, &levels))
                }
                _ => continue,
            };
            if levels.len() != rows {
                return Err(wrong(&format!("column {name} has {} cells of {rows}", levels.len())));
            }
            cells.insert(name, read);
        }
        Ok(Self { cells, rows })
    }

    fn number(&self, name: &str, row: usize) -> Option<u64> {
        match self.cells.get(name)? {
            Cells::Numbers(cells) => cells[row].map(i64::cast_unsigned),
            Cells::Texts(_) => None,
        }
    }

    fn time(&self, name: &str, row: usize) -> Option<SystemTime> {
        self.number(name, row).map(|ms| instant(ms.cast_signed()))
    }

    fn text(&self, name: &str, row: usize) -> Option<&str> {
        match self.cells.get(name)? {
            Cells::Texts(cells) => cells[row].as_ref()?.as_utf8().ok(),
            Cells::Numbers(_) => None,
        }
    }

    /// The end of the rows of the entry that begins at `begin`: its ranks ascend from 1.
    fn end_of(&self, begin: usize) -> usize {
        let of = |row| (self.number("time", row), self.number("rank", row).unwrap_or(0));
        let (time, mut rank) = of(begin);
        let mut end = begin + 1;
        while rank > 0 && end < self.rows && of(end).0 == time && of(end).1 > rank {
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
        let column = |column: &super::rows::AboutColumn| {
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
        let stored_as = about.columns.iter().map(|column| column.stored.as_str());
        Row {
            id: Row::NO_ID,
            rank: self.number("rank", row).and_then(|rank| u32::try_from(rank).ok()).unwrap_or(u32::MAX),
            value: self.number("value", row).unwrap_or(0),
            object: stored_as.zip(columns).map(|(name, column)| self.field(name, column.kind, row)).collect(),
            parts: about.parts.iter().map(|part| self.number(&stored(part), row).unwrap_or(0)).collect(),
            cpus: numbers(self.text("cpus", row)),
        }
    }

    fn field(&self, name: &str, kind: ColumnKind, row: usize) -> Field {
        if let Some(number) = self.number(name, row) {
            return Field::U64(number);
        }
        let Some(text) = self.text(name, row) else { return Field::None };
        match (kind, text.parse()) {
            (ColumnKind::Address, Ok(ip)) => Field::Ip(ip),
            (ColumnKind::Mark, _) => Field::True,
            // Columns of numbers in which one is below 0 are texts.
            (ColumnKind::Id, _) if text.parse::<i64>().is_ok() => text.parse::<i64>().map_or(Field::None, Field::from),
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

/// The values, at the places whose level says that there is one.
fn spread<T>(values: Vec<T>, levels: &[i16]) -> Vec<Option<T>> {
    let mut values = values.into_iter();
    levels.iter().map(|level| if *level > 0 { values.next() } else { None }).collect()
}
