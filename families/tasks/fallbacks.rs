// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel lacks, found out by trying, and what is done instead. `fallbacks.bpf.h` has the programs' part of
//! it, and the kernel commits.

use std::sync::OnceLock;

use super::observer;
use crate::fallbacks::Feature;
use crate::hooks::Hook;

const FEATURES: &[Feature] = &[Feature {
    program: "probe_groups",
    name: "storage of cgroups",
    without: "control groups are in a bounded array, of which no subtree can take all; what has no place is counted as \
              no_memory",
}];

const PROBE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tasks/probe.bpf.o"));

/// The programs of the tables, compiled for what the kernel can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// With all that is needed of later kernels.
    Full,
    /// With nothing that came after 6.1.
    Plain,
}

impl Flavour {
    /// The one for this kernel.
    pub fn of_kernel() -> Self {
        if lacking().is_empty() { Self::Full } else { Self::Plain }
    }

    /// The programs that push.
    pub fn observer(self) -> &'static [u8] {
        match self {
            Self::Full => include_bytes!(concat!(env!("OUT_DIR"), "/tasks/top.bpf.o")),
            Self::Plain => include_bytes!(concat!(env!("OUT_DIR"), "/tasks/top.plain.bpf.o")),
        }
    }

    /// The programs that read.
    pub const fn snapshot(self) -> &'static [u8] {
        match self {
            Self::Full => include_bytes!(concat!(env!("OUT_DIR"), "/tasks/snapshot.bpf.o")),
            Self::Plain => include_bytes!(concat!(env!("OUT_DIR"), "/tasks/snapshot.plain.bpf.o")),
        }
    }

    /// Where the first are attached.
    pub fn hooks(self) -> &'static [Hook] {
        match self {
            Self::Full => observer::FULL,
            Self::Plain => observer::PLAIN,
        }
    }

    /// Maps of the state besides those that all families have.
    pub fn maps(self) -> &'static [&'static str] {
        match self {
            Self::Full => &["runners", "groups", "waited"],
            Self::Plain => &["runners", "groups", "group_index", "group_free", ".data.shares", "waited"],
        }
    }
}

/// What this kernel lacks, or does not let this user have; asked once.
pub fn lacking() -> &'static [&'static Feature] {
    static LACKING: OnceLock<Vec<&'static Feature>> = OnceLock::new();
    LACKING.get_or_init(|| crate::fallbacks::lacking(FEATURES, PROBE))
}
