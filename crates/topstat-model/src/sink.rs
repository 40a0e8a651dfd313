// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes readings of every kind in one format, and keeps the state that the format needs from one reading to the next.

use std::io;

use crate::text::TextOptions;

/// Records of CSV in memory. All cells pass through here: see [`csv`](crate::csv) for how they are made safe.
#[derive(Debug)]
pub struct Records(::csv::Writer<Vec<u8>>);

impl Records {
    fn new() -> Self {
        Self(::csv::Writer::from_writer(Vec::new()))
    }

    /// Appends a cell to the record.
    ///
    /// # Errors
    ///
    /// No error that can happen in memory.
    pub fn write_field(&mut self, cell: impl AsRef<str>) -> ::csv::Result<()> {
        self.0.write_field(crate::csv::cell(cell.as_ref()).as_ref())
    }

    /// Appends cells, and ends the record.
    ///
    /// # Errors
    ///
    /// When a record has another number of fields than the first record.
    pub fn write_record<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = T>) -> ::csv::Result<()> {
        cells.into_iter().try_for_each(|cell| self.write_field(cell))?;
        self.0.write_record(None::<&[u8]>)
    }
}

/// A reading of any kind at one instant, for instance a ranked table or an account. A kind defines its contents in each format; a
/// [`Sink`] chooses the format and puts readings one after the other.
pub trait Reading {
    /// The number of rows. Text may show fewer of them.
    fn rows(&self) -> usize;

    /// The number of lines of text besides the rows, where no row is left out.
    fn lines_besides(&self, options: TextOptions) -> usize;

    /// Appends text for people. Rows have `room` lines; at least one line shows a row if there is any row.
    fn text(&self, room: usize, options: TextOptions, written: &mut Vec<u8>);

    /// Appends a document in one line.
    ///
    /// # Errors
    ///
    /// When it can't be JSON.
    fn json(&self, written: &mut Vec<u8>) -> io::Result<()>;

    /// The names of the columns in CSV.
    fn csv_columns(&self) -> Vec<String>;

    /// Appends the records, without the names of the columns.
    ///
    /// # Errors
    ///
    /// When a record has another number of fields than there are columns.
    fn csv_records(&self, records: &mut Records) -> io::Result<()>;
}

/// The output format of readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people: not to be parsed.
    #[default]
    Text,
    /// One document per reading and line.
    Json,
    /// One record per row, and the records that qualify the rows.
    Csv,
}

/// The space to write on. It limits text, and never the other formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The lines of a terminal that all readings of an instant must fit in, with one left for the cursor.
    pub lines: Option<usize>,
    /// The cells of a line.
    pub cells: Option<usize>,
}

/// Writes readings one after the other in one format.
#[derive(Debug)]
pub struct Sink {
    format: Format,
    options: TextOptions,
    /// Text has been written.
    begun: bool,
    /// The names of columns that CSV has written last.
    columns: Vec<String>,
}

impl Sink {
    /// A sink that has written nothing yet. The options are the options of text, except the width, which comes with each
    /// [`Space`].
    pub fn new(format: Format, options: TextOptions) -> Self {
        Self { format, options, begun: false, columns: vec![] }
    }

    /// Formats the readings of an instant, to follow the output written before. Text has an empty line between two readings. CSV
    /// has the names of columns where they differ from the names for the previous records.
    ///
    /// # Errors
    ///
    /// The errors of the reading.
    pub fn write(&mut self, readings: &[&dyn Reading], space: Space) -> io::Result<Vec<u8>> {
        let mut written = Vec::new();
        for (reading, room) in readings.iter().zip(self.rooms(readings, space)) {
            match self.format {
                Format::Text => {
                    if std::mem::replace(&mut self.begun, true) {
                        written.push(b'\n');
                    }
                    reading.text(room, self.options(space), &mut written);
                }
                Format::Json => reading.json(&mut written)?,
                Format::Csv => written.extend(self.csv(*reading)?),
            }
        }
        Ok(written)
    }

    /// Starts afresh: the next output replaces the output written before.
    pub fn restart(&mut self) {
        self.begun = false;
        self.columns.clear();
    }

    /// The number of lines for the rows of each reading, at least one. The lines that are not rows are subtracted first.
    pub fn rooms(&self, readings: &[&dyn Reading], space: Space) -> Vec<usize> {
        let Some(lines) = space.lines.filter(|_| self.format == Format::Text) else {
            return vec![usize::MAX; readings.len()];
        };
        // The lines between readings, together with the cursor's line, are as many as the readings.
        let besides: usize = readings.iter().map(|reading| reading.lines_besides(self.options(space)) + 1).sum();
        let wanted: Vec<_> = readings.iter().map(|reading| reading.rows()).collect();
        // Without any row there would be nothing to see.
        shares(lines.saturating_sub(besides), &wanted).into_iter().map(|share| share.max(1)).collect()
    }

