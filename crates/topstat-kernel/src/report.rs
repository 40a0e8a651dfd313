// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a check has found, and the usual reasons why programs don't load.

use crate::Error;

/// The types of the running kernel.
pub const BTF: &str = "/sys/kernel/btf/vmlinux";
/// What is wrong where they are missing. A container may hide the file of a kernel that has them.
pub const NO_BTF: &str = "the kernel was built without BTF, or /sys is hidden from this process";
/// What to do about it.
pub const WITH_BTF: &str = "show it /sys, or use a kernel that was built with CONFIG_DEBUG_INFO_BTF=y";

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is there.
    Ok,
    /// It is missing; a fallback is used, or a part is left out.
    Degraded,
    /// It is missing, and nothing works without.
    Missing,
    /// This process can't find out: it may not look, or not try.
    Unknown,
}

/// One line of `topstat check`.
#[derive(Clone, Debug)]
pub struct Check {
    /// What was looked for: `BTF`, `cgroup v2`, `sample tcp_v4` …
    pub name: String,
    /// How it came out.
    pub outcome: Outcome,
    /// What was found (which hook is used, which path, which limit).
    pub found: String,
    /// What to do about it; empty where there is nothing to do.
    pub advice: String,
}

impl Check {
    pub(crate) fn ok(name: &str, found: impl Into<String>) -> Self {
        Self { name: name.to_owned(), outcome: Outcome::Ok, found: found.into(), advice: String::new() }
    }

    pub(crate) fn missing(name: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name: name.to_owned(), outcome: Outcome::Missing, found: found.into(), advice: advice.into() }
    }

    pub(crate) fn unknown(name: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name: name.to_owned(), outcome: Outcome::Unknown, found: found.into(), advice: advice.into() }
    }

    /// What only loading programs tells, where this process can't load any.
    pub fn untried(name: &str, obstacle: &Obstacle) -> Self {
        Self::unknown(name, format!("can't be tried: {}", obstacle.reason), SEE_ABOVE)
    }
}

const SEE_ABOVE: &str = "the lines above say what is missing";

/// What keeps this process from loading any programs, whatever the kernel has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// What is wrong.
    pub reason: String,
    /// What to do about it.
    pub advice: &'static str,
}

/// What keeps this process from loading programs: while there is an obstacle, a program that does not load says nothing of
/// the kernel.
pub fn obstacle() -> Option<Obstacle> {
    if !std::path::Path::new(BTF).exists() {
        return Some(Obstacle { reason: format!("{BTF} is missing ({NO_BTF})"), advice: WITH_BTF });
    }
    if in_user_namespace() {
        return Some(Obstacle { reason: USER_NAMESPACE.to_owned(), advice: OUTSIDE });
    }
    missing_capabilities().is_some_and(|missing| !missing.is_empty()).then(|| Obstacle {
        reason: "loading eBPF programs is not permitted".to_owned(),
        advice: "run as root, or with the capabilities CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and CAP_SYS_ADMIN",
    })
}

/// Whether the programs of samples load, as somebody has `tried`; `found` is for when they do.
pub fn loads(name: &str, samples: &str, tried: Result<(), Error>, found: impl Into<String>) -> Check {
    match (tried, obstacle()) {
        (Ok(()), _) => Check::ok(name, found),
        (Err(Error::Kernel { .. } | Error::Unsupported { .. }), Some(obstacle)) => Check::untried(name, &obstacle),
        (Err(e), _) => Check::missing(name, explain(e, samples).to_string(), SEE_ABOVE),
    }
}

/// Puts the usual reasons why the programs of samples don't load into words.
pub fn explain(error: Error, samples: &str) -> Error {
    let Error::Kernel { what, why } = error else { return error };
    if let Some(Obstacle { reason, advice }) = obstacle() {
        return Error::Unsupported { sample: samples.to_owned(), reason, advice: advice.to_owned() };
    }
    Error::Kernel { what, why }
}

/// The capabilities that loading needs, by their numbers in `linux/capability.h`: to load
/// (`BPF`), to read kernel memory (`PERFMON`), to attach to packets (`NET_ADMIN`), and to open
/// objects by their ids (`SYS_ADMIN`, which also stands for the others).
const NEEDED: [(&str, u32); 4] = [("CAP_BPF", 39), ("CAP_PERFMON", 38), ("CAP_NET_ADMIN", 12), ("CAP_SYS_ADMIN", 21)];

/// Which of the capabilities that loading needs are not there; `None` when /proc does not tell.
pub fn missing_capabilities() -> Option<Vec<&'static str>> {
    let status = procfs::process::Process::myself().and_then(|p| p.status()).ok()?;
    Some(NEEDED.iter().filter(|(_, bit)| status.capeff >> bit & 1 == 0).map(|(name, _)| *name).collect())
}

/// The inode number of `/proc/self/ns/user` where the user namespace is the host's own: `USER_NS_INIT_INO` of
/// `linux/nsfs.h`, which the kernel has kept since 3.8.
const HOSTS_USER_NAMESPACE: u64 = 0xEFFF_FFFD;
/// What is wrong in another one.
pub const USER_NAMESPACE: &str = "this is a user namespace (a container without privileges, or unshare -U): its \
    capabilities are none outside of it, and eBPF needs the host's";
/// What to do about it.
pub const OUTSIDE: &str =
    "run topstat on the host itself, as root, or in a container that shares the host's user namespace";

/// Whether this is a user namespace of somebody's own. Where /proc does not tell it passes for the host's: what is
/// missing is then said by what fails.
pub fn in_user_namespace() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self/ns/user").is_ok_and(|namespace| namespace.ino() != HOSTS_USER_NAMESPACE)
}
