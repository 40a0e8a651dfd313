// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The budget of the observers, and how `delay` is raised and lowered to keep their cost within it. This is logic alone:
//! measurements come in, and a level comes out. `keeper` measures, and sets delays.
//!
//! The cost is the cost of the pushes. It grows with the load and falls with the delay, by an amount that only a trial shows. So
//! one level is tried at a time. The effect is remembered as a ratio of costs per run, which holds when the load changes. Three
//! rules follow.
//!
//! - B1: over the budget, the level is raised by one. If even the longest delay is not enough, this is reported once.
//! - B2: the level is lowered by one only if, several times in a row, the level below is expected to stay well within the budget.
//!   The expectation comes from the last ratio seen between the two levels. Under a constant load the ratio is exact, so the
//!   controller does not go back to a level that it left because of its cost: no oscillation.
//! - B3: after a lowering that had to be reversed, the next lowering waits twice as long. This rule is for loads whose cost is
//!   not steady.

use std::time::Duration;

use crate::config::Share;

/// The delays of the levels, in thousandths of a table's period. The steps are coarse, since each should have an effect. With a
/// delay of a whole period an object is ordered about once before it would leave the table; longer delays would lose rows.
const LADDER: [u32; 8] = [0, 10, 20, 50, 100, 200, 500, 1000];

/// How far delays are raised. At level 0 they are not raised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(usize);

impl Level {
    /// The longest delays.
    pub const LAST: Self = Self(LADDER.len() - 1);

    /// The number of the level, for people and programs.
    pub fn number(self) -> usize {
        self.0
    }

    /// The delay at this level of a table with this period. Its user wants at least `floor_ms`.
    pub fn delay_ms(self, period_ms: u32, floor_ms: u32) -> u32 {
        let raised = u64::from(period_ms) * u64::from(LADDER[self.0]);
        // The result is at most the period, so it fits. Above level 0 it is at least 1 ms.
        let raised = u32::try_from(raised.div_ceil(1000)).unwrap_or(period_ms);
        raised.max(floor_ms)
    }

    /// The lowest level at which a table of this period has at least this delay. It shows where an earlier daemon left off.
    pub fn of_delay(delay_ms: u32, period_ms: u32) -> Self {
        (0..LADDER.len()).map(Self).find(|level| level.delay_ms(period_ms, 0) >= delay_ms).unwrap_or(Self::LAST)
    }
}

/// The cost of the programs in a measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// The time that the programs ran, summed over all CPUs.
    pub cost_ns: u64,
    /// How often the programs ran.
    pub runs: u64,
    /// The measured time.
    pub elapsed_ns: u64,
    /// The number of online CPUs.
    pub cpus: u32,
}

impl Measured {
    /// The share of each CPU that the programs used, on average: 0 to 1.
    #[allow(clippy::cast_precision_loss)] // the error is far below what can be measured
    pub fn share(&self) -> f64 {
        let time = self.elapsed_ns as f64 * f64::from(self.cpus);
        if time > 0.0 { self.cost_ns as f64 / time } else { 0.0 }
    }

    /// The average time of one run; `None` without runs.
    #[allow(clippy::cast_precision_loss)]
    pub fn ns_per_run(&self) -> Option<f64> {
        (self.runs > 0).then(|| self.cost_ns as f64 / self.runs as f64)
    }

    /// The average time of one run, if there were enough runs for a ratio.
    fn per_run(&self) -> Option<f64> {
        self.ns_per_run().filter(|_| self.runs >= RUNS_ENOUGH && self.cost_ns > 0)
    }
}

/// The fewest runs for a ratio: with fewer, one more cache miss would change it.
const RUNS_ENOUGH: u64 = 100;
/// The ratio of two levels until both were tried: the lower level is assumed to cost no more. If this is wrong, the trial of the
/// lower level shows it, and the ratio is known from then on. A larger ratio could keep delays raised for ever without need.
const RATIO_ASSUMED: f64 = 1.0;
/// A larger ratio is an error of measurement.
const RATIO_MOST: f64 = 1000.0;
/// The part of the budget that the expected cost of a lower level may use. The rest allows for errors of measurement: even with
/// an error of 5% either way, the expected cost of a level over the budget is above this part.
const ROOM: f64 = 0.8;
/// How many times in a row the expected cost of the lower level must fit.
const PATIENCE: u32 = 3;
/// The most times in a row after lowerings that failed: an hour, at [`SETTLED`].
const PATIENCE_MOST: u32 = 360;
/// The time between two measurements while the level changes, or is about to change.
const UNSETTLED: Duration = Duration::from_secs(2);
/// The time between two measurements while all is well.
const SETTLED: Duration = Duration::from_secs(10);

