// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs that push, and whether the kernel keeps the accounts that they read.

use libbpf_rs::OpenObject;

use super::{Delays, abi};
use crate::hooks::{At, Hook, Observer};
use crate::ranking::{bank_size, jiffy_ns, possible_cpus, shape};
use crate::{Error, Options, bpf, process};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/delays/delays.bpf.o"));

const NEW: Hook = Hook { program: "delays_new", at: At::Gate, name: "tracepoint task_newtask" };
const EXEC: Hook = Hook { program: "delays_exec", at: At::Gate, name: "tracepoint sched_process_exec" };
const EXIT: Hook = Hook { program: "delays_exit", at: At::Gate, name: "tracepoint sched_process_exit" };
const FREE: Hook = Hook { program: "delays_free", at: At::Gate, name: "tracepoint sched_process_free" };
const SWITCH: Hook = Hook { program: "delays_switch", at: At::Gate, name: "tracepoint sched_switch" };

/// Births before switches, so that no task runs without its object.
pub static HOOKS: &[Hook] = &[NEW, EXEC, EXIT, FREE, SWITCH];

/// The kernel's switch of delay accounting (since 5.14). It is there where the kernel was built with it.
const SWITCH_FILE: &str = "/proc/sys/kernel/task_delayacct";

/// Whether the kernel keeps accounts of what tasks wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accounting {
    /// It does.
    On,
    /// It could, but is told not to.
    Off,
    /// It was built without.
    Missing,
}

/// How it is on this kernel.
pub fn accounting() -> Accounting {
    match std::fs::read_to_string(SWITCH_FILE) {
        Ok(text) if text.trim() == "0" => Accounting::Off,
        Ok(_) => Accounting::On,
        Err(_) => Accounting::Missing,
    }
}

/// What to do where it is off.
pub const SWITCH_ON: &str = "switch it on with 'sysctl -w kernel.task_delayacct=1', or 'delayacct' on the kernel's \
                             command line, and begin anew (a daemon: restart it); tasks that were started before have \
                             no account";

/// The programs, with constants and maps for so many rows, ready to be loaded.
pub fn open(top: u32, threads: bool, cpus: u32) -> Result<OpenObject, Error> {
    let mut object = bpf::open("delays", OBJECT)?;
    let shape = shape::<Delays>(top)?;
    let v1_controller = process::v1_controller();
    let constants = abi::delays_constants { shape, by_thread: threads.into(), v1_controller, jiffy_ns: jiffy_ns() };
    bpf::set_constants(&mut object, ".rodata.constants", &constants)?;
    bpf::resize(&mut object, "banks", bank_size(shape.entries_mask + 1), cpus * abi::DELAYS_BANKS)?;
    Ok(object)
}

/// The programs that push.
pub fn observer(options: &Options) -> Result<Observer, Error> {
    Ok(Observer {
        bytes: OBJECT,
        object: open(options.top, options.threads, possible_cpus()?)?,
        hooks: HOOKS,
        begin: |object| process::adopt(object, "delays_adopt"),
        begin_before: Some(SWITCH.program),
    })
}
