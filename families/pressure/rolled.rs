// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sums of growing counters over subtrees. A sum does not shrink when a group of the subtree is removed.

use std::collections::HashMap;

/// The sums of one table.
#[derive(Debug, Default)]
pub struct Rolled {
    /// By group: its counter in the last reading.
    last: HashMap<u64, u64>,
    /// By group that others count to: the growth of all of them since it was first read.
    sums: HashMap<u64, u64>,
}

impl Rolled {
    /// The sums after a reading: groups with their counters, and the groups that they count to. Groups that nothing counts to any
    /// more have no sum.
    pub fn take(&mut self, counters: impl Iterator<Item = (u64, u64, u64)>) -> &HashMap<u64, u64> {
        let mut seen = HashMap::new();
        let mut sums = HashMap::new();
        for (id, above, counter) in counters {
            let growth = counter.saturating_sub(self.last.get(&id).copied().unwrap_or(0));
            let before = self.sums.get(&above).copied().unwrap_or(0);
            *sums.entry(above).or_insert(before) += growth;
            seen.insert(id, counter);
        }
        (self.last, self.sums) = (seen, sums);
        &self.sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_keeps_the_counts_of_removed_groups() {
        let mut rolled = Rolled::default();
        let sums = |rolled: &mut Rolled, groups: &[(u64, u64, u64)]| {
            let mut sums: Vec<_> = rolled.take(groups.iter().copied()).iter().map(|(id, sum)| (*id, *sum)).collect();
            sums.sort_unstable();
            sums
        };
        assert_eq!(sums(&mut rolled, &[(1, 1, 0), (2, 1, 100), (3, 1, 7), (9, 9, 5)]), [(1, 107), (9, 5)]);
        assert_eq!(sums(&mut rolled, &[(1, 1, 2), (3, 1, 10), (4, 1, 50), (9, 9, 5)]), [(1, 162), (9, 5)]);
        // A counter that stands lower has grown by nothing.
        assert_eq!(sums(&mut rolled, &[(1, 1, 1), (4, 1, 51)]), [(1, 163)]);
    }
}
