// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An interval as JSON: one document per line. `docs/tasks.md` describes it.

use std::io;

use super::picture::{Picture, Row};
use super::{AccountLost, Cpu, Each, Usage};
use crate::json;
use crate::time::rfc3339;
use serde::Serialize;

#[derive(Serialize)]
struct Document<'a> {
    time: String,
    begin_ns: u64,
    end_ns: u64,
    wall_ns: u64,
    each: &'static str,
    #[serde(serialize_with = "cpus")]
    cpus: &'a [Cpu],
    tasks: Vec<TaskView>,
    other: OtherView,
    totals: TotalsView,
    #[serde(with = "LostView")]
    lost: AccountLost,
}

#[derive(Serialize)]
struct TaskView {
    id: u64,
    pid: u32,
    tgid: u32,
    ppid: u32,
    comm: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cmdline: Option<Option<Vec<String>>>,
    kernel: bool,
    start_ns: u64,
    elapsed_ns: u64,
    ended_ns: Option<u64>,
    moved_to: Option<u64>,
    exact: bool,
    #[serde(with = "UsageView")]
    own: Usage,
    #[serde(with = "UsageView")]
    children: Usage,
}

#[derive(Serialize)]
struct OtherView {
    tasks: usize,
    #[serde(with = "UsageView")]
    own: Usage,
}

#[derive(Serialize)]
struct TotalsView {
    wall_ns: u64,
    #[serde(with = "UsageView")]
    live: Usage,
    #[serde(with = "UsageView")]
    ended: Usage,
    idle_ns: u64,
    idle_irq_ns: u64,
    idle_softirq_ns: u64,
    idle_steal_ns: u64,
    unowned_ns: u64,
    unseen_ns: i64,
}

// The keys are the names of the structures' fields, which are documented there. A new field does not compile until it is added
// here.

#[derive(Serialize)]
#[serde(remote = "Usage")]
struct UsageView {
    run_ns: u64,
    user_ns: u64,
    system_ns: u64,
    irq_ns: u64,
    softirq_ns: u64,
    steal_ns: u64,
    guest_ns: u64,
    wait_ns: u64,
    switches: u64,
}

#[derive(Serialize)]
#[serde(remote = "AccountLost")]
struct LostView {
    no_memory: u64,
    ended_unseen: u64,
    overruns: u64,
    misplaced_ns: u64,
}

#[derive(Serialize)]
#[serde(remote = "Cpu")]
struct CpuView {
    cpu: u32,
    wall_ns: u64,
    tasks_ns: u64,
    unowned_ns: u64,
    idle_ns: u64,
    idle_irq_ns: u64,
    idle_softirq_ns: u64,
    idle_steal_ns: u64,
    irq_ns: u64,
    softirq_ns: u64,
    steal_ns: u64,
}

fn cpus<S: serde::Serializer>(cpus: &[Cpu], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct View<'a>(#[serde(with = "CpuView")] &'a Cpu);
    serializer.collect_seq(cpus.iter().map(View))
}

/// Appends the interval as a line of JSON.
pub fn write(picture: &Picture, written: &mut Vec<u8>) -> io::Result<()> {
    let interval = picture.interval;
    let totals = interval.totals();
    let task = |row: &Row<'_>| TaskView {
        id: row.task.id,
        pid: row.task.pid,
        tgid: row.task.tgid,
        ppid: row.task.ppid,
        comm: row.task.comm.clone(),
        cmdline: picture.choice.command_lines.then(|| row.command_line.clone()),
        kernel: row.task.kernel,
        start_ns: row.task.start_ns,
        elapsed_ns: picture.elapsed_ns(row.task),
        ended_ns: row.task.ended_ns,
        moved_to: row.task.moved_to,
        exact: row.task.exact,
        own: row.task.own,
        children: row.task.children,
    };
    let document = Document {
        time: rfc3339(interval.time),
        begin_ns: interval.begin_ns,
        end_ns: interval.end_ns,
        wall_ns: interval.wall_ns(),
        each: match interval.each {
            Each::Process => "process",
            Each::Thread => "thread",
        },
        cpus: &interval.cpus,
        tasks: picture.rows.iter().map(task).collect(),
        other: OtherView { tasks: picture.other().tasks, own: picture.other().amount.own },
        totals: TotalsView {
            wall_ns: totals.wall_ns,
            live: totals.live,
            ended: totals.ended,
            idle_ns: totals.cpus.idle_ns,
            idle_irq_ns: totals.cpus.idle_irq_ns,
            idle_softirq_ns: totals.cpus.idle_softirq_ns,
            idle_steal_ns: totals.cpus.idle_steal_ns,
            unowned_ns: totals.cpus.unowned_ns,
            unseen_ns: totals.other_ns,
        },
        lost: interval.lost,
    };
    json::line(&document, written)
}
