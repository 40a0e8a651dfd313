// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Windows: bursts, steady flows, idle gaps, changes of period, large sums.

use crate::model::{SLIDES, Sums, Tick};
use proptest::prelude::*;
use topstat_engine::abi::{
    TS_DYNAMIC, TS_EPOCH_SHIFT, topstat_marks_oldest, topstat_window_add, topstat_window_begin, topstat_window_now,
};
use topstat_engine::{Value, config, tick_at, ts_config, ts_window, window_value};

const MS: u64 = 1_000_000;
/// Averages of a few thousand moments may be off by this much.
const SAMPLING: f64 = 0.0005;
/// The fading slide may be off by this much when its pushes are not evenly spread.
const SPREAD: f64 = 0.005;
/// The first epoch of a window, so that the next epoch is a smaller number.
const EPOCH_MAX: u32 = 65_535;

/// A window, pushed to as ts_push() does, and the pushes since its epoch.
struct Flow {
    config: ts_config,
    hz: u64,
    window: ts_window,
    pushes: Vec<Tick>,
}

impl Flow {
    fn new(period_ms: u32, hz: u32) -> Self {
        let config = config(period_ms, 0, TS_DYNAMIC, true, EPOCH_MAX, hz).unwrap();
        Self { config, hz: hz.into(), window: ts_window::default(), pushes: vec![] }
    }

    fn ticks(&self, ns: u64) -> u64 {
        if self.config.precise != 0 { ns } else { (u128::from(ns) * u128::from(self.hz) / 1_000_000_000) as u64 }
    }

    /// Push at a moment in ticks. Returns the value that ts_push() returns.
    fn push(&mut self, ticks: u64, part: usize, amount: u64) -> u64 {
        let tick = tick_at(&self.config, ticks);
        self.pushes.push(Tick { ticks, part, amount });
        let w = &mut self.window;
        // SAFETY: the window is whole and initialised.
        unsafe {
            if w.slide != tick.slide {
                topstat_window_begin(w, &tick);
            }
            topstat_window_add(w, &tick, part as u32, amount);
            topstat_window_now(w, &tick)
        }
    }

    fn value(&self, ticks: u64) -> Value {
        let tick = tick_at(&self.config, ticks);
        window_value(&self.window, &tick).expect("nobody writes to the window")
    }

    fn sums(&self, ticks: u64) -> Sums {
        Sums::of(self.pushes.iter().copied(), &self.config, ticks)
    }

    fn model(&self, ticks: u64) -> Value {
        self.sums(ticks).value(&self.config, ticks)
    }

    /// The sum of the pushes of the last `ticks`, computed from the list.
    fn pushed_within(&self, now: u64, ticks: u64) -> u64 {
        self.pushes.iter().filter(|p| now - p.ticks <= ticks).map(|p| p.amount).sum()
    }

    fn set_period(&mut self, period_ms: u32) {
        let epoch = self.config.epoch % EPOCH_MAX + 1;
        self.config = config(period_ms, 0, TS_DYNAMIC, true, epoch, self.hz as u32).unwrap();
        self.pushes.clear();
    }
}

fn period() -> impl Strategy<Value = u32> {
    prop_oneof![Just(1), Just(100), Just(1000), Just(3_600_000), 1u32..5000, 1u32..3_600_000]
}

fn hz() -> impl Strategy<Value = u32> {
    prop_oneof![Just(100), Just(250), Just(300), Just(1000)]
}

/// Time from a push to the next, in slides: within one, about a period, or any.
fn gap() -> impl Strategy<Value = f64> {
    prop_oneof![4 => 0.0..1.0, 2 => 0.0..3.0, 2 => 8.5..13.5, 1 => 0.0..1e5]
}

fn after(config: &ts_config, slides: f64) -> u64 {
    (slides * config.slide as f64) as u64
}

fn check(flow: &Flow, now: u64) -> Result<(), TestCaseError> {
    let (value, sums) = (flow.value(now), flow.sums(now));
    prop_assert_eq!(value, flow.model(now));
    prop_assert_eq!(value.value, value.parts[0] + value.parts[1]);
    let period = SLIDES * flow.config.slide;
    prop_assert!(value.value <= flow.pushed_within(now, period + flow.config.slide));
    let fading = sums.most() - sums.least();
    prop_assert!(value.value + fading >= flow.pushed_within(now, period));
    Ok(())
}

