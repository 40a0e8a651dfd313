// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control law: when to look into the ring buffer again. It sees positions and times, and does nothing itself, so it
//! can be driven by a simulation as well as by the kernel.
//!
//! `adaptive` measures at which rate the ring is filled, and sleeps until it will have reached its target fill. Where the
//! prediction is wrong, since the rate has grown, producers wake the consumer at a second fill, above the target. What
//! always holds (`tests/law` proves it on a simulated producer):
//!
//! - L1 While there are records to read it never sleeps past the moment at which the ring is full at the measured rate,
//!   nor, where the scheduler has lately been late in waking it up, to within so much time of it; but at least a
//!   [`LEAST_SHARE`] of the time to the target, for a consumer that only spins is made to wait all the more.
//! - L2 At a steady rate it wakes up about once for each target fill, and where the scheduler is late at most
//!   [`LEAST_SHARE`] times; never sooner than after [`SHORTEST_NS`], unless the ring is full within that time.
//! - L3 It sleeps at most [`LONGEST_NS`] while events come, so that none waits for longer. When none has come for so
//!   long, it sleeps until the first one wakes it.

/// Shorter sleeps cost more CPU time than they save: a sleep takes about 5 µs of it.
pub const SHORTEST_NS: u64 = 50_000;
/// No event waits for longer. A person takes for immediate what comes within about 50 ms.
pub const LONGEST_NS: u64 = 30_000_000;
/// While nothing happens it looks so often whether it is to stop; events wake it. Five times a second cost 0.01% of a CPU.
pub const IDLE_NS: u64 = 200_000_000;
/// The sleep of sysdig's consumer begins with this, and is doubled up to [`LONGEST_NS`] while nothing comes.
pub const DOUBLING_FROM_NS: u64 = 500_000;
/// Where `threshold` is woken up, in percent of the ring.
pub const THRESHOLD_PERCENT: u64 = 12;
/// However late the scheduler has been, it sleeps one part in so many of the time to the target.
pub const LEAST_SHARE: u64 = 4;
/// Of the lateness that was seen so much is forgotten at each sleep: one part in so many.
const FORGET_LATENESS: u64 = 16;
/// Of what the rate has fallen by, so much is believed at first: after a pause as long as a sleep the next one still ends
/// before a producer has to end it.
const BELIEVE_FALL: f64 = 1.0 / 8.0;
/// Of the greatest rate so much is forgotten: bursts that come within some hundred sleeps are met like the last one.
const FORGET_PEAK: f64 = 256.0;

/// How to decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Sleeps for [`LONGEST_NS`] whenever the ring is empty: what sysdig did at first.
    Fixed,
    /// Sleeps for [`DOUBLING_FROM_NS`], and while nothing comes twice as long each time: what sysdig and falco do.
    Doubling,
    /// Is woken up by the kernel for each event that finds it waiting: what libbpf's users do.
    Epoll,
    /// Is woken up when the ring is [`THRESHOLD_PERCENT`] full, and every [`LONGEST_NS`].
    Threshold,
    /// Sleeps until the ring will have its target fill, at the measured rate; is woken up if that comes sooner.
    #[default]
    Adaptive,
}

impl Strategy {
    /// All of them, by the names that users give.
    pub const ALL: [(&'static str, Strategy); 5] = [
        ("fixed", Strategy::Fixed),
        ("doubling", Strategy::Doubling),
        ("epoll", Strategy::Epoll),
        ("threshold", Strategy::Threshold),
        ("adaptive", Strategy::Adaptive),
    ];
}

impl std::str::FromStr for Strategy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, strategy)| strategy).ok_or_else(|| {
            let names = Self::ALL.map(|(name, _)| name).join(", ");
            format!("there is no strategy '{name}'; there are: {names}")
        })
    }
}

/// How far the ring may be filled, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fills {
    /// All that it holds.
    pub full: u64,
    /// Where sleeps are to end.
    pub target: u64,
    /// Where producers wake the consumer, above the target.
    pub wake: u64,
}

/// What there is to see when the consumer has read all there was, or can't go on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Now, by any clock that does not go back.
    pub now_ns: u64,
    /// How many bytes producers have put into the ring, ever, had none been cut: what is cut says nothing of how fast the
    /// ring is filled until it is.
    pub position: u64,
    /// How many of them are not freed.
    pub unread: u64,
    /// Whether anything was read since the last decision.
    pub progress: bool,
    /// Whether a producer had to wake the consumer.
    pub rung: bool,
    /// By how much the last sleep was longer than it was to be.
    pub late_ns: u64,
}

