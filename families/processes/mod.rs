// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events of processes: forked, executed, ended with final times. `README.md` says which events are reported, and when.

abi!("processes");

use std::mem::{offset_of, size_of};

use topstat_model::ColumnKind;

use topstat_kernel::events::{EventKind, Payload, Streaming};
use topstat_kernel::family::{Family, FieldAt, RowColumn, columns};

/// The family of events of processes.
pub fn family() -> Family {
    let arguments = Payload { name: "args", list: true };
    let streaming = Streaming {
        source: "tasks".to_owned(),
        about: "processes: fork, exec, exit with final times".to_owned(),
        object: object!("processes/processes.bpf.o"),
        adopt: None,
        asked: false,
        constants: Streaming::v1_controller,
        kinds: vec![
            EventKind::new("fork", "a process was made", size_of::<abi::processes_fork>(), fork()),
            EventKind {
                payload: Some(arguments),
                ..EventKind::new("exec", "a process executes a program", size_of::<abi::processes_exec>(), exec())
            },
            EventKind::new("exit", "a process has ended", size_of::<abi::processes_exit>(), exit()),
        ],
    };
    debug_assert_eq!(streaming.kinds.len(), abi::PROCESSES_KINDS as usize);
    streaming.family("processes", (6, 1))
}

fn who(at: usize, parent: usize) -> Vec<RowColumn> {
    let mut all = columns::of_process(at);
    all.insert(1, RowColumn::new("ppid", ColumnKind::Pid, FieldAt::U32(parent)));
    all
}

fn fork() -> Vec<RowColumn> {
    who(offset_of!(abi::processes_fork, who), offset_of!(abi::processes_fork, parent))
}

fn exec() -> Vec<RowColumn> {
    let file = FieldAt::Name(offset_of!(abi::processes_exec, file), abi::PROCESSES_FILE_BYTES as usize);
    let mut all = who(offset_of!(abi::processes_exec, who), offset_of!(abi::processes_exec, parent));
    all.push(RowColumn::new("uid", ColumnKind::Id, FieldAt::U32(offset_of!(abi::processes_exec, user))));
    all.push(RowColumn::new("file", ColumnKind::Path, file));
    all
}

fn exit() -> Vec<RowColumn> {
    let mut all = who(offset_of!(abi::processes_exit, who), offset_of!(abi::processes_exit, parent));
    let number = |name, at| RowColumn::new(name, ColumnKind::Id, at);
    all.extend([
        number("code", FieldAt::U32(offset_of!(abi::processes_exit, code))),
        RowColumn::optional("signal", ColumnKind::Id, FieldAt::KnownU32(offset_of!(abi::processes_exit, signal))),
        RowColumn::optional("dumped", ColumnKind::Id, FieldAt::KnownU32(offset_of!(abi::processes_exit, dumped))),
        number("lived_ns", FieldAt::U64(offset_of!(abi::processes_exit, lived_ns))),
        number("cpu_ns", FieldAt::U64(offset_of!(abi::processes_exit, cpu_ns))),
        number("user_ns", FieldAt::U64(offset_of!(abi::processes_exit, user_ns))),
        number("system_ns", FieldAt::U64(offset_of!(abi::processes_exit, system_ns))),
        number("minor_faults", FieldAt::U64(offset_of!(abi::processes_exit, minor_faults))),
        number("major_faults", FieldAt::U64(offset_of!(abi::processes_exit, major_faults))),
        number("voluntary_switches", FieldAt::U64(offset_of!(abi::processes_exit, voluntary))),
        number("involuntary_switches", FieldAt::U64(offset_of!(abi::processes_exit, involuntary))),
        number("peak_bytes", FieldAt::Pages(offset_of!(abi::processes_exit, peak_pages))),
    ]);
    all
}
