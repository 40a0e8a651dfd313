// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An interval as CSV: a record for each row, then the other records that make up the sum, `sum`, and the losses.
//! `docs/tasks.md` describes it.

use std::borrow::Cow;
use std::io;

use super::Usage;
use super::column::Amount;
use super::picture::{Picture, Row};
use crate::csv::text;
use crate::sink::Records;
use crate::time::rfc3339;

const TASK: [&str; 11] =
    ["time", "row", "tasks", "pid", "tgid", "ppid", "comm", "kernel", "elapsed_ns", "ended_ns", "exact"];
const USAGE: [&str; 8] =
    ["user_ns", "system_ns", "irq_ns", "softirq_ns", "steal_ns", "guest_ns", "wait_ns", "switches"];
const PREFIXES: [&str; 2] = ["", "children_"];
const TOTAL: &str = "total_ns";
const COMMAND_LINE: &str = "cmdline";

pub fn columns(command_lines: bool) -> Vec<String> {
    let task = TASK.into_iter().chain([TOTAL]).map(str::to_owned);
    let usage = PREFIXES.iter().flat_map(|prefix| USAGE.map(|name| format!("{prefix}{name}")));
    task.chain(usage).chain(command_lines.then(|| COMMAND_LINE.to_owned())).collect()
}

pub fn records(picture: &Picture, records: &mut Records) -> io::Result<()> {
    let time = rfc3339(picture.interval.time);
    for row in &picture.rows {
        let amount = picture.amount(row.task);
        record(records, &time, "task", "1", Some((picture, row)))?;
        numbers(records, &amount, amount.total_ns().cast_signed())?;
        let line = row.command_line.as_ref().map(|arguments| arguments.join(" "));
        end(picture, records, line.as_deref().map(text).as_deref())?;
    }
    for line in picture.lines().chain([&picture.sum()]) {
        let tasks = if line.tasks > 0 { line.tasks.to_string() } else { String::new() };
        record(records, &time, line.kind.name(), &tasks, None)?;
        numbers(records, &line.amount, line.total_ns)?;
        end(picture, records, None)?;
    }
    for (name, count) in picture.interval.lost.named() {
        record(records, &time, &format!("lost {name}"), &count.to_string(), None)?;
        for _ in 0..1 + PREFIXES.len() * USAGE.len() {
            records.write_field("")?;
        }
        end(picture, records, None)?;
    }
    Ok(())
}

fn end(picture: &Picture, records: &mut Records, command_line: Option<&str>) -> io::Result<()> {
    if picture.choice.command_lines {
        records.write_field(command_line.unwrap_or(""))?;
    }
    Ok(records.write_record(None::<&str>)?)
}

/// The fields of [`TASK`].
fn record(
    records: &mut Records,
    time: &str,
    row: &str,
    tasks: &str,
    row_of: Option<(&Picture, &Row)>,
) -> io::Result<()> {
    let fields: [Cow<'_, str>; 8] = match row_of.map(|(picture, row)| (picture, row.task)) {
        None => Default::default(),
        Some((picture, task)) => [
            task.pid.to_string().into(),
            task.tgid.to_string().into(),
            task.ppid.to_string().into(),
            text(&task.comm),
            u8::from(task.kernel).to_string().into(),
            picture.elapsed_ns(task).to_string().into(),
            task.ended_ns.map_or(Cow::Borrowed(""), |ns| ns.to_string().into()),
            u8::from(task.exact).to_string().into(),
        ],
    };
    for field in [time, row, tasks].into_iter().chain(fields.iter().map(AsRef::as_ref)) {
        records.write_field(field)?;
    }
    Ok(())
}

/// The total, and the fields of [`USAGE`] for each of [`PREFIXES`].
fn numbers(records: &mut Records, amount: &Amount, total_ns: i64) -> io::Result<()> {
    records.write_field(total_ns.to_string())?;
    for Usage { run_ns: _, user_ns, system_ns, irq_ns, softirq_ns, steal_ns, guest_ns, wait_ns, switches } in
        [amount.own, amount.children]
    {
        for number in [user_ns, system_ns, irq_ns, softirq_ns, steal_ns, guest_ns, wait_ns, switches] {
            records.write_field(number.to_string())?;
        }
    }
    Ok(())
}
