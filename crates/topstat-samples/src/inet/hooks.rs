// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the programs are attached.

use std::os::fd::{AsRawFd as _, OwnedFd};

use libbpf_rs::{Link, Object};

use super::fallbacks::Flavour;
use crate::bpf::program;
use crate::{Error, Program};

/// How a program is attached.
#[derive(Clone, Copy)]
pub enum Hook {
    /// To the root cgroup.
    Cgroup(&'static str),
    /// To a tracepoint.
    Trace(&'static str),
}

/// Births before packets, so that no socket is seen without its owner; what is in between is the flavour's.
const BIRTHS: [(&str, Hook); 2] =
    [("inet_create", Hook::Cgroup("cgroup sock_create")), ("inet_release", Hook::Cgroup("cgroup sock_release"))];
const PACKETS: [(&str, Hook); 2] =
    [("inet_ingress", Hook::Cgroup("cgroup ingress")), ("inet_egress", Hook::Cgroup("cgroup egress"))];

/// All that is attached, in this order.
pub fn hooks(flavour: Flavour) -> impl Iterator<Item = (&'static str, Hook)> {
    BIRTHS.into_iter().chain(flavour.hooks().iter().copied()).chain(PACKETS)
}

/// What has to be kept for the programs to stay attached.
pub struct Attached {
    _links: Vec<Link>,
    _cgroup: OwnedFd,
    _object: Object,
}

fn kernel(what: impl Into<String>, why: &impl std::fmt::Display) -> Error {
    Error::Kernel { what: what.into(), why: why.to_string() }
}

impl Hook {
    /// Where it is, in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cgroup(name) | Self::Trace(name) => name,
        }
    }
}

/// Attaches all, and finds the sockets that were there before.
pub fn attach(object: Object, flavour: Flavour, cgroup: OwnedFd) -> Result<(Vec<Program>, Attached), Error> {
    let mut links = Vec::new();
    let mut programs = Vec::new();
    for (name, hook) in hooks(flavour) {
        let program = program(&object, name)?;
        if flavour.adopts_first() && name == PACKETS[0].0 {
            flavour.adopt(&object)?;
        }
        let link = match hook {
            Hook::Cgroup(_) => program.attach_cgroup(cgroup.as_raw_fd()),
            Hook::Trace(_) => program.attach_trace(),
        };
        links.push(link.map_err(|e| kernel(format!("attach {name}"), &e))?);
        programs.push(Program { name: name.to_owned(), id: id(&program)?, hook: hook.name() });
    }
    if !flavour.adopts_first() {
        flavour.adopt(&object)?;
    }
    Ok((programs, Attached { _links: links, _cgroup: cgroup, _object: object }))
}

/// The kernel's id of a program.
fn id(program: &libbpf_rs::ProgramMut<'_>) -> Result<u32, Error> {
    libbpf_rs::Program::id_from_fd(std::os::fd::AsFd::as_fd(program))
        .map_err(|e| kernel("ask for the id of a program", &e))
}
