// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An amount that was used over time and is pushed at the end of its use counts as if it had been pushed evenly over that time.

use proptest::prelude::*;
use topstat_engine::abi::{
    TS_DYNAMIC, topstat_spread_early, topstat_window_add, topstat_window_add_ago, topstat_window_begin,
    topstat_window_begin_since, topstat_window_now, topstat_window_spread,
};
use topstat_engine::{config, tick_at, ts_config, ts_window, window_value};

const HZ: u32 = 250;
const NS_PER_JIFFY: u64 = 1_000_000_000 / HZ as u64;

/// A task that runs on a CPU, and is pushed when it leaves the CPU: a small observer.
struct Runner {
    config: ts_config,
    window: ts_window,
    /// Nanoseconds that it has used, by jiffy.
    used: Vec<(u64, u64)>,
}

impl Runner {
    fn new(period_ms: u32) -> Self {
        let config = config(period_ms, 0, TS_DYNAMIC, true, 1, HZ).unwrap();
        Self { config, window: ts_window::default(), used: vec![] }
    }

    /// The task ran from one jiffy to another. Returns the result of the push.
    fn ran(&mut self, since: u64, now: u64) -> u64 {
        let amount = (now - since).max(1) * NS_PER_JIFFY;
        self.used.extend((since..now).map(|jiffy| (jiffy, NS_PER_JIFFY)));
        if now == since {
            self.used.push((now, NS_PER_JIFFY));
        }
        let tick = tick_at(&self.config, now);
        let w = &mut self.window;
        // SAFETY: the window is whole and initialised.
        unsafe {
            if w.slide != tick.slide {
                topstat_window_begin_since(w, &tick, &self.config, since);
            }
            let early = topstat_spread_early(&tick, since, now, amount);
            if early > 0 {
                topstat_window_spread(w, &tick, since, early, 0);
            }
            topstat_window_add(w, &tick, 0, amount - early);
            topstat_window_now(w, &tick)
        }
    }

    /// The task used both amounts `ago` slides before, and pushes them now.
    fn used_before(&mut self, ago: u32, now: u64, amounts: [u64; 2]) -> u64 {
        let tick = tick_at(&self.config, now);
        let begin = tick.start - u64::from(ago) * self.config.slide;
        let length = if ago == 0 { now - begin + 1 } else { self.config.slide };
        let all = amounts[0] + amounts[1];
        // As evenly as whole jiffies allow.
        let share = |jiffy: u64| all * (jiffy + 1) / length - all * jiffy / length;
        self.used.extend((0..length).map(|jiffy| (begin + jiffy, share(jiffy))));
        let w = &mut self.window;
        // SAFETY: the window is whole and initialised.
        unsafe {
            if w.slide != tick.slide {
                topstat_window_begin(w, &tick);
            }
            topstat_window_add_ago(w, &tick, ago, amounts[0], amounts[1]);
            topstat_window_add(w, &tick, 0, 0);
            topstat_window_now(w, &tick)
        }
    }

    fn value(&self, now: u64) -> u64 {
        window_value(&self.window, &tick_at(&self.config, now)).expect("nobody writes to the window").value
    }

    /// The amount used in the period before.
    fn truth(&self, now: u64) -> u64 {
        let period = 10 * self.config.slide;
        self.used.iter().filter(|(jiffy, _)| jiffy + period >= now && *jiffy < now).map(|(_, ns)| ns).sum()
    }
}

/// The fading slide is taken as evenly used, from its first push to its last: a slide off at worst.
fn check(runner: &Runner, now: u64) -> Result<(), TestCaseError> {
    let (value, truth) = (runner.value(now), runner.truth(now));
    let slide_ns = (runner.config.slide + 2) * NS_PER_JIFFY;
    prop_assert!(value.abs_diff(truth) <= slide_ns, "value {value}, truth {truth}, at {now}");
    Ok(())
}

proptest! {
    #![proptest_config(crate::cases(400))]

    /// A task that runs and sleeps, for any time: its value is the time that it used in the last period.
    #[test]
    fn slices_of_any_length(
        period in prop_oneof![Just(1000u32), Just(400), Just(10_000)],
        begin in 1u64 << 20..1 << 40,
        steps in prop::collection::vec((0u64..700, prop_oneof![0u64..40, 0u64..2000]), 1..40),
    ) {
        let mut runner = Runner::new(period);
        let mut now = begin;
        for (sleep, run) in steps {
            now += sleep;
            check(&runner, now)?;
            let returned = runner.ran(now, now + run);
            now += run;
            check(&runner, now + 1)?;
            // T5 depends on it: the result is never below a later evaluation.
            prop_assert!(returned >= runner.value(now));
        }
        // The sum has all of it, to the nanosecond.
        let all: u64 = runner.used.iter().map(|(_, ns)| ns).sum();
        prop_assert_eq!(runner.window.sum[0], all);
    }
}

proptest! {
    #![proptest_config(crate::cases(400))]

    /// An amount that is found late: the value is the amount used in the last period. The fading slide is an exception: a part
    /// of it is in the value, and pushes at other times in that slide change that part.
    #[test]
    fn what_was_used_some_slides_ago(
        begin in 1u64 << 20..1 << 40,
        steps in prop::collection::vec((0u64..60, 0u32..13, 0u64..100_000, 0u64..100_000), 1..60),
    ) {
        let mut runner = Runner::new(1000);
        let mut now = begin;
        let mut sums = [0; 2];
        for (wait, ago, rx, tx) in steps {
            now += wait;
            let returned = runner.used_before(ago, now, [rx, tx]);
            sums = [sums[0] + rx, sums[1] + tx];
            prop_assert_eq!(runner.window.sum, sums);
            prop_assert!(returned >= runner.value(now), "T5 rests on it");
            let slide = runner.config.slide;
            let fading = now / slide * slide - 10 * slide;
            let in_fading: u64 = runner.used.iter()
                .filter(|(jiffy, _)| (fading..fading + slide).contains(jiffy)).map(|(_, used)| used).sum();
            let young: u64 = runner.used.iter().filter(|(jiffy, _)| *jiffy >= fading + slide).map(|(_, used)| used).sum();
            let value = runner.value(now);
            prop_assert!((young..=young + in_fading).contains(&value), "{} not of {}..={}", value, young, young + in_fading);
        }
    }
}

/// A task that never leaves its CPU, evaluated now and then: it has all of the time.
#[test]
fn a_spinner_that_is_never_switched_has_all_of_the_period() {
    for every in [1, 7, 25, 26, 100, 250, 251, 1000, 9999] {
        let mut runner = Runner::new(1000);
        let mut now = 1 << 30;
        for _ in 0..20 {
            runner.ran(now, now + every);
            now += every;
        }
        if every >= 13 {
            let period_ns = 1_000_000_000;
            let value = runner.value(now);
            assert!(value.abs_diff(period_ns) <= period_ns / 100, "{value} when looked at every {every} jiffies");
        }
        // W1: a period and a slide later, nothing.
        assert_eq!(runner.value(now + 250 + 26), 0);
    }
}

/// Two CPUs push to one window, with slices that overlap: both are counted whole.
#[test]
fn threads_of_one_process_add_up() {
    let mut runner = Runner::new(1000);
    let begin = 1 << 30;
    for i in 0..40 {
        runner.ran(begin + i * 60, begin + i * 60 + 60);
        runner.ran((begin + i * 60).saturating_sub(30), begin + i * 60 + 60);
    }
    let now = begin + 40 * 60;
    let value = runner.value(now);
    let truth = runner.truth(now);
    assert!(value.abs_diff(truth) <= truth / 50, "value {value}, truth {truth}");
}
