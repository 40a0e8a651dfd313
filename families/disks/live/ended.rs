// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes that have ended: their rows stay while they age, and are no longer counted as objects.

use std::process::Command;
use std::time::Duration;

use topstat_live::scratch::LoopDevice;
use topstat_live::watch::{everything, load, snapshot};
use topstat_live::{Case, alone, eventually};
use topstat_model::Field;

pub fn cases() -> Vec<Case> {
    vec![alone!(Disk: ended_processes_are_no_objects, Root, LoopDevice, Sample(BYTES); EveryKernel)]
}

const BYTES: &str = "disk_procs/bytes";
const PROCESSES: usize = 20;
const PATIENCE: Duration = Duration::from_secs(10);

/// On two disks. The second one was never used before.
fn ended_processes_are_no_objects() {
    let disks = [LoopDevice::new(16).expect("a loop device"), LoopDevice::new(16).expect("a loop device")];
    let mut source = load(&[BYTES], &everything());
    for number in 0..PROCESSES {
        let mut dd = Command::new("dd");
        let from = disks[number * 2 / PROCESSES].path.display();
        dd.args(["of=/dev/null", "iflag=direct", "status=none", "bs=64k", "count=4"]).arg(format!("if={from}"));
        assert!(dd.status().expect("dd").success(), "dd reads");
    }
    // Each process has ended, and is freed after a grace period of RCU. One may lack a row: see `requests.rs`.
    let mut last = Vec::new();
    let all = eventually(PATIENCE, || {
        let snapshot = snapshot(&mut *source, BYTES);
        let [device, comm] = ["device", "comm"].map(|name| snapshot.column(name).expect("a column"));
        let of = |disk: &LoopDevice| {
            let is_own = |object: &[Field]| {
                object[device] == Field::from(disk.name.as_str()) && object[comm] == Field::from("dd")
            };
            let rows = snapshot.rows.iter().filter(|row| is_own(&row.object));
            rows.map(|row| snapshot.is_closed(&row.object)).collect::<Vec<_>>()
        };
        last = disks.iter().flat_map(of).collect();
        let others = snapshot.rows.len() - last.len();
        last.len() >= PROCESSES - 1 && last.iter().all(|closed| *closed) && snapshot.objects <= others as u64
    });
    assert!(all, "{} rows, closed: {last:?}", last.len());
}
