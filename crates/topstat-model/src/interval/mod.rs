// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all tasks have used between two instants: the precise account, what is shown of it ([`Picture`]), and how that
//! is written.
//!
//! Whoever keeps the account fills in an [`Interval`]. A [`Picture`] is the rows of it that are shown, in their order, and
//! lines for all that is in none of them; so what is shown adds up, too. It is a [`Reading`](crate::Reading), which a
//! [`Sink`](crate::Sink) writes.

mod column;
mod csv;
mod filter;
mod json;
mod picture;
mod text;
mod tree;
mod usage;

use std::time::SystemTime;

pub use column::{Amount, Column};
pub use filter::Filter;
pub use picture::{Branch, By, Choice, Kind, Line, Order, Picture, Row, RowsOf};
pub use tree::add_ancestors;
pub use usage::Usage;

/// One entry for each process, or for each thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Each {
    /// The threads of a process are added up.
    #[default]
    Process,
    /// Each thread by itself.
    Thread,
}

/// A process, or a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Unique: a pid may be used again.
    pub id: u64,
    /// The thread's, where threads are told apart; else the process's.
    pub pid: u32,
    /// The process's.
    pub tgid: u32,
    /// The parent process; 0: none, or not known.
    pub ppid: u32,
    /// Its name, as it is at the end: may hold anything. A thread's own where threads are told apart.
    pub comm: String,
    /// When the process was started, since boot.
    pub start_ns: u64,
    /// A kernel thread.
    pub kernel: bool,
    /// When it ended, by the monotonic clock; `None`: it lives.
    pub ended_ns: Option<u64>,
    /// What it used itself in the interval.
    pub own: Usage,
    /// User and system of `own` are exact, for it was chosen by who loaded the account.
    pub exact: bool,
    /// What those used in the interval that ended in it: children, their children that had ended before them, and so
    /// on. They are in the list themselves as well, with [`Task::moved_to`].
    pub children: Usage,
    /// It has ended, and what it used is contained in the `children` of the task with this id: its parent, or whoever
    /// its parent's children were handed to.
    pub moved_to: Option<u64>,
}

impl Task {
    /// All that counts to this line where those that ended are shown with their parents.
    pub fn total(&self) -> Usage {
        let mut total = self.own;
        total += self.children;
        total
    }

    /// Whether it counts in a sum of [`Task::total`]: it has not been moved elsewhere.
    pub fn counts(&self) -> bool {
        self.moved_to.is_none()
    }
}

/// A CPU. `tasks_ns + unowned_ns + idle_ns + idle_irq_ns + idle_softirq_ns + idle_steal_ns` is `wall_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Its number; of a sum of CPUs: how many.
    pub cpu: u32,
    /// How long it was there: all of the interval, unless it came online in it.
    pub wall_ns: u64,
    /// Tasks ran.
    pub tasks_ns: u64,
    /// Tasks ran that have no account, for there was no memory for it.
    pub unowned_ns: u64,
    /// Nothing ran.
    pub idle_ns: u64,
    /// Interrupts, softirqs and the hypervisor, while nothing ran. (What they took from tasks is told with the tasks.)
    pub idle_irq_ns: u64,
    /// See `idle_irq_ns`.
    pub idle_softirq_ns: u64,
    /// See `idle_irq_ns`.
    pub idle_steal_ns: u64,
    /// Interrupts on this CPU, whatever they interrupted.
    pub irq_ns: u64,
    /// Softirqs on this CPU.
    pub softirq_ns: u64,
    /// What the hypervisor took from this CPU.
    pub steal_ns: u64,
}

impl Cpu {
    fn add(&mut self, cpu: &Cpu) {
        self.cpu += 1;
        self.wall_ns += cpu.wall_ns;
        self.tasks_ns += cpu.tasks_ns;
        self.unowned_ns += cpu.unowned_ns;
        self.idle_ns += cpu.idle_ns;
        self.idle_irq_ns += cpu.idle_irq_ns;
        self.idle_softirq_ns += cpu.idle_softirq_ns;
        self.idle_steal_ns += cpu.idle_steal_ns;
        self.irq_ns += cpu.irq_ns;
        self.softirq_ns += cpu.softirq_ns;
        self.steal_ns += cpu.steal_ns;
    }
}

/// What could not be told. All zero where all is well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountLost {
    /// Threads without an account, ever: their time is in [`Cpu::unowned_ns`].
    pub no_memory: u64,
    /// Threads that ended unseen in the interval, for too many did: their time is in [`Totals::other_ns`].
    pub ended_unseen: u64,
    /// How often all threads had to be looked at, for too many ran, in the interval.
    pub overruns: u64,
    /// Time that the interval before gave to a thread that had left its CPU by then, for a switch that the kernel did not
    /// trace. Whose it was is known now, but it is counted once, and so in neither row of this interval.
    pub misplaced_ns: u64,
}

impl AccountLost {
    /// What is not zero, by its name.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let Self { no_memory, ended_unseen, overruns, misplaced_ns } = *self;
        let all = [
            ("no_memory", no_memory),
            ("ended_unseen", ended_unseen),
            ("overruns", overruns),
            ("misplaced_ns", misplaced_ns),
        ];
        all.into_iter().filter(|(_, count)| *count > 0)
    }
}

/// Sums of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Time × CPUs.
    pub wall_ns: u64,
    /// What those used that live.
    pub live: Usage,
    /// What those used that ended.
    pub ended: Usage,
    /// All CPUs.
    pub cpus: Cpu,
    /// What is left of `wall_ns` without tasks, idle and unowned: nothing, unless something was lost. It is not made to
    /// be nothing: tasks and CPUs are accounted for separately.
    pub other_ns: i64,
}

/// What all tasks have used between two instants. Tasks that did not run are not in it.
#[derive(Clone, Debug)]
pub struct Interval {
    /// When it ended, by the wall clock.
    pub time: SystemTime,
    /// When it began, by the monotonic clock.
    pub begin_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// One entry for each process or thread.
    pub each: Each,
    /// In no particular order.
    pub tasks: Vec<Task>,
    /// Every CPU that was there, ascending.
    pub cpus: Vec<Cpu>,
    /// What could not be told.
    pub lost: AccountLost,
}

impl Interval {
    /// How long it was.
    pub fn wall_ns(&self) -> u64 {
        self.end_ns - self.begin_ns
    }

    /// The sums.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for task in &self.tasks {
            let sum = if task.ended_ns.is_some() { &mut totals.ended } else { &mut totals.live };
            *sum += task.own;
        }
        for cpu in &self.cpus {
            totals.cpus.add(cpu);
        }
        totals.wall_ns = totals.cpus.wall_ns;
        let idle = totals.cpus.wall_ns - totals.cpus.tasks_ns;
        totals.other_ns = (totals.cpus.wall_ns - idle).cast_signed()
            - totals.live.run_ns.cast_signed()
            - totals.ended.run_ns.cast_signed();
        totals
    }
}
