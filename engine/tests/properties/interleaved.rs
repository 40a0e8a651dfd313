// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUs that push to one window at the same time, in any order of their loads and stores (W6 to W9 in `window.h`).

use std::ptr::from_mut;

use proptest::prelude::*;
use topstat_engine::abi::{TS_DYNAMIC, topstat_interleaved_push, topstat_interleaved_value};
use topstat_engine::sim::interleave;
use topstat_engine::{config, tick_at, ts_config, ts_value, ts_window, window_is_done, window_value};

const HZ: u32 = 250;
const SLIDES: u64 = 10;
/// Shares of an amount are rounded, once for each slide.
const ROUNDING: u64 = SLIDES + 1;

/// What a CPU pushes in a round.
#[derive(Clone, Copy, Debug)]
struct Push {
    /// Jiffies.
    since: u64,
    now: u64,
    amount: u64,
    part: u32,
}

impl Push {
    /// What of it was used since then, if it was used evenly.
    fn used_since(&self, moment: u64) -> u64 {
        let length = (self.now - self.since).max(1);
        let late = if self.now == self.since {
            u64::from(self.now >= moment)
        } else {
            self.now.saturating_sub(moment.max(self.since))
        };
        self.amount / length * late
    }
}

/// A push as it is drawn: jiffies after the round began, jiffies that it was used before, amount, part.
type Drawn = (u64, u64, u64, u32);

struct Shared {
    config: ts_config,
    /// Written by C alone, through its address.
    window: Box<ts_window>,
    pushes: Vec<Push>,
}

/// Addresses of what CPUs share; they outlive all that is done with them.
#[derive(Clone, Copy)]
struct Addresses {
    window: *mut ts_window,
}

// SAFETY: only C accesses the window through it, atomically and word by word.
unsafe impl Send for Addresses {}

impl Addresses {
    fn push(self, config: &ts_config, push: Push) -> u64 {
        let tick = tick_at(config, push.now);
        // SAFETY: the window outlives the round.
        unsafe { topstat_interleaved_push(self.window, &tick, config, push.since, push.amount, push.part) }
    }

    fn value(self, config: &ts_config, now: u64) -> Option<u64> {
        let (tick, mut value) = (tick_at(config, now), ts_value::default());
        // SAFETY: as above; the value is the caller's own.
        let busy = unsafe { topstat_interleaved_value(self.window.expose_provenance() as u64, &tick, &mut value) };
        (busy == 0).then_some(value.value)
    }
}

impl Shared {
    fn new(period_ms: u32) -> Self {
        let config = config(period_ms, 0, TS_DYNAMIC, true, 1, HZ).unwrap();
        Self { config, window: Box::default(), pushes: Vec::new() }
    }

    /// All that may be in the value: nothing is counted for longer than a period and the slide that it began in, but
    /// another one where it could not be spread, or was attributed by a clock a moment behind.
    fn most(&self, now: u64) -> u64 {
        let period = (SLIDES + 2) * self.config.slide;
        self.pushes.iter().filter(|p| p.now + period >= now).map(|p| p.amount).sum()
    }

    /// All that must be: what was used within the period, but for the slides at its beginning and before it.
    fn least(&self, before: usize, now: u64) -> u64 {
        let moment = now.saturating_sub((SLIDES - 2) * self.config.slide);
        let used: u64 = self.pushes[..before].iter().map(|p| p.used_since(moment)).sum();
        used.saturating_sub(ROUNDING * before as u64)
    }

    fn round(&mut self, begin: u64, drawn: &[Drawn], reads: bool, schedule: &[u8]) -> Result<(), TestCaseError> {
        let before = self.pushes.len();
        let pushes: Vec<Push> = drawn
            .iter()
            .map(|&(after, used, amount, part)| {
                let now = begin + after;
                Push { since: now.saturating_sub(used), now, amount: amount * used.max(1), part }
            })
            .collect();
        self.pushes.extend(&pushes);
        let latest = pushes.iter().map(|p| p.now).max().unwrap_or(begin);
        let (config, shared) = (self.config, Addresses { window: from_mut(&mut *self.window) });
        // What each CPU returns: of a push its value, of a reading `None` if it has to be repeated.
        let mut cpus: Vec<Box<dyn FnOnce() -> Option<u64> + Send>> = Vec::new();
        for push in pushes {
            cpus.push(Box::new(move || {
                let shared = shared;
                Some(shared.push(&config, push))
            }));
        }
        if reads {
            cpus.push(Box::new(move || {
                let shared = shared;
                shared.value(&config, latest)
            }));
        }
        let mut returned = interleave(schedule, cpus);
        if reads && let Some(Some(value)) = returned.pop() {
            let (least, most) = (self.least(before, latest), self.most(latest));
            prop_assert!((least..=most).contains(&value), "a reader finds {value}, not {least} to {most}");
        }

        let window = *self.window;
        prop_assert!(window_is_done(&window), "somebody still writes");
        let all: u64 = self.pushes.iter().map(|p| p.amount).sum();
        prop_assert_eq!(window.sum[0] + window.sum[1], all, "a push was lost");
        let value = window_value(&window, &tick_at(&self.config, latest)).expect("nobody writes").value;
        let (least, most) = (self.least(self.pushes.len(), latest), self.most(latest));
        prop_assert!((least..=most).contains(&value), "the value is {value}, not {least} to {most}");
        // T5: the object was last ordered by a value that is not below what it is found to be.
        let ordered = returned.iter().flatten().max().copied().unwrap_or(u64::MAX);
        prop_assert!(ordered >= value, "pushes were ordered by {ordered}, but the value is {value}");
        Ok(())
    }
}

proptest! {
    #![proptest_config(crate::cases(1000))]

    #[test]
    fn no_order_of_accesses_makes_a_value_too_low(
        period in prop_oneof![Just(1000u32), Just(400)],
        begin in 1u64 << 20..1 << 40,
        rounds in prop::collection::vec(
            (
                // Within a slide, at its end, some slides later.
                prop_oneof![2 => 0u64..4, 3 => Just(u64::MAX), 1 => 20u64..300],
                prop::collection::vec((0u64..2, prop_oneof![Just(0u64), 0u64..40, 0u64..600], 1u64..1000, 0u32..2), 1..4),
                any::<bool>(),
                prop::collection::vec(any::<u8>(), 1..40),
            ),
            1..12,
        ),
    ) {
        let mut shared = Shared::new(period);
        let slide = shared.config.slide;
        let mut now = begin;
        for (gap, pushes, reads, schedule) in rounds {
            // The last jiffy of a slide: CPUs a jiffy apart are in different slides.
            now = if gap == u64::MAX { (now / slide + 2) * slide - 1 } else { now + gap };
            shared.round(now, &pushes, reads, &schedule)?;
            now += 2;
        }
    }
}
