// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Histograms as text, JSON and CSV. `docs/netstack.md` describes them.

use std::fmt::Write as _;
use std::io;

use serde_json::{Map, Value, json};

use super::{Histogram, Histograms};
use crate::sink::{Reading, Records};
use crate::text::TextOptions;
use crate::time::rfc3339;
use crate::typeset::{Keep, shrink, width};

/// Cells of the longest bar.
const BAR: usize = 24;

impl Reading for Histograms {
    fn rows(&self) -> usize {
        self.used().len()
    }

    fn lines_besides(&self, _: TextOptions) -> usize {
        // The title, a line for each histogram, the other counts, and the names of columns.
        3 + self.series.len()
    }

    fn text(&self, room: usize, options: TextOptions, written: &mut Vec<u8>) {
        let used = self.used();
        let shown = used.start..used.end.min(used.start.saturating_add(room));
        let mut lines = vec![(title(self), true)];
        lines.extend(self.series.iter().map(|series| (summary(self, series), false)));
        lines.push((besides(self), false));
        if shown.is_empty() {
            lines.push((format!("no {}", self.subject.of()), false));
        } else {
            lines.extend(rows(self, shown.clone()));
        }
        if shown.end < used.end {
            lines.push((format!("{} rows are not shown", used.end - shown.end), false));
        }
        for (line, bold) in lines {
            let line = options.width.map_or(line.as_str().into(), |cells| shrink(&line, cells, Keep::Start));
            let (on, off) = if bold && options.color { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
            written.extend(format!("{on}{line}{off}\n").bytes());
        }
    }

    fn json(&self, written: &mut Vec<u8>) -> io::Result<()> {
        let bucket = |(number, count): (usize, &u64)| {
            let (from, below) = Histogram::bounds(number);
            json!({"from": from, "below": below, "count": count})
        };
        let of = |histogram: &Histogram| {
            let buckets: Vec<Value> =
                histogram.buckets.iter().enumerate().filter(|(_, count)| **count > 0).map(bucket).collect();
            json!({"count": histogram.count(), "sum": histogram.sum, "buckets": buckets})
        };
        let mut document = Map::new();
        document.insert("time".to_owned(), rfc3339(self.time).into());
        document.insert("elapsed_ns".to_owned(), u64::try_from(self.elapsed.as_nanos()).unwrap_or(u64::MAX).into());
        document.insert("histogram".to_owned(), self.subject.name().into());
        document.insert("unit".to_owned(), self.subject.unit().name().into());
        document.extend(self.besides.iter().map(|(name, count)| ((*name).to_owned(), (*count).into())));
        document.extend(self.series.iter().map(|(name, histogram)| ((*name).to_owned(), of(histogram))));
        crate::json::line(&document, written)
    }

    fn csv_columns(&self) -> Vec<String> {
        ["time", "histogram", "series", "from", "below", "count"].map(str::to_owned).to_vec()
    }

    fn csv_records(&self, records: &mut Records) -> io::Result<()> {
        let (time, subject) = (rfc3339(self.time), self.subject.name());
        let mut record = |series: &str, bounds: [String; 2], count: u64| {
            let [from, below] = bounds;
            records.write_record([time.clone(), subject.to_owned(), series.to_owned(), from, below, count.to_string()])
        };
        for (name, histogram) in &self.series {
            for (number, count) in histogram.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
                let (from, below) = Histogram::bounds(number);
                record(name, [from.to_string(), below.to_string()], *count)?;
            }
            record(name, ["(sum)".to_owned(), String::new()], histogram.sum)?;
        }
        for (name, count) in &self.besides {
            record(&format!("({name})"), [String::new(), String::new()], *count)?;
        }
        Ok(())
    }
}

fn title(histograms: &Histograms) -> String {
    let (name, time) = (histograms.subject.name(), rfc3339(histograms.time));
    format!("netstack {name}  {time}  in {:.3} s", histograms.elapsed.as_secs_f64())
}

fn summary(histograms: &Histograms, (name, histogram): &(&'static str, Histogram)) -> String {
    let (count, of, unit) = (histogram.count(), histograms.subject.of(), histograms.subject.unit());
    let mut line = format!("{name}: {count} {of}");
    if count > 0 {
        let _ = write!(line, ", mean {}", unit.human_rate(histogram.mean()));
    }
    line
}

/// All other counts, including those that are 0: it is worth a line that nothing is missing.
fn besides(histograms: &Histograms) -> String {
    let counts = histograms.besides.iter().map(|(name, count)| format!("{} {count}", name.replace('_', " ")));
    counts.collect::<Vec<_>>().join(", ")
}

/// The names of columns, and the rows: from, to, and for each histogram the count with a bar.
fn rows(histograms: &Histograms, shown: std::ops::Range<usize>) -> Vec<(String, bool)> {
    let unit = histograms.subject.unit();
    let most = histograms.series.iter().flat_map(|(_, h)| &h.buckets).copied().max().unwrap_or(0).max(1);
    let mut table = vec![vec!["from".to_owned(), "below".to_owned()]];
    table[0].extend(histograms.series.iter().map(|(name, _)| (*name).to_owned()));
    let mut bars = vec![vec![String::new(); histograms.series.len()]];
    for bucket in shown {
        let (from, below) = Histogram::bounds(bucket);
        let counts: Vec<u64> =
            histograms.series.iter().map(|(_, h)| h.buckets.get(bucket).copied().unwrap_or(0)).collect();
        bars.push(counts.iter().map(|count| bar(*count, most)).collect());
        let bounds = [unit.human(from), unit.human(below)];
        table.push(bounds.into_iter().chain(counts.iter().map(u64::to_string)).collect());
    }
    let widths: Vec<usize> =
        (0..table[0].len()).map(|column| table.iter().map(|cells| width(&cells[column])).max().unwrap_or(0)).collect();
    let line = |(number, (cells, bars)): (usize, (&Vec<String>, &Vec<String>))| {
        let mut line = String::new();
        for (column, (cell, wide)) in cells.iter().zip(&widths).enumerate() {
            let _ = write!(line, "{}{cell}  ", " ".repeat(wide - width(cell)));
            if let Some(bar) = column.checked_sub(2).and_then(|series| bars.get(series)) {
                let _ = write!(line, "{bar}{}  ", " ".repeat(BAR - width(bar)));
            }
        }
        (line.trim_end().to_owned(), number == 0)
    };
    table.iter().zip(&bars).enumerate().map(line).collect()
}

/// A bar whose length is proportional to the count; the longest bar has the count `most`. It is empty only if the count is 0.
fn bar(count: u64, most: u64) -> String {
    let cells = u128::from(count) * BAR as u128;
    "#".repeat(usize::try_from(cells.div_ceil(u128::from(most))).unwrap_or(BAR))
}