    fn options(&self, space: Space) -> TextOptions {
        TextOptions { width: space.cells, ..self.options }
    }

    fn csv(&mut self, reading: &dyn Reading) -> io::Result<Vec<u8>> {
        let mut records = Records::new();
        let columns = reading.csv_columns();
        if self.columns != columns {
            records.write_record(&columns)?;
            self.columns = columns;
        }
        reading.csv_records(&mut records)?;
        records.0.into_inner().map_err(|error| error.into_error())
    }
}

/// Shares room among readings: none gets more than it wants, and the rest goes to the others.
fn shares(room: usize, wanted: &[usize]) -> Vec<usize> {
    let mut shares = vec![0; wanted.len()];
    let mut order: Vec<_> = (0..wanted.len()).collect();
    // The reading that wants least leaves most, so it is served first.
    order.sort_by_key(|index| wanted[*index]);
    let mut left = room;
    for (served, index) in order.iter().enumerate() {
        shares[*index] = wanted[*index].min(left / (wanted.len() - served));
        left -= shares[*index];
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kind for this test: a number of rows, and the name of its column.
    struct Other(usize, &'static str);

    impl Reading for Other {
        fn rows(&self) -> usize {
            self.0
        }

        fn lines_besides(&self, _: TextOptions) -> usize {
            1
        }

        fn text(&self, room: usize, options: TextOptions, written: &mut Vec<u8>) {
            let width = options.width.unwrap_or(0);
            written.extend(format!("{}\n{}", self.1, format!("{width}\n").repeat(self.0.min(room))).bytes());
        }

        fn json(&self, written: &mut Vec<u8>) -> io::Result<()> {
            written.extend(format!("{}\n", self.0).bytes());
            Ok(())
        }

        fn csv_columns(&self) -> Vec<String> {
            vec![self.1.to_owned()]
        }

        fn csv_records(&self, records: &mut Records) -> io::Result<()> {
            Ok(records.write_record([self.0.to_string()])?)
        }
    }

    fn written(sink: &mut Sink, readings: &[&dyn Reading], space: Space) -> String {
        String::from_utf8(sink.write(readings, space).unwrap()).unwrap()
    }

    #[test]
    fn a_kind_is_written_by_what_it_says_alone() {
        let sink = |format| Sink::new(format, TextOptions::default());
        let (all, fitting) = (Space::default(), Space { lines: Some(6), cells: Some(80) });
        let mut text = sink(Format::Text);
        assert_eq!(written(&mut text, &[&Other(2, "a")], all), "a\n0\n0\n");
        // Six lines less two titles, the line between and the cursor's line.
        assert_eq!(written(&mut text, &[&Other(9, "a"), &Other(1, "b")], fitting), "\na\n80\n\nb\n80\n");
        text.restart();
        assert_eq!(written(&mut text, &[&Other(9, "a")], fitting), "a\n80\n80\n80\n80\n");
        assert_eq!(written(&mut sink(Format::Json), &[&Other(9, "a"), &Other(1, "b")], fitting), "9\n1\n");
    }

    #[test]
    fn csv_names_its_columns_where_they_change() {
        let mut csv = Sink::new(Format::Csv, TextOptions::default());
        for (readings, expected) in [
            ([&Other(1, "a") as &dyn Reading, &Other(2, "a")], "a\n1\n2\n"),
            ([&Other(3, "a"), &Other(4, "b")], "3\nb\n4\n"),
            ([&Other(5, "b"), &Other(6, "a")], "5\na\n6\n"),
        ] {
            assert_eq!(written(&mut csv, &readings, Space::default()), expected);
        }
    }

    #[test]
    fn room_is_shared_by_who_wants_it() {
        assert_eq!(shares(10, &[20, 20]), [5, 5]);
        assert_eq!(shares(10, &[2, 20]), [2, 8]);
        assert_eq!(shares(10, &[20, 2]), [8, 2]);
        assert_eq!(shares(10, &[1, 2]), [1, 2]);
        assert_eq!(shares(0, &[3]), [0]);
        assert_eq!(shares(11, &[20, 20]), [5, 6]);
        assert_eq!(shares(5, &[]), [0; 0]);
    }
}
