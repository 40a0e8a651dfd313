// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes are operations on an engine, which is compared with the model after each. The same
//! as the tests of `engine/tests/properties/bytes.rs`, which run without a fuzzer.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/properties/driver.rs"]
mod driver;
#[path = "../../tests/properties/model.rs"]
mod model;
#[path = "../../tests/properties/ops.rs"]
mod ops;

fuzz_target!(|bytes: &[u8]| {
    let (setup, operations) = ops::decode(bytes);
    driver::Driver::run(&setup, &operations);
});
