// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The picture of an interval: rows in their order, and lines for the amounts that are in no row.

use std::cmp::Ordering;
use std::io;

use super::column::{Amount, Column};
use super::filter::Filter;
use super::text::Text;
use super::{Each, Interval, Task, Usage, csv, json, tree};
use crate::sink::{Reading, Records};
use crate::text::TextOptions;

/// The choice of rows, their order and their contents.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Processes or threads.
    pub each: Each,
    /// The tasks that have a row.
    pub of: RowsOf,
    /// Tasks stand below their parents.
    pub tree: bool,
    /// The order of rows.
    pub order: Order,
    /// Hidden tasks are added to `other`.
    pub filter: Filter,
    /// The most rows to show.
    pub rows: Option<u32>,
    /// The columns of text between the pid and the name.
    pub columns: Vec<Column>,
    /// Show command lines: in text instead of names, in other formats besides names.
    pub command_lines: bool,
}

/// The tasks that have a row, and the amount of a row. Each nanosecond is counted once in every case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsOf {
    /// Ended tasks are contained in their parents: a row counts the usage of a task and of its ended children.
    Parents,
    /// All tasks. A row counts the usage of the task itself.
    All,
    /// As `All`, but sorted by the usage of a task and its ended children: for formats that show both.
    AllWithChildren,
}

/// The sort order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The sort key.
    pub by: By,
    /// Reverses the order.
    pub reverse: bool,
}

/// A sort key of [`Order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The largest first.
    Column(Column),
    /// The lowest first.
    Pid,
    /// The oldest first.
    Start,
    /// The lowest first, compared by its bytes.
    Name,
}

/// The row of a task.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// The task, with its usage.
    pub task: &'a Task,
    /// Its place in the tree.
    pub branch: Option<Branch>,
    /// The task's arguments, if they are wanted and it has any. The code that shows the row fills them in. `None` for a task that
    /// has ended, because another task may already have its pid.
    pub command_line: Option<Vec<String>>,
}

/// A place in the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Branch {
    /// The lines that are drawn before the name.
    pub lead: String,
    /// The amount of the task and all tasks below it.
    pub amount: Amount,
}

/// The kinds of lines that are not rows of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Tasks that are not shown.
    Other,
    /// Nothing ran.
    Idle,
    /// Interrupts, softirqs and the hypervisor, while nothing ran.
    Irq,
    /// Tasks without an account.
    Unowned,
    /// Missing time: as far as known, the time of tasks that ended unseen.
    Unseen,
    /// The sum of all.
    Sum,
}

/// A line below the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The kind.
    pub kind: Kind,
    /// The number of tasks in it.
    pub tasks: usize,
    /// The part of its time that is known in detail.
    pub amount: Amount,
    /// Its contribution to the sum: may be below 0 where time was lost.
    pub total_ns: i64,
}

impl Kind {
    /// The name in outputs: `other`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Idle => "idle",
            Self::Irq => "irq",
            Self::Unowned => "unowned",
            Self::Unseen => "unseen",
            Self::Sum => "sum",
        }
    }
}

impl Line {
    fn new(kind: Kind) -> Self {
        Self { kind, tasks: 0, amount: Amount::default(), total_ns: 0 }
    }

    /// A line of time that belongs to no shown task.
    fn of(kind: Kind, own: Usage) -> Self {
        Self { amount: Amount { own, ..Amount::default() }, total_ns: own.run_ns.cast_signed(), ..Self::new(kind) }
    }

    fn add(&mut self, amount: &Amount) {
        self.tasks += 1;
        self.amount.add(amount);
        self.total_ns += amount.total_ns().cast_signed();
    }
}

/// The contents of an interval that are shown.
#[derive(Clone, Debug)]
pub struct Picture<'a> {
    /// The interval.
    pub interval: &'a Interval,
    /// By this much the clock of [`Task::start_ns`] was ahead of the interval's clock.
    suspended_ns: u64,
    /// The choice of rows.
    pub(crate) choice: &'a Choice,
    /// The first rows in the chosen order.
    pub rows: Vec<Row<'a>>,
    /// Tasks without a row.
    other: Line,
    /// Time without a task.
    rest: Vec<Line>,
}

impl<'a> Picture<'a> {
    /// The picture of an interval, with at most `choice.rows` rows: the first in the chosen order. `suspended_ns`: the time that
    /// the host has been suspended since it was started. A task's age includes that time, the interval's clock does not.
    pub fn new(interval: &'a Interval, suspended_ns: u64, choice: &'a Choice) -> Self {
        let limit = choice.rows.map_or(usize::MAX, |rows| rows as usize);
        let (other, rest) = (Line::new(Kind::Other), rest(interval));
        let mut picture = Self { interval, suspended_ns, choice, rows: vec![], other, rest };
        let tasks = interval.tasks.iter().filter(|task| has_row(choice, task));
        if choice.tree {
            let (rows, hidden) = tree::arrange(tasks.collect(), choice);
            for task in hidden {
                picture.hide(task);
            }
            picture.rows = rows;
        } else {
            for task in tasks {
                if choice.filter.matches(task) {
                    picture.rows.push(Row { task, branch: None, command_line: None });
                } else {
                    picture.hide(task);
                }
            }
            let order = choice.order;
            let compare = |a: &Row, b: &Row| {
                let amount = |row: &Row| key(choice.of, row.task);
                compare(order, (a.task, &amount(a)), (b.task, &amount(b)))
            };
            if limit < picture.rows.len() {
                picture.rows.select_nth_unstable_by(limit, compare);
                picture.truncate(limit);
            }
            picture.rows.sort_unstable_by(compare);
        }
        picture.truncate(limit);
        picture
    }

