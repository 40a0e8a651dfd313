// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What others than its consumer see of a stream.

use crate::consumer::{Account, account};
use crate::error::Error;
use crate::freed::Freed;
use crate::maps::Words;
use crate::ring::Ring;

/// Looks at a stream, and changes nothing.
pub struct Watch {
    ring: Ring,
    counts: Words,
    control: Words,
}

impl Watch {
    pub(crate) fn new(ring: Ring, counts: Words, control: Words) -> Self {
        Self { ring, counts, control }
    }

    /// How many bytes producers have ever put into the ring. An event that is not among them has a time that is not before
    /// a clock which was read before this: it takes its time when it has its space.
    pub fn produced(&self) -> u64 {
        self.ring.produced()
    }

    /// What became of all events so far. It adds up at any time: what is under way is never negative.
    ///
    /// # Errors
    /// Somebody else than a consumer of ours has freed records, so that nobody knows how many were delivered.
    pub fn account(&self) -> Result<Account, Error> {
        let delivered = Freed::watch(&self.control, || self.ring.consumed())?;
        Ok(account(&self.counts, delivered))
    }
}
