// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where programs are attached, and how one that is attached gives way to another.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle, Object, OpenObject};

use crate::{Error, Program, bpf};

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// To the root cgroup. The link can be given another program.
    Cgroup,
    /// Behind a gate, since its link can't: see `bpf/gate.bpf.h`. The gate's program is called as this one with
    /// `_enter`, its array with `_gate`.
    Gate,
}

/// A place where a program is attached.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    /// The program's name.
    pub program: &'static str,
    /// How it is attached.
    pub at: At,
    /// The place, for people: `cgroup ingress`.
    pub name: &'static str,
}

impl Hook {
    /// The name of its gate's array.
    pub fn gate(&self) -> String {
        format!("{}_gate", self.program)
    }

    /// The name of its gate's program.
    pub fn enter(&self) -> String {
        format!("{}_enter", self.program)
    }
}

/// The programs of a family that push, ready to be loaded.
pub struct Observer {
    /// The object they are in, as it was compiled: tells builds apart.
    pub bytes: &'static [u8],
    /// The same, with its constants set and its maps sized.
    pub object: OpenObject,
    /// Where they are attached, births before pushes, so that nothing is seen without its owner.
    pub hooks: &'static [Hook],
    /// Finds the objects that were there before the hooks were attached.
    pub begin: fn(&Object) -> Result<(), Error>,
    /// When: just before this program is attached, or after all are.
    pub begin_before: Option<&'static str>,
}

fn kernel(what: impl Into<String>, why: &impl std::fmt::Display) -> Error {
    Error::Kernel { what: what.into(), why: why.to_string() }
}

/// Attaches a program. Dropping the link detaches it, unless the link is pinned.
pub fn attach(object: &Object, hook: &Hook, cgroup: BorrowedFd<'_>) -> Result<Link, Error> {
    let link = match hook.at {
        At::Cgroup => bpf::program(object, hook.program)?.attach_cgroup(cgroup.as_raw_fd()),
        At::Gate => {
            enter(object, hook, &bpf::map(object, &hook.gate())?)?;
            bpf::program(object, &hook.enter())?.attach()
        }
    };
    link.map_err(|e| kernel(format!("attach {}", hook.program), &e))
}

/// Has a gate go on into the program of this object, from the next event on.
pub fn enter(object: &Object, hook: &Hook, gate: &MapHandle) -> Result<(), Error> {
    let program = bpf::program(object, hook.program)?;
    gate.update(&0_u32.to_ne_bytes(), &program.as_fd().as_raw_fd().to_ne_bytes(), MapFlags::ANY)
        .map_err(|e| kernel(format!("have the hook of {} use it", hook.program), &e))
}

/// Has a cgroup's link use the program of this object, from the next packet on.
pub fn replace(object: &Object, hook: &Hook, link: &mut Link) -> Result<(), Error> {
    let failed = |e: &dyn std::fmt::Display| kernel(format!("replace the program {}", hook.program), &e.to_string());
    let program = object.progs().find(|p| p.name() == hook.program).ok_or_else(|| failed(&"it is not there"))?;
    link.update_prog(&program).map_err(|e| failed(&e))
}

/// The programs of a hook. The kernel's statistics of a gate have in them what runs behind it.
pub fn describe(object: &Object, hook: &Hook) -> Result<Vec<Program>, Error> {
    let mut names = vec![hook.program.to_owned()];
    if hook.at == At::Gate {
        names.insert(0, hook.enter());
    }
    let describe = |name: String| {
        let id = libbpf_rs::Program::id_from_fd(bpf::program(object, &name)?.as_fd())
            .map_err(|e| kernel(format!("ask for the id of {name}"), &e))?;
        Ok(Program { name, id, hook: hook.name })
    };
    names.into_iter().map(describe).collect()
}
