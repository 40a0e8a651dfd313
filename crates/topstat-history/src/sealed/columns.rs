// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A sealed file, and the columns of its groups of rows.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parquet::basic::{ConvertedType, LogicalType, TimeUnit};
use parquet::column::reader::ColumnReader;
use parquet::data_type::ByteArray;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescriptor;
use topstat_model::Field;

use super::io_error;
use super::rows::{About, KEY};
use super::write::Value;
use crate::limits::{MOST_GROUP_BYTES, MOST_GROUP_ROWS};

/// A sealed file of this or an earlier version, held open.
pub struct Sealed {
    file: SerializedFileReader<File>,
    about: About,
}

impl Sealed {
    /// Opens a file, and reads its metadata.
    ///
    /// # Errors
    ///
    /// I/O errors of the file; also if topstat has not written it: the meaning of columns is unknown then.
    pub fn open(file: File) -> io::Result<Self> {
        let file = contained(|| SerializedFileReader::new(file).map_err(io_error))?;
        let pairs = file.metadata().file_metadata().key_value_metadata();
        let text = pairs.into_iter().flatten().find(|pair| pair.key == KEY).and_then(|pair| pair.value.as_deref());
        let text = text.ok_or_else(|| wrong("its metadata has no key topstat"))?;
        let about = serde_json::from_str(text).map_err(|error| wrong(&error.to_string()))?;
        Ok(Self { file, about })
    }

    /// Its table, and the meaning of its columns.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// The number of its groups of rows.
    pub fn groups(&self) -> usize {
        self.file.num_row_groups()
    }

    /// The number of rows of a group, by its metadata.
    pub fn rows(&self, group: usize) -> usize {
        usize::try_from(self.file.metadata().row_group(group).num_rows()).unwrap_or(0)
    }

    /// The first and the last time in a group; `None`: the metadata does not say it.
    pub fn times(&self, group: usize) -> Option<(SystemTime, SystemTime)> {
        times(self.file.metadata().row_group(group))
    }

    /// The names and types of its columns, in order: `number`, `unsigned`, `time`, `time_ms`, `text`.
    pub fn schema(&self) -> Vec<(String, &'static str)> {
        let schema = self.file.metadata().file_metadata().schema_descr();
        schema.columns().iter().map(|column| (column.path().string(), Meaning::of(column).name())).collect()
    }

    /// Reads the wanted columns of a group. A missing column is no error.
    ///
    /// # Errors
    ///
    /// I/O errors of the file; also if the group is damaged, or larger than any that topstat writes.
    pub fn columns(&self, group: usize, wanted: &dyn Fn(&str) -> bool) -> io::Result<Columns> {
        self.columns_of(group, 0..self.rows(group), wanted)
    }

    /// As [`Sealed::columns`], of a range of the group's rows.
    ///
    /// # Errors
    ///
    /// As [`Sealed::columns`].
    pub fn columns_of(
        &self,
        group: usize,
        rows: std::ops::Range<usize>,
        wanted: &dyn Fn(&str) -> bool,
    ) -> io::Result<Columns> {
        contained(|| Columns::read(self.file.get_row_group(group).map_err(io_error)?.as_ref(), rows, wanted))
    }
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

pub(super) fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a sealed file of topstat: {what}"))
}

/// The first and the last time of a group of rows.
fn times(group: &RowGroupMetaData) -> Option<(SystemTime, SystemTime)> {
    let column = group.columns().iter().find(|column| column.column_path().string() == "time")?;
    let meaning = Meaning::of(column.column_descr());
    match column.statistics()? {
        Statistics::Int64(times) => Some((meaning.instant(*times.min_opt()?), meaning.instant(*times.max_opt()?))),
        _ => None,
    }
}

/// The meaning of a column's 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Signed,
    /// In files of earlier versions.
    Unsigned,
    Micros,
    /// In files of earlier versions.
    Millis,
    Text,
}

impl Meaning {
    fn of(column: &ColumnDescriptor) -> Self {
        if column.physical_type() == parquet::basic::Type::BYTE_ARRAY {
            return Self::Text;
        }
        match (column.logical_type_ref(), column.converted_type()) {
            (Some(LogicalType::Timestamp(time)), _) if time.unit == TimeUnit::MICROS => Self::Micros,
            (Some(LogicalType::Timestamp(_)), _) => Self::Millis,
            (_, ConvertedType::UINT_64) => Self::Unsigned,
            _ => Self::Signed,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Signed => "number",
            Self::Unsigned => "unsigned",
            Self::Micros => "time",
            Self::Millis => "time_ms",
            Self::Text => "text",
        }
    }

