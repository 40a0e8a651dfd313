// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sums of counters of CPUs, compared with sums item by item in numbers that can't overflow.

use proptest::prelude::*;
use topstat_engine::fold;

/// Counters of some CPUs, equally many for each. Some are close to overflow.
fn cpus() -> impl Strategy<Value = Vec<Vec<u64>>> {
    let counter = prop_oneof![0..100_u64, any::<u64>(), Just(u64::MAX)];
    (0..100_usize, 0..20_usize)
        .prop_flat_map(move |(items, cpus)| prop::collection::vec(prop::collection::vec(counter.clone(), items), cpus))
}

proptest! {
    #![proptest_config(crate::cases(500))]

    /// FO1, for every order of the CPUs.
    #[test]
    fn a_sum_is_that_of_all_cpus(cpus in cpus(), backwards: bool) {
        let items = cpus.first().map_or(0, Vec::len);
        let mut sums = vec![0; items];
        let mut order: Vec<_> = cpus.iter().collect();
        if backwards {
            order.reverse();
        }
        for counters in order {
            fold(&mut sums, counters);
        }
        for (item, sum) in sums.iter().enumerate() {
            let exact: u128 = cpus.iter().map(|counters| u128::from(counters[item])).sum();
            prop_assert_eq!(u128::from(*sum), exact % (1 << 64));
        }
    }

    /// Items that only one of both slices has are unchanged.
    #[test]
    fn no_more_is_added_than_there_is(counters in 0..50_usize, sums in 0..50_usize) {
        let mut all = vec![7; sums];
        fold(&mut all, &vec![1; counters]);
        let both = counters.min(sums);
        prop_assert!(all[..both].iter().all(|sum| *sum == 8) && all[both..].iter().all(|sum| *sum == 7));
    }
}
