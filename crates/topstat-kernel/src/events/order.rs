// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Merges the events of all CPUs and sources into one order, by time.
//!
//! - EO1 A source announces the time until which it has sent all its events: each event that it sends afterwards is later. An
//!   event is given on once all sources have announced its time. So the order is exact while no source is held up.
//! - EO2 No event waits longer than the bound, and waiting events take no more bytes than there is room for. Beyond either limit
//!   the earliest events go on, although another source might still send earlier ones.
//! - EO3 An event that arrives after a later one was given on is *late*: it is given on at once, is marked, and is counted for its
//!   source.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An item that waits to be given on.
struct Waiting<T> {
    key: Key,
    bytes: usize,
    since_ns: u64,
    item: T,
}

/// Compares times first. Events of one CPU with equal times stay in the order of arrival.
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

/// Events that are being put into one order.
pub struct Order<T> {
    /// The time until which each source has sent all events, by the events' clock.
    told_ns: Vec<u64>,
    late: Vec<u64>,
    waiting: BinaryHeap<Reverse<Waiting<T>>>,
    bytes: usize,
    number: u64,
    /// The time of the latest event that was given on.
    given_ns: u64,
    bound_ns: u64,
    most_bytes: usize,
}

impl<T> Order<T> {
    /// An order of the events of this many sources. No event waits longer than `bound_ns`, and waiting events take at most
    /// `most_bytes`.
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

    /// Adds an event of this time and size, which arrives at `now_ns`.
    pub fn put(&mut self, time_ns: u64, bytes: usize, now_ns: u64, item: T) {
        let key = Key { time_ns, number: self.number };
        self.number += 1;
        self.bytes += bytes;
        self.waiting.push(Reverse(Waiting { key, bytes, since_ns: now_ns, item }));
    }

    /// The source has sent all events until this time.
    pub fn told(&mut self, source: usize, until_ns: u64) {
        self.told_ns[source] = self.told_ns[source].max(until_ns);
    }

    /// The next event, and whether it is late; `None`: no event is ready to be given on.
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

    /// The number of late events of a source.
    pub fn late(&self, source: usize) -> u64 {
        self.late[source]
    }

    /// Whether no event waits.
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
        /// Each source sends its events up to a time in order, then announces that time: the events are given on in order, none
        /// is late, and in the end all were given on.
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

        /// In any order of arrival, each event is given on once, and is late exactly if a later one was given on before.
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
