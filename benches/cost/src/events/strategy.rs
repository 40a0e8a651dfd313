// SPDX-License-Identifier: Apache-2.0 OR MIT
//! topstat's control law, and the laws of other projects.

use clap::ValueEnum;
use topstat_consumer::law::{IDLE_NS, LONGEST_NS, Next, Wake};
use topstat_consumer::{Consumer, Error, Maps, Options};

/// The first sleep of sysdig's consumer, in ns.
const DOUBLING_FROM_NS: u64 = 500_000;
/// The fill at which `threshold` is woken up, in percent of the ring.
const THRESHOLD_PERCENT: u64 = 12;

/// How the consumer decides when to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Strategy {
    /// Sleeps for [`LONGEST_NS`] whenever the ring is empty, as sysdig did at first.
    Fixed,
    /// Sleeps for [`DOUBLING_FROM_NS`], and twice as long each time while nothing comes, up to [`LONGEST_NS`], as sysdig and
    /// falco do.
    Doubling,
    /// The kernel wakes it at each event that finds it waiting, as libbpf's users do.
    Epoll,
    /// Is woken up when the ring is [`THRESHOLD_PERCENT`] full, and every [`LONGEST_NS`].
    Threshold,
    /// topstat's.
    Adaptive,
}

impl Strategy {
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// A consumer of a ring of `ring_bytes` that decides by this strategy.
    pub fn open(self, maps: &Maps, options: &Options, ring_bytes: u32) -> Result<Consumer, Error> {
        let always = |ns, wake| Consumer::with_law(maps, options, move |_| Next::Sleep { ns, wake });
        match self {
            Strategy::Fixed => always(LONGEST_NS, Wake::Nobody),
            Strategy::Doubling => {
                let mut slept_ns = 0;
                Consumer::with_law(maps, options, move |seen| {
                    slept_ns = match seen.progress {
                        true => DOUBLING_FROM_NS,
                        false => (slept_ns * 2).clamp(DOUBLING_FROM_NS, LONGEST_NS),
                    };
                    Next::Sleep { ns: slept_ns, wake: Wake::Nobody }
                })
            }
            Strategy::Epoll => always(IDLE_NS, Wake::Each),
            Strategy::Threshold => always(LONGEST_NS, Wake::At(u64::from(ring_bytes) * THRESHOLD_PERCENT / 100)),
            Strategy::Adaptive => Consumer::open(maps, options),
        }
    }
}
