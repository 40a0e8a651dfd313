// SPDX-License-Identifier: Apache-2.0 OR MIT
//! topstat on the running kernel, with real traffic, against a ground truth that topstat did not produce.
//!
//! Tests of a family are in the family's folder (`families/<name>/live`); tests of the engine, the daemon and pinned state
//! are here. build.rs finds both: a module with `pub fn cases()` has tests, a module with `pub fn play()` has roles for other
//! processes. The name of a test begins with the name of its module: `inet::right::udp`.
//!
//! Traffic stays on loopback, or in network namespaces that the tests make. The host may have other traffic: tests recognise
//! rows by their addresses.

use std::process::ExitCode;

/// Plays a role, if it knows the role.
type Play = fn(&str, &[String]) -> Option<ExitCode>;

include!(concat!(env!("OUT_DIR"), "/modules.rs"));

fn main() -> ExitCode {
    // Registers the families.
    topstat_families::catalogue();
    if let Some((role, arguments)) = topstat_live::role::own() {
        let played = ROLES.iter().find_map(|play| play(&role, &arguments));
        return played.unwrap_or_else(|| panic!("there is no role {role}"));
    }
    topstat_live::harness::run(cases())
}