proptest! {
    #![proptest_config(crate::cases(400))]

    /// Any pushes at any times: the value always equals the model's, and is within its bounds. The result of a push is never
    /// below it (T5 depends on that), and at most one above.
    #[test]
    fn equals_the_model(
        period in period(),
        hz in hz(),
        begin in 0u64..1 << 50,
        steps in prop::collection::vec((gap(), 0usize..2, 0u64..3000, gap(), 0u32..20), 1..60),
    ) {
        let mut flow = Flow::new(period, hz);
        let mut now = flow.ticks(begin);
        for (slides, part, amount, later, change) in steps {
            now += after(&flow.config, slides);
            check(&flow, now)?;
            let returned = flow.push(now, part, amount);
            check(&flow, now)?;
            let value = flow.value(now).value;
            prop_assert!((value..=value + 1).contains(&returned), "{} for {}", returned, value);
            check(&flow, now + after(&flow.config, later))?;
            if change == 0 {
                flow.set_period(period % 2000 + 1);
                now = flow.ticks(begin + (1 << 50));
                prop_assert_eq!(flow.value(now).value, 0);
            }
        }
    }

    /// W1.
    #[test]
    fn a_burst_is_whole_for_a_period_and_then_gone(
        period in period(), hz in hz(), at in 0u64..1 << 50, amounts in prop::collection::vec(1u64..1 << 40, 1..5),
        share in 0.0..=1.0,
    ) {
        let mut flow = Flow::new(period, hz);
        let at = flow.ticks(at);
        for (i, &amount) in amounts.iter().enumerate() {
            flow.push(at, i % 2, amount);
        }
        let (slide, whole): (_, u64) = (flow.config.slide, amounts.iter().sum());
        let within = after(&flow.config, share * SLIDES as f64);
        prop_assert_eq!(flow.value(at).value, whole);
        prop_assert_eq!(flow.value(at + within).value, whole);
        prop_assert_eq!(flow.value(at + SLIDES * slide).value, whole);
        prop_assert_eq!(flow.value(at + (SLIDES + 1) * slide).value, 0);
        prop_assert_eq!(flow.value(at + (SLIDES + 1) * slide + within).value, 0);
    }

    /// W2: `per_slide` pushes to a slide, evenly spread, evaluated at many moments.
    #[test]
    fn a_steady_flow_has_no_bias(
        period in prop_oneof![Just(1u32), Just(10), Just(100), Just(400), Just(1000), Just(1050), Just(60_000), 1u32..3000],
        hz in hz(),
        per_slide in prop_oneof![
            Just(0.13), Just(0.3), Just(0.77), Just(1.0), Just(1.5), Just(2.0), Just(3.0), Just(4.3), Just(20.0), Just(300.0)
        ],
        amount in prop_oneof![Just(1u64), Just(2), Just(1448)],
        both in any::<bool>(),
        phase in 0.0..1.0,
    ) {
        let mut flow = Flow::new(period, hz);
        let slide_ns = f64::from(period) * MS as f64 / SLIDES as f64;
        let (every, begin) = (slide_ns / per_slide, 1e15);
        let slides = if per_slide > 10.0 { 40.0 } else { 400.0f64.max(800.0 / per_slide) };
        let (mut next, mut pushed, mut got, mut moments) = (begin + phase * every, 0usize, 0.0, 0.0);
        let mut now = begin + 12.0 * slide_ns;
        while now < begin + slides * slide_ns {
            while next <= now {
                flow.push(flow.ticks(next as u64), if both { pushed % 2 } else { 0 }, amount);
                pushed += 1;
                next += every;
            }
            got += flow.value(flow.ticks(now as u64)).value as f64;
            moments += 1.0;
            // Not a multiple of any other time, so that moments fall everywhere.
            now += slide_ns * 0.061_803_398_875;
        }
        let expected = amount as f64 * per_slide * SLIDES as f64;
        let bias = got / moments / expected - 1.0;
        // Slides are whole ticks, and a push counts through the tick in which its period ends. The bias depends on the position
        // of the flow's pushes inside a tick.
        let tick_ns = if flow.config.precise != 0 { 1.0 } else { 1e9 / f64::from(hz) };
        let shortest = (SLIDES * flow.config.slide) as f64 * tick_ns / (SLIDES as f64 * slide_ns) - 1.0;
        let longest = shortest + tick_ns / (SLIDES as f64 * slide_ns);
        prop_assert!(shortest >= -0.01 && longest <= 0.01 + 1e-9, "{} to {}", shortest, longest);
        let off = format!("{:.3}%, not {:.3} to {:.3}%", bias * 100.0, shortest * 100.0, longest * 100.0);
        prop_assert!((shortest - SPREAD..=longest + SPREAD).contains(&bias), "off by {}", off);
        prop_assert!(bias.abs() <= 0.01 + SAMPLING, "off by {}", off);
    }

    /// Sums grow through 2^56, which marks can't hold, to 2^63; and values stay exact.
    #[test]
    fn large_sums_do_not_wrap(
        hz in hz(),
        huge in prop_oneof![Just(1u64 << 55), Just((1 << 56) - 1), Just(1 << 62), Just((1 << 63) - (1 << 60)), 0u64..1 << 62],
        part in 0usize..2,
        amounts in prop::collection::vec((1u64..1 << 50, 0usize..2, gap(), gap()), 1..12),
    ) {
        let mut flow = Flow::new(1000, hz);
        let mut now = flow.ticks(1 << 50);
        flow.push(now, part, huge);
        prop_assert_eq!(flow.window.sum[part], huge);
        now += 12 * flow.config.slide;
        flow.pushes.clear();
        prop_assert_eq!(flow.value(now).value, 0);
        for &(amount, part, slides, later) in &amounts {
            let before = flow.window.sum;
            now += after(&flow.config, slides);
            let returned = flow.push(now, part, amount);
            prop_assert_eq!(flow.window.sum[part], before[part] + amount);
            let value = flow.value(now).value;
            prop_assert!((value..=value + 1).contains(&returned), "{} for {}", returned, value);
            check(&flow, now + after(&flow.config, later))?;
        }
    }

    /// A reader whose clock is behind finds the pushes up to its moment, or has to try again.
    #[test]
    fn a_reader_may_be_a_slide_behind(
        steps in prop::collection::vec((gap(), 1u64..1000), 1..30), place in 0.0..1.0,
    ) {
        let mut flow = Flow::new(1000, 250);
        let mut now = 1 << 40;
        for (slides, amount) in steps {
            now += after(&flow.config, slides);
            flow.push(now, 0, amount);
            let slide = flow.config.slide;
            let behind = (now / slide - 1) * slide + after(&flow.config, place);
            prop_assert_eq!(flow.value(behind), flow.model(behind));
            let tick = tick_at(&flow.config, behind - slide);
            prop_assert_eq!(window_value(&flow.window, &tick), None);
        }
    }
}

