// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Adding up counters that each CPU has for itself.

use crate::abi;

/// Adds a CPU's counters to the sums, modulo 2⁶⁴ (F1 in `fold.h`): to as many as both have.
pub fn fold(sums: &mut [u64], counters: &[u64]) {
    let items = sums.len().min(counters.len());
    // SAFETY: both have so many items, and a slice that is borrowed mutably overlaps no other.
    unsafe { abi::topstat_fold(sums.as_mut_ptr(), counters.as_ptr(), items as u64) }
}
