// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An interval as text for people: a title, aligned columns, and the sum. Times are in percent of one CPU.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::Each;
use super::column::{Amount, Column};
use super::picture::{Choice, Kind, Line, Picture, Row, RowsOf};
use crate::time::rfc3339;
use crate::typeset::{Keep, escape, shrink, width};

const GAP: &str = "  ";
const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";
/// No name is made narrower than this many cells, however narrow the terminal is.
const NARROWEST: usize = 8;

/// Writes an interval.
pub struct Text<'a> {
    written: String,
    color: bool,
    columns: &'a [Column],
    command_lines: bool,
    threads: bool,
    ppid: bool,
    tree: bool,
}

/// The widths of the columns for an interval.
struct Widths {
    pid: usize,
    ppid: usize,
    tree: usize,
    columns: Vec<usize>,
    elap: usize,
    /// The name's width, where it is limited.
    name: Option<usize>,
}

impl<'a> Text<'a> {
    /// The number of lines above the rows: the title, and the names of the columns.
    pub const HEAD: usize = 2;

    /// A writer for a choice of the interval.
    pub fn new(choice: &'a Choice, color: bool) -> Self {
        Self {
            written: String::new(),
            threads: choice.each == Each::Thread,
            ppid: choice.of != RowsOf::Parents && !choice.tree || choice.columns.contains(&Column::Wait),
            color,
            columns: &choice.columns,
            command_lines: choice.command_lines,
            tree: choice.tree,
        }
    }

    /// The interval as text, `cells` wide if lines have a limit.
    pub fn write(mut self, picture: &Picture, cells: Option<usize>) -> String {
        let sum = picture.sum();
        let widths = self.widths(picture, &sum, cells);
        self.line(BOLD, |text| text.title(picture));
        self.line(BOLD, |text| text.titles(&widths));
        for row in &picture.rows {
            let amount = picture.amount(row.task);
            self.line("", |text| text.row(picture, row, &amount, &widths));
        }
        for line in picture.lines().chain([&sum]) {
            let style = if line.kind == Kind::Sum { BOLD } else { DIM };
            self.line(style, |text| text.below(picture, line, &widths));
        }
        self.written
    }

    /// Appends a line, in a style of the terminal and without spaces at its end.
    fn line(&mut self, style: &str, write: impl FnOnce(&mut Self)) {
        let style = if self.color { style } else { "" };
        self.written.push_str(style);
        write(self);
        self.written.truncate(self.written.trim_end_matches(' ').len());
        if !style.is_empty() {
            self.written.push_str(RESET);
        }
        self.written.push('\n');
    }

    fn put(&mut self, arguments: std::fmt::Arguments<'_>) {
        self.written.write_fmt(arguments).expect("a String takes all");
    }

    /// The title: the interval, and everything that qualifies it.
    fn title(&mut self, picture: &Picture) {
        let interval = picture.interval;
        let seconds = interval.wall_ns() as f64 / 1e9;
        let cpus = interval.cpus.len();
        // Ancestors that slept do not count as tasks that ran.
        let ran = interval.tasks.iter().filter(|task| task.own.run_ns > 0).count();
        let ended = interval.tasks.iter().filter(|task| task.ended_ns.is_some()).count();
        let what = if self.threads { "threads" } else { "tasks" };
        self.put(format_args!("tasks  {}  {seconds:.3}s", rfc3339(interval.time)));
        self.put(format_args!("  {cpus} {}", if cpus == 1 { "CPU" } else { "CPUs" }));
        self.put(format_args!("  {ran} {what} ran, {ended} ended"));
        let exact = interval.tasks.iter().filter(|task| task.exact).count();
        if exact > 0 {
            self.put(format_args!("  user and sys of {exact} exact"));
        }
        let mut before = "  lost: ";
        for (name, count) in interval.lost.named() {
            self.put(format_args!("{before}{count} {name}"));
            before = ", ";
        }
    }

    fn titles(&mut self, widths: &Widths) {
        let Widths { pid, ppid, tree, elap, .. } = *widths;
        self.put(format_args!("{:>pid$}", if self.threads { "tid" } else { "pid" }));
        if self.threads {
            self.put(format_args!("{GAP}{:>pid$}", "pid"));
        }
        if self.ppid {
            self.put(format_args!("{GAP}{:>ppid$}", "ppid"));
        }
        if self.tree {
            self.put(format_args!("{GAP}{:>tree$}", "tree"));
        }
        for (column, width) in self.columns.iter().zip(&widths.columns) {
            self.put(format_args!("{GAP}{:>width$}", column.title()));
        }
        self.put(format_args!("{GAP}{:>elap$}{GAP}name", "elap"));
    }

