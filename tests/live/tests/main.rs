// SPDX-License-Identifier: Apache-2.0 OR MIT
//! topstat on the running kernel, with real traffic, against a ground truth that topstat did not produce.
//!
//! What is about a family is in the family's folder (`families/<name>/live`), what is about the engine, the daemon, or
//! what is pinned is here. build.rs finds both: a module that has `pub fn cases()` has tests, one that has
//! `pub fn play()` has roles for other processes. Names of tests begin with their module's: `inet::right::udp`.
//!
//! Traffic stays on loopback, or in network namespaces that the tests make. Other traffic may exist on the host: rows
//! are told by their addresses.

use std::process::ExitCode;

/// Plays a role, if it knows it.
type Play = fn(&str, &[String]) -> Option<ExitCode>;

include!(concat!(env!("OUT_DIR"), "/modules.rs"));

fn main() -> ExitCode {
    if let Some((role, arguments)) = topstat_live::role::own() {
        let played = ROLES.iter().find_map(|play| play(&role, &arguments));
        return played.unwrap_or_else(|| panic!("there is no role {role}"));
    }
    topstat_live::harness::run(cases())
}
