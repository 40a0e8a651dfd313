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

/// The push of a CPU in a round.
#[derive(Clone, Copy, Debug)]
struct Push {
    /// Jiffies.
    since: u64,
    now: u64,
    amount: u64,
    part: u32,
}

impl Push {
    /// The part of the amount that was used since a moment, if it was used evenly.
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

/// A push as it is generated: jiffies after the round began, jiffies of use before the push, amount, part.
type Drawn = (u64, u64, u64, u32);

struct Shared {
    config: ts_config,
    /// Only C writes it, through its address.
    window: Box<ts_window>,
    pushes: Vec<Push>,
}

/// Addresses of the memory that CPUs share; the memory outlives all accesses.
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
        // SAFETY: as above; the value is a local variable.
        let busy = unsafe { topstat_interleaved_value(self.window.expose_provenance() as u64, &tick, &mut value) };
        (busy == 0).then_some(value.value)
    }
}

impl Shared {
    fn new(period_ms: u32) -> Self {
        let config = config(period_ms, 0, TS_DYNAMIC, true, 1, HZ).unwrap();
        Self { config, window: Box::default(), pushes: Vec::new() }
    }

    /// The upper bound of the value. An amount counts for at most a period and the slide that the period began in. It counts for
    /// another slide where it could not be spread, or where a clock was a moment behind.
    fn most(&self, now: u64) -> u64 {
        let period = (SLIDES + 2) * self.config.slide;
        self.pushes.iter().filter(|p| p.now + period >= now).map(|p| p.amount).sum()
    }

    /// The lower bound of the value: the amount used within the period, without the slides at its beginning and before it.
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
        // The result of each CPU: a push returns its value, a reader `None` if it has to repeat the read.
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
        // T5: the latest ordering used a value that is not below the value found.
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
