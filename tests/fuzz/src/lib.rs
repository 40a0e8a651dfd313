// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fuzz targets. A target takes any bytes, and panics if topstat breaks a promise.

#![warn(missing_docs)]

mod bytes;
mod config;
mod definition;
// Modules of the engine's own tests: the engine's fuzz target does the same as its property tests.
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
// The promises that the property tests of the parser verify.
#[allow(missing_docs)]
#[path = "../../../crates/topstat-model/tests/definition/promises.rs"]
mod promises;
mod tree;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the target, and of the folder with its corpus.
    pub name: &'static str,
    /// Runs it on an input.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "ops", run: engine },
    Target { name: "config", run: config::run },
    Target { name: "tree", run: tree::run },
    Target { name: "pins", run: pins::run },
    Target { name: "definition", run: definition::run },
];

/// The target with this name.
pub fn find(name: &str) -> Option<Target> {
    TARGETS.iter().find(|target| target.name == name).copied()
}

/// The input is a sequence of operations on the engine, which is compared with its model after each.
fn engine(bytes: &[u8]) {
    let (setup, operations) = ops::decode(bytes);
    driver::Driver::run(&setup, &operations);
}
