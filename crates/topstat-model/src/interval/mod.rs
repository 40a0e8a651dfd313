// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The usage of all tasks between two instants: the precise account, the picture of it that is shown ([`Picture`]), and its
//! formats.
//!
//! The code that keeps the account fills in an [`Interval`]. A [`Picture`] has the shown rows of an interval, in their order, and
//! lines for the amounts that are in no row; so the shown amounts add up, too. It is a [`Reading`](crate::Reading), which a
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
    /// A process has the sum of its threads.
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
    /// The thread's, where each thread has an entry; otherwise the process's.
    pub pid: u32,
    /// The process's.
    pub tgid: u32,
    /// The parent process; 0: none, or not known.
    pub ppid: u32,
    /// Its name at the end of the interval: may contain any characters. The thread's name, where each thread has an entry.
    pub comm: String,
    /// When the process was started, since boot.
    pub start_ns: u64,
    /// A kernel thread.
    pub kernel: bool,
    /// When it ended, by the monotonic clock; `None`: it lives.
    pub ended_ns: Option<u64>,
    /// The usage of the task itself in the interval.
    pub own: Usage,
    /// User and system time of `own` are exact, because the loader of the account has chosen the task for that.
    pub exact: bool,
    /// The usage, in the interval, of the descendants that ended in it: children, their children that had ended before them, and
    /// so on. The list contains these tasks as well, with [`Task::moved_to`].
    pub children: Usage,
    /// The task has ended, and its usage is contained in the `children` of the task with this id: its parent, or the task that
    /// inherited its parent's children.
    pub moved_to: Option<u64>,
}

impl Task {
    /// The usage of the task and its ended children: the amount of its row where ended tasks are contained in their parents.
    pub fn total(&self) -> Usage {
        let mut total = self.own;
        total += self.children;
        total
    }

    /// Whether it counts in a sum of [`Task::total`]: its usage has not been moved to another task.
    pub fn counts(&self) -> bool {
        self.moved_to.is_none()
    }
}

/// A CPU. `tasks_ns + unowned_ns + idle_ns + idle_irq_ns + idle_softirq_ns + idle_steal_ns` is `wall_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Its number; in a sum of CPUs, the number of CPUs.
    pub cpu: u32,
    /// The time that it was online: all of the interval, unless it came online in it.
    pub wall_ns: u64,
    /// Tasks ran.
    pub tasks_ns: u64,
    /// Tasks without an account ran, because there was no memory for an account.
    pub unowned_ns: u64,
    /// Nothing ran.
    pub idle_ns: u64,
    /// Interrupts, softirqs and the hypervisor, while nothing ran. (The time that they took from tasks is in the tasks.)
    pub idle_irq_ns: u64,
    /// See `idle_irq_ns`.
    pub idle_softirq_ns: u64,
    /// See `idle_irq_ns`.
    pub idle_steal_ns: u64,
    /// Interrupts on this CPU, whatever they interrupted.
    pub irq_ns: u64,
    /// Softirqs on this CPU.
    pub softirq_ns: u64,
    /// The time that the hypervisor took from this CPU.
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

/// The losses of an account. All zero where all is well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountLost {
    /// Threads without an account, ever: their time is in [`Cpu::unowned_ns`].
    pub no_memory: u64,
    /// Threads that ended unseen in the interval, because too many ended: their time is in [`Totals::other_ns`].
    pub ended_unseen: u64,
    /// Number of times in the interval that all threads had to be read, because too many ran.
    pub overruns: u64,
    /// Time that the previous interval gave to a thread that had already left its CPU, because the kernel did not trace a switch.
    /// The right thread is known now, but time is counted once, so neither row of this interval has it.
    pub misplaced_ns: u64,
}

impl AccountLost {
    /// The losses that are not zero, by name.
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
    /// The usage of living tasks.
    pub live: Usage,
    /// The usage of ended tasks.
    pub ended: Usage,
    /// The sum of all CPUs.
    pub cpus: Cpu,
    /// The rest of `wall_ns` without tasks, idle and unowned: 0, unless time was lost. It is not forced to 0: tasks and CPUs are
    /// accounted for separately.
    pub other_ns: i64,
}

/// The usage of all tasks between two instants. It does not contain tasks that did not run.
#[derive(Clone, Debug)]
pub struct Interval {
    /// When it ended, by the wall clock.
    pub time: SystemTime,
    /// When it began, by the monotonic clock.
    pub begin_ns: u64,
    /// When it ended, by the monotonic clock.
    pub end_ns: u64,
    /// The kind of the entries.
    pub each: Each,
    /// In no particular order.
    pub tasks: Vec<Task>,
    /// Every CPU that was online, ascending.
    pub cpus: Vec<Cpu>,
    /// The losses.
    pub lost: AccountLost,
}

impl Interval {
    /// Its length.
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