#[test]
fn a_window_never_pushed_is_nothing() {
    let flow = Flow::new(1000, 250);
    assert_eq!(flow.value(12345), Value::default());
}

/// 10^18 pushes' worth.
#[test]
fn a_static_sum_holds_ten_to_the_eighteenth() {
    let mut flow = Flow::new(1000, 1000);
    for i in 0..1000 {
        flow.push(i * 7, 0, 1_000_000_000_000_000);
    }
    assert_eq!(flow.window.sum[0], 1_000_000_000_000_000_000);
}

/// A copy of a window whose marks were being written is recognised.
#[test]
fn a_torn_copy_is_refused() {
    let mut flow = Flow::new(1000, 250);
    flow.push(1000, 0, 1);
    flow.window.done -= 1;
    let tick = tick_at(&flow.config, 1000);
    assert_eq!(window_value(&flow.window, &tick), None);
}

/// A bit says whether a slide has a mark: slides of the last twelve with a push have one.
#[test]
fn slides_without_pushes_have_no_mark() {
    let mut flow = Flow::new(1000, 250);
    let slide = flow.config.slide;
    for (at, marks) in
        [(100, 1), (101, 0b11), (104, 0b1_1001), (112, 0b1001_0000_0001), (113, 0b10_0000_0011), (125, 1)]
    {
        flow.push(at * slide, 0, 1);
        assert_eq!(flow.window.done >> TS_EPOCH_SHIFT, marks, "slide {at}");
        assert_eq!(flow.value(at * slide), flow.model(at * slide), "slide {at}");
    }
}

/// For every set of marks.
#[test]
fn the_oldest_mark_is_the_highest_bit() {
    for marks in 1u32..1 << 16 {
        // SAFETY: computes with its argument alone.
        assert_eq!(unsafe { topstat_marks_oldest(marks) }, marks.ilog2(), "{marks:#x}");
    }
}
