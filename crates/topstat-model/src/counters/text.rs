// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A reading as text: a title for each namespace or device, and a line for each counter.

use std::fmt::Write as _;

use super::choice::Line;
use super::{Choice, Counter, CounterKind, Counters, Scope, Source, rate};
use crate::typeset::{Keep, escape, shrink, width};

/// The options of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    /// The choice and order of counters.
    pub choice: Choice,
    /// Show a column for each CPU, and the imbalance.
    pub cpus: bool,
    /// Bold titles.
    pub color: bool,
}

/// A column: its title, and its cells; numbers are right-aligned.
struct Column {
    title: String,
    cells: Vec<String>,
    right: bool,
}

impl Column {
    fn new(title: impl Into<String>, right: bool, lines: &[Line], cell: impl Fn(&Counter) -> String) -> Self {
        Self { title: title.into(), cells: lines.iter().map(|(_, counter)| cell(counter)).collect(), right }
    }

    fn width(&self) -> usize {
        self.cells.iter().map(|cell| width(cell)).chain([width(&self.title)]).max().unwrap_or(0)
    }
}

impl Text {
    /// The text of a reading, for a terminal of `columns` columns, or for a pipe.
    pub fn write(&self, counters: &Counters, columns: Option<usize>) -> String {
        let mut text = String::new();
        for (index, scope) in counters.scopes.iter().enumerate() {
            if index > 0 {
                text.push('\n');
            }
            self.scope(&mut text, counters, scope, columns);
        }
        if counters.scopes.is_empty() {
            text += "nothing to read: no such namespace or device is left\n";
        }
        for note in notes(counters) {
            text += &note;
            text.push('\n');
        }
        text
    }

    fn scope(&self, text: &mut String, counters: &Counters, scope: &Scope, columns: Option<usize>) {
        let (lines, hidden) = self.choice.lines(scope);
        let mut title = format!("netns {}", scope.netns);
        if let Some(name) = &scope.name {
            let _ = write!(title, " ({})", escape(name));
        }
        if let Some(device) = &scope.device {
            let _ = write!(title, "  device {}", escape(device));
        }
        if let Some(elapsed) = counters.elapsed.filter(|_| !self.choice.totals) {
            let _ = write!(title, "  in {:.3} s", elapsed.as_secs_f64());
        }
        if hidden > 0 {
            let _ = write!(title, "  {hidden} more not shown");
        }
        self.line(text, &title, columns, true);
        if lines.is_empty() {
            let what = if self.choice.totals { "all counters are 0" } else { "no counter has changed" };
            self.line(text, what, columns, false);
            return;
        }
        let table = self.columns(counters, &lines);
        let widths: Vec<usize> = table.iter().map(Column::width).collect();
        let row = |cells: &mut dyn Iterator<Item = (&str, bool)>| {
            let mut row = String::new();
            for ((cell, right), wide) in cells.zip(&widths) {
                let room = " ".repeat(wide.saturating_sub(width(cell)));
                row += &if right { format!("{room}{cell}  ") } else { format!("{cell}{room}  ") };
            }
            row.trim_end().to_owned()
        };
        let head = row(&mut table.iter().map(|column| (column.title.as_str(), column.right)));
        self.line(text, &head, columns, true);
        for index in 0..lines.len() {
            let line = row(&mut table.iter().map(|column| (column.cells[index].as_str(), column.right)));
            self.line(text, &line, columns, false);
        }
    }

    fn columns(&self, counters: &Counters, lines: &[Line]) -> Vec<Column> {
        let samples = lines.iter().map(|(protocol, _)| format!("snmp_{protocol}")).collect();
        let mut table = vec![Column { title: "sample".to_owned(), cells: samples, right: false }];
        table.push(Column::new("counter", false, lines, |counter| escape(&counter.name).into_owned()));
        if !self.choice.totals {
            table.push(Column::new("per second", true, lines, |counter| {
                let rate = counter.change().zip(counters.elapsed).map(|(change, elapsed)| rate(change, elapsed));
                rate.map_or("-".to_owned(), |rate| format!("{rate:.1}"))
            }));
            table.push(Column::new("change", true, lines, |counter| {
                counter.change().map_or("-".to_owned(), |change| change.to_string())
            }));
        }
        table.push(Column::new("total", true, lines, |counter| match counter.kind {
            CounterKind::Count => counter.now.all.to_string(),
            CounterKind::Gauge => counter.level().to_string(),
        }));
        if self.cpus {
            table.push(Column::new("max/mean", true, lines, |counter| {
                let uneven = self.choice.parts(counter).as_deref().and_then(Counter::imbalance);
                uneven.map_or("-".to_owned(), |uneven| format!("{uneven:.2}"))
            }));
            for (place, cpu) in counters.cpus.iter().enumerate() {
                table.push(Column::new(format!("cpu{cpu}"), true, lines, |counter| {
                    self.choice.parts(counter).map_or("-".to_owned(), |parts| parts[place].to_string())
                }));
            }
        }
        table
    }

    fn line(&self, text: &mut String, line: &str, columns: Option<usize>, title: bool) {
        let line = columns.map_or(line.into(), |columns| shrink(line, columns, Keep::Start));
        match title && self.color {
            true => _ = writeln!(text, "\x1b[1m{line}\x1b[0m"),
            false => _ = writeln!(text, "{line}"),
        }
    }
}

/// The notes that qualify a reading.
pub fn notes(counters: &Counters) -> Vec<String> {
    let lost = &counters.lost;
    let mut notes = Vec::new();
    if let Source::Proc(why) = &counters.source {
        notes.push(format!("read from /proc/net, without CPUs: {}", escape(why)));
    }
    if lost.beyond > 0 {
        notes.push(format!("{} namespaces or devices were not read: there are too many", lost.beyond));
    }
    if lost.unreadable > 0 {
        notes.push(format!("{} arrays could not be read, and pass for zeros", lost.unreadable));
    }
    if !lost.unknown.is_empty() {
        notes.push(format!("not found in this kernel's memory: {}", lost.unknown.join(" ")));
    }
    notes
}
