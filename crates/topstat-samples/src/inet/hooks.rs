// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the programs are attached.

use std::io::Read as _;

use libbpf_rs::{Iter, Object};

use crate::Error;
use crate::bpf::program;
use crate::hooks::{At, Hook};

/// Births before packets, so that no socket is seen without its owner.
pub static HOOKS: &[Hook] = &[
    Hook { program: "inet_create", at: At::Cgroup, name: "cgroup sock_create" },
    Hook { program: "inet_release", at: At::Cgroup, name: "cgroup sock_release" },
    Hook { program: "inet_state", at: At::Gate, name: "tracepoint inet_sock_set_state" },
    Hook { program: "inet_retransmit", at: At::Gate, name: "tracepoint tcp_retransmit_skb" },
    Hook { program: "inet_ingress", at: At::Cgroup, name: "cgroup ingress" },
    Hook { program: "inet_egress", at: At::Cgroup, name: "cgroup egress" },
];

/// Finds the sockets that were there before, and whose they are.
pub fn adopt(object: &Object) -> Result<(), Error> {
    let failed =
        |e: &dyn std::fmt::Display| Error::Kernel { what: "look for existing sockets".to_owned(), why: e.to_string() };
    let link = program(object, "inet_adopt")?.attach().map_err(|e| failed(&e))?;
    let mut nothing = Vec::new();
    Iter::new(&link).map_err(|e| failed(&e))?.read_to_end(&mut nothing).map_err(|e| failed(&e))?;
    Ok(())
}