/// What to do after a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The former level, if the level was changed.
    pub changed_from: Option<Level>,
    /// The longest delays are not enough, and this was not reported yet.
    pub exhausted: bool,
    /// The time until the next measurement.
    pub wait: Duration,
}

/// Keeps the cost within a budget.
#[derive(Clone, Debug)]
pub struct Controller {
    budget: Share,
    level: Level,
    /// For each level, its cost per run divided by the cost per run of the level above it.
    ratios: [f64; LADDER.len() - 1],
    /// The level that was left, and its cost per run. Known until the new level was measured.
    left: Option<(Level, Option<f64>)>,
    /// How many times in a row the expected cost of the level below has fitted.
    good: u32,
    patience: u32,
    exhausted: bool,
    /// How many times in a row the cost was within the budget.
    inside: u32,
}

impl Controller {
    /// Begins at a level: 0, or the level that an earlier daemon left.
    pub fn new(budget: Share, level: Level) -> Self {
        let ratios = [RATIO_ASSUMED; LADDER.len() - 1];
        Self { budget, level, ratios, left: None, good: 0, patience: PATIENCE, exhausted: false, inside: 0 }
    }

    /// The present level.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The budget.
    pub fn budget(&self) -> Share {
        self.budget
    }

    /// Sets another budget. The learned ratios stay.
    pub fn set_budget(&mut self, budget: Share) {
        self.budget = budget;
        (self.good, self.patience, self.exhausted, self.inside) = (0, PATIENCE, false, 0);
    }

    /// Whether the longest delays are not enough.
    pub fn exhausted(&self) -> bool {
        self.exhausted
    }

    /// Takes a measurement. It must have begun after the last change of the level.
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
        // A load that pauses for a moment does not end `exhausted`, so its return is not reported again.
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
        // After a fall of the load the next measurements come soon. After a failed lowering they take longer.
        let soon = self.good > 0 && self.patience == PATIENCE;
        Step { changed_from: None, exhausted: false, wait: if soon { UNSETTLED } else { SETTLED } }
    }

    fn go(&mut self, to: Level, measured: &Measured) -> Step {
        let from = std::mem::replace(&mut self.level, to);
        self.left = Some((from, measured.per_run()));
        self.good = 0;
        Step { changed_from: Some(from), exhausted: false, wait: UNSETTLED }
    }

    /// Learns the ratio of the last change of the level. Returns whether that change was a lowering.
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

    /// A host: the cost of a run at each level, and how often programs run.
    #[derive(Clone, Debug)]
    struct Host {
        run_ns: [f64; LADDER.len()],
        runs_per_s: f64,
    }

    impl Host {
        /// `error` is the error of the measurement, as a factor.
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
            // From the longest delay down, each level costs more than the level above it.
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

    /// Runs `steps` steps, and returns the level after each.
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
            // The level is no higher than needed: the level below costs more than the budget, or nearly as much.
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
            // Errors of up to 5% either way, from a plain generator.
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
            // The load is so small that the cost without any delay is well within the budget.
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
            // Each change of the load moves the level at most once through all levels.
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
        // It is reported again after the delays were enough in between.
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
        // The cost of a run changes with the level in a way that no ratio can predict. So each wait is longer than the last.
        let mut controller = Controller::new(Share::millionths(10_000), Level(1));
        let (cheap, dear) = (0.3, 1.2);
        let mut waits = Vec::new();
        let mut since = 0;
        for _ in 0..300 {
            let share = if controller.level() == Level(1) { cheap } else { dear };
            // These are too few runs to learn a ratio.
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
