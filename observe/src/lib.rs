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

unsafe extern "C" {
    fn container_of_path(path: *const c_char, length: u32, at: *mut u32) -> i32;
}

/// The container that a cgroup's path belongs to, by the rule of the kernel module.
///
/// # Panics
/// The rule returns a place outside the path.
pub fn container(path: &str) -> Option<&str> {
    let mut at = 0;
    let length = u32::try_from(path.len()).expect("a path is short");
    // SAFETY: the function reads `length` bytes of the path, and writes one number.
    let length = usize::try_from(unsafe { container_of_path(path.as_ptr().cast(), length, &raw mut at) }).ok()?;
    let at = usize::try_from(at).expect("it is in the path");
    Some(&path[at..][..length])
}
