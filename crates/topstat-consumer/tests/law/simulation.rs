// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A simulated producer, ring buffer and scheduler. Bytes flow evenly within a piece of the load. Time passes from one event to
//! the next: a timer, a fill that is reached, the end of a piece.

use topstat_consumer::law::{Fills, Next, Seen, Wake};

/// A piece of a load: `rate` bytes per µs, for `ns`.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    pub rate: u64,
    pub ns: u64,
}

/// The machine that the consumer runs on.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Bytes per µs that the consumer takes out.
    pub drains: u64,
    /// The time from the end of a sleep until the consumer is awake.
    pub latency_ns: u64,
    /// Moments at which the consumer loses its CPU, and for how long.
    pub descheduled: Vec<(u64, u64)>,
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub ns: u64,
    pub produced: f64,
    pub dropped: f64,
    pub sleeps: u64,
    /// Decisions not to sleep.
    pub spins: u64,
    /// Wake-ups by producers.
    pub rung: u64,
    /// The longest wait of any byte.
    pub waited_ns: u64,
    /// Decisions to sleep: unread bytes, measured rate, lateness as the law has seen it, length of the sleep.
    pub decisions: Vec<(f64, f64, u64, u64)>,
}

pub struct Simulation {
    fills: Fills,
    load: Vec<Piece>,
    machine: Machine,
    now: u64,
    produced: f64,
    unread: f64,
    dropped: f64,
    /// When the oldest unread byte came.
    oldest: Option<u64>,
    waited_ns: u64,
}

/// The time of a decision, and of the kernel's work for a sleep.
const OVERHEAD_NS: u64 = 2_000;

impl Simulation {
    pub fn new(fills: Fills, load: &[Piece], machine: &Machine) -> Self {
        Self {
            fills,
            load: load.to_vec(),
            machine: machine.clone(),
            now: 0,
            produced: 0.0,
            unread: 0.0,
            dropped: 0.0,
            oldest: None,
            waited_ns: 0,
        }
    }

    fn end(&self) -> u64 {
        self.load.iter().map(|piece| piece.ns).sum()
    }

    /// The present rate, in bytes per ns, and the time at which it ends.
    fn piece(&self) -> (f64, u64) {
        let mut end = 0;
        for piece in &self.load {
            end += piece.ns;
            if self.now < end {
                return (piece.rate as f64 / 1000.0, end);
            }
        }
        (0.0, u64::MAX)
    }

    /// Advances time to `until`, or until `stop_at` bytes are unread. Returns whether they are.
    fn pass(&mut self, until: u64, drains: f64, stop_at: Option<f64>) -> bool {
        while self.now < until {
            if stop_at.is_some_and(|bytes| self.unread >= bytes) {
                return true;
            }
            let (rate, end) = self.piece();
            let mut next = end.min(until);
            let net = rate - drains;
            if let Some(bytes) = stop_at.filter(|_| net > 0.0) {
                next = next.min(self.now + ((bytes - self.unread) / net).ceil().max(1.0) as u64);
            }
            let ns = (next - self.now) as f64;
            if rate > 0.0 && self.oldest.is_none() {
                self.oldest = Some(self.now);
            }
            self.produced += rate * ns;
            let filled = self.unread + net * ns;
            self.dropped += (filled - self.fills.full as f64).max(0.0);
            self.unread = filled.clamp(0.0, self.fills.full as f64);
            self.now = next;
        }
        stop_at.is_some_and(|bytes| self.unread >= bytes)
    }

    /// Waits while another thread has the CPU.
    fn be_scheduled(&mut self) {
        while let Some((_, end)) = self
            .machine
            .descheduled
            .iter()
            .map(|(from, ns)| (*from, from + ns))
            .find(|(from, end)| (*from..*end).contains(&self.now))
        {
            self.pass(end, 0.0, None);
        }
    }

    /// Takes out all bytes. Returns whether there were any.
    fn drain(&mut self) -> bool {
        let progress = self.unread >= 1.0;
        let drains = self.machine.drains as f64 / 1000.0;
        while self.unread >= 1.0 && self.now < self.end() {
            self.be_scheduled();
            if let Some(oldest) = self.oldest.take() {
                self.waited_ns = self.waited_ns.max(self.now - oldest);
            }
            // Bytes that come in the meantime are taken out, too.
            let (rate, end) = self.piece();
            let ns = match drains > rate {
                true => (self.unread / (drains - rate)).ceil().max(1.0) as u64,
                false => u64::MAX / 2,
            };
            let next = (self.now + ns).min(end.min(self.end()));
            self.pass(next, drains, None);
            self.oldest = None;
        }
        if self.unread < 1.0 {
            self.unread = 0.0;
            self.oldest = None;
        }
        progress
    }

    /// Runs the load to its end. `law` returns its decision, and the rate in bytes per ns by which it has decided.
    pub fn run(mut self, mut law: impl FnMut(&Seen) -> (Next, f64)) -> Outcome {
        let mut outcome = Outcome::default();
        let (mut late_ns, mut rung) = (0, false);
        while self.now < self.end() {
            let progress = self.drain();
            if self.now >= self.end() {
                break;
            }
            self.pass(self.now + OVERHEAD_NS, 0.0, None);
            let position = (self.produced - self.dropped) as u64;
            let seen = Seen { now_ns: self.now, position, unread: self.unread as u64, progress, rung, late_ns };
            (late_ns, rung) = (0, false);
            let (next, rate) = law(&seen);
            let Next::Sleep { ns, wake } = next else {
                outcome.spins += 1;
                continue;
            };
            outcome.sleeps += 1;
            outcome.decisions.push((seen.unread as f64, rate, seen.late_ns, ns));
            let until = self.now + ns;
            let at = match wake {
                Wake::Nobody => None,
                Wake::Each => Some(1.0),
                Wake::At(bytes) => Some(bytes as f64),
            };
            rung = self.pass(until, 0.0, at);
            let due = self.now;
            self.pass(self.now + self.machine.latency_ns, 0.0, None);
            self.be_scheduled();
            late_ns = self.now - due;
            outcome.rung += u64::from(rung);
        }
        Outcome { ns: self.now, produced: self.produced, dropped: self.dropped, waited_ns: self.waited_ns, ..outcome }
    }
}
