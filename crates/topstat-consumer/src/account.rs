// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The account of a stream: how many of its events were delivered, cut and dropped.

use std::mem::{offset_of, size_of};
use std::sync::atomic::Ordering;

use crate::abi::stream_count;
use crate::maps::Words;

/// The account of all events of a stream since it was loaded, over all CPUs and consumers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Number of events.
    pub produced: u64,
    /// Number of delivered events.
    pub delivered: u64,
    /// Number of events whose payload was cut, since the ring was nearly full.
    pub cut: u64,
    /// Number of events that found no space.
    pub dropped: u64,
}

impl Account {
    /// Number of events under way: in the ring, or just being made.
    pub fn under_way(&self) -> u64 {
        self.produced - self.delivered - self.dropped
    }
}

/// The account of all events. `delivered` is the number of deliveries at the time of this call.
pub(crate) fn account(counts: &Words, delivered: u64) -> Account {
    let sum = |offset: usize| -> u64 {
        let cpus = (0..counts.bytes()).step_by(size_of::<stream_count>());
        // Acquire: the next count is read after this one (E1).
        cpus.map(|cpu| counts.at(cpu + offset).load(Ordering::Acquire)).sum()
    };
    let dropped = sum(offset_of!(stream_count, dropped));
    let cut = sum(offset_of!(stream_count, cut));
    Account { produced: sum(offset_of!(stream_count, produced)), delivered, cut, dropped }
}
