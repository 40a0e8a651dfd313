// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Iterators over all control groups.

use std::os::fd::{AsFd as _, OwnedFd};

use libbpf_rs::{CgroupIterOpts, CgroupIterOrder, IterOpts, Link, Object};

use super::constants;
use topstat_kernel::cgroup::{self, V1Controller};
use topstat_kernel::family::{Constant, Finds, Refill, Walk};
use topstat_kernel::maps::Maps;
use topstat_kernel::process::abi::PROCESS_V1_NONE;
use topstat_kernel::{Error, bpf};

/// The program that orders all groups again.
const REFILL: &str = "top_refill_groups";

/// Orders groups in their cgroups' storage again.
pub fn refill_hierarchies(object: &Object, maps: &Maps) -> Result<Refill, Error> {
    let asked = constants().read(Constant::V1Controller, &maps.constants());
    let (iterators, whole) = over_hierarchies(object, REFILL, asked.unwrap_or(PROCESS_V1_NONE))?;
    let finds = if whole { Finds::All } else { Finds::Some };
    Ok(Refill { walks: iterators.into_iter().map(Walk::Iterator).collect(), finds })
}

/// Orders groups in an array again.
pub fn refill_array(object: &Object, maps: &Maps) -> Result<Refill, Error> {
    let missing =
        || Error::Kernel { what: "order all groups again".to_owned(), why: "their map is missing".to_owned() };
    let groups = maps.get("groups").ok_or_else(missing)?;
    Refill::over_places(object, groups, REFILL)
}

/// Makes the groups of existing cgroups; `v1_controller` is the constants' value. A process in a cgroup namespace does not see
/// all cgroups; the others get their groups if they have tasks.
pub fn adopt(object: &Object, v1_controller: u32) -> Result<(), Error> {
    for iterator in over_hierarchies(object, "top_adopt_groups", v1_controller)?.0 {
        bpf::read_out(&iterator)
            .map_err(|e| Error::Kernel { what: "look for existing cgroups".to_owned(), why: e.to_string() })?;
    }
    Ok(())
}

/// An iterator over the cgroups of each hierarchy in which tasks may count, and whether they find all cgroups.
fn over_hierarchies(object: &Object, program: &str, v1_controller: u32) -> Result<(Vec<Link>, bool), Error> {
    let v1 = V1Controller::numbered(v1_controller);
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
    Ok((roots.iter().flatten().map(attach).collect::<Result<_, _>>()?, whole))
}
