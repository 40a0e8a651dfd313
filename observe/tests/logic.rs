// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs all tests of the crate.

use std::thread;

use topstat_observe::{names, run};

/// Runs of each test, by their seeds.
const RUNS: u64 = 1_000;

#[test]
fn all_agree_with_their_models() {
    assert!(names().count() > 1, "the build has found no tests");
    // A test's state is static: each test runs in its own thread, at the same time as the others.
    thread::scope(|scope| {
        for name in names() {
            scope.spawn(move || (0..RUNS).for_each(|seed| run(name, seed).unwrap_or_else(|why| panic!("{why}"))));
        }
    });
}
