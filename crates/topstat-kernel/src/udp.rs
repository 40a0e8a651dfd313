// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How UDP is counted, for all families that count it: by its own functions (`observe/datagram.bpf.h`), which is exact only
//! where a program is run at each call, or by its packets.

use std::sync::OnceLock;

use crate::family::{Feature, Probe, Probes};
use crate::hooks::Hook;
use crate::{Error, nowhere};

/// What chooses: `functions`, wherever there are any, or `packets`. When it is not set, functions where each call of them is
/// seen.
pub const UDP: &str = "TOPSTAT_UDP";
/// See [`UDP`].
pub const FUNCTIONS: &str = "functions";
/// See [`UDP`].
pub const PACKETS: &str = "packets";

/// What of all this the kernel has is found out by programs that are beside those of `inet`, which mostly is loaded, too.
pub static PROBES: Probes = Probes::new(include_bytes!(concat!(env!("OUT_DIR"), "/inet/probe.bpf.o")));

fn is_set(way: &str) -> bool {
    std::env::var_os(UDP).is_some_and(|set| set == way)
}

/// Whether functions are wanted, where there are any.
pub fn functions_wanted() -> bool {
    !is_set(PACKETS)
}

/// Whether a choice in the environment is one of two.
///
/// # Errors
/// What it must be.
pub fn is_either(name: &str, ways: [&str; 2]) -> Result<(), Error> {
    match std::env::var_os(name) {
        Some(set) if !ways.iter().any(|way| set == *way) => {
            Err(Error::Option(format!("{name} must be {} or {}, not '{}'", ways[0], ways[1], set.to_string_lossy())))
        }
        _ => Ok(()),
    }
}

/// Whether what is set makes sense.
///
/// # Errors
/// What it must be.
pub fn ready() -> Result<(), Error> {
    is_either(UDP, [FUNCTIONS, PACKETS])
}

/// Where functions begin, for the programs `…_received`, `…_sent` and `…_sent6` of a family. A datagram that a program has
/// missed no later one makes up for.
pub fn hooks(family: &str) -> [Hook; 3] {
    let programs = [("received", "__udp_enqueue_schedule_skb"), ("sent", "ip_send_skb"), ("sent6", "ip6_send_skb")];
    programs.map(|(program, function)| Hook::function(&format!("{family}_{program}"), function).losing())
}

/// What it takes to count by functions. See [`PROBES`].
pub fn needed() -> Vec<Feature> {
    let without = "UDP is counted by its packets";
    let feature = |probe, name| Feature { probe, name, without };
    vec![
        feature(Probe::Program("probe_received"), "programs at the function __udp_enqueue_schedule_skb"),
        feature(Probe::Program("probe_sent"), "programs at the function ip_send_skb"),
        feature(Probe::Program("probe_sent6"), "programs at the function ip6_send_skb"),
        feature(
            Probe::Told(|| is_set(FUNCTIONS) || keeps_functions(&said("version"))),
            "a compiler that is known to keep functions whole (clang may copy them into their callers)",
        ),
        feature(
            Probe::Told(|| is_set(FUNCTIONS) || programs_finish()),
            "a preemption model that is known to let programs finish (full, lazy and real-time do not)",
        ),
    ]
}

/// What is in a file of /proc.
fn said(file: &str) -> String {
    std::fs::read_to_string(format!("/proc/{file}")).unwrap_or_default()
}

/// Whether the kernel was compiled by gcc, by what /proc/version says. By clang it may have been optimised when it was linked:
/// functions of one file are copied into others, and who calls a copy passes by the programs.
fn keeps_functions(version: &str) -> bool {
    version.contains("gcc") && !version.contains("clang")
}

/// [`lets_finish`] of this kernel; asked once, for the daemon gives up the privilege to ask.
fn programs_finish() -> bool {
    static ASKED: OnceLock<bool> = OnceLock::new();
    *ASKED.get_or_init(|| lets_finish(&said("sys/kernel/version"), preemption))
}

/// Whether a task that runs a program keeps the CPU until it has run, so that no other task finds it running there: the
/// kernel would leave out that one's run. `version` is /proc/sys/kernel/version: `#1 SMP PREEMPT_DYNAMIC Debian …`.
fn lets_finish(version: &str, preemption: impl FnOnce() -> Option<String>) -> bool {
    match version.split_whitespace().find(|word| word.starts_with("PREEMPT")) {
        None => true,
        // As it was booted, or set since. Lazy ones preempt, too, when a task has not left the kernel for a tick or two, and
        // for real-time tasks: of 4,000 datagrams of four threads on a slow host's two CPUs, 235 were missed so.
        Some("PREEMPT_DYNAMIC") => preemption().is_some_and(|now| matches!(&*now, "none" | "voluntary")),
        Some(_) => false,
    }
}

/// The one of the preemption models that the kernel has now: debugfs says `none (voluntary) full`. It is mounted for that
/// alone, and nowhere: it need not be there, and may be hidden.
fn preemption() -> Option<String> {
    use rustix::fs::{Mode, OFlags, openat};
    use rustix::mount::MountAttrFlags;
    use std::io::Read as _;
    let root = nowhere::mount("debugfs", MountAttrFlags::MOUNT_ATTR_RDONLY).ok()?;
    let file = openat(&root, "sched/preempt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut models = String::new();
    std::fs::File::from(file).read_to_string(&mut models).ok()?;
    let model = models.split_whitespace().find_map(|word| word.strip_prefix('(')?.strip_suffix(')'));
    model.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::{keeps_functions, lets_finish};

    #[test]
    fn a_kernel_whose_tasks_are_preempted_anywhere_is_told() {
        let version = |words: &str| format!("#1 SMP {words} Debian 6.1.192-2 (2026-11-01)");
        let unasked = || panic!("the version says it");
        assert!(lets_finish("#1 SMP Debian 5.10.0", unasked));
        assert!(!lets_finish(&version("PREEMPT_LAZY"), unasked));
        assert!(!lets_finish(&version("PREEMPT"), unasked));
        assert!(!lets_finish(&version("PREEMPT_RT"), unasked));
        for (model, lets) in [("none", true), ("voluntary", true), ("lazy", false), ("full", false), ("newer", false)] {
            assert_eq!(lets_finish(&version("PREEMPT_DYNAMIC"), || Some(model.to_owned())), lets, "{model}");
        }
        assert!(!lets_finish(&version("PREEMPT_DYNAMIC"), || None), "debugfs is locked down");
    }

    #[test]
    fn the_compiler_is_told() {
        let gcc = "Linux version 6.1.0-56-cloud-amd64 (debian-kernel@lists.debian.org) (gcc-12 (Debian 12.2.0-14) 12.2.0, \
                   GNU ld (GNU Binutils for Debian) 2.40) #1 SMP PREEMPT_DYNAMIC";
        let clang =
            "Linux version 6.18.1-2-cachyos-lto (linux@cachyos) (clang version 21.1.6, LLD 21.1.6) #1 SMP PREEMPT";
        assert!(keeps_functions(gcc) && !keeps_functions(clang) && !keeps_functions(""));
    }
}
