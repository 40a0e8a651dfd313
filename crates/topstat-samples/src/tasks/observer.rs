// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads and attaches the programs that push.

use std::io::Read as _;
use std::mem::size_of;

use libbpf_rs::{Iter, Object, OpenObject};

use super::{Tasks, abi};
use crate::bpf::{self, program};
use crate::cgroup::{self, V1Controller};
use crate::hooks::{At, Hook, Observer};
use crate::ranking::{bank_size, possible_cpus, shape};
use crate::Error;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tasks/top.bpf.o"));
const SWITCH: &str = "top_switch";

/// Births before switches, so that no task runs without its object.
pub static HOOKS: &[Hook] = &[
    Hook { program: "top_new", at: At::Gate, name: "tracepoint task_newtask" },
    Hook { program: "top_exec", at: At::Gate, name: "tracepoint sched_process_exec" },
    Hook { program: "top_exit", at: At::Gate, name: "tracepoint sched_process_exit" },
    Hook { program: "top_rmdir", at: At::Gate, name: "tracepoint cgroup_rmdir" },
    Hook { program: SWITCH, at: At::Gate, name: "tracepoint sched_switch" },
];

fn kernel(what: impl Into<String>, why: &impl std::fmt::Display) -> Error {
    Error::Kernel { what: what.into(), why: why.to_string() }
}

/// The programs, with constants and maps for so many rows, ready to be loaded.
pub fn open(top: u32, threads: bool, cpus: u32) -> Result<OpenObject, Error> {
    let mut object = bpf::open("top", OBJECT)?;
    let shape = shape::<Tasks>(top)?;
    let v1_controller = match cgroup::v1_controller() {
        None => abi::TASKS_V1_NONE,
        Some(V1Controller::Memory) => abi::TASKS_V1_MEMORY,
        Some(V1Controller::Cpu) => abi::TASKS_V1_CPU,
        Some(V1Controller::Pids) => abi::TASKS_V1_PIDS,
    };
    let constants = abi::tasks_top_constants { shape, by_thread: threads.into(), v1_controller };
    bpf::set_constants(&mut object, ".rodata.constants", &constants)?;
    bpf::resize(&mut object, "banks", bank_size(shape.entries_mask + 1), cpus * abi::TASKS_SAMPLES)?;
    bpf::resize(&mut object, "runners", size_of::<abi::tasks_runner>(), cpus)?;
    Ok(object)
}

/// The programs that push, for tables of so many rows.
pub fn observer(top: u32, threads: bool) -> Result<Observer, Error> {
    Ok(Observer {
        bytes: OBJECT,
        object: open(top, threads, possible_cpus()?)?,
        hooks: HOOKS,
        begin: adopt,
        begin_before: Some(SWITCH),
    })
}

/// The tasks that are there already.
fn adopt(object: &Object) -> Result<(), Error> {
    let failed = |e: &dyn std::fmt::Display| kernel("look for existing tasks", &e.to_string());
    let link = program(object, "top_adopt")?.attach().map_err(|e| failed(&e))?;
    let mut nothing = Vec::new();
    Iter::new(&link).map_err(|e| failed(&e))?.read_to_end(&mut nothing).map_err(|e| failed(&e))?;
    Ok(())
}
