// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A snapshot as text for people: a title, aligned columns, and the sums.
//!
//! ```text
//! tcp_v4/conns_pps  2026-11-21T08:00:00.000Z  per 1s  5000 objects
//!     #   pps   rx   tx  sip        sport  dip       dport
//!     1   990  490  500  10.0.0.1      80  10.0.0.2   4242
//! other   210
//! total  1200
//! ```
//!
//! This is not a format to parse: it may change. Programs read JSON or CSV.

use std::borrow::Cow;
use std::io::{self, Write};

use crate::field::{Align, ColumnKind, Field};
use crate::snapshot::{Snapshot, TableType};
use crate::time::rfc3339;
use crate::typeset::{Keep, escape, shrink, width};
use crate::unit::human_ms;

/// The space between columns, and between the parts of the title.
const GAP: &str = "  ";
/// No column is made narrower than this many cells: a shorter name could not be recognised.
const NARROWEST: usize = 8;

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

/// The options of text. The default is for a plain pipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextOptions {
    /// Values as `1.23M` or `4.50Gbit` instead of whole numbers. Ports, pids and counts of objects stay whole.
    pub human: bool,
    /// Bold and dim by terminal sequences. The caller decides, also about `NO_COLOR`.
    pub color: bool,
    /// The cells of the terminal. Names and paths are shortened to fit, addresses and numbers never, so lines may still be
    /// longer.
    pub width: Option<usize>,
}

/// Writes the snapshot as text, with a single call of `write_all`.
///
/// # Errors
///
/// The errors of `out`.
pub fn write(snapshot: &Snapshot, options: TextOptions, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let mut text = Text { options, written: String::new() };
    text.title(snapshot);
    if snapshot.rows.is_empty() {
        text.line("", &no_rows(snapshot));
    }
    text.table(snapshot);
    out.write_all(text.written.as_bytes())
}

/// The number of lines besides the rows: the title; the names of columns, or the reason why there are no rows; the sums.
pub(crate) fn lines_besides(snapshot: &Snapshot, options: TextOptions) -> usize {
    let mut text = Text { options, written: String::new() };
    text.title(snapshot);
    text.written.lines().count() + 1 + SUMS.len()
}

struct Text {
    options: TextOptions,
    written: String,
}

impl Text {
    /// Appends a line, without spaces at its end, in a style of the terminal.
    fn line(&mut self, style: &str, line: &str) {
        let line = line.trim_end_matches(' ');
        if self.options.color && !style.is_empty() {
            self.written.extend([style, line, RESET, "\n"]);
        } else {
            self.written.extend([line, "\n"]);
        }
    }

    /// The title, on as many lines as the width requires.
    fn title(&mut self, snapshot: &Snapshot) {
        let mut line = String::new();
        for part in title(snapshot) {
            let full = width(&line) + GAP.len() + width(&part);
            if line.is_empty() {
                line = part;
            } else if self.options.width.is_some_and(|most| full > most) {
                self.line(BOLD, &line);
                line = format!("{GAP}{part}");
            } else {
                line.extend([GAP, &part]);
            }
        }
        self.line(BOLD, &line);
    }

    fn table(&mut self, snapshot: &Snapshot) {
        let mut columns = columns(snapshot, self.options.human);
        if let Some(most) = self.options.width {
            fit(&mut columns, most);
        }
        let rows = snapshot.rows.len();
        // Without rows there are only sums, which need no titles.
        if rows > 0 {
            self.line(BOLD, &join(columns.iter().map(|column| column.cell(&column.title))));
        }
        for row in 0..rows {
            self.line("", &join(columns.iter().map(|column| column.cell(&column.cells[row]))));
        }
        for sum in rows..rows + SUMS.len() {
            let cells = columns.iter().filter_map(|column| Some(column.cell(column.cells.get(sum)?)));
            self.line(DIM, &join(cells));
        }
    }
}

fn join(cells: impl Iterator<Item = String>) -> String {
    cells.collect::<Vec<_>>().join(GAP)
}

/// The parts of the title: the table, and everything that qualifies it.
fn title(snapshot: &Snapshot) -> Vec<String> {
    let mut parts = vec![
        format!("{}/{}", escape(&snapshot.sample), escape(&snapshot.table)),
        rfc3339(snapshot.time),
        match snapshot.kind {
            TableType::Dynamic => format!("per {}", human_ms(snapshot.period_ms)),
            TableType::Static => "running total".to_owned(),
        },
        match snapshot.objects {
            1 => "1 object".to_owned(),
            objects => format!("{objects} objects"),
        },
    ];
    let closed = snapshot.closed();
    if closed > 0 {
        parts.push(format!("{closed} closed"));
    }
    if let Some(elapsed) = snapshot.elapsed {
        parts.push(format!("in {:.3} s", elapsed.as_secs_f64()));
    }
    if snapshot.delay_ms > 0 {
        parts.push(format!("delay {}", human_ms(snapshot.delay_ms)));
    }
    if !snapshot.settings.counts() {
        parts.push(format!("not counting: {} disabled", disabled(snapshot)));
    }
    let lost: Vec<_> = snapshot.lost_now.nonzero().map(|(name, count)| format!("{count} {name}")).collect();
    if !lost.is_empty() {
        parts.push(format!("lost: {}", lost.join(", ")));
    }
    if !snapshot.is_proven() {
        parts.push(format!("{} of {} rows proven", snapshot.proven, snapshot.rows.len()));
    }
    let stale: Vec<_> = snapshot.stale_cpus().map(|cpu| cpu.to_string()).collect();
    if !stale.is_empty() {
        parts.push(format!("stale: cpu {}", stale.join(", ")));
    }
    if let Some(filter) = &snapshot.filter {
        let text = escape(&filter.text);
        parts.push(format!("filtered: {text}, {} of {} rows", filter.matched, filter.of));
    }
    parts
}

