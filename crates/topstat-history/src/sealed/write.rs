// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns entries into rows, and rows into columns.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parquet::basic::{
    Compression, ConvertedType, Encoding, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel,
};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type, TypePtr};
use topstat_model::{Field, Row, Snapshot};

use super::io_error;
use super::rows::{About, Holds, KEY};
use crate::entry::{Entry, Gap};
use crate::limits::MOST_GROUP_ROWS;

/// The compression level of sealed files: an hour is sealed once, and kept for days.
const LEVEL: i32 = 9;
/// The most rows of a group: a third of a busy hour. Finding an instant reads one group. Each group adds a few KB to the file.
const GROUP: usize = 4096;

/// A Parquet file that gets one entry after the other.
pub struct Rows<'f> {
    about: About,
    writer: SerializedFileWriter<&'f File>,
    /// The columns of the next group of rows.
    columns: Vec<Cells>,
    rows: usize,
}

impl<'f> Rows<'f> {
    /// Begins a file for entries that need no other columns than `about` has.
    pub fn new(about: About, file: &'f File) -> io::Result<Self> {
        let columns = columns(&about);
        let writer = begin(&about, &columns, &SORTED, file)?;
        Ok(Self { about, writer, columns, rows: 0 })
    }

    /// Adds an entry. All of its rows go into the same group.
    pub fn add(&mut self, entry: &Entry) -> io::Result<()> {
        let rows = match entry {
            Entry::Snapshot(snapshot) => snapshot.rows.len().max(1),
            Entry::Gap(_) => 1,
        };
        if self.rows + rows > GROUP {
            self.end_group()?;
        }
        self.rows += rows;
        match entry {
            Entry::Snapshot(snapshot) if snapshot.rows.is_empty() => {
                add(&mut self.columns, &self.about, snapshot, None);
            }
            Entry::Snapshot(snapshot) => {
                snapshot.rows.iter().for_each(|row| add(&mut self.columns, &self.about, snapshot, Some(row)));
            }
            Entry::Gap(gap) => add_gap(&mut self.columns, gap),
        }
        Ok(())
    }

    fn end_group(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.rows) == 0 {
            return Ok(());
        }
        let columns = std::mem::replace(&mut self.columns, columns(&self.about));
        write_group(&mut self.writer, columns)
    }

    /// Ends the file.
    pub fn finish(mut self) -> io::Result<()> {
        self.end_group()?;
        self.writer.close().map_err(io_error)?;
        Ok(())
    }
}

fn write_group(writer: &mut SerializedFileWriter<&File>, columns: Vec<Cells>) -> io::Result<()> {
    let mut group = writer.next_row_group().map_err(io_error)?;
    for column in columns {
        let Some(mut written) = group.next_column().map_err(io_error)? else { break };
        let levels = Some(&column.levels[..]);
        match column.holds {
            Holds::Text => written.typed::<ByteArrayType>().write_batch(&column.texts, levels, None),
            _ => written.typed::<Int64Type>().write_batch(&column.numbers, levels, None),
        }
        .map_err(io_error)?;
        written.close().map_err(io_error)?;
    }
    group.close().map_err(io_error)?;
    Ok(())
}

fn begin<'f>(
    about: &About,
    columns: &[Cells],
    sorted: &[i32],
    file: &'f File,
) -> io::Result<SerializedFileWriter<&'f File>> {
    let schema = Type::group_type_builder("records").with_fields(columns.iter().map(Cells::schema).collect());
    let schema = Arc::new(schema.build().map_err(io_error)?);
    SerializedFileWriter::new(file, schema, properties(about, columns, sorted)?).map_err(io_error)
}

/// A cell of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'v> {
    /// No value.
    Null,
    /// A number; of a time, µs since 1970.
    Number(i64),
    /// A text.
    Text(&'v str),
}

/// A compacted file, which gets the rows of many hosts one after the other, sorted by time, host and rank. It has the columns of a
/// sealed file, and `host` behind `time`.
pub struct HostRows<'f> {
    about: About,
    writer: SerializedFileWriter<&'f File>,
    columns: Vec<Cells>,
    rows: usize,
}