/// Who is to wake the consumer before its time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Nobody.
    Nobody,
    /// The kernel, at each event that finds the consumer waiting.
    Each,
    /// The producer that brings the ring to so many unread bytes.
    At(u64),
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Read on: there is no time to sleep.
    Drain,
    /// Sleep so long, unless somebody wakes the consumer.
    Sleep {
        /// For so long.
        ns: u64,
        /// Who may.
        wake: Wake,
    },
}

/// The law, with what it remembers.
#[derive(Clone, Debug)]
pub struct Law {
    strategy: Strategy,
    fills: Fills,
    /// Bytes per ns.
    rate: f64,
    /// How much of a fall was believed the last time.
    believe: f64,
    /// The greatest rate of late.
    peak: f64,
    /// When and where the rate was last measured.
    since: Option<(u64, u64)>,
    late_ns: u64,
    /// How long the last sleep was to be.
    slept_ns: u64,
    /// Where producers were at the last decision.
    position: Option<u64>,
}

impl Law {
    /// One that has seen nothing yet.
    pub fn new(strategy: Strategy, fills: Fills) -> Self {
        Self {
            strategy,
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

    /// Decides.
    pub fn next(&mut self, seen: &Seen) -> Next {
        let next = match self.strategy {
            Strategy::Fixed => Next::Sleep { ns: LONGEST_NS, wake: Wake::Nobody },
            Strategy::Doubling => Next::Sleep { ns: self.doubled(seen.progress), wake: Wake::Nobody },
            Strategy::Epoll => Next::Sleep { ns: IDLE_NS, wake: Wake::Each },
            Strategy::Threshold => {
                Next::Sleep { ns: LONGEST_NS, wake: Wake::At(self.fills.full * THRESHOLD_PERCENT / 100) }
            }
            Strategy::Adaptive => self.adaptive(seen),
        };
        self.position = Some(seen.position);
        self.slept_ns = match next {
            Next::Drain => 0,
            Next::Sleep { ns, .. } => ns,
        };
        next
    }

    fn doubled(&self, progress: bool) -> u64 {
        match progress {
            true => DOUBLING_FROM_NS,
            false => (self.slept_ns * 2).clamp(DOUBLING_FROM_NS, LONGEST_NS),
        }
    }

    fn adaptive(&mut self, seen: &Seen) -> Next {
        let nothing_came = self.position == Some(seen.position);
        self.late_ns = seen.late_ns.max(self.late_ns - self.late_ns / FORGET_LATENESS);
        self.measure(seen);
        if !seen.progress && seen.unread > 0 {
            // A producer was interrupted amid its record, and those behind it have to wait.
            return Next::Sleep { ns: SHORTEST_NS, wake: Wake::Nobody };
        }
        if nothing_came && self.slept_ns >= LONGEST_NS {
            // The time until the first event comes says nothing of how the others will.
            (self.since, self.rate) = (None, 0.0);
            return Next::Sleep { ns: IDLE_NS, wake: Wake::At(1) };
        }
        match self.sleep_ns(seen.unread) {
            ns if ns < SHORTEST_NS => Next::Drain,
            ns => Next::Sleep { ns, wake: Wake::At(self.fills.wake) },
        }
    }

    /// A rate that has grown counts at once. One that has fallen is believed by and by, each time twice as much, so that a
    /// short pause makes no difference, and a long one costs few sleeps. Who was woken by a producer is in a burst, and takes it to be like the last one: the time
    /// before it began is part of what was measured.
    fn measure(&mut self, seen: &Seen) {
        let Some((then, position)) = self.since else {
            self.since = Some((seen.now_ns, seen.position));
            return;
        };
        let ns = seen.now_ns.saturating_sub(then);
        // One record more or less in a moment is no rate.
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

    /// Until the ring has its target fill (L1, L2).
    fn sleep_ns(&self, unread: u64) -> u64 {
        let until = |fill: u64| match self.rate > 0.0 {
            // Beyond the longest sleep it makes no difference.
            true => (fill.saturating_sub(unread) as f64 / self.rate).min(IDLE_NS as f64) as u64,
            false => IDLE_NS,
        };
        let to_target = until(self.fills.target);
        let in_time = until(self.fills.full).saturating_sub(self.late_ns);
        to_target.min(in_time).max(to_target / LEAST_SHARE).min(LONGEST_NS)
    }
}
