// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks below their parents.

use std::collections::HashSet;

use super::column::Amount;
use super::picture::{Branch, Choice, Row, RowsOf, compare, key};
use super::{Interval, Task};

/// The largest depth that a tree is drawn with; deeper tasks are drawn at this depth. A reader could not follow more, and the
/// work for a chain of processes would grow with the square of its length.
const DEEPEST: usize = 32;

/// Adds the ancestors of the tasks that have a row: an interval lacks the ancestors that slept. They are looked up by pid.
pub fn add_ancestors(interval: &mut Interval, choice: &Choice, mut look_up: impl FnMut(u32) -> Option<Task>) {
    let is_row = |task: &&Task| choice.of != RowsOf::Parents || task.counts();
    let rows = || interval.tasks.iter().filter(is_row);
    let mut known: HashSet<u32> = rows().filter(|task| task.pid == task.tgid).map(|task| task.pid).collect();
    let mut wanted: Vec<u32> = rows().map(parent_pid).collect();
    while let Some(pid) = wanted.pop() {
        if pid == 0 || !known.insert(pid) {
            continue;
        }
        if let Some(ancestor) = look_up(pid) {
            wanted.push(ancestor.ppid);
            interval.tasks.push(ancestor);
        }
    }
}

/// The pid of the task above: a thread is below its process, a process below its parent.
fn parent_pid(task: &Task) -> u32 {
    if task.pid == task.tgid { task.ppid } else { task.tgid }
}

/// The rows of the tree from the top down, and the tasks that the filter hides: a matching task is shown with all tasks below it.
pub fn arrange<'a>(tasks: Vec<&'a Task>, choice: &Choice) -> (Vec<Row<'a>>, Vec<&'a Task>) {
    let (parents, down) = walk(&tasks);
    let mut sums: Vec<Amount> = tasks.iter().map(|task| key(choice.of, task)).collect();
    for &at in down.iter().rev() {
        if let Some(parent) = parents[at] {
            let sum = sums[at];
            sums[parent].add(&sum);
        }
    }
    let mut shown = vec![false; tasks.len()];
    for &at in &down {
        shown[at] = parents[at].is_some_and(|parent| shown[parent]) || choice.filter.matches(tasks[at]);
    }
    let hidden = (0..tasks.len()).filter(|at| !shown[*at]).map(|at| tasks[at]).collect();

    let mut roots = Vec::new();
    let mut children = vec![Vec::new(); tasks.len()];
    for at in (0..tasks.len()).filter(|at| shown[*at]) {
        match parents[at].filter(|parent| shown[*parent]) {
            Some(parent) => children[parent].push(at),
            None => roots.push(at),
        }
    }
    // In reverse order: the last element is taken from the stack first.
    let backwards = |siblings: &mut Vec<usize>| {
        siblings.sort_unstable_by(|a, b| compare(choice.order, (tasks[*b], &sums[*b]), (tasks[*a], &sums[*a])));
    };
    backwards(&mut roots);
    children.iter_mut().for_each(backwards);

    let mut rows = Vec::with_capacity(tasks.len());
    // A task, its lead, the beginning of its children's leads, and its depth.
    let mut stack: Vec<_> = roots.into_iter().map(|at| (at, String::new(), String::new(), 0)).collect();
    while let Some((at, lead, below, depth)) = stack.pop() {
        for (place, &child) in children[at].iter().enumerate() {
            let (corner, bar) = if place == 0 { ("└─", "  ") } else { ("├─", "│ ") };
            let deeper = if depth < DEEPEST { format!("{below}{bar}") } else { below.clone() };
            stack.push((child, format!("{below}{corner}"), deeper, depth + 1));
        }
        let branch = Some(Branch { lead, amount: sums[at] });
        rows.push(Row { task: tasks[at], branch, command_line: None });
    }
    (rows, hidden)
}

