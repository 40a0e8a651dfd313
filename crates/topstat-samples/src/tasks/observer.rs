// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads and attaches the programs that push.

use std::io::Read as _;
use std::mem::size_of;
use std::os::fd::AsFd as _;

use libbpf_rs::{Iter, Link, Object, OpenObject};

use super::{Tasks, abi};
use crate::bpf::{self, program};
use crate::cgroup::{self, V1Controller};
use crate::ranking::{Banks, Maps, Ranked as _, Ranking, bank_size, possible_cpus, set_up, shape};
use crate::{Error, Options, Program, TableInfo};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tasks/top.bpf.o"));
const SAMPLE: &str = "tasks, cgroups";

/// Births before switches, so that no task runs without its object.
const HOOKS: [(&str, &str); 4] = [
    ("top_new", "tracepoint task_newtask"),
    ("top_exec", "tracepoint sched_process_exec"),
    ("top_exit", "tracepoint sched_process_exit"),
    ("top_rmdir", "tracepoint cgroup_rmdir"),
];
const SWITCH: (&str, &str) = ("top_switch", "tracepoint sched_switch");

/// What has to be kept for the programs to stay attached.
struct Attached {
    _links: Vec<Link>,
    _object: Object,
}

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

/// Loads and attaches, with the given tables on and all others off. Dropping the state detaches.
pub fn load(tables: &[&TableInfo], options: &Options) -> Result<Ranking<Tasks>, Error> {
    let object = open(options.top, options.threads, possible_cpus()?)?;
    let object = bpf::load(SAMPLE, object).map_err(|e| super::explain(e, SAMPLE))?;
    let maps = Maps::of::<Tasks>(&object)?;
    Banks::new(&maps.banks, Tasks::SAMPLES.len(), maps.shape()?.entries_mask + 1)?.init();
    // Set before anything is attached: no push finds tables without settings.
    set_up::<Tasks>(&maps, tables, options)?;
    let (programs, attached) = attach(object)?;
    Ranking::new(maps, programs, attached)
}

fn attach(object: Object) -> Result<(Vec<Program>, Attached), Error> {
    let mut links = Vec::new();
    let mut programs = Vec::new();
    let mut hook = |(name, hook): (&str, &'static str)| -> Result<(), Error> {
        let program = program(&object, name)?;
        links.push(program.attach_trace().map_err(|e| kernel(format!("attach {name}"), &e))?);
        let id = libbpf_rs::Program::id_from_fd(program.as_fd())
            .map_err(|e| kernel("ask for the id of a program", &e))?;
        programs.push(Program { name: name.to_owned(), id, hook });
        Ok(())
    };
    HOOKS.into_iter().try_for_each(&mut hook)?;
    adopt(&object)?;
    hook(SWITCH)?;
    Ok((programs, Attached { _links: links, _object: object }))
}

/// The tasks that are there already.
fn adopt(object: &Object) -> Result<(), Error> {
    let failed = |e: &dyn std::fmt::Display| kernel("look for existing tasks", &e.to_string());
    let link = program(object, "top_adopt")?.attach().map_err(|e| failed(&e))?;
    let mut nothing = Vec::new();
    Iter::new(&link).map_err(|e| failed(&e))?.read_to_end(&mut nothing).map_err(|e| failed(&e))?;
    Ok(())
}
