// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results of checks, and the usual reasons why programs don't load.

use crate::Error;

/// The types of the running kernel.
pub const BTF: &str = "/sys/kernel/btf/vmlinux";
/// The problem where [`BTF`] is missing. A container may hide the file of a kernel that has the types.
pub const NO_BTF: &str = "the kernel was built without BTF, or /sys is hidden from this process";
/// Advice for that problem.
pub const WITH_BTF: &str = "show it /sys, or use a kernel that was built with CONFIG_DEBUG_INFO_BTF=y";

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The feature is there.
    Ok,
    /// It is missing; a fallback is used, or a part is left out.
    Degraded,
    /// It is missing, and nothing works without it.
    Missing,
    /// This process can't find out: it may neither look nor try.
    Unknown,
}

/// One line of `topstat check`.
#[derive(Clone, Debug)]
pub struct Check {
    /// The feature: `BTF`, `cgroup v2`, `sample tcp_v4` …
    pub name: String,
    /// The outcome.
    pub outcome: Outcome,
    /// The finding (which hook is used, which path, which limit).
    pub found: String,
    /// Advice; empty if there is nothing to do.
    pub advice: String,
}

impl Check {
    /// A feature that is there: `found` says what was found.
    pub fn ok(name: &str, found: impl Into<String>) -> Self {
        Self { name: name.to_owned(), outcome: Outcome::Ok, found: found.into(), advice: String::new() }
    }

    /// A feature that is missing, and what to do about it.
    pub fn missing(name: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name: name.to_owned(), outcome: Outcome::Missing, found: found.into(), advice: advice.into() }
    }

    /// A feature that can't be asked for, and what to do about that.
    pub fn unknown(name: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name: name.to_owned(), outcome: Outcome::Unknown, found: found.into(), advice: advice.into() }
    }

    /// The check of a feature that only loading programs reveals, where this process can't load any.
    pub fn untried(name: &str, obstacle: &Obstacle) -> Self {
        Self::unknown(name, format!("can't be tried: {}", obstacle.reason), SEE_ABOVE)
    }
}

const SEE_ABOVE: &str = "the lines above say what is missing";

/// An obstacle that keeps this process from loading any programs, whatever the kernel has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The problem.
    pub reason: String,
    /// Advice for it.
    pub advice: &'static str,
}

/// The obstacle that keeps this process from loading programs. While there is one, a program that does not load reveals nothing
/// about the kernel.
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

/// Whether the programs of samples load, by the result `tried`; `found` is the finding if they do.
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

/// The capabilities that loading needs and this process lacks; `None`: /proc does not report them.
pub fn missing_capabilities() -> Option<Vec<&'static str>> {
    let status = procfs::process::Process::myself().and_then(|p| p.status()).ok()?;
    Some(NEEDED.iter().filter(|(_, bit)| status.capeff >> bit & 1 == 0).map(|(name, _)| *name).collect())
}

/// The inode number of `/proc/self/ns/user` where the user namespace is the host's own: `USER_NS_INIT_INO` of
/// `linux/nsfs.h`, which the kernel has kept since 3.8.
const HOSTS_USER_NAMESPACE: u64 = 0xEFFF_FFFD;
/// The problem in another user namespace.
pub const USER_NAMESPACE: &str = "this is a user namespace (a container without privileges, or unshare -U): its \
    capabilities are none outside of it, and eBPF needs the host's";
/// Advice for that problem.
pub const OUTSIDE: &str =
    "run topstat on the host itself, as root, or in a container that shares the host's user namespace";

/// Whether this process is in another user namespace than the host's. If /proc does not report it, the namespace counts as the
/// host's: the operations that fail then say what is missing.
pub fn in_user_namespace() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self/ns/user").is_ok_and(|namespace| namespace.ino() != HOSTS_USER_NAMESPACE)
}
