// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Columns of families whose objects are processes, or have one: fields of a `struct process_who` at an offset of the row.

use std::mem::offset_of;

use topstat_model::ColumnKind;

use super::row::{FieldAt, FilterBy, RowColumn};
use crate::process::abi::{PROCESS_COMM, process_who};

/// Columns that describe a process, or a thread.
pub fn process(who: usize) -> Vec<RowColumn> {
    let tid = FieldAt::KnownU32(who + offset_of!(process_who, tid));
    let pid = FieldAt::U32(who + offset_of!(process_who, pid));
    let mut columns = vec![self::pid(pid), RowColumn::optional("tid", ColumnKind::Pid, tid), comm(who)];
    columns.extend(group(who));
    columns
}

/// Columns that describe a process, where there are no threads.
pub fn of_process(who: usize) -> Vec<RowColumn> {
    let mut columns = process(who);
    columns.retain(|column| column.column.name != "tid");
    columns
}

/// Columns that describe a control group.
pub fn group(who: usize) -> [RowColumn; 2] {
    [cgroup(who), container()]
}

/// The process id.
pub fn pid(from: FieldAt) -> RowColumn {
    let about = "Only of this process (not thread)";
    RowColumn::new("pid", ColumnKind::Pid, from).by("pid", "PID", about, FilterBy::Number(u32::MAX.into()))
}

/// The name of the process or thread.
pub fn comm(who: usize) -> RowColumn {
    let from = FieldAt::Name(who + offset_of!(process_who, comm), PROCESS_COMM as usize);
    let about = "Only of processes of this name, exactly (of a longer name, its first 15 bytes)";
    RowColumn::new("comm", ColumnKind::Text, from).by("comm", "NAME", about, FilterBy::Comm)
}

/// The control group.
pub fn cgroup(who: usize) -> RowColumn {
    let about = "Only of a cgroup: what begins with '/' is that cgroup and all below it, other text is searched in \
                 the path";
    RowColumn::new("cgroup", ColumnKind::Path, FieldAt::Cgroup(who)).by("cgroup", "CGROUP", about, FilterBy::Path)
}

/// The container, after the column of the control group.
pub fn container() -> RowColumn {
    RowColumn::optional("container", ColumnKind::Id, FieldAt::Container)
}

/// Whether the object has ended, by a byte of the row. The column is shown where a row has it.
pub fn closed(at: usize) -> RowColumn {
    let about = "Only objects that have ended, whose rows have not aged out yet; or only others";
    RowColumn::optional("closed", ColumnKind::Mark, FieldAt::Mark(at)).by("closed", "yes|no", about, FilterBy::Mark)
}