impl<'f> HostRows<'f> {
    /// Begins a file.
    ///
    /// # Errors
    ///
    /// I/O errors of the file.
    pub fn new(about: About, file: &'f File) -> io::Result<Self> {
        let columns = host_columns(&about);
        let writer = begin(&about, &columns, &SORTED_BY_HOST, file)?;
        Ok(Self { about, writer, columns, rows: 0 })
    }

    /// The names of the columns of a compacted file, in order, each with whether it has texts.
    pub fn schema(about: &About) -> Vec<(String, bool)> {
        host_columns(about).into_iter().map(|column| (column.name, column.holds == Holds::Text)).collect()
    }

    /// Adds a row: a cell for each column. A number in a column of texts is written as a text, and a text in a column of numbers is
    /// left out.
    ///
    /// # Errors
    ///
    /// As [`HostRows::new`].
    pub fn add<'v>(&mut self, cells: impl Iterator<Item = Value<'v>>) -> io::Result<()> {
        for (column, value) in self.columns.iter_mut().zip(cells) {
            match (value, column.holds) {
                (Value::Number(number), Holds::Text) => column.text(&number.to_string()),
                (Value::Number(number), _) => column.number(number.cast_unsigned()),
                (Value::Text(text), Holds::Text) => column.text(text),
                (Value::Text(_) | Value::Null, _) => column.null(),
            }
        }
        self.rows += 1;
        if self.rows == MOST_GROUP_ROWS { self.end_group() } else { Ok(()) }
    }

    fn end_group(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.rows) == 0 {
            return Ok(());
        }
        let columns = std::mem::replace(&mut self.columns, host_columns(&self.about));
        write_group(&mut self.writer, columns)
    }

    /// Ends the file.
    ///
    /// # Errors
    ///
    /// As [`HostRows::new`].
    pub fn finish(mut self) -> io::Result<()> {
        self.end_group()?;
        self.writer.close().map_err(io_error)?;
        Ok(())
    }
}

fn host_columns(about: &About) -> Vec<Cells> {
    let mut columns = columns(about);
    columns.insert(1, Cells::new("host".to_owned(), Holds::Text));
    columns
}

fn columns(about: &About) -> Vec<Cells> {
    about.schema().into_iter().map(|(name, holds)| Cells::new(name, holds)).collect()
}

fn properties(about: &About, columns: &[Cells], sorted: &[i32]) -> io::Result<Arc<WriterProperties>> {
    let about = serde_json::to_string(about)?;
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_created_by(concat!("topstat version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(vec![KeyValue::new(KEY.to_owned(), about)]))
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL).map_err(io_error)?))
        // Statistics of pages would take more room than they save: a file has one page of each column.
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_sorting_columns(Some(sorted.iter().copied().map(ascending).collect()))
        .set_offset_index_disabled(true);
    for column in columns.iter().filter(|column| matches!(column.holds, Holds::Value | Holds::Time)) {
        // Values fall from row to row; times stay equal, or grow by an interval.
        let path = ColumnPath::from(column.name.clone());
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    // The statistics of these columns choose no rows, and are a fifth of the footer.
    for column in columns.iter().filter(|column| column.is_aside()) {
        let path = ColumnPath::from(column.name.clone());
        properties = properties.set_column_statistics_enabled(path, EnabledStatistics::None);
    }
    Ok(Arc::new(properties.build()))
}

/// Rows are sorted by the first two columns, `time` and `rank`.
const SORTED: [i32; 2] = [0, 1];
/// Those of a compacted file by `time`, `host` and `rank`.
const SORTED_BY_HOST: [i32; 3] = [0, 1, 2];

fn ascending(column_idx: i32) -> SortingColumn {
    SortingColumn { column_idx, descending: false, nulls_first: false }
}

/// The cells of a column.
struct Cells {
    name: String,
    holds: Holds,
    numbers: Vec<i64>,
    texts: Vec<ByteArray>,
    /// 0 where a cell is null.
    levels: Vec<i16>,
}

impl Cells {
    fn new(name: String, holds: Holds) -> Self {
        Self { name, holds, numbers: vec![], texts: vec![], levels: vec![] }
    }

