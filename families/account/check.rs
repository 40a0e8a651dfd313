// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks what parts of the account of tasks this kernel supports, and how exact each part is.

use super::AccountOptions;
use super::accountant;
use topstat_kernel::report::loads;
use topstat_kernel::{Check, Outcome, bpf};

/// Paths of the kernel's configuration. Mostly it can't be read, and it is not needed.
const CONFIGS: [&str; 2] = ["/boot/config-", "/lib/modules/"];

/// Why the kernel's features are unknown.
const TYPES_UNREAD: &str = "the kernel's types (BTF) can't be read";

/// Checks the needs of the account beyond the needs of all families.
pub fn check() -> Vec<Check> {
    let account =
        accountant::open(&AccountOptions::default()).and_then(|(object, _)| bpf::load("the account of tasks", object));
    vec![
        loads(
            "account of tasks",
            "tasks",
            account.map(drop),
            "hooks: tracepoints sched_switch, task_newtask, sched_process_exit; task storage",
        ),
        Check {
            name: "time of tasks".to_owned(),
            outcome: Outcome::Ok,
            found: "exact: by the clock, at every switch".to_owned(),
            advice: String::new(),
        },
        split(),
        interrupts(),
        steal(),
    ]
}

/// Whether the kernel itself accounts for user and system time at every entry, not by ticks.
fn accounts_exactly() -> Option<bool> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let [boot, modules] = CONFIGS;
    let text = [format!("{boot}{release}"), format!("{modules}{release}/config")]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok())?;
    let native = text.contains("\nCONFIG_VIRT_CPU_ACCOUNTING_NATIVE=y");
    // VIRT_CPU_ACCOUNTING_GEN is active only where CPUs run without ticks.
    let full = std::fs::read_to_string("/sys/devices/system/cpu/nohz_full").unwrap_or_default();
    let generic = text.contains("\nCONFIG_VIRT_CPU_ACCOUNTING_GEN=y") && !matches!(full.trim(), "" | "(null)");
    Some(native || generic)
}

fn split() -> Check {
    let (outcome, found) = match accounts_exactly() {
        Some(true) => (Outcome::Ok, "exact: the kernel accounts for every entry"),
        _ => (Outcome::Ok, "sampled: the ratio is the kernel's ticks', scaled to the exact time of the task"),
    };
    Check { name: "user and system of tasks".to_owned(), outcome, found: found.to_owned(), advice: String::new() }
}

fn interrupts() -> Check {
    let (outcome, found) = match accountant::interrupts().as_deref() {
        None => (Outcome::Unknown, TYPES_UNREAD.to_owned()),
        Some([]) => {
            (Outcome::Degraded, "the kernel has none of the tracepoints: contained in the tasks' time".to_owned())
        }
        Some(names) => (Outcome::Ok, format!("exact: tracepoints {}", names.join(", "))),
    };
    Check { name: "interrupts and softirqs of tasks".to_owned(), outcome, found, advice: String::new() }
}

fn steal() -> Check {
    let (outcome, found) = if !accountant::under_hypervisor() {
        (Outcome::Ok, "none: this machine is not virtual")
    } else {
        match accountant::knows_steal() {
            Some(true) => (Outcome::Ok, "exact, as far as the hypervisor tells: taken at every switch and tick"),
            Some(false) => {
                (Outcome::Degraded, "not told apart: the kernel was built without CONFIG_PARAVIRT_TIME_ACCOUNTING")
            }
            None => (Outcome::Unknown, TYPES_UNREAD),
        }
    };
    Check { name: "steal of tasks".to_owned(), outcome, found: found.to_owned(), advice: String::new() }
}
