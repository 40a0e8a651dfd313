// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs, compiled for newer and for older kernels: `fallbacks.bpf.h` names the missing features, their fallbacks and the
//! kernel commits that brought them.

use super::{abi, groups};
use topstat_kernel::family::{Build, Builds, Entries, Feature, MapSize, Probe, Probes, Refill};
use topstat_kernel::hooks::Hook;
use topstat_kernel::{cgroup, process};

static PROBES: Probes = Probes::new(object!("tasks/probe.bpf.o"));

/// All builds.
pub fn builds() -> Builds {
    // The hooks of births come before the hook of switches: so no task runs without an object, or in a cgroup without a group.
    let mkdir = Hook::tracepoint("top_mkdir", "cgroup_mkdir");
    let hooks = [
        Hook::tracepoint("top_new", "task_newtask"),
        Hook::tracepoint("top_exec", "sched_process_exec"),
        Hook::tracepoint("top_exit", "sched_process_exit"),
        Hook::tracepoint("top_free", "sched_process_free"),
        Hook::tracepoint("top_rmdir", "cgroup_rmdir"),
        Hook::tracepoint("top_switch", "sched_switch"),
    ];
    let runners = || MapSize::of::<abi::tasks_runner>("runners", Entries::Cpus);
    let usual = Build {
        observer: object!("tasks/top.bpf.o"),
        snapshot: object!("tasks/snapshot.bpf.o"),
        hooks: [mkdir].iter().chain(&hooks).cloned().collect(),
        adopt: |object| {
            groups::adopt(object, cgroup::v1_number())?;
            process::adopt(object, "top_adopt")
        },
        adopt_before: Some("top_switch"),
        refill: |object, maps, sample| match sample {
            abi::TASKS_CGROUPS => groups::refill_hierarchies(object, maps),
            _ => Refill::over_tasks(object, "top_refill_tasks"),
        },
        settle: None,
        number: 0,
        ways: Vec::new(),
        maps: vec!["runners", "groups", "waited"],
        sizes: vec![runners()],
        keeps: None,
        lent: None,
        unused: Vec::new(),
    };
    let fallback = Build {
        observer: object!("tasks/top.plain.bpf.o"),
        snapshot: object!("tasks/snapshot.plain.bpf.o"),
        // Groups are made at switches.
        hooks: hooks.to_vec(),
        adopt: |object| process::adopt(object, "top_adopt"),
        refill: |object, maps, sample| match sample {
            abi::TASKS_CGROUPS => groups::refill_array(object, maps),
            _ => Refill::over_tasks(object, "top_refill_tasks"),
        },
        maps: vec!["runners", "groups", "group_index", "group_free", ".data.shares", "waited"],
        sizes: vec![
            runners(),
            MapSize::of::<abi::tasks_group>("groups", Entries::Groups),
            MapSize::of::<u32>("group_index", Entries::Groups),
            MapSize::of::<u32>("group_free", Entries::Groups),
        ],
        ways: Vec::new(),
        settle: None,
        unused: Vec::new(),
        ..usual
    };
    let needed = Feature {
        probe: Probe::Program("probe_groups"),
        name: "storage of cgroups",
        without: "control groups are in a bounded array, of which no subtree can take all; what has no place is counted \
                  as full",
    };
    Builds::one(usual).probed(&PROBES).or_fallback(fallback, vec![needed], "6.2")
}