    fn row(&mut self, picture: &Picture, row: &Row, amount: &Amount, widths: &Widths) {
        let Widths { pid, ppid, elap, .. } = *widths;
        let task = row.task;
        let wall_ns = picture.interval.wall_ns();
        self.put(format_args!("{:>pid$}", task.pid));
        if self.threads {
            self.put(format_args!("{GAP}{:>pid$}", task.tgid));
        }
        if self.ppid {
            self.put(format_args!("{GAP}{:>ppid$}", task.ppid));
        }
        if let Some(branch) = &row.branch {
            self.percent(branch.amount.total_ns().cast_signed(), wall_ns, widths.tree);
        }
        for at in 0..self.columns.len() {
            self.cell(self.columns[at], amount, wall_ns, widths.columns[at]);
        }
        self.put(format_args!("{GAP}{:>elap$}{GAP}", Elapsed(picture.elapsed_ns(task))));
        self.name(row, widths);
    }

    fn name(&mut self, row: &Row, widths: &Widths) {
        let lead = row.branch.as_ref().map_or("", |branch| &branch.lead);
        let name = self.command(row);
        let name = escape(&name);
        let ended = if row.task.ended_ns.is_some() { " (ended)" } else { "" };
        self.written.push_str(lead);
        let room = widths.name.map(|most| most.saturating_sub(width(lead) + ended.len()).max(NARROWEST));
        let name = room.map_or(Cow::Borrowed(&*name), |room| shrink(&name, room, Keep::Start));
        self.written.push_str(&name);
        self.written.push_str(ended);
    }

    /// The name, or the command line where it is wanted. A task without arguments is in brackets, as in ps(1).
    fn command<'r>(&self, row: &'r Row) -> Cow<'r, str> {
        match (self.command_lines, &row.command_line) {
            (false, _) => Cow::Borrowed(&row.task.comm),
            (true, Some(arguments)) => arguments.join(" ").into(),
            (true, None) => format!("[{}]", row.task.comm).into(),
        }
    }

    /// A line that is not the row of a task.
    fn below(&mut self, picture: &Picture, line: &Line, widths: &Widths) {
        let Widths { pid, ppid, tree, elap, .. } = *widths;
        let wall_ns = picture.interval.wall_ns();
        self.put(format_args!("{:>pid$}", line.kind.name()));
        if self.threads {
            self.put(format_args!("{GAP}{:pid$}", ""));
        }
        if self.ppid {
            self.put(format_args!("{GAP}{:ppid$}", ""));
        }
        if self.tree {
            self.put(format_args!("{GAP}{:tree$}", ""));
        }
        for at in 0..self.columns.len() {
            let (column, width) = (self.columns[at], widths.columns[at]);
            let of_tasks = matches!(line.kind, Kind::Other | Kind::Sum);
            if column == Column::Total {
                self.percent(line.total_ns, wall_ns, width);
            } else if of_tasks || column.of(&line.amount) > 0 {
                self.cell(column, &line.amount, wall_ns, width);
            } else {
                self.put(format_args!("{GAP}{:width$}", ""));
            }
        }
        self.put(format_args!("{GAP}{:elap$}{GAP}", ""));
        match (line.kind, line.tasks) {
            (Kind::Other, 1) => self.put(format_args!("1 more")),
            (Kind::Other, tasks) => self.put(format_args!("{tasks} more")),
            (Kind::Irq, _) => self.written.push_str("while idle"),
            (Kind::Unowned, _) => self.written.push_str("of tasks that are not known"),
            (Kind::Unseen, _) => self.written.push_str("not accounted for"),
            (Kind::Idle | Kind::Sum, _) => {}
        }
    }

    fn cell(&mut self, column: Column, amount: &Amount, wall_ns: u64, width: usize) {
        match column {
            Column::Switches => self.put(format_args!("{GAP}{:>width$}", column.of(amount))),
            _ => self.percent(column.of(amount).cast_signed(), wall_ns, width),
        }
    }

    fn percent(&mut self, ns: i64, wall_ns: u64, width: usize) {
        let (sign, whole, hundredths) = percent(ns, wall_ns);
        let width = width.saturating_sub(3 + sign.len());
        // The sign stands before the filling, which is empty: the number is as wide as the widest number.
        self.put(format_args!("{GAP}{sign}{whole:>width$}.{hundredths:02}"));
    }

    fn widths(&self, picture: &Picture, sum: &Line, cells: Option<usize>) -> Widths {
        let wall_ns = picture.interval.wall_ns();
        let tasks = || picture.rows.iter().map(|row| row.task);
        let label = picture.lines().chain([sum]).map(|line| line.kind.name().len()).max().unwrap_or(0);
        let pid = tasks().map(|task| task.pid.max(if self.threads { task.tgid } else { 0 })).max().unwrap_or(0);
        let ppid = tasks().map(|task| task.ppid).max().unwrap_or(0);
        let of_percent = |ns: i64| {
            let (sign, whole, _) = percent(ns, wall_ns);
            sign.len() + digits(whole) + 3
        };
        // No row is larger than the sum, except that the line `unseen` may be below 0.
        let width = |column: &Column| {
            let most = match column {
                Column::Switches => digits(column.of(&sum.amount)),
                Column::Total => {
                    let totals = picture.lines().chain([sum]).map(|line| of_percent(line.total_ns));
                    let most = picture.rows.iter().map(|row| picture.amount(row.task).total_ns()).max();
                    totals.chain([of_percent(most.unwrap_or(0).cast_signed())]).max().unwrap_or(0)
                }
                column => of_percent(column.of(&sum.amount).cast_signed()),
            };
            most.max(column.title().len())
        };
        let trees = picture.rows.iter().filter_map(|row| row.branch.as_ref()).map(|branch| branch.amount.total_ns());
        let mut widths = Widths {
            pid: digits(pid.into()).max(label),
            ppid: digits(ppid.into()).max(4),
            tree: of_percent(trees.max().unwrap_or(0).cast_signed()).max(4),
            columns: self.columns.iter().map(width).collect(),
            elap: tasks().map(|task| Elapsed(picture.elapsed_ns(task)).width()).max().unwrap_or(0).max(4),
            name: None,
        };
        let optional = [(self.threads, widths.pid), (self.ppid, widths.ppid), (self.tree, widths.tree)];
        let numbers = optional.into_iter().filter(|(shown, _)| *shown).map(|(_, width)| width);
        let before: usize = numbers.chain(widths.columns.iter().copied()).map(|width| width + GAP.len()).sum();
        let before = widths.pid + before + GAP.len() + widths.elap + GAP.len();
        widths.name = cells.map(|cells| cells.saturating_sub(before));
        widths
    }
}

