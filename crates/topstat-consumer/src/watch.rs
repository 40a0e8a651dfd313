// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A view of a stream for readers other than its consumer.

use crate::account::{Account, account};
use crate::error::Error;
use crate::freed::Freed;
use crate::maps::Words;
use crate::ring::Ring;

/// Reads the state of a stream, and changes nothing.
pub struct Watch {
    ring: Ring,
    counts: Words,
    control: Words,
}

impl Watch {
    pub(crate) fn new(ring: Ring, counts: Words, control: Words) -> Self {
        Self { ring, counts, control }
    }

    /// Bytes that producers have ever put into the ring. An event that is not among them is not earlier than a clock that was
    /// read before this call: an event takes its time after it has its space.
    pub fn produced(&self) -> u64 {
        self.ring.produced()
    }

    /// The account of all events so far. It adds up at any time: the number of events under way is never negative.
    ///
    /// # Errors
    /// A process that is no consumer of this crate has freed records, so that the number of delivered records is unknown.
    pub fn account(&self) -> Result<Account, Error> {
        let delivered = Freed::watch(&self.control, || self.ring.consumed())?;
        Ok(account(&self.counts, delivered))
    }
}
