// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares the engine with a model that keeps every push, under random inputs.

mod bytes;
mod driver;
mod engine;
mod fold;
mod interleaved;
mod model;
mod ops;
mod spread;
mod table;
mod window;

/// This number of random cases. A failure is printed, and not kept in a file.
fn cases(cases: u32) -> proptest::test_runner::Config {
    proptest::test_runner::Config { cases, failure_persistence: None, ..Default::default() }
}
