// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs that push.

use std::mem::size_of;

use libbpf_rs::OpenObject;

use super::{Tasks, abi};
use crate::hooks::{At, Hook, Observer};
use crate::ranking::{bank_size, possible_cpus, shape};
use crate::{Error, Options, bpf, process};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tasks/top.bpf.o"));

const NEW: Hook = Hook { program: "top_new", at: At::Gate, name: "tracepoint task_newtask" };
const EXEC: Hook = Hook { program: "top_exec", at: At::Gate, name: "tracepoint sched_process_exec" };
const EXIT: Hook = Hook { program: "top_exit", at: At::Gate, name: "tracepoint sched_process_exit" };
const RMDIR: Hook = Hook { program: "top_rmdir", at: At::Gate, name: "tracepoint cgroup_rmdir" };
const SWITCH: Hook = Hook { program: "top_switch", at: At::Gate, name: "tracepoint sched_switch" };

/// Births before switches, so that no task runs without its object.
pub static HOOKS: &[Hook] = &[NEW, EXEC, EXIT, RMDIR, SWITCH];

/// The programs, with constants and maps for so many rows, ready to be loaded.
pub fn open(top: u32, threads: bool, cpus: u32) -> Result<OpenObject, Error> {
    let mut object = bpf::open("top", OBJECT)?;
    let shape = shape::<Tasks>(top)?;
    let constants =
        abi::tasks_top_constants { shape, by_thread: threads.into(), v1_controller: process::v1_controller() };
    bpf::set_constants(&mut object, ".rodata.constants", &constants)?;
    bpf::resize(&mut object, "banks", bank_size(shape.entries_mask + 1), cpus * abi::TASKS_SAMPLES)?;
    bpf::resize(&mut object, "runners", size_of::<abi::tasks_runner>(), cpus)?;
    Ok(object)
}

/// The programs that push.
pub fn observer(options: &Options) -> Result<Observer, Error> {
    Ok(Observer {
        bytes: OBJECT,
        object: open(options.top, options.threads, possible_cpus()?)?,
        hooks: HOOKS,
        begin: |object| process::adopt(object, "top_adopt"),
        begin_before: Some(SWITCH.program),
    })
}
