// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Going through all control groups.

use std::mem::offset_of;
use std::os::fd::{AsFd as _, OwnedFd};

use libbpf_rs::{CgroupIterOpts, CgroupIterOrder, IterOpts, Link, MapCore as _, MapFlags, Object};

use super::abi;
use super::fallbacks::Flavour;
use crate::cgroup::{self, V1Controller};
use crate::process::abi::{PROCESS_V1_CPU, PROCESS_V1_MEMORY, PROCESS_V1_NONE, PROCESS_V1_PIDS};
use crate::ranking::{Maps, Refill};
use crate::{Error, bpf};

/// Orders all groups again.
pub fn refill(object: &Object, maps: &Maps) -> Result<Refill, Error> {
    const PROGRAM: &str = "top_refill_groups";
    if Flavour::of_kernel() == Flavour::Full {
        return over_hierarchies(object, PROGRAM, v1_controller(maps));
    }
    let failed =
        |why: &dyn std::fmt::Display| Error::Kernel { what: "order all groups again".to_owned(), why: why.to_string() };
    let groups = maps.further.iter().find(|(name, _)| *name == "groups");
    let (_, groups) = groups.ok_or_else(|| failed(&"their map is missing"))?;
    bpf::program(object, PROGRAM)?.attach_iter(groups.as_fd()).map(Refill::by).map_err(|e| failed(&e))
}

/// Makes the groups of the cgroups that are there already; `v1_controller` is that of the constants. Of those that this
/// process does not see, since it is in a cgroup namespace, groups are made that have tasks.
pub fn adopt(object: &Object, v1_controller: u32) -> Result<(), Error> {
    for iterator in over_hierarchies(object, "top_adopt_groups", v1_controller)?.iterators {
        bpf::read_out(&iterator)
            .map_err(|e| Error::Kernel { what: "look for existing cgroups".to_owned(), why: e.to_string() })?;
    }
    Ok(())
}

/// An iterator over the cgroups of each hierarchy in which tasks may count.
fn over_hierarchies(object: &Object, program: &str, v1_controller: u32) -> Result<Refill, Error> {
    let v1 = match v1_controller {
        PROCESS_V1_MEMORY => Some(V1Controller::Memory),
        PROCESS_V1_CPU => Some(V1Controller::Cpu),
        PROCESS_V1_PIDS => Some(V1Controller::Pids),
        _ => None,
    };
    let roots: Vec<Option<OwnedFd>> =
        [cgroup::root()].into_iter().chain(v1.map(cgroup::v1_root)).map(Result::ok).collect();
    let whole = roots.iter().all(|root| root.as_ref().is_some_and(cgroup::is_whole));
    let attach = |root: &OwnedFd| -> Result<Link, Error> {
        let mut over = CgroupIterOpts::from_fd(root.as_fd());
        over.order = CgroupIterOrder::DescendantsPre;
        bpf::program(object, program)?
            .attach_iter_with_opts(IterOpts::Cgroup(over))
            .map_err(|e| Error::Kernel { what: format!("attach {program}"), why: e.to_string() })
    };
    Ok(Refill { iterators: roots.iter().flatten().map(attach).collect::<Result<_, _>>()?, whole })
}

/// The v1 hierarchy that the programs were loaded to ask.
fn v1_controller(maps: &Maps) -> u32 {
    let constants = maps.constants.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten();
    let at = offset_of!(abi::tasks_constants, v1_controller);
    let bytes = constants.as_deref().and_then(|bytes| bytes.get(at..)?.first_chunk().copied());
    bytes.map_or(PROCESS_V1_NONE, u32::from_ne_bytes)
}
