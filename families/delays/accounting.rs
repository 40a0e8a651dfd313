// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the kernel keeps the accounts that the programs read.

use topstat_kernel::{Check, Error, Outcome};

/// The kernel's switch of delay accounting (since 5.14). It exists if the kernel was built with delay accounting.
const SWITCH_FILE: &str = "/proc/sys/kernel/task_delayacct";
/// The advice if it is off.
const SWITCH_ON: &str = "switch it on with 'sysctl -w kernel.task_delayacct=1', or 'delayacct' on the kernel's \
                         command line, and begin anew (a daemon: restart it); tasks that were started before have \
                         no account";
/// The advice if it is missing.
const ANOTHER_KERNEL: &str = "use a kernel that was built with CONFIG_TASK_DELAY_ACCT=y";

/// Whether the kernel keeps accounts of what tasks wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accounting {
    /// The kernel keeps accounts.
    On,
    /// The kernel could keep accounts, but they are switched off.
    Off,
    /// The kernel was built without them.
    Missing,
}

/// The state on this kernel.
fn accounting() -> Accounting {
    match std::fs::read_to_string(SWITCH_FILE) {
        Ok(text) if text.trim() == "0" => Accounting::Off,
        Ok(_) => Accounting::On,
        Err(_) => Accounting::Missing,
    }
}

/// Whether the sample can count: an error if the kernel keeps no accounts.
pub fn ready() -> Result<(), Error> {
    let sample = "delays".to_owned();
    match accounting() {
        Accounting::On => Ok(()),
        Accounting::Off => Err(Error::SwitchedOff {
            sample,
            reason: "the kernel's delay accounting is off".to_owned(),
            advice: SWITCH_ON.to_owned(),
        }),
        Accounting::Missing => Err(Error::Unsupported {
            sample,
            reason: "the kernel has no delay accounting".to_owned(),
            advice: ANOTHER_KERNEL.to_owned(),
        }),
    }
}

/// The lines of `topstat check` on delay accounting.
pub fn check() -> Vec<Check> {
    let (outcome, found, advice) = match accounting() {
        Accounting::On => (
            Outcome::Ok,
            "on (kernel.task_delayacct=1): exact; tasks that were started while it was off have no account",
            "",
        ),
        Accounting::Off => (Outcome::Degraded, "off (kernel.task_delayacct=0): no sample delays", SWITCH_ON),
        Accounting::Missing => (Outcome::Degraded, "not in this kernel: no sample delays", ANOTHER_KERNEL),
    };
    let [name, found, advice] = ["delay accounting", found, advice].map(str::to_owned);
    vec![Check { name, outcome, found, advice }]
}
