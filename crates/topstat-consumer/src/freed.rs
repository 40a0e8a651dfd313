// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts delivered records exactly, whenever the consumer is killed (E5). The ring buffer keeps the consumer's position in one
//! word; the number of records up to it is another word. Both can't be written at once. So the count is written first, with the
//! position that it is for, into the one of two entries that is not for the present position. It counts from the moment at which
//! the ring has that position.

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use crate::abi::{stream_control, stream_freed};
use crate::error::Error;
use crate::maps::Words;

/// The most attempts to find a count while the consumer goes on.
const MOST_TRIES: u32 = 10_000;

/// The number of records that were delivered up to the present position.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Freed {
    /// The entry for the present position.
    entry: usize,
    delivered: u64,
}

impl Freed {
    /// The count of the previous consumer, whose position is `at`.
    pub(crate) fn resume(control: &Words, at: u64) -> Result<Self, Error> {
        for entry in 0..2 {
            let (position, delivered) = offsets(entry);
            if control.at(position).load(Ordering::Acquire) == at {
                return Ok(Self { entry, delivered: control.at(delivered).load(Ordering::Acquire) });
            }
        }
        Err(Error::Foreign { position: at })
    }

    /// The number of delivered records, for readers other than the consumer. `position` reads the ring's position. The
    /// consumer goes on at the same time, so the count may have to be looked for again.
    pub(crate) fn watch(control: &Words, position: impl Fn() -> u64) -> Result<u64, Error> {
        let mut found = Self::resume(control, position());
        // Each try takes less time than a record. A consumer may lose its CPU for long amid a record, but it stands still then.
        for _ in 0..MOST_TRIES {
            if let Ok(found) = found {
                return Ok(found.delivered);
            }
            std::thread::yield_now();
            found = Self::resume(control, position());
        }
        found.map(|found| found.delivered)
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Called before the ring's position becomes `next`, which delivers this many more records.
    pub(crate) fn announce(&mut self, control: &Words, next: u64, records: u64) {
        self.delivered += records;
        self.entry ^= 1;
        for (offset, value) in self.stores(next) {
            control.at(offset).store(value, Ordering::Release);
        }
    }

    /// The offsets and values to store, in this order: until the second store is done, the entry is for an earlier position.
    fn stores(&self, next: u64) -> [(usize, u64); 2] {
        let (position, delivered) = offsets(self.entry);
        [(delivered, self.delivered), (position, next)]
    }
}

/// The offsets of an entry's position and of its count.
fn offsets(entry: usize) -> (usize, usize) {
    let begin = offset_of!(stream_control, freed) + entry * size_of::<stream_freed>();
    (begin + offset_of!(stream_freed, position), begin + offset_of!(stream_freed, delivered))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A consumer that is killed after any of its stores is followed by one that knows the number of delivered records.
    #[test]
    fn a_consumer_may_be_killed_after_any_store() {
        for killed_after in 0..=3 {
            let control = Words::of_zeroes(size_of::<stream_control>());
            let (mut ring, mut delivered) = (0, 0);
            for (bytes, records) in [(120, 1), (16, 0), (1064, 1), (120, 1), (120, 1)] {
                // Three killed consumers: the next one delivers their record again each time.
                for _ in 0..3 {
                    let mut killed = Freed::resume(&control, ring).expect("an entry");
                    assert_eq!(killed.delivered(), delivered, "killed after {killed_after} stores");
                    let next = ring + bytes;
                    killed.delivered += records;
                    killed.entry ^= 1;
                    for (offset, value) in killed.stores(next).into_iter().take(killed_after) {
                        control.at(offset).store(value, Ordering::Relaxed);
                    }
                    if killed_after == 3 {
                        // The third store is the store to the ring's position.
                        (ring, delivered) = (next, delivered + records);
                    }
                }
                let mut consumer = Freed::resume(&control, ring).expect("an entry");
                assert_eq!(consumer.delivered(), delivered, "killed after {killed_after} stores");
                consumer.announce(&control, ring + bytes, records);
                (ring, delivered) = (ring + bytes, delivered + records);
                assert_eq!(Freed::resume(&control, ring).expect("an entry"), consumer);
            }
        }
    }

    #[test]
    fn a_position_of_somebody_else_is_refused() {
        let control = Words::of_zeroes(size_of::<stream_control>());
        Freed::resume(&control, 0).expect("nobody was there").announce(&control, 120, 1);
        let refused = Freed::resume(&control, 240).expect_err("nobody knows how many those were");
        assert!(matches!(refused, Error::Foreign { position: 240 }), "{refused}");
    }
}
