// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Made-up intervals of the CPU time of tasks, always identical: a build, a database, and a task with control characters in its
//! name.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use topstat::Account;
use topstat_kernel::Error;
use topstat_model::interval::{AccountLost, Cpu, Each, Interval, Task, Usage};

/// The length of each interval, which is not a round number.
pub const WALL_NS: u64 = 1_000_000_007;
/// The beginning of the first interval, by the monotonic clock.
const BEGIN_NS: u64 = 1_000_000_000_000_000;
/// The time that the host was suspended.
const SUSPENDED_NS: u64 = 7_000_000_000;
const MS: u64 = 1_000_000;

/// The calls of the account.
#[derive(Debug, Default)]
pub struct Asked {
    pub polls: u32,
    pub intervals: u64,
    /// The tasks whose command lines were asked for.
    pub command_lines: Vec<u32>,
    /// The tasks that were looked up.
    pub looked_up: Vec<u32>,
}

pub struct FakeAccount {
    pub asked: Arc<Mutex<Asked>>,
    pub loaded: Arc<AtomicU32>,
    pub fail_at: Option<u64>,
    /// Some figures are missing.
    pub lossy: bool,
    pub exact: Vec<u32>,
}

impl Drop for FakeAccount {
    fn drop(&mut self) {
        self.loaded.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Account for FakeAccount {
    fn interval(&mut self, each: Each) -> Result<Interval, Error> {
        let mut asked = self.asked.lock().unwrap();
        asked.intervals += 1;
        if self.fail_at == Some(asked.intervals) {
            return Err(Error::Kernel {
                what: "take a snapshot of the CPU time of tasks".into(),
                why: "another reader does not finish".into(),
            });
        }
        let mut interval = interval(each, asked.intervals, self.lossy);
        for task in &mut interval.tasks {
            task.exact = self.exact.contains(&task.tgid);
        }
        Ok(interval)
    }

    fn poll(&mut self) {
        self.asked.lock().unwrap().polls += 1;
    }

    fn suspended_ns(&self) -> u64 {
        SUSPENDED_NS
    }

    fn command_line(&mut self, task: &Task) -> Option<Vec<String>> {
        self.asked.lock().unwrap().command_lines.push(task.pid);
        match task.comm.as_str() {
            "make" => Some(vec!["make".into(), "-j2".into(), "CFLAGS=-O2 -g".into()]),
            "postgres" => Some(vec!["postgres: writer\x1b]0;title\x07".into()]),
            // The task has vanished, or is a kernel thread.
            _ => None,
        }
    }

    fn look_up(&mut self, pid: u32) -> Option<Task> {
        self.asked.lock().unwrap().looked_up.push(pid);
        let (comm, ppid, start_ns) = match pid {
            1 => ("init", 0, 10 * MS),
            2 => ("kthreadd", 0, 10 * MS),
            100 => ("bash", 1, 90_000 * MS),
            300 => ("postgres", 1, 80_000 * MS),
            _ => return None,
        };
        Some(Task {
            id: 1 << 63 | u64::from(pid),
            comm: comm.into(),
            start_ns,
            ..task(pid, ppid, "", Usage::default())
        })
    }
}

/// `[user, system, irq, softirq, steal, wait]` in ns.
fn usage([user_ns, system_ns, irq_ns, softirq_ns, steal_ns, wait_ns]: [u64; 6], switches: u64) -> Usage {
    Usage {
        run_ns: user_ns + system_ns + irq_ns + softirq_ns + steal_ns,
        user_ns,
        system_ns,
        irq_ns,
        softirq_ns,
        steal_ns,
        guest_ns: 0,
        wait_ns,
        switches,
    }
}

fn task(pid: u32, ppid: u32, comm: &str, own: Usage) -> Task {
    Task { id: pid.into(), pid, tgid: pid, ppid, comm: comm.into(), start_ns: BEGIN_NS, own, ..Task::default() }
}

/// An interval of two CPUs in which everything adds up.
fn interval(each: Each, number: u64, lossy: bool) -> Interval {
    let begin_ns = BEGIN_NS + (number - 1) * WALL_NS;
    let end_ns = begin_ns + WALL_NS;
    // The first interval is the busiest.
    let n = number;
    let started = |ago_ns: u64, task: Task| Task { start_ns: end_ns + SUSPENDED_NS - ago_ns, ..task };
    let ended = |at_ns: u64, to: u64, task: Task| Task {
        ended_ns: Some(begin_ns + at_ns),
        moved_to: Some(to),
        start_ns: begin_ns + SUSPENDED_NS + at_ns - 2 * MS,
        ..task
    };
    let cc1 = usage([450_000_001 / n, 50_000_003 / n, 1_000_000, 2_000_000, 500_001, 30_000_000], 41);
    let shell = usage([1_000_000, 2_000_000, 0, 0, 0, 0], 2);
    let assembler = usage([20_000_007, 3_000_000, 0, 0, 0, 1_000_000], 5);
    // This task lived for 2 ms.
    let blink = usage([1_500_000, 321_987, 0, 0, 0, 12_345], 1);
    let mut nested = cc1;
    nested += shell;
    nested += assembler;
    nested += blink;
    let mut tasks = vec![
        Task {
            children: nested,
            ..started(64_000 * MS, task(200, 100, "make", usage([2_000_000, 1_000_000, 0, 0, 0, 0], 9)))
        },
        ended(800 * MS, 200, task(210, 200, "cc1", cc1)),
        Task { children: assembler, ..ended(900 * MS, 200, task(211, 200, "sh", shell)) },
        ended(890 * MS, 211, task(212, 211, "as", assembler)),
        ended(500 * MS, 200, task(220, 200, "blink", blink)),
        // The same pid once more, for a task with control characters in its name.
        started(
            400 * MS,
            Task { id: 1 << 40, ..task(220, 100, "a\x1b[31mb\nc", usage([0, 10_000_000, 0, 0, 0, 5_000_000], 100)) },
        ),
        started(
            3_700_000 * MS,
            Task { kernel: true, ..task(15, 2, "kworker/0:1", usage([0, 4_000_000, 300_000, 700_000, 0, 0], 77)) },
        ),
    ];
    let postgres = usage([90_000_000, 60_000_000, 2_000_000, 8_000_000, 1_000_000, 200_000_000], 1234);
    let old = 3 * 86_400_000 * MS;
    match each {
        Each::Process => tasks.push(started(old, task(300, 1, "postgres", postgres))),
        Each::Thread => {
            // The first thread sleeps: it is not in the list.
            let half =
                |part: u64| usage([45_000_000, 30_000_000, 1_000_000, 4_000_000, 500_000, 100_000_000], 617 * part);
            tasks.push(started(old, Task { tgid: 300, ..task(301, 1, "writer", half(1)) }));
            tasks.push(started(old, Task { tgid: 300, ..task(302, 1, "writer", half(1)) }));
        }
    }
    let lost = if lossy {
        AccountLost { no_memory: 3, ended_unseen: 2, overruns: 1, misplaced_ns: 4 }
    } else {
        AccountLost::default()
    };
    let ran_ns: u64 = tasks.iter().map(|task| task.own.run_ns).sum();
    let (unowned_ns, unseen_ns) = if lossy { (5_000_011, 123_457) } else { (0, 0) };
    let cpu = |cpu, tasks_ns: u64, unowned_ns: u64| {
        let (idle_irq_ns, idle_softirq_ns, idle_steal_ns) = (1_234_567, 2_345_678, 99);
        Cpu {
            cpu,
            wall_ns: WALL_NS,
            tasks_ns,
            unowned_ns,
            idle_ns: WALL_NS - tasks_ns - unowned_ns - idle_irq_ns - idle_softirq_ns - idle_steal_ns,
            idle_irq_ns,
            idle_softirq_ns,
            idle_steal_ns,
            irq_ns: 4_000_000,
            softirq_ns: 9_000_000,
            steal_ns: 1_000_000,
        }
    };
    Interval {
        // 2026-11-21T08:00:00.000Z, plus a second for each interval.
        time: UNIX_EPOCH + Duration::from_secs(1_795_248_000 + number),
        begin_ns,
        end_ns,
        each,
        tasks,
        cpus: vec![cpu(0, ran_ns / 2, 0), cpu(1, ran_ns - ran_ns / 2 + unseen_ns, unowned_ns)],
        lost,
    }
}
