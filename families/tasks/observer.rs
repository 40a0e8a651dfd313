// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs that push.

use std::mem::size_of;

use libbpf_rs::{Object, OpenObject};

use super::fallbacks::Flavour;
use super::{Tasks, abi, groups};
use crate::hooks::{At, Hook, Observer};
use crate::ranking::{bank_size, possible_cpus, shape};
use crate::{Error, MAX_GROUPS, Options, bpf, process};

const NEW: Hook = Hook { program: "top_new", at: At::Gate, name: "tracepoint task_newtask" };
const EXEC: Hook = Hook { program: "top_exec", at: At::Gate, name: "tracepoint sched_process_exec" };
const EXIT: Hook = Hook { program: "top_exit", at: At::Gate, name: "tracepoint sched_process_exit" };
const FREE: Hook = Hook { program: "top_free", at: At::Gate, name: "tracepoint sched_process_free" };
const RMDIR: Hook = Hook { program: "top_rmdir", at: At::Gate, name: "tracepoint cgroup_rmdir" };
const SWITCH: Hook = Hook { program: "top_switch", at: At::Gate, name: "tracepoint sched_switch" };

const MKDIR: Hook = Hook { program: "top_mkdir", at: At::Gate, name: "tracepoint cgroup_mkdir" };

/// Births before switches, so that no task runs without its object, nor in a cgroup without its group.
pub static FULL: &[Hook] = &[MKDIR, NEW, EXEC, EXIT, FREE, RMDIR, SWITCH];
/// Groups are made at switches.
pub static PLAIN: &[Hook] = &[NEW, EXEC, EXIT, FREE, RMDIR, SWITCH];

/// The programs, with constants and maps for so many rows, ready to be loaded.
pub fn open(options: &Options, cpus: u32) -> Result<OpenObject, Error> {
    let flavour = Flavour::of_kernel();
    let mut object = bpf::open("top", flavour.observer())?;
    let shape = shape::<Tasks>(options.top)?;
    let groups = options.groups;
    if !(1..=MAX_GROUPS).contains(&groups) {
        return Err(Error::Option(format!("groups must be 1 to {MAX_GROUPS}, not {groups}")));
    }
    let v1_controller = process::v1_controller();
    let by_thread = options.threads.into();
    let constants = abi::tasks_constants { shape, by_thread, v1_controller, groups, pad: 0 };
    bpf::set_constants(&mut object, ".rodata.constants", &constants)?;
    bpf::resize(&mut object, "banks", bank_size(shape.entries_mask + 1), cpus * abi::TASKS_SAMPLES)?;
    bpf::resize(&mut object, "runners", size_of::<abi::tasks_runner>(), cpus)?;
    if flavour == Flavour::Plain {
        bpf::resize(&mut object, "groups", size_of::<abi::tasks_group>(), groups)?;
        bpf::resize(&mut object, "group_index", size_of::<u32>(), groups)?;
        bpf::resize(&mut object, "group_free", size_of::<u32>(), groups)?;
    }
    Ok(object)
}

/// Finds the tasks and the cgroups that are there already.
fn begin(object: &Object) -> Result<(), Error> {
    if Flavour::of_kernel() == Flavour::Full {
        groups::adopt(object, process::v1_controller())?;
    }
    process::adopt(object, "top_adopt")
}

/// The programs that push.
pub fn observer(options: &Options) -> Result<Observer, Error> {
    let flavour = Flavour::of_kernel();
    Ok(Observer {
        bytes: flavour.observer(),
        object: open(options, possible_cpus()?)?,
        hooks: flavour.hooks(),
        begin,
        begin_before: Some(SWITCH.program),
    })
}
