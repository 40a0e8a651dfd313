// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the observers may cost, and how `delay` is raised and lowered to keep them there. Logic alone: what is measured
//! comes in, a level comes out. `keeper` measures, and sets delays.
//!
//! The cost is that of the pushes: it grows with the load and falls with the delay, by how much nobody knows before it
//! is tried. So one level is tried at a time, and what it brought is remembered as a ratio of costs per run, which
//! holds when the load changes. Three rules follow.
//!
//! - B1: over the budget, the level is raised by one; above the longest delay there is nothing, and that is said once.
//! - B2: the level is lowered by one only when the level below, by the ratio that was last seen between the two, would
//!   keep well inside of the budget, and that several times in a row. Under a constant load the ratio is exact, so a
//!   level that was left because it cost too much is not gone back to: no oscillation.
//! - B3: a lowering that had to be taken back makes the next one wait twice as long, for loads whose cost is not steady.

use std::time::Duration;

use crate::config::Share;

/// The delays that are tried, in thousandths of a table's period: coarse steps, since each should be felt. With a delay
/// of a whole period an object is ordered about once before it would leave; longer ones would lose rows.
const LADDER: [u32; 8] = [0, 10, 20, 50, 100, 200, 500, 1000];

/// How far delays are raised: 0 is not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(usize);

impl Level {
    /// The longest delays.
    pub const LAST: Self = Self(LADDER.len() - 1);

    /// Its number, for people and programs.
    pub fn number(self) -> usize {
        self.0
    }

    /// The delay of a table at this level, whose period is given and whose user wants at least `floor_ms`.
    pub fn delay_ms(self, period_ms: u32, floor_ms: u32) -> u32 {
        let raised = u64::from(period_ms) * u64::from(LADDER[self.0]);
        // At most the period, so it fits; above level 0 at least 1 ms.
        let raised = u32::try_from(raised.div_ceil(1000)).unwrap_or(period_ms);
        raised.max(floor_ms)
    }

    /// The lowest level at which a table of this period would have at least this delay: where another daemon left off.
    pub fn of_delay(delay_ms: u32, period_ms: u32) -> Self {
        (0..LADDER.len()).map(Self).find(|level| level.delay_ms(period_ms, 0) >= delay_ms).unwrap_or(Self::LAST)
    }
}

/// What the programs cost in a while.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Time they ran, of all CPUs together.
    pub cost_ns: u64,
    /// How often they ran.
    pub runs: u64,
    /// How long it was measured.
    pub elapsed_ns: u64,
    /// CPUs that were online.
    pub cpus: u32,
}

impl Measured {
    /// The share of each CPU that was spent, on average: 0 to 1.
    #[allow(clippy::cast_precision_loss)] // far below what could be measured
    pub fn share(&self) -> f64 {
        let time = self.elapsed_ns as f64 * f64::from(self.cpus);
        if time > 0.0 { self.cost_ns as f64 / time } else { 0.0 }
    }

    /// The time of one run on average, where there were any.
    #[allow(clippy::cast_precision_loss)]
    pub fn ns_per_run(&self) -> Option<f64> {
        (self.runs > 0).then(|| self.cost_ns as f64 / self.runs as f64)
    }

    /// The same, where there were enough of them to tell.
    fn per_run(&self) -> Option<f64> {
        self.ns_per_run().filter(|_| self.runs >= RUNS_ENOUGH && self.cost_ns > 0)
    }
}

/// Fewer runs are too few for a ratio: one cache miss too many would change it.
const RUNS_ENOUGH: u64 = 100;
/// The ratio of two levels, one of which was not tried yet: the lower one is assumed to cost no more. If that is wrong it
/// is found out when the lower one is tried, and known from then on. A larger ratio could keep delays raised without need
/// for ever.
const RATIO_ASSUMED: f64 = 1.0;
/// A larger ratio is a fault of measurement.
const RATIO_MOST: f64 = 1000.0;
/// The part of the budget that a lower level may be expected to use. The rest is for what was measured wrongly: with an
/// error of 5% on either side a level that costs more than the budget is still expected above this part of it.
const ROOM: f64 = 0.8;
/// How many times in a row a lower level must look good.
const PATIENCE: u32 = 3;
/// The longest wait after lowerings that failed: at [`SETTLED`], an hour.
const PATIENCE_MOST: u32 = 360;
/// From one measurement to the next while the level changes, or is about to.
const UNSETTLED: Duration = Duration::from_secs(2);
/// The same while all is well.
const SETTLED: Duration = Duration::from_secs(10);

