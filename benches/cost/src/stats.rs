// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Medians and their spread.

/// The results of several rounds.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

/// The median, the minimum and the maximum. NaN if there are no rounds.
pub fn spread(rounds: &[f64]) -> Spread {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |i: usize| sorted.get(i).copied().unwrap_or(f64::NAN);
    let middle = sorted.len() / 2;
    let median =
        if sorted.len().is_multiple_of(2) { (at(middle.wrapping_sub(1)) + at(middle)) / 2.0 } else { at(middle) };
    Spread { median, low: at(0), high: at(sorted.len().wrapping_sub(1)) }
}
