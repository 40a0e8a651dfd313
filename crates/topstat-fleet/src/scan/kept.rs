// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is kept of a host's snapshots while files are read.

use topstat_model::Reach;

use crate::bounds::{HostMean, HostSums, HostTop};

/// What a row belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meets {
    /// The snapshot of the row before.
    Same,
    /// A snapshot that counts: this is its first row.
    Next,
    /// A snapshot that does not count.
    Other,
}

/// What is kept of a host. The rows of a snapshot are next to each other in a file.
pub trait Kept: Default {
    /// The result.
    type Host;

    /// Whether several snapshots of a host count.
    const OF_SEVERAL: bool;

    /// Begins a row of the snapshot of this time, in µs since 1970, in this file.
    fn meet(&mut self, time: i64, file: usize, reach: Reach) -> Meets;

    /// The present snapshot.
    fn snapshot(&mut self) -> &mut HostTop;

    /// The result; `None` if no snapshot counts.
    fn finish(self, reach: Reach) -> Option<Self::Host>;
}

/// The last snapshot.
#[derive(Default)]
pub struct Last {
    /// `None`: no snapshot yet.
    time: Option<i64>,
    file: usize,
    top: HostTop,
}

impl From<HostTop> for Last {
    fn from(top: HostTop) -> Self {
        Self { time: Some(0), file: 0, top }
    }
}

impl Kept for Last {
    type Host = HostTop;

    const OF_SEVERAL: bool = false;

    fn meet(&mut self, time: i64, file: usize, _: Reach) -> Meets {
        match self.time {
            // An older snapshot, or one that another file has, too.
            Some(before) if time < before || (time == before && self.file != file) => Meets::Other,
            Some(before) if time == before => Meets::Same,
            _ => {
                (self.time, self.file) = (Some(time), file);
                Meets::Next
            }
        }
    }

    fn snapshot(&mut self) -> &mut HostTop {
        &mut self.top
    }

    fn finish(self, _: Reach) -> Option<HostTop> {
        self.time.map(|_| self.top)
    }
}

/// The mean of all snapshots.
#[derive(Default)]
pub struct Mean {
    /// The times of the snapshots that count, in order.
    times: Vec<i64>,
    /// The time and the file of the present snapshot, which is not in the sums yet.
    present: Option<(i64, usize)>,
    top: HostTop,
    sums: HostSums,
}

impl Kept for Mean {
    type Host = HostMean;

    const OF_SEVERAL: bool = true;

    fn meet(&mut self, time: i64, file: usize, reach: Reach) -> Meets {
        if self.present == Some((time, file)) {
            return Meets::Same;
        }
        // Files are read in the order of time, mostly.
        match self.times.last() {
            Some(last) if time <= *last => match self.times.binary_search(&time) {
                Ok(_) => return Meets::Other,
                Err(place) => self.times.insert(place, time),
            },
            _ => self.times.push(time),
        }
        if self.present.replace((time, file)).is_some() {
            self.sums.add(&self.top, reach);
        }
        Meets::Next
    }

    fn snapshot(&mut self) -> &mut HostTop {
        &mut self.top
    }

    fn finish(mut self, reach: Reach) -> Option<HostMean> {
        if self.present.is_some() {
            self.sums.add(&self.top, reach);
        }
        self.sums.mean()
    }
}
