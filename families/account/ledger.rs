// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns the accounts of threads into the events of an interval: differences, processes, and the time that each parent inherits.

use std::collections::HashMap;

use topstat_model::interval::{Each, Task, Usage};

use super::{abi, usage};
use topstat_kernel::process::name;

/// The threads that have run, as a reader has seen them.
#[derive(Default)]
pub struct Ledger {
    threads: HashMap<u64, Known>,
}

/// The last known state of a thread.
#[derive(Clone, Copy, Default)]
struct Known {
    usage: Usage,
    /// The user time so far, where it is known exactly.
    user_ns: Option<u64>,
    /// Time that was shown for this thread but is in another thread's account, less time in this thread's account that was shown
    /// for another thread (see `struct account_moved`).
    credit_ns: i64,
}

impl Known {
    /// Brings the state up to an account. Returns what was used since, and whether its split is exact.
    fn advance(&mut self, times: &abi::account_times, flags: u32) -> (Usage, bool) {
        let before = self.usage;
        let user_ns = (times.own.exact != 0).then_some(times.own.user);
        // A thread that was chosen before it ran, and is seen for the first time: all that it used is in its account.
        let all = (times.own.exact == 1 && before.run_ns == 0).then_some(0);
        let used_in_user = user_ns.zip(self.user_ns.or(all)).map(|(now, then)| now.saturating_sub(then));
        let mut times = *times;
        times.own.run = times.own.run.saturating_add_signed(self.credit_ns);
        usage::advance(&mut self.usage, &times, flags & abi::ACCOUNT_KERNEL != 0, used_in_user);
        self.user_ns = user_ns;
        (self.usage.since(&before), used_in_user.is_some())
    }
}

/// An interval under construction.
pub struct Page<'a> {
    ledger: &'a mut Ledger,
    each: Each,
    tasks: HashMap<u64, Entry>,
    /// Threads that are up to date already: a thread may be found in more than one place.
    seen: HashMap<u64, ()>,
}

#[derive(Default)]
struct Entry {
    task: Task,
    parent: Parent,
}

impl Entry {
    fn add(&mut self, used: Usage, exact: bool) {
        // One thread without an exact split makes the whole task's split inexact.
        self.task.exact = exact && (self.task.exact || self.task.own.is_zero());
        self.task.own += used;
    }
}

#[derive(Clone, Default)]
struct Parent {
    id: u64,
    pid: u32,
    ppid: u32,
    start_ns: u64,
    comm: String,
}

/// The id of a thread, as the programs make it.
fn id_of(pid: u32, start_ns: u64) -> u64 {
    start_ns >> 10 << 22 | u64::from(pid & 0x3f_ffff)
}

/// A name, or an empty string.
fn text(comm: &[core::ffi::c_char]) -> String {
    name(comm).unwrap_or_default()
}

impl Ledger {
    /// Begins an interval.
    pub fn page(&mut self, each: Each) -> Page<'_> {
        Page { ledger: self, each, tasks: HashMap::new(), seen: HashMap::new() }
    }

    /// How many threads are known.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.threads.len()
    }
}

