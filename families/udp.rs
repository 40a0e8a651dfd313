// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How all families count UDP: by its kernel functions (`observe/datagram.bpf.h`), which is exact only where a program is run at
//! each call, or by its packets.

use std::sync::OnceLock;

use topstat_kernel::family::{Feature, Probe, Probes};
use topstat_kernel::hooks::Hook;
use topstat_kernel::{Error, detached_mount};

/// The variable that chooses: `functions`, wherever there are any, or `packets`. If it is not set, functions are taken where each
/// call of them is seen.
pub const UDP: &str = "TOPSTAT_UDP";
/// See [`UDP`].
pub const FUNCTIONS: &str = "functions";
/// See [`UDP`].
pub const PACKETS: &str = "packets";

/// The programs that find out which features the kernel has for this. They are in the folder of `inet`, which mostly is loaded,
/// too.
pub static PROBES: Probes = Probes::new(include_bytes!(concat!(env!("OUT_DIR"), "/inet/probe.bpf.o.deflate")));

fn is_set(way: &str) -> bool {
    std::env::var_os(UDP).is_some_and(|set| set == way)
}

/// Whether functions are wanted, where there are any.
pub fn functions_wanted() -> bool {
    !is_set(PACKETS)
}

/// Checks that a choice in the environment is one of two.
///
/// # Errors
/// The variable has another value. The error names the two.
pub fn is_either(name: &str, ways: [&str; 2]) -> Result<(), Error> {
    match std::env::var_os(name) {
        Some(set) if !ways.iter().any(|way| set == *way) => {
            Err(Error::Option(format!("{name} must be {} or {}, not '{}'", ways[0], ways[1], set.to_string_lossy())))
        }
        _ => Ok(()),
    }
}

/// Checks the choice in [`UDP`].
///
/// # Errors
/// As [`is_either`].
pub fn ready() -> Result<(), Error> {
    is_either(UDP, [FUNCTIONS, PACKETS])
}

/// The hooks at the beginnings of functions, for the programs `…_received`, `…_sent` and `…_sent6` of a family. No later datagram
/// makes up for a datagram that a program has missed.
pub fn hooks(family: &str) -> [Hook; 3] {
    let programs = [("received", "__udp_enqueue_schedule_skb"), ("sent", "ip_send_skb"), ("sent6", "ip6_send_skb")];
    programs.map(|(program, function)| Hook::function(&format!("{family}_{program}"), function).losing())
}

/// The features that counting by functions takes. See [`PROBES`].
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

/// The content of a file in /proc.
fn said(file: &str) -> String {
    std::fs::read_to_string(format!("/proc/{file}")).unwrap_or_default()
}

/// Whether the kernel was compiled by gcc, by the text of /proc/version. A kernel of clang may have been optimised when it was
/// linked: functions of one file are then copied into others, and a caller of a copy bypasses the programs.
fn keeps_functions(version: &str) -> bool {
    version.contains("gcc") && !version.contains("clang")
}

/// [`lets_finish`] of this kernel. It is asked once, since the daemon gives up the privilege to ask.
fn programs_finish() -> bool {
    static ASKED: OnceLock<bool> = OnceLock::new();
    *ASKED.get_or_init(|| lets_finish(&said("sys/kernel/version"), preemption))
}

/// Whether a task that runs a program keeps the CPU until the program has ended. Otherwise another task may find the program
/// running there, and the kernel would skip its run. `version` is /proc/sys/kernel/version: `#1 SMP PREEMPT_DYNAMIC Debian …`.
fn lets_finish(version: &str, preemption: impl FnOnce() -> Option<String>) -> bool {
    match version.split_whitespace().find(|word| word.starts_with("PREEMPT")) {
        None => true,
        // The model was chosen at boot, or set since. A lazy one preempts, too, when a task has not left the kernel for a tick or
        // two, and for real-time tasks: on a slow host with two CPUs, 235 of 4,000 datagrams of four threads were missed for that
        // reason.
        Some("PREEMPT_DYNAMIC") => preemption().is_some_and(|now| matches!(&*now, "none" | "voluntary")),
        Some(_) => false,
    }
}

/// The preemption model that the kernel has now: debugfs says `none (voluntary) full`. debugfs is mounted for that alone, without
/// a path: the host may not have mounted it, or may hide it.
fn preemption() -> Option<String> {
    use rustix::fs::{Mode, OFlags, openat};
    use rustix::mount::MountAttrFlags;
    use std::io::Read as _;
    let root = detached_mount::mount("debugfs", MountAttrFlags::MOUNT_ATTR_RDONLY).ok()?;
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
