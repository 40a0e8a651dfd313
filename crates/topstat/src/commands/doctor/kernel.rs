// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configuration of the kernel, and its settings that decide what topstat may do.

use std::fs;
use std::io::Read as _;

use flate2::read::GzDecoder;
use topstat_kernel::{Check, Outcome};

use super::host::Host;
use super::{line, ok};

/// The options that topstat uses, and the loss without each.
const OPTIONS: [(&str, &str); 8] = [
    ("CONFIG_BPF_SYSCALL", "everything"),
    ("CONFIG_DEBUG_INFO_BTF", "everything"),
    ("CONFIG_BPF_JIT", "programs at full speed"),
    ("CONFIG_CGROUPS", "control groups"),
    ("CONFIG_PERF_EVENTS", "tracepoints and samples of stacks"),
    ("CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS", "hooks at functions of the kernel"),
    ("CONFIG_TASK_DELAY_ACCT", "waits of tasks for disks"),
    ("CONFIG_FUSE_FS", "the tree of the daemon"),
];
/// Settings that decide permissions and costs.
const SETTINGS: [&str; 8] = [
    "kernel/unprivileged_bpf_disabled",
    "kernel/perf_event_paranoid",
    "kernel/perf_event_max_sample_rate",
    "kernel/kptr_restrict",
    "kernel/task_delayacct",
    "kernel/bpf_stats_enabled",
    "net/core/bpf_jit_enable",
    "net/core/bpf_jit_harden",
];
/// The most bytes of a configuration that are read: ten times the largest of a distribution.
const MOST_CONFIGURATION: u64 = 4 << 20;

/// The lines of the kernel.
pub fn checks(host: &Host) -> Vec<Check> {
    vec![options(configuration(host).as_deref()), lockdown(host), memlock(host), settings(host)]
}

/// The options that the kernel was built with: of the kernel itself, or else of its package.
pub fn configuration(host: &Host) -> Option<String> {
    if let Ok(file) = fs::File::open(host.at("/proc/config.gz")) {
        let mut text = String::new();
        let read = GzDecoder::new(file).take(MOST_CONFIGURATION).read_to_string(&mut text);
        return read.ok().map(|_| text);
    }
    let release = host.read("/proc/sys/kernel/osrelease")?;
    let release = release.trim();
    [format!("/boot/config-{release}"), format!("/lib/modules/{release}/config")]
        .iter()
        .find_map(|path| host.read(path))
}

fn options(configuration: Option<&str>) -> Check {
    const NAME: &str = "kernel options";
    let Some(text) = configuration else {
        return line(NAME, Outcome::Unknown, "neither /proc/config.gz nor /boot/config-* is there", "");
    };
    let set = |option: &str| {
        let value = |line: &str| line.strip_prefix(option)?.strip_prefix('=').map(|value| value == "y" || value == "m");
        text.lines().find_map(value) == Some(true)
    };
    let without: Vec<_> = OPTIONS.iter().filter(|(option, _)| !set(option)).collect();
    if without.is_empty() {
        return ok(NAME, "all that topstat uses");
    }
    let without: Vec<_> = without.iter().map(|(option, what)| format!("without {option}: {what}")).collect();
    line(NAME, Outcome::Degraded, without.join(", "), "the lines of the samples say what is used instead")
}

/// Confidentiality forbids eBPF programs to read the kernel's memory.
fn lockdown(host: &Host) -> Check {
    const NAME: &str = "lockdown";
    let Some(text) = host.read("/sys/kernel/security/lockdown") else {
        return ok(NAME, "this kernel has none, or /sys/kernel/security is not mounted");
    };
    let mode = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']')).unwrap_or("unknown");
    match mode {
        "confidentiality" => line(
            NAME,
            Outcome::Missing,
            "confidentiality: eBPF programs may not read the kernel's memory",
            "boot with lockdown=integrity",
        ),
        mode => ok(NAME, mode),
    }
}

/// Kernels before 5.11 charge maps to this limit; later ones to the control group.
fn memlock(host: &Host) -> Check {
    const NAME: &str = "memlock";
    let limits = host.read("/proc/self/limits").unwrap_or_default();
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let words: Vec<_> = limit.unwrap_or_default().split_whitespace().take(2).collect();
    match words.as_slice() {
        [soft, hard] => ok(NAME, format!("{soft} bytes, at most {hard}")),
        _ => line(NAME, Outcome::Unknown, "/proc/self/limits can't be read", ""),
    }
}

fn settings(host: &Host) -> Check {
    let value = |name: &&str| {
        let value = host.read(format!("/proc/sys/{name}"))?;
        Some(format!("{}={}", name.rsplit('/').next().unwrap_or(name), value.trim()))
    };
    ok("kernel settings", SETTINGS.iter().filter_map(value).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_are_off_or_absent_are_named_with_what_they_cost() {
        let all: String = OPTIONS.iter().map(|(option, _)| format!("{option}=y\n")).collect();
        assert_eq!(options(Some(&all)).outcome, Outcome::Ok);
        let module = all.replace("CONFIG_FUSE_FS=y", "CONFIG_FUSE_FS=m");
        assert_eq!(options(Some(&module)).outcome, Outcome::Ok);
        let off = all.replace("CONFIG_FUSE_FS=y", "# CONFIG_FUSE_FS is not set");
        let check = options(Some(&off));
        assert_eq!(
            (check.outcome, check.found.as_str()),
            (Outcome::Degraded, "without CONFIG_FUSE_FS: the tree of the daemon")
        );
        // A longer name is another option.
        let longer = all.replace("CONFIG_BPF_JIT=y", "CONFIG_BPF_JIT_ALWAYS_ON=y");
        assert!(options(Some(&longer)).found.contains("CONFIG_BPF_JIT:"), "{}", options(Some(&longer)).found);
        assert_eq!(options(None).outcome, Outcome::Unknown);
    }
}
