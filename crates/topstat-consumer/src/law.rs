// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control law decides when to look into the ring buffer again. It gets positions and times, and has no effects, so a
//! simulation can drive it as well as the kernel.
//!
//! It measures the rate at which the ring is filled, and sleeps until the ring reaches its target fill. Where the rate
//! has grown, and the prediction is wrong, producers wake the consumer at a second fill above the target. These invariants hold
//! (`tests/law` tests them with a simulated producer):
//!
//! - L1 While records are unread, it never sleeps past the moment at which the ring is full at the measured rate. Where the
//!   scheduler has lately woken it late, it wakes earlier than that moment by as much. But it sleeps for at least
//!   one part in [`LEAST_SHARE`] of the time to the target, since a consumer that only spins has to wait all the more.
//! - L2 At a steady rate it wakes up about once for each target fill, and where the scheduler is late at most [`LEAST_SHARE`]
//!   times. It never sleeps for less than [`SHORTEST_NS`], unless the ring is full within that time.
//! - L3 It sleeps at most [`LONGEST_NS`] while events come, so that no event waits longer. When no event has come for
//!   [`LONGEST_NS`], it sleeps until the first event wakes it.

/// Shorter sleeps cost more CPU time than they save: a sleep takes about 5 µs of it.
pub const SHORTEST_NS: u64 = 50_000;
/// No event waits longer. People perceive a delay of up to about 50 ms as immediate.
pub const LONGEST_NS: u64 = 30_000_000;
/// The interval at which an idle consumer checks whether it has to stop; events wake it. Five checks a second cost 0.01% of a
/// CPU.
pub const IDLE_NS: u64 = 200_000_000;
/// However late the scheduler has been, a sleep lasts at least one part in this many of the time to the target.
pub const LEAST_SHARE: u64 = 4;
/// At each sleep, one part in this many of the lateness that was seen is forgotten.
const FORGET_LATENESS: u64 = 16;
/// The share of a fall of the rate that is believed at first: after a pause as long as a sleep, the next sleep still ends before
/// a producer has to end it.
const BELIEVE_FALL: f64 = 1.0 / 8.0;
/// At each measurement, one part in this many of the greatest rate is forgotten: bursts within some hundred sleeps are met like
/// the last one.
const FORGET_PEAK: f64 = 256.0;

/// Fills of the ring, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fills {
    /// The size of the ring.
    pub full: u64,
    /// Where sleeps end.
    pub target: u64,
    /// Where producers wake the consumer, above the target.
    pub wake: u64,
}

/// The state that the consumer sees when it has read all records, or can't go on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// The time, by any clock that does not go back.
    pub now_ns: u64,
    /// Bytes that producers would ever have put into the ring if no payload had been cut. The rate of cut records does not tell
    /// how fast the ring fills until payloads are cut.
    pub position: u64,
    /// Bytes in the ring that are not freed.
    pub unread: u64,
    /// Whether anything was read since the last decision.
    pub progress: bool,
    /// Whether a producer had to wake the consumer.
    pub rung: bool,
    /// The time by which the last sleep was longer than planned.
    pub late_ns: u64,
}

/// What wakes the consumer before its sleep is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Nothing does.
    Nobody,
    /// The kernel, at each event that finds the consumer waiting.
    Each,
    /// The producer that brings the ring to this many unread bytes.
    At(u64),
}

/// A decision of the law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Read on: there is no time to sleep.
    Drain,
    /// Sleep, unless an event wakes the consumer.
    Sleep {
        /// The length of the sleep.
        ns: u64,
        /// What may wake the consumer earlier.
        wake: Wake,
    },
}

/// The law, with its state.
#[derive(Clone, Debug)]
pub struct Law {
    fills: Fills,
    /// Bytes per ns.
    rate: f64,
    /// The share of the last fall that was believed.
    believe: f64,
    /// The greatest recent rate.
    peak: f64,
    /// The time and the position of the last measurement.
    since: Option<(u64, u64)>,
    late_ns: u64,
    /// The planned length of the last sleep.
    slept_ns: u64,
    /// The producers' position at the last decision.
    position: Option<u64>,
}

impl Law {
    /// A law that has seen nothing yet.
    pub fn new(fills: Fills) -> Self {
        Self {
            fills,
            rate: 0.0,
            believe: BELIEVE_FALL / 2.0,
            peak: 0.0,
            since: None,
            late_ns: 0,
            slept_ns: 0,
            position: None,
        }
    }

    /// The measured rate, in bytes per ns.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Makes the next decision.
    pub fn next(&mut self, seen: &Seen) -> Next {
        let next = self.decide(seen);
        self.position = Some(seen.position);
        self.slept_ns = match next {
            Next::Drain => 0,
            Next::Sleep { ns, .. } => ns,
        };
        next
    }

    fn decide(&mut self, seen: &Seen) -> Next {
        let nothing_came = self.position == Some(seen.position);
        self.late_ns = seen.late_ns.max(self.late_ns - self.late_ns / FORGET_LATENESS);
        self.measure(seen);
        if !seen.progress && seen.unread > 0 {
            // A producer was interrupted amid its record, and the records behind it have to wait.
            return Next::Sleep { ns: SHORTEST_NS, wake: Wake::Nobody };
        }
        if nothing_came && self.slept_ns >= LONGEST_NS {
            // The time until the first event comes says nothing about the rate of the following ones.
            (self.since, self.rate) = (None, 0.0);
            return Next::Sleep { ns: IDLE_NS, wake: Wake::At(1) };
        }
        match self.sleep_ns(seen.unread) {
            ns if ns < SHORTEST_NS => Next::Drain,
            ns => Next::Sleep { ns, wake: Wake::At(self.fills.wake) },
        }
    }

    /// A rate that has grown counts at once. A rate that has fallen is believed gradually, each time twice as much, so that a
    /// short pause makes no difference, and a long one costs few sleeps. A consumer that was woken by a producer is in a burst,
    /// and takes it to be like the last one: the measured time includes time before the burst.
    fn measure(&mut self, seen: &Seen) {
        let Some((then, position)) = self.since else {
            self.since = Some((seen.now_ns, seen.position));
            return;
        };
        let ns = seen.now_ns.saturating_sub(then);
        // In a shorter time, one record more or less would determine the rate.
        if ns < SHORTEST_NS {
            return;
        }
        let now = (seen.position - position) as f64 / ns as f64;
        self.believe = if now < self.rate { (self.believe * 2.0).min(1.0) } else { BELIEVE_FALL / 2.0 };
        self.rate = now.max(self.rate + (now - self.rate) * self.believe);
        if seen.rung {
            self.rate = self.rate.max(self.peak);
        }
        self.peak = self.rate.max(self.peak - self.peak / FORGET_PEAK);
        self.since = Some((seen.now_ns, seen.position));
    }

    /// The time until the ring has its target fill (L1, L2).
    fn sleep_ns(&self, unread: u64) -> u64 {
        let until = |fill: u64| match self.rate > 0.0 {
            // Beyond the longest sleep the exact time makes no difference.
            true => (fill.saturating_sub(unread) as f64 / self.rate).min(IDLE_NS as f64) as u64,
            false => IDLE_NS,
        };
        let to_target = until(self.fills.target);
        let in_time = until(self.fills.full).saturating_sub(self.late_ns);
        to_target.min(in_time).max(to_target / LEAST_SHARE).min(LONGEST_NS)
    }
}
