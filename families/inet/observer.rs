// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs that push.

use std::os::fd::AsFd as _;

use libbpf_rs::{Object, OpenObject};

use super::fallbacks::{Flavour, lacking, out_of_reach};
use super::{Inet, abi};
use crate::catalogue::names_of;
use crate::hooks::{self, Hook, Observer};
use crate::ranking::{Ranked as _, bank_size, possible_cpus, shape};
use crate::{Check, DEFAULT_TOP, Error, Outcome, bpf, cgroup, process};

/// The programs, with constants and maps for so many rows, ready to be loaded.
fn open(top: u32, cpus: u32) -> Result<OpenObject, Error> {
    let mut object = bpf::open("inet", Flavour::of_kernel().observer())?;
    let shape = shape::<Inet>(top)?;
    let v1_controller = process::v1_controller();
    bpf::set_constants(&mut object, ".rodata.constants", &abi::inet_constants { shape, v1_controller, pad: 0 })?;
    bpf::resize(&mut object, "banks", bank_size(shape.entries_mask + 1), cpus * abi::INET_SAMPLES)?;
    Ok(object)
}

/// The programs that push, for tables of so many rows.
pub fn observer(top: u32) -> Result<Observer, Error> {
    let flavour = Flavour::of_kernel();
    Ok(Observer {
        bytes: flavour.observer(),
        object: open(top, possible_cpus()?)?,
        hooks: flavour.hooks(),
        begin: flavour.adopts(),
        begin_before: flavour.adopts_before(),
    })
}

/// What the family needs beyond what all need.
pub fn check() -> Vec<Check> {
    let mut checks = Vec::new();
    match cgroup::root() {
        Ok(_) => checks.push(Check {
            name: "cgroup v2".to_owned(),
            outcome: Outcome::Ok,
            found: cgroup::describe(),
            advice: String::new(),
        }),
        Err(e) => checks.push(Check {
            name: "cgroup v2".to_owned(),
            outcome: Outcome::Missing,
            found: e.to_string(),
            advice: "mount one: mount -t cgroup2 none /sys/fs/cgroup/unified".to_owned(),
        }),
    }
    checks.push(loads());
    checks
}

/// What keeps a hook from being attached.
fn in_the_way(object: &Object) -> Option<(&'static Hook, String)> {
    let root = cgroup::root().ok()?;
    Flavour::of_kernel().hooks().iter().find_map(|hook| Some((hook, hooks::exclusive(object, hook, root.as_fd())?)))
}

/// Whether the kernel takes the programs: which, and what is otherwise than elsewhere.
fn loads() -> Check {
    let samples = names_of(Inet::samples());
    let hooks: Vec<_> = Flavour::of_kernel().hooks().iter().map(|hook| hook.name).collect();
    let found = format!("hooks: {}; socket storage", hooks.join(", "));
    let loaded = open(DEFAULT_TOP, 1).and_then(|object| bpf::load(&samples, object));
    let alone = loaded.as_ref().ok().and_then(in_the_way);
    let name = format!("samples {samples}");
    if let Some((hook, why)) = alone {
        let found = format!("can't be attached at {}: {why}", hook.name);
        return Check { name, outcome: Outcome::Missing, found, advice: "see there".to_owned() };
    }
    let check = Check::loads(&name, &samples, loaded.map(drop), found);
    let mut lacks: Vec<_> = lacking().iter().map(|f| format!("without {}: {}", f.name, f.without)).collect();
    lacks.extend(out_of_reach());
    if check.outcome != Outcome::Ok || lacks.is_empty() {
        return check;
    }
    let found = format!("{}; {}", check.found, lacks.join("; "));
    Check { outcome: Outcome::Degraded, found, advice: "a kernel of 5.12 or later has all of it".to_owned(), ..check }
}
