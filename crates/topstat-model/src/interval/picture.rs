// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is shown of an interval: rows in their order, and lines for all that is in none of them.

use std::cmp::Ordering;
use std::io;

use super::column::{Amount, Column};
use super::filter::Filter;
use super::text::Text;
use super::{Each, Interval, Task, Usage, csv, json, tree};
use crate::sink::{Reading, Records};
use crate::text::TextOptions;

/// Which rows there are, in which order, and what stands in them.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Processes or threads.
    pub each: Each,
    /// Who has a row.
    pub of: RowsOf,
    /// Tasks below their parents.
    pub tree: bool,
    /// Which comes first.
    pub order: Order,
    /// What is hidden is added to `other`.
    pub filter: Filter,
    /// The most rows to show.
    pub rows: Option<u32>,
    /// The columns of text between the pid and the name.
    pub columns: Vec<Column>,
    /// Command lines: in text instead of names, elsewhere as well.
    pub command_lines: bool,
}

/// Who has a row, and what it counts. Either way each nanosecond is counted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsOf {
    /// Those that ended are within their parents: rows count what tasks and their ended children used.
    Parents,
    /// All, and rows count what tasks used themselves.
    All,
    /// The same, but sorted by what they and their ended children used: for formats that show both.
    AllWithChildren,
}

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// What decides.
    pub by: By,
    /// The other way round.
    pub reverse: bool,
}

/// See [`Order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The largest first.
    Column(Column),
    /// The lowest first.
    Pid,
    /// The oldest first.
    Start,
    /// By its bytes.
    Name,
}

/// A task.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// Who it is, and what it used.
    pub task: &'a Task,
    /// Where it is in the tree.
    pub branch: Option<Branch>,
    /// Its arguments, where they are wanted and it has any: whoever shows it fills them in. Of a task that has ended
    /// nobody knows them: its pid may already be another's.
    pub command_line: Option<Vec<String>>,
}

/// A place in the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Branch {
    /// What is drawn before the name.
    pub lead: String,
    /// What the task and all below it count.
    pub amount: Amount,
}

/// What is not the row of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Tasks that are not shown.
    Other,
    /// Nothing ran.
    Idle,
    /// Interrupts, softirqs and the hypervisor, while nothing ran.
    Irq,
    /// Tasks that have no account.
    Unowned,
    /// What is missing: that of tasks that ended unseen, for all that is known.
    Unseen,
    /// All.
    Sum,
}

/// A line below the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What it is.
    pub kind: Kind,
    /// How many tasks it stands for.
    pub tasks: usize,
    /// What of it can be told apart.
    pub amount: Amount,
    /// What it adds to the sum: may be below 0 where something was lost.
    pub total_ns: i64,
}

impl Kind {
    /// As it is written: `other`.
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

    /// A line of time that belongs to no task shown.
    fn of(kind: Kind, own: Usage) -> Self {
        Self { amount: Amount { own, ..Amount::default() }, total_ns: own.run_ns.cast_signed(), ..Self::new(kind) }
    }

    fn add(&mut self, amount: &Amount) {
        self.tasks += 1;
        self.amount.add(amount);
        self.total_ns += amount.total_ns().cast_signed();
    }
}

/// What is shown of an interval.
#[derive(Clone, Debug)]
pub struct Picture<'a> {
    /// What it is a picture of.
    pub interval: &'a Interval,
    /// How far the clock of [`Task::start_ns`] was ahead of the interval's.
    suspended_ns: u64,
    /// What was chosen of it.
    pub(crate) choice: &'a Choice,
    /// The first in the order chosen.
    pub rows: Vec<Row<'a>>,
    /// Tasks without a row.
    other: Line,
    /// Time without a task.
    rest: Vec<Line>,
}

impl<'a> Picture<'a> {
    /// At most so many rows of the interval: the first in the order chosen. `suspended_ns`: how long the host has been
    /// suspended since it was started, for tasks' age goes on meanwhile and the interval's clock does not.
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

    /// What a task's row counts.
    pub fn amount(&self, task: &Task) -> Amount {
        counted(self.choice.of, task)
    }

    /// How long ago it was started, when the interval ended; or how long it lived.
    pub fn elapsed_ns(&self, task: &Task) -> u64 {
        let end_ns = task.ended_ns.unwrap_or(self.interval.end_ns);
        (end_ns + self.suspended_ns).saturating_sub(task.start_ns)
    }

    /// Moves all rows but so many to `other`.
    pub fn truncate(&mut self, rows: usize) {
        for row in self.rows.split_off(rows.min(self.rows.len())) {
            self.hide(row.task);
        }
    }

    /// With so many lines for rows, as [`Reading::text`] shows it.
    fn fitting(&self, room: usize) -> Self {
        // What is cut off needs a line, too, if there was none yet.
        let rows = if self.other.tasks > 0 { room } else { room.saturating_sub(1) };
        let mut fitting = self.clone();
        fitting.truncate(rows.max(1));
        fitting
    }

    fn hide(&mut self, task: &Task) {
        self.other.add(&self.amount(task));
    }

    /// The lines below the rows: `other` if there is a task without a row; the sum is not among them.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        Some(&self.other).filter(|other| other.tasks > 0).into_iter().chain(&self.rest)
    }

    /// Tasks without a row.
    pub fn other(&self) -> &Line {
        &self.other
    }

    /// The sum of all rows and lines: time × CPUs, to the nanosecond. It is added up, not copied from there.
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

/// Whether there is anything to show of it.
fn has_row(choice: &Choice, task: &Task) -> bool {
    match choice.of {
        // Who slept is in the list where a child of his ended: in a tree he is somebody's parent.
        RowsOf::All => choice.tree || task.ended_ns.is_some() || !task.own.is_zero(),
        RowsOf::AllWithChildren => true,
        RowsOf::Parents => task.counts(),
    }
}

/// What a task's row counts.
fn counted(of: RowsOf, task: &Task) -> Amount {
    match of {
        RowsOf::Parents => Amount { own: task.own, children: task.children },
        RowsOf::All | RowsOf::AllWithChildren => Amount { own: task.own, ..Amount::default() },
    }
}

/// What a task's row is sorted by.
pub fn key(of: RowsOf, task: &Task) -> Amount {
    match of {
        RowsOf::AllWithChildren => counted(RowsOf::Parents, task),
        of => counted(of, task),
    }
}

/// The order of two tasks, each with what it is sorted by. No two are equal: the same always comes out.
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