/// The parent of each task; and all tasks, ordered so that parents come before their children.
fn walk(tasks: &[&Task]) -> (Vec<Option<usize>>, Vec<usize>) {
    let mut processes: Vec<_> = (0..tasks.len())
        .filter(|at| tasks[*at].pid == tasks[*at].tgid)
        .map(|at| (tasks[at].pid, tasks[at].start_ns, at))
        .collect();
    processes.sort_unstable();
    let find = |at: usize| {
        let (child, pid) = (tasks[at], parent_pid(tasks[at]));
        // A pid may have been used twice in the interval: the parent is the latest process that is older than the child.
        let after = processes.partition_point(|(p, start, _)| (*p, *start) <= (pid, child.start_ns));
        let older = after.checked_sub(1).map(|before| processes[before]);
        // The start of a looked-up process is known only to a tick, so it may seem a bit younger.
        let younger = processes.get(after).copied();
        [older, younger].into_iter().flatten().find(|(p, _, parent)| *p == pid && *parent != at).map(|(.., at)| at)
    };
    let mut parents: Vec<_> = (0..tasks.len()).map(find).collect();
    let mut children = vec![Vec::new(); tasks.len()];
    for (at, parent) in parents.iter().enumerate() {
        if let Some(parent) = parent {
            children[*parent].push(at);
        }
    }
    let mut down = Vec::with_capacity(tasks.len());
    let mut seen = vec![false; tasks.len()];
    let mut visit = |from: usize, down: &mut Vec<usize>| {
        let mut stack = vec![from];
        while let Some(at) = stack.pop() {
            if !std::mem::replace(&mut seen[at], true) {
                down.push(at);
                stack.extend(&children[at]);
            }
        }
    };
    for at in (0..tasks.len()).filter(|at| parents[*at].is_none()).collect::<Vec<_>>() {
        visit(at, &mut down);
    }
    // A cycle can only come from pids that were used again; it is opened at any task.
    for (at, parent) in parents.iter_mut().enumerate() {
        let before = down.len();
        visit(at, &mut down);
        if down.len() > before {
            *parent = None;
        }
    }
    (parents, down)
}

#[cfg(test)]
mod tests {
    use super::super::{By, Column, Each, Filter, Order, Usage};
    use super::*;

    fn task(id: u64, pid: u32, ppid: u32, start_ns: u64) -> Task {
        let own = Usage { run_ns: 1, user_ns: 1, ..Usage::default() };
        Task { id, pid, tgid: pid, ppid, start_ns, own, ..Task::default() }
    }

    fn arranged(tasks: &[Task]) -> Vec<(u64, String, u64)> {
        let order = Order { by: By::Column(Column::Total), reverse: false };
        let choice = Choice {
            each: Each::Process,
            of: RowsOf::Parents,
            tree: true,
            order,
            filter: Filter::default(),
            rows: None,
            columns: vec![],
            command_lines: false,
        };
        let (rows, hidden) = arrange(tasks.iter().collect(), &choice);
        assert_eq!((rows.len(), hidden.len()), (tasks.len(), 0), "each once");
        let branch = |row: &Row| row.branch.clone().unwrap();
        rows.iter().map(|row| (row.task.id, branch(row).lead, branch(row).amount.total_ns())).collect()
    }

    fn row(id: u64, lead: &str, below: u64) -> (u64, String, u64) {
        (id, lead.to_owned(), below)
    }

    #[test]
    fn siblings_are_sorted_by_what_is_below() {
        let tasks = [task(1, 1, 0, 0), task(2, 2, 1, 5), task(3, 3, 1, 6), task(4, 4, 3, 7)];
        assert_eq!(arranged(&tasks), [row(1, "", 4), row(3, "├─", 2), row(4, "│ └─", 1), row(2, "└─", 1)]);
    }

    #[test]
    fn a_pid_that_is_used_again_is_told_by_its_age() {
        let tasks = [task(1, 7, 0, 10), task(2, 7, 0, 30), task(3, 8, 7, 20), task(4, 9, 7, 40), task(5, 6, 7, 41)];
        assert_eq!(arranged(&tasks), [row(2, "", 3), row(5, "├─", 1), row(4, "└─", 1), row(1, "", 2), row(3, "└─", 1)]);
    }

    #[test]
    fn a_circle_is_opened() {
        // Each is older than the other's child, as can happen with looked-up processes.
        let tasks = [task(1, 7, 8, 10), task(2, 8, 7, 10), task(3, 9, 9, 10)];
        assert_eq!(arranged(&tasks).len(), 3);
    }

    #[test]
    fn a_chain_of_100_000_is_no_trouble() {
        let tasks: Vec<_> = (1..=100_000_u32).map(|pid| task(pid.into(), pid, pid - 1, pid.into())).collect();
        let rows = arranged(&tasks);
        assert_eq!(rows[0].2, 100_000);
        assert!(rows.iter().all(|(_, lead, _)| lead.chars().count() <= 2 * (DEEPEST + 1)));
    }
}
