// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What this kernel allows the sample of delays.

use super::observer::{self, Accounting};
use crate::{Check, DEFAULT_TOP, Outcome, bpf};

/// What the family needs beyond what all need.
pub fn check() -> Vec<Check> {
    let accounting = match observer::accounting() {
        Accounting::On => (
            Outcome::Ok,
            "on (kernel.task_delayacct=1): exact; tasks that were started while it was off have no account",
            "",
        ),
        Accounting::Off => (Outcome::Degraded, "off (kernel.task_delayacct=0): no sample delays", observer::SWITCH_ON),
        Accounting::Missing => {
            let advice = "use a kernel that was built with CONFIG_TASK_DELAY_ACCT=y";
            (Outcome::Degraded, "not in this kernel: no sample delays", advice)
        }
    };
    let (outcome, found, advice) = accounting;
    let mut checks = Vec::new();
    if observer::accounting() != Accounting::Missing {
        let loaded = observer::open(DEFAULT_TOP, false, 1).and_then(|object| bpf::load("delays", object));
        let hooks = "hooks: tracepoints sched_switch, task_newtask, sched_process_exec, sched_process_exit; \
                     task storage";
        checks.push(Check::loads("sample delays", "delays", loaded.map(drop), hooks));
    }
    checks.push(Check {
        name: "delay accounting".to_owned(),
        outcome,
        found: found.to_owned(),
        advice: advice.to_owned(),
    });
    checks
}