    fn instant(self, number: i64) -> SystemTime {
        let number = u64::try_from(number).unwrap_or(0);
        UNIX_EPOCH + if self == Self::Millis { Duration::from_millis(number) } else { Duration::from_micros(number) }
    }
}

/// The cells of a column; `None` where it is null.
#[derive(Debug)]
pub struct Cells {
    meaning: Meaning,
    numbers: Vec<Option<i64>>,
    texts: Vec<Option<ByteArray>>,
}

impl Cells {
    /// The quantity in a row. Numbers of 2^63 and more are stored by their bits.
    pub fn number(&self, row: usize) -> Option<u64> {
        self.numbers.get(row).copied().flatten().map(i64::cast_unsigned)
    }

    /// The time in a row.
    pub fn time(&self, row: usize) -> Option<SystemTime> {
        self.numbers.get(row).copied().flatten().map(|number| self.meaning.instant(number))
    }

    /// The time in a row, in µs since 1970.
    pub fn micros(&self, row: usize) -> Option<i64> {
        let number = self.numbers.get(row).copied().flatten()?;
        if self.meaning == Meaning::Millis { number.checked_mul(1000) } else { Some(number) }
    }

    /// The text in a row, if the column has texts, and this one is UTF-8.
    pub fn text(&self, row: usize) -> Option<&str> {
        self.texts.get(row)?.as_ref()?.as_utf8().ok()
    }

    /// The cell in a row, as a compacted file has it.
    pub fn value(&self, row: usize) -> Value<'_> {
        if self.meaning == Meaning::Text {
            return self.text(row).map_or(Value::Null, Value::Text);
        }
        let number =
            if self.meaning == Meaning::Millis { self.micros(row) } else { self.number(row).map(u64::cast_signed) };
        number.map_or(Value::Null, Value::Number)
    }

    /// The number in a row as a field, if the column has numbers.
    pub fn number_field(&self, row: usize) -> Option<Field> {
        let number = self.numbers.get(row).copied().flatten()?;
        Some(if self.meaning == Meaning::Unsigned { Field::U64(number.cast_unsigned()) } else { number.into() })
    }
}

/// The columns of a group of rows, or of some of its rows.
pub struct Columns {
    cells: HashMap<String, Cells>,
    rows: usize,
}

impl Columns {
    fn read(
        group: &dyn RowGroupReader,
        range: std::ops::Range<usize>,
        wanted: &dyn Fn(&str) -> bool,
    ) -> io::Result<Self> {
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
        let count = range.len();
        let mut cells = HashMap::new();
        for (number, column) in group.metadata().columns().iter().enumerate() {
            let name = column.column_path().string();
            if !wanted(&name) {
                continue;
            }
            let mut levels = Vec::with_capacity(count);
            let mut read = Cells { meaning: Meaning::of(column.column_descr()), numbers: vec![], texts: vec![] };
            match group.get_column_reader(number).map_err(io_error)? {
                ColumnReader::Int64ColumnReader(mut reader) => {
                    let mut values = Vec::with_capacity(count);
                    reader.skip_records(range.start).map_err(io_error)?;
                    reader.read_records(count, Some(&mut levels), None, &mut values).map_err(io_error)?;
                    read.numbers = spread(values, &levels);
                }
                ColumnReader::ByteArrayColumnReader(mut reader) => {
                    let mut values = Vec::new();
                    reader.skip_records(range.start).map_err(io_error)?;
                    reader.read_records(count, Some(&mut levels), None, &mut values).map_err(io_error)?;
                    read.texts = spread(values, &levels);
                }
                _ => continue,
            }
            if levels.len() != count {
                return Err(wrong(&format!("column {name} has {} cells of {count}", levels.len())));
            }
            cells.insert(name, read);
        }
        Ok(Self { cells, rows: count })
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The cells of a column, if it was wanted and the file has it.
    pub fn cells(&self, name: &str) -> Option<&Cells> {
        self.cells.get(name)
    }

    pub(super) fn number(&self, name: &str, row: usize) -> Option<u64> {
        self.cells.get(name)?.number(row)
    }

    pub(super) fn number_field(&self, name: &str, row: usize) -> Option<Field> {
        self.cells.get(name)?.number_field(row)
    }

    pub(super) fn time(&self, name: &str, row: usize) -> Option<SystemTime> {
        self.cells.get(name)?.time(row)
    }

    pub(super) fn text(&self, name: &str, row: usize) -> Option<&str> {
        self.cells.get(name)?.text(row)
    }
}

/// The values, at the places whose level says that there is one.
fn spread<T>(values: Vec<T>, levels: &[i16]) -> Vec<Option<T>> {
    let mut values = values.into_iter();
    levels.iter().map(|level| if *level > 0 { values.next() } else { None }).collect()
}
