// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each family's logic, and each part of `observe/`, against its model: a test of its own, by the name of the folder or part.

use libtest_mimic::{Arguments, Trial};
use topstat_observe::{names, run};

/// Runs of each test, by their seeds.
const RUNS: u64 = 1_000;

fn main() {
    let trial = |name: &'static str| Trial::test(name, move || Ok((0..RUNS).try_for_each(|seed| run(name, seed))?));
    let trials: Vec<_> = names().map(trial).collect();
    assert!(trials.len() > 1, "the build has found no tests");
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
