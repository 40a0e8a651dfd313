// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sums of counters that each CPU has for itself.

use crate::abi;

/// Adds a CPU's counters to the sums, modulo 2⁶⁴ (FO1 in `fold.h`). The shorter of the two slices sets the number of items.
pub fn fold(sums: &mut [u64], counters: &[u64]) {
    let items = sums.len().min(counters.len());
    // SAFETY: both have at least `items` items, and a mutably borrowed slice overlaps no other.
    unsafe { abi::topstat_fold(sums.as_mut_ptr(), counters.as_ptr(), items as u64) }
}
