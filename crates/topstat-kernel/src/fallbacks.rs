// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a kernel may lack, found out by trying: a family that has other ways has programs that need one thing each
//! (`probe.bpf.c`), which are loaded and never run.

use crate::bpf;

/// Something that came after the oldest kernel that a family is for, and what is the case without it.
pub struct Feature {
    /// What needs it, of the family's `probe.bpf.c`.
    pub program: &'static str,
    /// What it is.
    pub name: &'static str,
    /// How things are without it.
    pub without: &'static str,
}

/// Set to anything, everything is taken to be lacking: to try and to test the fallbacks on any kernel.
const PLAIN: &str = "TOPSTAT_PLAIN";

/// Which of these this kernel lacks, or does not let this user have, by the programs of a compiled `probe.bpf.c`.
pub fn lacking(features: &'static [Feature], probe: &[u8]) -> Vec<&'static Feature> {
    let all = std::env::var_os(PLAIN).is_some_and(|v| !v.is_empty());
    // Mostly there are all; each object that is loaded reads all of the kernel's types.
    if !all && loads(probe, |_| true) {
        return Vec::new();
    }
    features.iter().filter(|f| all || !loads(probe, |name| name == f.program)).collect()
}

/// Whether the kernel takes these programs.
fn loads(probe: &[u8], wanted: impl Fn(&str) -> bool) -> bool {
    let Ok(mut object) = bpf::open("probe", probe) else { return false };
    for mut program in object.progs_mut() {
        let wanted = wanted(&program.name().to_string_lossy());
        program.set_autoload(wanted);
    }
    bpf::load("probe", object).is_ok()
}