    fn schema(&self) -> TypePtr {
        let builder = match self.holds {
            Holds::Text => Type::primitive_type_builder(&self.name, Physical::BYTE_ARRAY)
                .with_logical_type(Some(LogicalType::String))
                .with_converted_type(ConvertedType::UTF8),
            Holds::Time => Type::primitive_type_builder(&self.name, Physical::INT64)
                .with_logical_type(Some(LogicalType::timestamp(true, TimeUnit::MICROS)))
                .with_converted_type(ConvertedType::TIMESTAMP_MICROS),
            Holds::Value | Holds::Number => Type::primitive_type_builder(&self.name, Physical::INT64)
                .with_logical_type(Some(LogicalType::integer(64, true)))
                .with_converted_type(ConvertedType::INT_64),
        };
        Arc::new(builder.with_repetition(Repetition::OPTIONAL).build().expect("a column of one of four types"))
    }

    /// Whether the column is about the record, and not about what it shows.
    fn is_aside(&self) -> bool {
        ["cpus", "cpu_totals", "stale_cpus"].contains(&self.name.as_str()) || self.name.starts_with("lost_")
    }

    /// Adds a quantity. No engine has numbers of 2^63 and more in common with the others: they have their bits here, and come back
    /// whole when topstat reads them.
    fn number(&mut self, number: u64) {
        self.numbers.push(number.cast_signed());
        self.levels.push(1);
    }

    fn time(&mut self, time: SystemTime) {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        self.numbers.push(i64::try_from(since).unwrap_or(i64::MAX));
        self.levels.push(1);
    }

    fn text(&mut self, text: &str) {
        self.texts.push(text.into());
        self.levels.push(1);
    }

    fn null(&mut self) {
        self.levels.push(0);
    }

    fn field(&mut self, field: &Field) {
        match (field, self.holds) {
            (Field::None, _) => self.null(),
            (Field::U64(number), Holds::Number | Holds::Value) => self.number(*number),
            (Field::U64(number), _) => self.text(&number.to_string()),
            (Field::Negative(number), Holds::Number | Holds::Value) => {
                self.numbers.push(*number);
                self.levels.push(1);
            }
            (Field::Negative(number), _) => self.text(&number.to_string()),
            (Field::Ip(ip), _) => self.text(&ip.to_string()),
            (Field::Text(text), _) => self.text(text),
            (Field::True, _) => self.text("true"),
        }
    }
}

/// Adds a row of a snapshot; `None`: the snapshot alone.
fn add(columns: &mut [Cells], about: &About, snapshot: &Snapshot, row: Option<&Row>) {
    let mut cells = columns.iter_mut();
    let mut next = || cells.next().expect("as many columns as the schema has");
    next().time(snapshot.time);
    next().number(row.map_or(0, |row| row.rank.into()));
    match row {
        Some(row) => next().number(row.value),
        None => next().null(),
    }
    for part in &about.parts {
        let place = snapshot.parts.iter().position(|name| name == part);
        match row.and_then(|row| row.parts.get(place?)) {
            Some(value) => next().number(*value),
            None => next().null(),
        }
    }
    for column in &about.columns {
        next().field(row.and_then(|row| row.object.get(snapshot.column(&column.name)?)).unwrap_or(&Field::None));
    }
    match row {
        Some(row) => next().text(&list(row.cpus.iter())),
        None => next().null(),
    }
    for number in [snapshot.total, snapshot.shared, snapshot.other, snapshot.proven.into(), snapshot.objects] {
        next().number(number);
    }
    for number in [snapshot.top, snapshot.period_ms, snapshot.delay_ms] {
        next().number(number.into());
    }
    match snapshot.elapsed_ms() {
        Some(ms) => next().number(ms),
        None => next().null(),
    }
    next().text(snapshot.kind.name());
    next().text(snapshot.unit.name());
    for lost in [&snapshot.lost, &snapshot.lost_now] {
        for name in &about.lost {
            match lost.counters().find(|(known, _)| known == name) {
                Some((_, count)) => next().number(count),
                None => next().null(),
            }
        }
    }
    next().text(&list(snapshot.cpus.iter().map(|section| format!("{}:{}", section.cpu, section.total))));
    next().text(&list(snapshot.stale_cpus()));
    next().null();
    next().null();
}

fn add_gap(columns: &mut [Cells], gap: &Gap) {
    for column in columns {
        match column.name.as_str() {
            "time" => column.time(gap.time),
            "rank" => column.number(0),
            "gap" => column.text(&gap.reason),
            "gap_from" => column.time(gap.from),
            _ => column.null(),
        }
    }
}

fn list(items: impl Iterator<Item = impl ToString>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(",")
}