/// What is to be done after a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The level was changed: from which one.
    pub changed_from: Option<Level>,
    /// The longest delays are not enough, and this was not said yet.
    pub exhausted: bool,
    /// When to measure again.
    pub wait: Duration,
}

/// Keeps the cost inside of a budget.
#[derive(Clone, Debug)]
pub struct Controller {
    budget: Share,
    level: Level,
    /// How much dearer each level is than the one above it, per run.
    ratios: [f64; LADDER.len() - 1],
    /// The level that was left, and what a run cost there: known until the new level was measured.
    left: Option<(Level, Option<f64>)>,
    /// How often in a row the level below looked good.
    good: u32,
    patience: u32,
    exhausted: bool,
    /// How often in a row the cost was inside of the budget.
    inside: u32,
}

impl Controller {
    /// Begins at a level: 0, or where another daemon left off.
    pub fn new(budget: Share, level: Level) -> Self {
        let ratios = [RATIO_ASSUMED; LADDER.len() - 1];
        Self { budget, level, ratios, left: None, good: 0, patience: PATIENCE, exhausted: false, inside: 0 }
    }

    /// The level now.
    pub fn level(&self) -> Level {
        self.level
    }

    /// What it keeps to.
    pub fn budget(&self) -> Share {
        self.budget
    }

    /// Another budget; what was learned stays.
    pub fn set_budget(&mut self, budget: Share) {
        self.budget = budget;
        (self.good, self.patience, self.exhausted, self.inside) = (0, PATIENCE, false, 0);
    }

    /// Whether the longest delays are not enough.
    pub fn exhausted(&self) -> bool {
        self.exhausted
    }

    /// Takes a measurement, which began after the level was last changed.
    pub fn step(&mut self, measured: &Measured) -> Step {
        let came_from_above = self.learn(measured);
        let budget = self.budget.fraction();
        let share = measured.share();
        if share > budget {
            (self.good, self.inside) = (0, 0);
            if came_from_above {
                self.patience = (self.patience * 2).min(PATIENCE_MOST);
            }
            if self.level == Level::LAST {
                let news = !std::mem::replace(&mut self.exhausted, true);
                return Step { changed_from: None, exhausted: news, wait: SETTLED };
            }
            return self.go(Level(self.level.0 + 1), measured);
        }
        // A load that pauses for a moment is no news, and neither is that it goes on.
        self.inside = self.inside.saturating_add(1);
        self.exhausted = self.exhausted && self.inside < PATIENCE;
        let Some(below) = self.level.0.checked_sub(1) else {
            self.patience = PATIENCE;
            return Step { changed_from: None, exhausted: false, wait: SETTLED };
        };
        let expected = share * self.ratios[below];
        self.good = if expected <= budget * ROOM { self.good + 1 } else { 0 };
        if self.good >= self.patience {
            return self.go(Level(below), measured);
        }
        // A load that has fallen is soon made sure of; one that has failed before is given its time.
        let soon = self.good > 0 && self.patience == PATIENCE;
        Step { changed_from: None, exhausted: false, wait: if soon { UNSETTLED } else { SETTLED } }
    }

    fn go(&mut self, to: Level, measured: &Measured) -> Step {
        let from = std::mem::replace(&mut self.level, to);
        self.left = Some((from, measured.per_run()));
        self.good = 0;
        Step { changed_from: Some(from), exhausted: false, wait: UNSETTLED }
    }

