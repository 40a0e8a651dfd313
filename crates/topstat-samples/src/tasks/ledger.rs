// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the accounts of threads to what happened in an interval: differences, processes, and whose time goes to whom.

use std::collections::HashMap;

use super::abi;
use super::interval::{Each, Task};
use super::rows::name;
use super::usage::Usage;

/// What a reader has seen of the threads that have run.
#[derive(Default)]
pub struct Ledger {
    threads: HashMap<u64, Usage>,
}

/// An interval under construction.
pub struct Page<'a> {
    ledger: &'a mut Ledger,
    each: Each,
    tasks: HashMap<u64, Entry>,
    /// Threads that were brought up to date already: some are found in more than one place.
    seen: HashMap<u64, ()>,
}

#[derive(Default)]
struct Entry {
    task: Task,
    parent: Parent,
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

/// A name; empty where there is none.
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
    /// A thread that lives at the interval's end. The first account of it that is given counts.
    pub fn live(&mut self, row: &abi::tasks_row) {
        if self.seen.insert(row.id, ()).is_some() {
            return;
        }
        let before = self.ledger.threads.entry(row.id).or_default();
        let mut now = *before;
        now.advance(&row.times, row.who.flags & abi::TASKS_KERNEL != 0);
        let used = now.since(before);
        *before = now;
        if !used.is_zero() {
            self.entry(row.id, &row.who).task.own += used;
        }
    }

    /// A thread that has ended in the interval. It may have been seen alive in it as well.
    pub fn ended(&mut self, dead: &abi::tasks_dead) {
        self.seen.insert(dead.id, ());
        let before = self.ledger.threads.remove(&dead.id).unwrap_or_default();
        let mut now = before;
        now.advance(&dead.times, dead.who.flags & abi::TASKS_KERNEL != 0);
        let last = dead.who.flags & abi::TASKS_LAST != 0;
        let by_thread = self.each == Each::Thread;
        let entry = self.entry(dead.id, &dead.who);
        entry.task.own += now.since(&before);
        if last || by_thread {
            entry.task.ended_ns = Some(entry.task.ended_ns.unwrap_or(0).max(dead.died));
        }
        if by_thread && !last && dead.who.pid != dead.who.tgid {
            // The process goes on: what its thread used is its leader's.
            let (pid, ppid, start_ns) = (dead.who.tgid, dead.who.ppid, dead.who.start);
            entry.parent = Parent { id: id_of(pid, start_ns), pid, ppid, start_ns, comm: text(&dead.who.comm) };
        }
    }

    /// Forgets the threads that are not among those given, after all were looked at.
    pub fn keep_seen(&mut self) {
        let seen = &self.seen;
        self.ledger.threads.retain(|id, _| seen.contains_key(id));
    }

    fn entry(&mut self, id: u64, who: &abi::tasks_who) -> &mut Entry {
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
                kernel: who.flags & abi::TASKS_KERNEL != 0,
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

    /// Moves what those used that ended to their parents, first those that ended first, and gives the tasks.
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

    /// Who gets what a task used that has ended: its parent, or if that has ended before it, whoever got the parent's.
    /// `None`: nobody, it was the kernel's own.
    fn heir(&mut self, parent: &Parent, child: u64) -> Option<u64> {
        if parent.pid == 0 || parent.id == child {
            return None;
        }
        let mut at = parent.id;
        // A chain of ended parents is no longer than there are tasks.
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
