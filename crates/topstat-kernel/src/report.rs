// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a check has found, and the usual reasons why programs don't load.

use crate::Error;

/// The types of the running kernel.
pub const BTF: &str = "/sys/kernel/btf/vmlinux";
/// What to do where they are missing.
pub const WITH_BTF: &str = "use a kernel that was built with CONFIG_DEBUG_INFO_BTF=y";

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is there.
    Ok,
    /// It is missing; a fallback is used, or a part is left out.
    Degraded,
    /// It is missing, and nothing works without.
    Missing,
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
}

/// Whether the programs of samples load, as somebody has `tried`; `found` is for when they do.
pub fn loads(name: &str, samples: &str, tried: Result<(), Error>, found: impl Into<String>) -> Check {
    match tried {
        Ok(()) => Check::ok(name, found),
        Err(e) => Check::missing(name, explain(e, samples).to_string(), "the lines above say what is missing"),
    }
}

/// Puts the usual reasons why the programs of samples don't load into words.
pub fn explain(error: Error, samples: &str) -> Error {
    let Error::Kernel { what, why } = error else { return error };
    let unsupported = |reason: &str, advice: &str| Error::Unsupported {
        sample: samples.to_owned(),
        reason: reason.to_owned(),
        advice: advice.to_owned(),
    };
    if !std::path::Path::new(BTF).exists() {
        return unsupported(&format!("the kernel has no BTF ({BTF} is missing)"), WITH_BTF);
    }
    if in_user_namespace() {
        return unsupported(USER_NAMESPACE, OUTSIDE);
    }
    if missing_capabilities().is_some_and(|m| !m.is_empty()) {
        return unsupported(
            "loading eBPF programs is not permitted",
            "run as root, or with the capabilities CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and CAP_SYS_ADMIN",
        );
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