    /// Remembers what the last change brought. Returns whether it was a lowering.
    fn learn(&mut self, measured: &Measured) -> bool {
        let Some((left, before)) = self.left.take() else { return false };
        if let (Some(before), Some(now)) = (before, measured.per_run()) {
            let (ratio, at) = if left < self.level { (before / now, left.0) } else { (now / before, self.level.0) };
            self.ratios[at] = ratio.clamp(1.0, RATIO_MOST);
        }
        left > self.level
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A host: what a run costs at each level, and how often programs run.
    #[derive(Clone, Debug)]
    struct Host {
        run_ns: [f64; LADDER.len()],
        runs_per_s: f64,
    }

    impl Host {
        /// `error` is that of the measurement, as a factor.
        fn measure(&self, level: Level, error: f64) -> Measured {
            let cost = self.run_ns[level.0] * self.runs_per_s * error;
            Measured { cost_ns: cost as u64, runs: self.runs_per_s as u64, elapsed_ns: 1_000_000_000, cpus: 2 }
        }

        fn share(&self, level: Level) -> f64 {
            self.measure(level, 1.0).share()
        }
    }

    fn hosts() -> impl Strategy<Value = Host> {
        let levels = prop::collection::vec(1.0..8.0_f64, LADDER.len() - 1);
        (20.0..100.0_f64, levels, 1e3..1e8_f64).prop_map(|(cheapest, steps, runs_per_s)| {
            // From the longest delay down, each level costs some more than the one above it.
            let mut run_ns = [cheapest; LADDER.len()];
            for level in (0..LADDER.len() - 1).rev() {
                run_ns[level] = run_ns[level + 1] * steps[level];
            }
            Host { run_ns, runs_per_s }
        })
    }

    fn budgets() -> impl Strategy<Value = Share> {
        (100..=500_000_u32).prop_map(Share::millionths)
    }

    /// Runs so many steps, and returns the level after each.
    fn run(controller: &mut Controller, host: &Host, mut errors: impl FnMut() -> f64, steps: usize) -> Vec<Level> {
        let step = |_| {
            let from = controller.level();
            let step = controller.step(&host.measure(from, errors()));
            assert_eq!(step.changed_from, (from != controller.level()).then_some(from));
            assert!(from.0.abs_diff(controller.level().0) <= 1, "one level at a time");
            controller.level()
        };
        (0..steps).map(step).collect()
    }

    proptest! {
        #[test]
        fn under_a_constant_load_it_settles_inside_of_the_budget(host in hosts(), budget in budgets(), start in 0..LADDER.len()) {
            let mut controller = Controller::new(budget, Level(start));
            let levels = run(&mut controller, &host, || 1.0, 400);
            let last = controller.level();
            prop_assert!(levels[100..].iter().all(|level| *level == last), "it goes on: {levels:?}");
            let inside = host.share(last) <= budget.fraction();
            prop_assert!(inside || last == Level::LAST, "{} at {last:?} of {budget}", host.share(last));
            prop_assert_eq!(controller.exhausted(), !inside);
            // No level more than is needed and room for: what is below was too dear, or nearly so.
            if let Some(below) = last.0.checked_sub(1) {
                prop_assert!(host.share(Level(below)) > budget.fraction() * ROOM * 0.99);
            }
        }

        #[test]
        fn from_no_delay_it_only_rises(host in hosts(), budget in budgets()) {
            let mut controller = Controller::new(budget, Level(0));
            let levels = run(&mut controller, &host, || 1.0, 400);
            prop_assert!(levels.is_sorted(), "{levels:?}");
        }

        #[test]
        fn errors_of_measurement_make_no_oscillation(host in hosts(), budget in budgets(), seed in any::<u64>()) {
            let mut state = seed;
            // Up to 5% either way, by a plain generator.
            let errors = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                1.0 + ((state >> 33) as f64 / f64::from(1u32 << 31) - 0.5) * 0.1
            };
            let mut controller = Controller::new(budget, Level(0));
            let levels = run(&mut controller, &host, errors, 1000);
            prop_assert!(levels.is_sorted(), "{levels:?}");
        }

        #[test]
        fn when_the_load_ends_all_is_as_users_want_it(host in hosts(), budget in budgets()) {
            let mut controller = Controller::new(budget, Level(0));
            run(&mut controller, &host, || 1.0, 200);
            let idle = Host { runs_per_s: 0.0, ..host };
            run(&mut controller, &idle, || 1.0, LADDER.len() * PATIENCE_MOST as usize);
            prop_assert_eq!(controller.level(), Level(0));
            prop_assert!(!controller.exhausted());
        }

        #[test]
        fn when_the_load_falls_it_follows(host in hosts(), budget in budgets()) {
            let mut controller = Controller::new(budget, Level(0));
            run(&mut controller, &host, || 1.0, 200);
            // So little that no delay at all is well inside of the budget.
            let runs_per_s = host.runs_per_s * (budget.fraction() * ROOM * 0.99 / host.share(Level(0))).min(1.0);
            let less = Host { runs_per_s, ..host };
            run(&mut controller, &less, || 1.0, LADDER.len() * PATIENCE_MOST as usize);
            prop_assert_eq!(controller.level(), Level(0));
        }

        #[test]
        fn a_load_that_comes_and_goes_is_chased_less_and_less(host in hosts(), budget in budgets(), every in 5..40_usize) {
            let mut controller = Controller::new(budget, Level(0));
            let quiet = Host { runs_per_s: host.runs_per_s / 10.0, ..host.clone() };
            let mut changes = 0;
            for _ in 0..50 {
                for host in [&host, &quiet] {
                    let before = controller.level();
                    let levels = run(&mut controller, host, || 1.0, every);
                    changes += std::iter::once(before).chain(levels.clone()).zip(levels).filter(|(a, b)| a != b).count();
                }
            }
            // Each turn of the load moves it up and down at most once through all levels.
            prop_assert!(changes <= 100 * (LADDER.len() - 1), "{changes}");
        }

        #[test]
        fn a_users_delay_is_never_undercut(level in 0..LADDER.len(), period_ms in 1..=3_600_000_u32, floor in 0..=3_600_000_u32) {
            let delay = Level(level).delay_ms(period_ms, floor);
            prop_assert!(delay >= floor);
            prop_assert!(delay <= period_ms.max(floor), "nor is it longer than a period without need");
            prop_assert!(level > 0 || delay == floor, "level 0 is what the user wants");
            prop_assert!(level == 0 || delay >= 1);
        }

        #[test]
        fn another_daemon_goes_on_where_one_left_off(level in 0..LADDER.len(), period_ms in 1..=3_600_000_u32) {
            let found = Level::of_delay(Level(level).delay_ms(period_ms, 0), period_ms);
            prop_assert_eq!(found.delay_ms(period_ms, 0), Level(level).delay_ms(period_ms, 0));
        }
    }

