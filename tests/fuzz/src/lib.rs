// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is fuzzed. A target takes any bytes, and panics where topstat does not do what it promises.

#![warn(missing_docs)]

mod bytes;
mod config;
// The engine's own tests: its fuzz target does the same as its property tests.
#[allow(missing_docs)]
#[path = "../../../engine/tests/properties/driver.rs"]
mod driver;
#[allow(missing_docs)]
#[path = "../../../engine/tests/properties/model.rs"]
mod model;
#[allow(missing_docs)]
#[path = "../../../engine/tests/properties/ops.rs"]
mod ops;
mod pins;
mod tree;

/// What is given bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of the folder with its corpus.
    pub name: &'static str,
    /// Runs it on an input.
    pub run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "ops", run: engine },
    Target { name: "config", run: config::run },
    Target { name: "tree", run: tree::run },
    Target { name: "pins", run: pins::run },
];

/// The target of this name.
pub fn find(name: &str) -> Option<Target> {
    TARGETS.iter().find(|target| target.name == name).copied()
}

/// Bytes are operations on the engine, which is compared with its model after each.
fn engine(bytes: &[u8]) {
    let (setup, operations) = ops::decode(bytes);
    driver::Driver::run(&setup, &operations);
}