/// The names of the switches that are off.
fn disabled(snapshot: &Snapshot) -> String {
    let settings = &snapshot.settings;
    let switches = [
        (settings.topstat_enabled, Cow::Borrowed("topstat")),
        (settings.owner_enabled, escape(&settings.owner)),
        (settings.enabled, escape(&snapshot.table)),
    ];
    let off: Vec<_> = switches.into_iter().filter_map(|(on, name)| (!on).then_some(name)).collect();
    off.join(", ")
}

/// The reason why there are no rows.
fn no_rows(snapshot: &Snapshot) -> String {
    match (&snapshot.filter, snapshot.kind) {
        (Some(filter), _) if filter.matched == 0 => {
            format!("no rows: none of {} matches", filter.of)
        }
        _ if snapshot.total > 0 => "no rows".to_owned(),
        (_, TableType::Dynamic) => format!("no rows: nothing was pushed in the last {}", human_ms(snapshot.period_ms)),
        (_, TableType::Static) => "no rows: nothing was pushed yet".to_owned(),
    }
}

/// The labels of the lines below the rows, in the column of the ranks.
const SUMS: [&str; 2] = ["other", "total"];

/// A column with a cell for each row. The columns of ranks and values also have a cell for each of [`SUMS`].
struct TextColumn {
    title: String,
    align: Align,
    /// The part that stays, if the column may be shortened.
    keep: Option<Keep>,
    cells: Vec<String>,
    width: usize,
}

impl TextColumn {
    fn new(title: impl Into<String>, align: Align, keep: Option<Keep>, cells: impl Iterator<Item = String>) -> Self {
        // Names of columns and parts come from documents, which other programs may have written.
        let title = escape(&title.into()).into_owned();
        let cells: Vec<_> = cells.collect();
        let width = cells.iter().chain([&title]).map(|cell| width(cell)).max().unwrap_or(0);
        Self { title, align, keep, cells, width }
    }

    /// A column of numbers.
    fn numbers(title: impl Into<String>, cells: impl Iterator<Item = String>) -> Self {
        Self::new(title, Align::Right, None, cells)
    }

    /// The smallest width of the column.
    fn narrowest(&self) -> usize {
        match self.keep {
            Some(_) => self.width.min(NARROWEST.max(width(&self.title))),
            None => self.width,
        }
    }

    /// A text, shortened or filled to the column's width.
    fn cell(&self, text: &str) -> String {
        let shown = match self.keep {
            Some(keep) => shrink(text, self.width, keep),
            None => Cow::Borrowed(text),
        };
        let fill = " ".repeat(self.width.saturating_sub(width(&shown)));
        match self.align {
            Align::Left => format!("{shown}{fill}"),
            Align::Right => format!("{fill}{shown}"),
        }
    }
}

/// The columns in their order: rank, value, the rate per second if it differs, parts, the description of the object.
fn columns(snapshot: &Snapshot, human: bool) -> Vec<TextColumn> {
    let rows = &snapshot.rows;
    let unit = snapshot.unit;
    let number = |value: u64| {
        if human { unit.human(value) } else { value.to_string() }
    };
    let rate = |rate: f64| {
        if human { unit.human_rate(rate) } else { format!("{rate:.2}") }
    };
    let values = || rows.iter().map(|row| row.value).chain([snapshot.other, snapshot.total]);
    let rates: Option<Vec<_>> = values().map(|value| snapshot.per_second(value).map(rate)).collect();

    let ranks = rows.iter().map(|row| row.rank.to_string());
    let mut columns = vec![TextColumn::numbers("#", ranks.chain(SUMS.map(str::to_owned)))];
    match rates {
        None => columns.push(TextColumn::numbers(escape(&snapshot.value_name), values().map(number))),
        // The table's own name for its values, such as pps, is right only for a period of 1 s.
        Some(rates) => {
            let period = human_ms(snapshot.period_ms);
            columns.push(TextColumn::numbers(format!("{}/{period}", unit.name()), values().map(number)));
            columns.push(TextColumn::numbers(format!("{}/s", unit.name()), rates.into_iter()));
        }
    }
    for (index, name) in snapshot.parts.iter().enumerate() {
        let parts = rows.iter().map(|row| row.parts.get(index).copied().map_or("-".to_owned(), number));
        columns.push(TextColumn::numbers(name.as_ref(), parts));
    }
    for (index, column) in snapshot.columns.iter().enumerate() {
        let fields = || rows.iter().map(|row| row.object.get(index).unwrap_or(&Field::None));
        if column.optional && fields().all(Field::is_none) {
            continue;
        }
        let keep = column.kind.may_shrink().then_some(match column.kind {
            ColumnKind::Path => Keep::End,
            _ => Keep::Start,
        });
        let cells = fields().map(Field::to_string);
        columns.push(TextColumn::new(column.name.as_ref(), column.kind.align(), keep, cells));
    }
    columns
}

/// Narrows the widest column that may be narrowed, until the line fits or no column can be narrowed any more.
fn fit(columns: &mut [TextColumn], most: usize) {
    let gaps = GAP.len() * columns.len().saturating_sub(1);
    let mut full = columns.iter().map(|column| column.width).sum::<usize>() + gaps;
    while full > most {
        let wide = columns.iter_mut().filter(|column| column.width > column.narrowest());
        let Some(widest) = wide.max_by_key(|column| column.width) else {
            return;
        };
        widest.width -= 1;
        full -= 1;
    }
}