impl Page<'_> {
    /// Adds a thread that lives at the interval's end. Only the first account of a thread counts.
    pub fn live(&mut self, row: &abi::account_row) {
        if self.seen.insert(row.id, ()).is_some() {
            return;
        }
        let known = self.ledger.threads.entry(row.id).or_default();
        let (used, exact) = known.advance(&row.times, row.who.flags);
        if !used.is_zero() {
            self.entry(row.id, &row.who).add(used, exact);
        }
    }

    /// Adds a thread that has ended in the interval. The interval may contain it as a living thread, too.
    pub fn ended(&mut self, dead: &abi::account_dead) {
        self.seen.insert(dead.id, ());
        let mut known = self.ledger.threads.remove(&dead.id).unwrap_or_default();
        let (used, exact) = known.advance(&dead.times, dead.who.flags);
        let last = dead.who.flags & abi::ACCOUNT_LAST != 0;
        let by_thread = self.each == Each::Thread;
        let entry = self.entry(dead.id, &dead.who);
        entry.add(used, exact);
        if last || by_thread {
            entry.task.ended_ns = Some(entry.task.ended_ns.unwrap_or(0).max(dead.died));
        }
        if by_thread && !last && dead.who.pid != dead.who.tgid {
            // The process goes on: its leader gets what the thread used.
            let (pid, ppid, start_ns) = (dead.who.tgid, dead.who.ppid, dead.who.start);
            entry.parent = Parent { id: id_of(pid, start_ns), pid, ppid, start_ns, comm: text(&dead.who.comm) };
        }
    }

    /// Corrects a thread's account by time that was shown for the thread before, but is in another thread's account (below 0: the
    /// reverse).
    pub fn credit(&mut self, id: u64, ns: i64) {
        self.ledger.threads.entry(id).or_default().credit_ns += ns;
    }

    /// Forgets all threads that this interval has not seen. For use after all threads were looked at.
    pub fn keep_seen(&mut self) {
        let seen = &self.seen;
        self.ledger.threads.retain(|id, _| seen.contains_key(id));
    }

    fn entry(&mut self, id: u64, who: &abi::account_who) -> &mut Entry {
        let leader = id_of(who.tgid, who.start);
        let by_thread = self.each == Each::Thread;
        let id = if by_thread && who.pid != who.tgid { id } else { leader };
        self.tasks.entry(id).or_insert_with(|| Entry {
            task: Task {
                id,
                pid: if by_thread { who.pid } else { who.tgid },
                tgid: who.tgid,
                ppid: who.ppid,
                comm: text(if by_thread { &who.thread_comm } else { &who.comm }),
                start_ns: who.start,
                kernel: who.flags & abi::ACCOUNT_KERNEL != 0,
                ..Task::default()
            },
            parent: Parent {
                id: id_of(who.ppid, who.parent_start),
                pid: who.ppid,
                ppid: who.gppid,
                start_ns: who.parent_start,
                comm: text(&who.parent_comm),
            },
        })
    }

    /// Moves the time of each task that ended to its parent, in the order in which the tasks ended, and returns the tasks.
    pub fn finish(mut self) -> Vec<Task> {
        let mut ended: Vec<(u64, u64)> =
            self.tasks.iter().filter_map(|(id, e)| e.task.ended_ns.map(|at| (at, *id))).collect();
        ended.sort_unstable();
        for (_, id) in ended {
            let entry = &self.tasks[&id];
            let (total, parent) = (entry.task.total(), entry.parent.clone());
            let Some(to) = self.heir(&parent, id) else { continue };
            if let Some(entry) = self.tasks.get_mut(&to) {
                entry.task.children += total;
            }
            if let Some(entry) = self.tasks.get_mut(&id) {
                entry.task.moved_to = Some(to);
            }
        }
        self.tasks.into_values().map(|e| e.task).collect()
    }

    /// The task that gets what an ended task used: its parent or, if the parent has ended before, the task that got the parent's
    /// time. `None`: no task gets it, the ended task was the kernel's own.
    fn heir(&mut self, parent: &Parent, child: u64) -> Option<u64> {
        if parent.pid == 0 || parent.id == child {
            return None;
        }
        let mut at = parent.id;
        // A chain of ended parents is at most as long as the number of tasks.
        for _ in 0..=self.tasks.len() {
            match self.tasks.get(&at) {
                Some(entry) => match entry.task.moved_to {
                    Some(next) if next != child => at = next,
                    _ => return Some(at),
                },
                None => break,
            }
        }
        self.tasks.entry(at).or_insert_with(|| Entry {
            task: Task {
                id: at,
                pid: parent.pid,
                tgid: parent.pid,
                ppid: parent.ppid,
                comm: parent.comm.clone(),
                start_ns: parent.start_ns,
                ..Task::default()
            },
            parent: Parent::default(),
        });
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A process of one thread. Its pid is also its start time, in seconds.
    fn who(pid: u32, ppid: u32) -> abi::account_who {
        abi::account_who {
            pid,
            tgid: pid,
            ppid,
            gppid: 1,
            start: u64::from(pid) * SECOND,
            parent_start: u64::from(ppid) * SECOND,
            ..Default::default()
        }
    }

    fn times(run: u64) -> abi::account_times {
        abi::account_times { own: abi::account_own { run, ..Default::default() }, ..Default::default() }
    }

    fn live(pid: u32, ppid: u32, run: u64) -> abi::account_row {
        abi::account_row { id: id_of(pid, u64::from(pid) * SECOND), times: times(run), who: who(pid, ppid) }
    }

    fn dead(pid: u32, ppid: u32, run: u64, died: u64) -> abi::account_dead {
        let mut who = who(pid, ppid);
        who.flags |= abi::ACCOUNT_LAST;
        abi::account_dead {
            id: id_of(pid, u64::from(pid) * SECOND),
            died,
            times: times(run),
            who,
            ..Default::default()
        }
    }

    fn of(tasks: &[Task], pid: u32) -> &Task {
        tasks.iter().find(|t| t.pid == pid).expect("it is there")
    }

    #[test]
    fn differences_count_and_what_was_shown_is_not_shown_again() {
        let mut ledger = Ledger::default();
        let mut page = ledger.page(Each::Process);
        page.live(&live(10, 1, 500));
        page.live(&live(10, 1, 900)); // found in a second place: the first counts
        assert_eq!(of(&page.finish(), 10).own.run_ns, 500);
        let mut page = ledger.page(Each::Process);
        page.live(&live(10, 1, 700));
        assert_eq!(of(&page.finish(), 10).own.run_ns, 200);
        let mut page = ledger.page(Each::Process);
        page.ended(&dead(10, 5, 1000, 1));
        let tasks = page.finish();
        assert_eq!((of(&tasks, 10).own.run_ns, of(&tasks, 5).children.run_ns), (300, 300));
        assert_eq!(ledger.len(), 0);
    }

    #[test]
    fn trees_move_up_to_the_nearest_that_lives() {
        let mut ledger = Ledger::default();
        let mut page = ledger.page(Each::Process);
        page.live(&live(10, 1, 1));
        page.ended(&dead(11, 10, 20, 9));
        page.ended(&dead(12, 11, 300, 8));
        page.ended(&dead(13, 12, 4000, 7));
        // Its parent had ended before it, and no new parent of it was seen.
        page.ended(&dead(14, 11, 50_000, 10));
        let tasks = page.finish();
        assert_eq!(of(&tasks, 10).children.run_ns, 54_320);
        assert_eq!(of(&tasks, 11).children.run_ns, 4300);
        assert_eq!(of(&tasks, 12).children.run_ns, 4000);
        let sum: u64 = tasks.iter().filter(|t| t.counts()).map(|t| t.total().run_ns).sum();
        assert_eq!(sum, 54_321);
    }

    #[test]
    fn a_parent_that_slept_is_there_for_its_children() {
        let mut ledger = Ledger::default();
        let mut page = ledger.page(Each::Process);
        page.ended(&dead(11, 10, 20, 9));
        let tasks = page.finish();
        let parent = of(&tasks, 10);
        assert_eq!((parent.own.run_ns, parent.children.run_ns, parent.ppid), (0, 20, 1));
        // Children of the kernel have no parent task.
        let mut page = ledger.page(Each::Process);
        page.ended(&dead(2, 0, 20, 9));
        let tasks = page.finish();
        assert!(tasks.len() == 1 && tasks[0].counts());
    }

    #[test]
    fn a_thread_that_ends_is_its_process_s() {
        for each in [Each::Process, Each::Thread] {
            let mut ledger = Ledger::default();
            let mut page = ledger.page(each);
            let mut thread = dead(10, 1, 20, 9);
            (thread.who.pid, thread.who.flags, thread.id) = (77, 0, 4242);
            page.live(&live(10, 1, 5));
            page.ended(&thread);
            let tasks = page.finish();
            let process = of(&tasks, 10);
            assert!(process.ended_ns.is_none());
            match each {
                Each::Process => assert_eq!((tasks.len(), process.own.run_ns), (1, 25)),
                Each::Thread => {
                    assert_eq!((process.own.run_ns, process.children.run_ns), (5, 20));
                    assert_eq!(of(&tasks, 77).moved_to, Some(process.id));
                }
            }
        }
    }

    #[test]
    fn a_pid_used_again_is_another_task() {
        let mut ledger = Ledger::default();
        let mut page = ledger.page(Each::Process);
        let first = dead(10, 5, 20, 9);
        let mut second = dead(10, 5, 300, 10);
        (second.who.start, second.id) = (99 * SECOND, id_of(10, 99 * SECOND));
        page.ended(&first);
        page.ended(&second);
        let tasks = page.finish();
        assert_eq!(tasks.iter().filter(|t| t.pid == 10).count(), 2);
        assert_eq!(of(&tasks, 5).children.run_ns, 320);
    }
}