/// Percent of one CPU, rounded to hundredths: the sign, the whole percent, and the hundredths.
fn percent(ns: i64, wall_ns: u64) -> (&'static str, u64, u64) {
    let wall = u128::from(wall_ns.max(1));
    let hundredths = (u128::from(ns.unsigned_abs()) * 10_000 + wall / 2) / wall;
    let hundredths = u64::try_from(hundredths).unwrap_or(u64::MAX);
    (if ns < 0 { "-" } else { "" }, hundredths / 100, hundredths % 100)
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// A time as ps(1) writes it: `[[days-]hours:]minutes:seconds`.
#[derive(Clone, Copy)]
struct Elapsed(u64);

impl Elapsed {
    fn parts(self) -> [u64; 4] {
        let seconds = self.0 / 1_000_000_000;
        [seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60]
    }

    fn width(self) -> usize {
        match self.parts() {
            [0, 0, ..] => 5,
            [0, ..] => 8,
            [days, ..] => 9 + digits(days).max(2),
        }
    }
}

impl std::fmt::Display for Elapsed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fill = f.width().unwrap_or(0).saturating_sub(self.width());
        write!(f, "{:fill$}", "")?;
        match self.parts() {
            [0, 0, minutes, seconds] => write!(f, "{minutes:02}:{seconds:02}"),
            [0, hours, minutes, seconds] => write!(f, "{hours:02}:{minutes:02}:{seconds:02}"),
            [days, hours, minutes, seconds] => write!(f, "{days:02}-{hours:02}:{minutes:02}:{seconds:02}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_ps_does() {
        const S: u64 = 1_000_000_000;
        for (ns, written) in [
            (0, "00:00"),
            (S - 1, "00:00"),
            (61 * S, "01:01"),
            (3600 * S, "01:00:00"),
            (86_399 * S, "23:59:59"),
            (86_400 * S, "01-00:00:00"),
            (1234 * 86_400 * S + 5 * S, "1234-00:00:05"),
        ] {
            assert_eq!(Elapsed(ns).to_string(), written);
            assert_eq!(Elapsed(ns).width(), written.len(), "{written}");
            assert_eq!(format!("{:>14}", Elapsed(ns)), format!("{written:>14}"));
        }
    }

    #[test]
    fn shares_are_percent_of_a_cpu() {
        let share = |ns, wall| {
            let (sign, whole, hundredths) = percent(ns, wall);
            format!("{sign}{whole}.{hundredths:02}")
        };
        assert_eq!(share(0, 1_000_000_000), "0.00");
        assert_eq!(share(50_000, 1_000_000_000), "0.01");
        assert_eq!(share(49_999, 1_000_000_000), "0.00");
        assert_eq!(share(2_000_000_000, 1_000_000_000), "200.00");
        assert_eq!(share(-15_000_000, 1_000_000_000), "-1.50");
        // A day of a thousand CPUs.
        assert_eq!(share(86_400_000_000_000_000, 86_400_000_000_000), "100000.00");
    }
}
