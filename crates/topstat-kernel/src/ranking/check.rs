// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks what this kernel allows a family of ranked tables.

use std::os::fd::AsFd as _;

use libbpf_rs::Object;

use super::RankedFamily;
use crate::family::names_of;
use crate::hooks::{self, At, Hook};
use crate::report::{Check, Outcome, loads};
use crate::{Error, Options, bpf, cgroup};

/// Checks what the family needs in addition to other families: loads its programs once, and attaches none.
pub fn check(of: &RankedFamily) -> Vec<Check> {
    // The family itself reports missing kernel options.
    if matches!((of.family.ready)(), Err(Error::Unsupported { .. })) {
        return Vec::new();
    }
    let in_cgroups = of.hooks().iter().any(|hook| hook.at == At::Cgroup);
    in_cgroups.then(cgroups).into_iter().chain([programs(of)]).collect()
}

fn cgroups() -> Check {
    match cgroup::root() {
        Ok(_) => Check::ok("cgroup v2", cgroup::describe()),
        Err(e) => Check::missing("cgroup v2", e.to_string(), cgroup::MOUNT_ONE),
    }
}

/// Whether the kernel takes the programs, their hooks and storage, and the features that this kernel lacks.
fn programs(of: &RankedFamily) -> Check {
    let family = &of.family;
    let samples = names_of(&family.samples);
    let name = format!("{} {samples}", if family.samples.len() == 1 { "sample" } else { "samples" });
    let loaded = of.open(&Options::default(), 1).and_then(|object| bpf::load(&samples, object));
    if let Some((hook, why)) = loaded.as_ref().ok().and_then(|object| in_the_way(of, object)) {
        return Check::missing(&name, format!("can't be attached at {}: {why}", hook.name), "see there");
    }
    let hooks: Vec<_> = of.hooks().into_iter().map(|hook| hook.name).collect();
    let storage = family.samples.first().map_or("", |sample| sample.objects.storage());
    let check = loads(&name, &samples, loaded.map(drop), format!("hooks: {}; {storage}", hooks.join(", ")));
    let builds = &of.ranked.builds;
    let lacks: Vec<_> = builds.lacking().into_iter().map(|f| format!("without {}: {}", f.name, f.without)).collect();
    if check.outcome != Outcome::Ok || lacks.is_empty() {
        return check;
    }
    let found = format!("{}; {}", check.found, lacks.join("; "));
    Check { outcome: Outcome::Degraded, found, advice: builds.advice(), ..check }
}

/// The hook that can't be attached, and the reason.
fn in_the_way(of: &RankedFamily, object: &Object) -> Option<(Hook, String)> {
    let root = cgroup::root().ok()?;
    let exclusive = |hook: Hook| {
        let why = hooks::exclusive(object, &hook, root.as_fd())?;
        Some((hook, why))
    };
    of.hooks().into_iter().find_map(exclusive)
}
