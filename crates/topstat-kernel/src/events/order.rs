// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Brings events of all CPUs and sources into one order, that of their times.
//!
//! - O1 A source says until when it has told all: whatever it tells later is later than that. An event is given on once all
//!   sources have said so of its time. So the order is exact, for as long as no source is held up.
//! - O2 No event waits for longer than the bound, and no more bytes wait than there is room for: then the earliest go on
//!   although another source might tell of earlier ones.
//! - O3 An event that comes when a later one was given on is *late*: it is given on at once, is marked, and is counted for
//!   its source.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What waits to be given on.
struct Waiting<T> {
    key: Key,
    bytes: usize,
    since_ns: u64,
    item: T,
}

/// Times first. Events of one CPU that have the same time stay as they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    time_ns: u64,
    number: u64,
}

impl<T> PartialEq for Waiting<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<T> Eq for Waiting<T> {}

impl<T> PartialOrd for Waiting<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Waiting<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// Events on their way into one order.
pub struct Order<T> {
    /// Until when each source has told all, by the events' clock.
    told_ns: Vec<u64>,
    late: Vec<u64>,
    waiting: BinaryHeap<Reverse<Waiting<T>>>,
    bytes: usize,
    number: u64,
    /// The time of the latest that was given on.
    given_ns: u64,
    bound_ns: u64,
    most_bytes: usize,
}

impl<T> Order<T> {
    /// Of so many sources. No event waits for longer than the bound, and of all that wait there are at most so many bytes.
    pub fn new(sources: usize, bound_ns: u64, most_bytes: usize) -> Self {
        Self {
            told_ns: vec![0; sources],
            late: vec![0; sources],
            waiting: BinaryHeap::new(),
            bytes: 0,
            number: 0,
            given_ns: 0,
            bound_ns,
            most_bytes,
        }
    }

    /// An event of this time and size comes, now.
    pub fn put(&mut self, time_ns: u64, bytes: usize, now_ns: u64, item: T) {
        let key = Key { time_ns, number: self.number };
        self.number += 1;
        self.bytes += bytes;
        self.waiting.push(Reverse(Waiting { key, bytes, since_ns: now_ns, item }));
    }

    /// The source has told all until this time.
    pub fn told(&mut self, source: usize, until_ns: u64) {
        self.told_ns[source] = self.told_ns[source].max(until_ns);
    }

    /// The next one, and whether it is late; `None`: those that wait have to wait.
    pub fn next(&mut self, now_ns: u64, source: impl Fn(&T) -> usize) -> Option<(T, bool)> {
        let told_ns = self.told_ns.iter().copied().min().unwrap_or(u64::MAX);
        let Reverse(first) = self.waiting.peek()?;
        let waits = first.key.time_ns > told_ns
            && now_ns.saturating_sub(first.since_ns) < self.bound_ns
            && self.bytes <= self.most_bytes;
        if waits {
            return None;
        }
        let Reverse(Waiting { key, bytes, item, .. }) = self.waiting.pop()?;
        self.bytes -= bytes;
        let late = key.time_ns < self.given_ns;
        self.late[source(&item)] += u64::from(late);
        self.given_ns = self.given_ns.max(key.time_ns);
        Some((item, late))
    }

    /// How many of a source were late.
    pub fn late(&self, source: usize) -> u64 {
        self.late[source]
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOUND_NS: u64 = 1000;

    fn all(order: &mut Order<(usize, u64)>, now_ns: u64) -> Vec<(u64, bool)> {
        std::iter::from_fn(|| order.next(now_ns, |item| item.0)).map(|((_, time), late)| (time, late)).collect()
    }

    #[test]
    fn it_waits_until_all_have_told() {
        let mut order = Order::new(2, BOUND_NS, 100);
        order.put(10, 1, 20, (0, 10));
        order.put(30, 1, 40, (0, 30));
        order.told(0, 40);
        assert_eq!(all(&mut order, 41), []);
        order.put(5, 1, 42, (1, 5));
        order.told(1, 29);
        assert_eq!(all(&mut order, 43), [(5, false), (10, false)]);
        order.told(1, 30);
        assert_eq!(all(&mut order, 44), [(30, false)]);
        assert!(order.is_empty());
    }

    #[test]
    fn none_waits_for_longer_than_the_bound() {
        let mut order = Order::new(2, BOUND_NS, 100);
        order.put(10, 1, 20, (0, 10));
        assert_eq!(all(&mut order, 20 + BOUND_NS - 1), []);
        assert_eq!(all(&mut order, 20 + BOUND_NS), [(10, false)]);
        order.put(9, 1, 2000, (1, 9));
        order.told(0, 2000);
        order.told(1, 2000);
        assert_eq!(all(&mut order, 2000), [(9, true)]);
        assert_eq!((order.late(0), order.late(1)), (0, 1));
    }

    #[test]
    fn no_more_wait_than_there_is_room_for() {
        let mut order = Order::new(1, BOUND_NS, 100);
        for time in [30, 10, 20] {
            order.put(time, 50, 40, (0, time));
        }
        assert_eq!(all(&mut order, 40), [(10, false)]);
    }

    proptest! {
        /// Each source tells what it has in order, up to a time, and says so: whatever is given on is in order, none is
        /// late, and in the end all are there.
        #[test]
        fn what_is_told_in_time_is_in_order(steps in prop::collection::vec((0..3_usize, prop::collection::vec(1..50_u64, 0..5)), 0..60)) {
            let mut order = Order::new(3, u64::MAX, usize::MAX);
            let (mut now, mut clock, mut put, mut given) = (0, [0_u64; 3], 0, Vec::new());
            for (source, gaps) in steps {
                for gap in gaps {
                    clock[source] += gap;
                    order.put(clock[source], 1, now, (source, clock[source]));
                    put += 1;
                }
                order.told(source, clock[source]);
                now += 1;
                given.extend(all(&mut order, now));
            }
            (0..3).for_each(|source| order.told(source, u64::MAX));
            given.extend(all(&mut order, now));
            prop_assert_eq!(given.len(), put);
            prop_assert!(given.is_sorted_by_key(|(time, _)| *time), "{:?}", given);
            prop_assert!(given.iter().all(|(_, late)| !late));
        }

        /// However it comes: each is given on once, and is late exactly if a later one was given on before.
        #[test]
        fn each_is_given_on_once_and_late_ones_are_counted(times in prop::collection::vec((0..1000_u64, 0..5_u64), 0..100)) {
            let mut order = Order::new(1, 3, 4);
            let (mut now, mut given) = (0, Vec::new());
            for (time, pause) in &times {
                now += pause;
                order.put(*time, 1, now, (0, *time));
                given.extend(all(&mut order, now));
            }
            order.told(0, u64::MAX);
            given.extend(all(&mut order, now));
            let mut latest = 0;
            for (time, late) in &given {
                prop_assert_eq!(*late, *time < latest);
                latest = latest.max(*time);
            }
            prop_assert_eq!(order.late(0), given.iter().filter(|(_, late)| *late).count() as u64);
            let mut sorted: Vec<_> = given.into_iter().map(|(time, _)| time).collect();
            let mut put: Vec<_> = times.into_iter().map(|(time, _)| time).collect();
            sorted.sort_unstable();
            put.sort_unstable();
            prop_assert_eq!(sorted, put);
        }
    }
}
