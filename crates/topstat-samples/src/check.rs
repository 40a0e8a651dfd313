// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What this kernel and this user allow.

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

/// Looks at everything that the samples need.
pub fn check() -> Vec<Check> {
    Vec::new()
}