    /// The amount of a task's row.
    pub fn amount(&self, task: &Task) -> Amount {
        counted(self.choice.of, task)
    }

    /// The age of a task at the end of the interval; for an ended task, its lifetime.
    pub fn elapsed_ns(&self, task: &Task) -> u64 {
        let end_ns = task.ended_ns.unwrap_or(self.interval.end_ns);
        (end_ns + self.suspended_ns).saturating_sub(task.start_ns)
    }

    /// Keeps the first `rows` rows, and moves all others to `other`.
    pub fn truncate(&mut self, rows: usize) {
        for row in self.rows.split_off(rows.min(self.rows.len())) {
            self.hide(row.task);
        }
    }

    /// The picture with `room` lines for rows, as [`Reading::text`] shows it.
    fn fitting(&self, room: usize) -> Self {
        // Cut-off rows need the line `other`, if it is not there yet.
        let rows = if self.other.tasks > 0 { room } else { room.saturating_sub(1) };
        let mut fitting = self.clone();
        fitting.truncate(rows.max(1));
        fitting
    }

    fn hide(&mut self, task: &Task) {
        self.other.add(&self.amount(task));
    }

    /// The lines below the rows, without the sum. `other` is among them if there is a task without a row.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        Some(&self.other).filter(|other| other.tasks > 0).into_iter().chain(&self.rest)
    }

    /// Tasks without a row.
    pub fn other(&self) -> &Line {
        &self.other
    }

    /// The sum of all rows and lines: time × CPUs, to the nanosecond. It is added up, not copied from the totals.
    pub fn sum(&self) -> Line {
        let mut sum = Line::new(Kind::Sum);
        for row in &self.rows {
            sum.add(&self.amount(row.task));
        }
        for line in self.lines() {
            sum.tasks += line.tasks;
            sum.amount.add(&line.amount);
            sum.total_ns += line.total_ns;
        }
        sum
    }
}

impl Reading for Picture<'_> {
    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn lines_besides(&self, _: TextOptions) -> usize {
        Text::HEAD + self.lines().count() + 1
    }

    fn text(&self, room: usize, options: TextOptions, written: &mut Vec<u8>) {
        let text = Text::new(self.choice, options.color);
        let text = if room < self.rows.len() {
            text.write(&self.fitting(room), options.width)
        } else {
            text.write(self, options.width)
        };
        written.extend(text.bytes());
    }

    fn json(&self, written: &mut Vec<u8>) -> io::Result<()> {
        json::write(self, written)
    }

    fn csv_columns(&self) -> Vec<String> {
        csv::columns(self.choice.command_lines)
    }

    fn csv_records(&self, records: &mut Records) -> io::Result<()> {
        csv::records(self, records)
    }
}

/// Whether a task has a row.
fn has_row(choice: &Choice, task: &Task) -> bool {
    match choice.of {
        // A task that slept is in the list if a child of it ended: a tree shows it as a parent.
        RowsOf::All => choice.tree || task.ended_ns.is_some() || !task.own.is_zero(),
        RowsOf::AllWithChildren => true,
        RowsOf::Parents => task.counts(),
    }
}

/// The amount of a task's row.
fn counted(of: RowsOf, task: &Task) -> Amount {
    match of {
        RowsOf::Parents => Amount { own: task.own, children: task.children },
        RowsOf::All | RowsOf::AllWithChildren => Amount { own: task.own, ..Amount::default() },
    }
}

/// The amount that a task's row is sorted by.
pub fn key(of: RowsOf, task: &Task) -> Amount {
    match of {
        RowsOf::AllWithChildren => counted(RowsOf::Parents, task),
        of => counted(of, task),
    }
}

/// The order of two tasks, each with the amount that it is sorted by. No two tasks are equal, so the order is deterministic.
pub fn compare(order: Order, (a, key_a): (&Task, &Amount), (b, key_b): (&Task, &Amount)) -> Ordering {
    let wanted = match order.by {
        By::Column(column) => column.of(key_b).cmp(&column.of(key_a)),
        By::Pid => a.pid.cmp(&b.pid),
        By::Start => a.start_ns.cmp(&b.start_ns),
        By::Name => a.comm.cmp(&b.comm),
    };
    let wanted = if order.reverse { wanted.reverse() } else { wanted };
    wanted.then_with(|| key_b.total_ns().cmp(&key_a.total_ns())).then_with(|| (a.pid, a.id).cmp(&(b.pid, b.id)))
}

/// Time without a task.
fn rest(interval: &Interval) -> Vec<Line> {
    let totals = interval.totals();
    let cpus = totals.cpus;
    let ran = |run_ns| Usage { run_ns, ..Usage::default() };
    let irq = Usage {
        irq_ns: cpus.idle_irq_ns,
        softirq_ns: cpus.idle_softirq_ns,
        steal_ns: cpus.idle_steal_ns,
        ..ran(cpus.idle_irq_ns + cpus.idle_softirq_ns + cpus.idle_steal_ns)
    };
    let mut lines = vec![Line::of(Kind::Idle, ran(cpus.idle_ns)), Line::of(Kind::Irq, irq)];
    if cpus.unowned_ns > 0 {
        lines.push(Line::of(Kind::Unowned, ran(cpus.unowned_ns)));
    }
    let unseen = totals.other_ns;
    if unseen != 0 {
        lines.push(Line { total_ns: unseen, ..Line::new(Kind::Unseen) });
    }
    lines
}
