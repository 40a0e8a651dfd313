// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control groups of processes that read one disk.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use topstat_live::cgroup::Group;
use topstat_live::scratch::LoopDevice;
use topstat_live::watch::{everything, load, snapshot};
use topstat_live::{Case, alone, note};
use topstat_model::Field;

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Disk: groups_of_one_parent_are_told_apart, Root, LoopDevice, CgroupV2, Sample(BYTES); EveryKernel, Gate),
    ]
}

const BYTES: &str = "disk_cgroups/bytes";
const BLOCK: u64 = 64 << 10;

/// Reads `blocks` blocks past the page cache, in the group.
fn read(disk: &LoopDevice, group: &Group, blocks: u64) {
    let procs = group.folder().join("cgroup.procs");
    let mut dd = Command::new("dd");
    dd.args(["of=/dev/null", "iflag=direct", "status=none"]).arg(format!("if={}", disk.path.display()));
    dd.arg(format!("bs={BLOCK}")).arg(format!("count={blocks}"));
    // SAFETY: a write to a file, from memory that exists already.
    unsafe { dd.pre_exec(move || fs::write(&procs, "0")) };
    assert!(dd.status().expect("dd").success(), "dd reads");
}

/// On a host that has v1, too, both are in one group of v1. A round may lack requests that no observer sees (see `requests.rs`);
/// one round must have all.
fn groups_of_one_parent_are_told_apart() {
    const ROUNDS: usize = 5;
    let groups = ["one", "two"].map(|name| Group::new(name).expect("a cgroup"));
    let wanted = [40, 10].map(|blocks| blocks * BLOCK);
    let mut rounds = Vec::new();
    while rounds.last() != Some(&wanted) {
        assert!(rounds.len() < ROUNDS, "{rounds:?} in the groups, not {wanted:?}");
        let disk = LoopDevice::new(16).expect("a loop device");
        let mut source = load(&[BYTES], &everything());
        for (group, bytes) in groups.iter().zip(wanted) {
            read(&disk, group, bytes / BLOCK);
        }
        let snapshot = snapshot(&mut *source, BYTES);
        let [device, cgroup] = ["device", "cgroup"].map(|name| snapshot.column(name).expect("a column"));
        let of_disk = |path: &str| {
            let is = |row: &&topstat_model::Row| {
                row.object[device] == Field::from(disk.name.as_str()) && row.object[cgroup] == Field::from(path)
            };
            snapshot.rows.iter().filter(is).map(|row| row.value).sum::<u64>()
        };
        rounds.push(groups.each_ref().map(|group| of_disk(&group.path)));
    }
    note(format!("{rounds:?}"));
}
