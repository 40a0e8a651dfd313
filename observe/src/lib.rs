// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The logic of families, which is C, on the host of tests (`host_user.h`): each test makes random choices, and compares the
//! results with a model that keeps every event.

use std::ffi::{CStr, c_char};

type Test = unsafe extern "C" fn(u64, *mut c_char, usize) -> i32;

include!(concat!(env!("OUT_DIR"), "/tests.rs"));

/// The names of the tests: families, by the names of their folders, and parts of `observe/`.
pub fn names() -> impl Iterator<Item = &'static str> {
    TESTS.iter().map(|(name, _)| *name)
}

/// Runs a test with the choices that follow from the seed.
///
/// # Errors
/// The result found, and the result expected.
pub fn run(name: &str, seed: u64) -> Result<(), String> {
    let (_, test) = TESTS.iter().find(|(n, _)| *n == name).ok_or_else(|| format!("there is no test {name}"))?;
    let mut why = [0_u8; 512];
    // SAFETY: the test writes a string of at most `why.len()` bytes to `why`, and uses no memory but its own.
    if unsafe { test(seed, why.as_mut_ptr().cast(), why.len()) } == 0 {
        return Ok(());
    }
    let why = CStr::from_bytes_until_nul(&why).map_or_else(|_| "?".into(), CStr::to_string_lossy);
    Err(format!("{name}, seed {seed}: {why}"))
}
