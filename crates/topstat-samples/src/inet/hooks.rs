// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the programs are attached.

use std::io::Read as _;
use std::os::fd::{AsRawFd as _, OwnedFd};

use libbpf_rs::{Iter, Link, Object};

use crate::bpf::program;
use crate::{Error, Program};

/// How a program is attached.
enum Hook {
    /// To the root cgroup.
    Cgroup(&'static str),
    /// To a tracepoint.
    Trace(&'static str),
}

/// Births before packets, so that no socket is seen without its owner.
const HOOKS: [(&str, Hook); 6] = [
    ("inet_create", Hook::Cgroup("cgroup sock_create")),
    ("inet_release", Hook::Cgroup("cgroup sock_release")),
    ("inet_state", Hook::Trace("tracepoint inet_sock_set_state")),
    ("inet_retransmit", Hook::Trace("tracepoint tcp_retransmit_skb")),
    ("inet_ingress", Hook::Cgroup("cgroup ingress")),
    ("inet_egress", Hook::Cgroup("cgroup egress")),
];

/// What has to be kept for the programs to stay attached.
pub struct Attached {
    _links: Vec<Link>,
    _cgroup: OwnedFd,
    _object: Object,
}

fn kernel(what: impl Into<String>, why: &impl std::fmt::Display) -> Error {
    Error::Kernel { what: what.into(), why: why.to_string() }
}

/// Attaches all, and finds the sockets that were there before.
pub fn attach(object: Object, cgroup: OwnedFd) -> Result<(Vec<Program>, Attached), Error> {
    let mut links = Vec::new();
    let mut programs = Vec::new();
    for (name, hook) in HOOKS {
        let program = program(&object, name)?;
        let (link, hook) = match hook {
            Hook::Cgroup(hook) => (program.attach_cgroup(cgroup.as_raw_fd()), hook),
            Hook::Trace(hook) => (program.attach_trace(), hook),
        };
        links.push(link.map_err(|e| kernel(format!("attach {name}"), &e))?);
        programs.push(Program { name: name.to_owned(), id: id(&program)?, hook });
    }
    adopt(&object)?;
    Ok((programs, Attached { _links: links, _cgroup: cgroup, _object: object }))
}

/// The kernel's id of a program.
fn id(program: &libbpf_rs::ProgramMut<'_>) -> Result<u32, Error> {
    libbpf_rs::Program::id_from_fd(std::os::fd::AsFd::as_fd(program))
        .map_err(|e| kernel("ask for the id of a program", &e))
}

/// Finds the sockets that were there before, and whose they are.
fn adopt(object: &Object) -> Result<(), Error> {
    let failed = |e: &dyn std::fmt::Display| kernel("look for existing sockets", &e.to_string());
    let link = program(object, "inet_adopt")?.attach().map_err(|e| failed(&e))?;
    let mut nothing = Vec::new();
    Iter::new(&link).map_err(|e| failed(&e))?.read_to_end(&mut nothing).map_err(|e| failed(&e))?;
    Ok(())
}