    #[test]
    fn that_nothing_is_enough_is_said_once() {
        let host = Host { run_ns: [100.0; LADDER.len()], runs_per_s: 1e7 };
        let mut controller = Controller::new(Share::millionths(10_000), Level(0));
        let mut said = 0;
        for _ in 0..100 {
            said += u32::from(controller.step(&host.measure(controller.level(), 1.0)).exhausted);
        }
        assert_eq!((said, controller.level(), controller.exhausted()), (1, Level::LAST, true));
        // And again after it was enough in between.
        let idle = Host { runs_per_s: 0.0, ..host.clone() };
        for _ in 0..PATIENCE {
            assert!(controller.exhausted(), "a pause is not enough");
            controller.step(&idle.measure(controller.level(), 1.0));
        }
        assert!(!controller.exhausted());
        let again = |_| controller.step(&host.measure(controller.level(), 1.0)).exhausted;
        assert_eq!((0..10).map(again).filter(|said| *said).count(), 1);
    }

    #[test]
    fn a_lowering_that_fails_makes_the_next_one_wait() {
        // What a run costs changes with the level in a way that no ratio can foresee: always twice the last.
        let mut controller = Controller::new(Share::millionths(10_000), Level(1));
        let (cheap, dear) = (0.3, 1.2);
        let mut waits = Vec::new();
        let mut since = 0;
        for _ in 0..300 {
            let share = if controller.level() == Level(1) { cheap } else { dear };
            // Too few runs to learn from.
            let cost_ns = (share / 100.0 * 1e9) as u64;
            let step = controller.step(&Measured { cost_ns, runs: 1, elapsed_ns: 1_000_000_000, cpus: 1 });
            since += 1;
            if step.changed_from == Some(Level(1)) && controller.level() == Level(0) {
                waits.push(since);
                since = 0;
            }
        }
        assert!(waits.len() >= 4 && waits.windows(2).all(|pair| pair[1] > pair[0]), "{waits:?}");
    }
}
