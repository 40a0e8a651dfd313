// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The input is the definition of a table. Either it is valid, within all limits, and its normalised text stands for an
//! equal definition; or its fault has a place in the text.

use crate::promises;

/// Runs the target: see the module.
pub fn run(bytes: &[u8]) {
    // The parser does not get input that is not text.
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let parsed = promises::check(text);
    // White space around a definition changes only places.
    let spaced = promises::check(&format!("\n {text}\t"));
    match (parsed, spaced) {
        (Ok(first), Ok(second)) => {
            assert_eq!(first.text, second.text);
            assert_eq!(promises::without_places(&first), promises::without_places(&second));
        }
        (Err(_), Err(_)) => {}
        (first, second) => panic!("white space decides: {first:?}, {second:?}"),
    }
}
