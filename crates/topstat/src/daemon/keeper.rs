// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that measures the cost of topstat, and keeps it within the budget by raising delays.
//!
//! It measures for [`WINDOW`] when it begins, and after a read of old figures. With a budget it measures as often as the
//! controller asks. In between it sleeps.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use topstat_kernel::{Error, State, TableInfo, TableSettings, update};

use super::budget::{Controller, Level};
use super::cost::{Change, Cost};
use super::measure::{Gauge, Measurement, Window};
use crate::config::Share;
use topstat_model::rfc3339;

/// How long runs are counted: long enough to measure a share of a hundredth of a percent, and short enough to go unnoticed.
const WINDOW: Duration = Duration::from_secs(1);
/// With a budget: the time from a failed measurement to the next try.
const RETRY: Duration = Duration::from_secs(10);
/// After this many failures in a row, which take a minute, delays are again as users set them: a budget that can't be checked
/// must not raise delays for good.
const FAILURES_MOST: u32 = 6;

/// An order to the thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// A reader wants new figures, or the budget has changed.
    Look,
    /// The daemon ends.
    Stop,
}

/// The state of the thread.
pub struct Keeper {
    cost: Arc<Cost>,
    orders: Receiver<Order>,
    gauge: Gauge,
    /// Only with a budget.
    controller: Option<Controller>,
    /// How many measurements in a row have failed.
    failures: u32,
}

/// The running thread. The drop of this value ends it. Delays stay as they are, for the next daemon.
pub struct Running {
    cost: Arc<Cost>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cost.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is already written.
            let _ = thread.join();
        }
    }
}

impl Keeper {
    /// A keeper that takes these orders, and publishes its results in `cost`.
    pub fn new(cost: Arc<Cost>, orders: Receiver<Order>) -> Self {
        let gauge = Gauge::new(cost.states().to_vec());
        Self { cost, orders, gauge, controller: None, failures: 0 }
    }

    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// When the thread can't be started.
    pub fn start(self) -> std::io::Result<Running> {
        let cost = Arc::clone(&self.cost);
        let thread = thread::Builder::new().name("topstat-cost".to_owned()).spawn(move || self.run())?;
        Ok(Running { cost, thread: Some(thread) })
    }

    fn run(mut self) {
        let budget = self.cost.shown().budget;
        self.adopt_budget(budget);
        // The window in which the kernel counts now, if any. `due` is the end of this window or, without one, the start of the
        // next.
        let mut window: Option<Window> = None;
        let mut due = Some(Instant::now());
        loop {
            let order = match due {
                Some(at) => self.orders.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => self.orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match order {
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Order::Look) => {
                    let budget = self.cost.shown().budget;
                    if budget != self.controller.as_ref().map(Controller::budget) {
                        self.adopt_budget(budget);
                        // The counts of this window belong to other delays.
                        window = None;
                    }
                    if window.is_none() {
                        due = Some(Instant::now());
                    }
                }
                Err(RecvTimeoutError::Timeout) => (window, due) = self.go_on(window),
            }
        }
    }

    /// Begins a window, or ends the present one. Returns the window that is open now, and the time of the next call. Without a
    /// time the next order causes the next call.
    fn go_on(&mut self, window: Option<Window>) -> (Option<Window>, Option<Instant>) {
        let done = match window {
            None => match self.gauge.begin() {
                Ok(window) => return (Some(window), Some(Instant::now() + WINDOW)),
                Err(error) => self.failed(&error),
            },
            Some(window) => match self.gauge.end(window) {
                Ok(measured) => self.measured(measured),
                Err(error) => self.failed(&error),
            },
        };
        (None, done.map(|wait| Instant::now() + wait))
    }

    /// Publishes a measurement, and takes a step of the controller. Returns the wait until the next measurement; `None` without a
    /// budget.
    fn measured(&mut self, measured: Measurement) -> Option<Duration> {
        if std::mem::take(&mut self.failures) > 0 {
            log::info!("what topstat costs is measured again");
        }
        let (all, share, runs) = (measured.all, measured.share, measured.runs);
        let per_run = measured.ns_per_run.unwrap_or(0.0);
        let first = {
            let mut shown = self.cost.shown();
            shown.failed = None;
            shown.measured.replace(measured).is_none()
        };
        if first {
            let percent = share * 100.0;
            log::info!("in a second the programs ran {runs} times: {per_run:.0} ns each, {percent:.3}% of each CPU");
        }
        let controller = self.controller.as_mut()?;
        let step = controller.step(&all);
        let (level, budget, exhausted) = (controller.level(), controller.budget(), controller.exhausted());
        // Delays are set even if the level has not changed: a user may have set a period, on which delays depend.
        self.set_level(level, exhausted);
        if let Some(from) = step.changed_from {
            let up = if level > from { "raised" } else { "lowered" };
            let (from, to) = (from.number(), level.number());
            log::info!(
                "the programs took {:.3}% of each CPU, the budget is {budget}: delays {up} from level {from} to {to} of {} ({} ms of a period of 1 s)",
                share * 100.0,
                Level::LAST.number(),
                level.delay_ms(1000, 0),
            );
            self.cost.shown().remember(Change { time: rfc3339(SystemTime::now()), from, to, share });
        }
        if step.exhausted {
            log::warn!(
                "the programs take {:.3}% of each CPU with the longest delays, the budget is {budget}: disable tables, or allow more",
                share * 100.0
            );
        }
        Some(step.wait)
    }

    /// Handles a failed measurement. The log gets the first failure in a row. With a budget the log also gets failure number
    /// [`FAILURES_MOST`], which sets level 0; until then the level stays. Returns the wait until the next try. It is `None`
    /// without a budget: then the next order causes a try.
    fn failed(&mut self, error: &Error) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        self.cost.shown().failed = Some(error.to_string());
        let Some(controller) = &self.controller else {
            if self.failures == 1 {
                log::warn!("what topstat costs is not measured: {error}");
            }
            return None;
        };
        match self.failures {
            1 => log::warn!(
                "what topstat costs is not measured: {error}; delays stay as they are, and it is tried again every {} s",
                RETRY.as_secs()
            ),
            FAILURES_MOST => {
                log::warn!(
                    "what topstat costs can't be measured ({error}): no budget is kept until it can, and delays are as users want them"
                );
                self.controller = Some(Controller::new(controller.budget(), Level::default()));
                self.set_level(Level::default(), false);
            }
            _ => {}
        }
        Some(RETRY)
    }

    /// Adopts a budget that was set, changed or removed.
    fn adopt_budget(&mut self, budget: Option<Share>) {
        match (budget, &mut self.controller) {
            (None, _) => {
                self.controller = None;
                self.set_level(Level::default(), false);
            }
            (Some(budget), Some(controller)) => controller.set_budget(budget),
            (Some(budget), None) => {
                // The level goes on from the delays that a killed daemon has left.
                let level = self.found_level();
                log::info!(
                    "the budget is {budget} of each CPU; delays begin at level {} of {}",
                    level.number(),
                    Level::LAST.number()
                );
                self.controller = Some(Controller::new(budget, level));
                self.set_level(level, false);
            }
        }
    }

    /// Publishes a level, and sets the raised delays of all tables to it where they differ.
    fn set_level(&self, level: Level, exhausted: bool) {
        {
            let mut shown = self.cost.shown();
            (shown.level, shown.exhausted) = (level, exhausted);
        }
        for (state, table) in self.tables() {
            let raised = |settings: &TableSettings| level.delay_ms(settings.period_ms, 0);
            // Mostly the delay is right already. Then `update`, which may have to wait, is left out.
            if state.settings(table).is_ok_and(|settings| settings.raised_ms == raised(&settings)) {
                continue;
            }
            if let Err(error) = update(&**state, table, |settings| settings.raised_ms = raised(settings)) {
                log::warn!("cannot raise the delay of {}: {error}", table.path());
            }
        }
    }

    /// The level of the present delays: the highest of all tables, since a table may have had another period when its delay was
    /// raised.
    fn found_level(&self) -> Level {
        let settings = self.tables().filter_map(|(state, table)| state.settings(table).ok());
        settings.map(|settings| Level::of_delay(settings.raised_ms, settings.period_ms)).max().unwrap_or_default()
    }

    fn tables(&self) -> impl Iterator<Item = (&Arc<dyn State>, &Arc<TableInfo>)> {
        let states = self.cost.states().iter();
        let of = states.flat_map(|state| state.samples().iter().map(move |sample| (state, sample)));
        of.flat_map(|(state, sample)| sample.tables.iter().map(move |table| (state, table)))
    }

    /// The orders that the keeper has not taken yet.
    #[cfg(test)]
    pub fn orders(&self) -> &Receiver<Order> {
        &self.orders
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topstat_kernel::Program;
    use topstat_kernel::cost::Runs;

    /// Gives a keeper with a budget of 1% these measurements: each is the share of each CPU in a window, or `None` for a failure.
    /// Returns the level after each measurement, and whether there is an error.
    fn levels(script: &[Option<f64>]) -> Vec<(usize, bool)> {
        let (cost, mut keeper) = Cost::new(vec![], Share::budget("1%").unwrap());
        let budget = cost.shown().budget;
        keeper.adopt_budget(budget);
        let after = |share: &Option<f64>| {
            let next = match share {
                Some(share) => keeper.measured(of_share(*share)),
                None => keeper.failed(&broken()),
            };
            assert!(next.is_some(), "it goes on");
            let shown = cost.shown();
            (shown.level.number(), shown.failed.is_some())
        };
        script.iter().map(after).collect()
    }

    fn of_share(share: f64) -> Measurement {
        let (second, cpus) = (Duration::from_secs(1), 2);
        let time_ns = share * second.as_nanos() as f64 * f64::from(cpus);
        let program = Program { name: "inet_ingress".to_owned(), id: 7, hook: "cgroup ingress".to_owned() };
        let runs = Runs { time_ns: time_ns as u64, count: 1 };
        Measurement::new(SystemTime::now(), second, cpus, 0.0, [(&program, runs)].into_iter())
    }

    fn broken() -> Error {
        Error::Kernel { what: "measure".to_owned(), why: "it is broken".to_owned() }
    }

    #[test]
    fn a_measurement_that_fails_does_not_end_the_budget() {
        let (dear, broken) = (Some(0.5), None);
        assert_eq!(levels(&[dear, broken, dear]), [(1, false), (1, true), (2, false)], "it goes on where it was");
        assert_eq!(levels(&[broken, dear]), [(0, true), (1, false)], "also after the first one has failed");
    }

    #[test]
    fn delays_are_as_users_want_them_where_nobody_can_measure_for_long() {
        let mut script = vec![Some(0.5), Some(0.5)];
        script.extend([None; FAILURES_MOST as usize + 3]);
        script.push(Some(0.5));
        let levels: Vec<usize> = levels(&script).into_iter().map(|(level, _)| level).collect();
        let most = FAILURES_MOST as usize;
        assert_eq!(levels[..2 + most - 1], [vec![1, 2], vec![2; most - 1]].concat());
        assert_eq!(levels[2 + most - 1..], [vec![0; 4], vec![1]].concat());
    }

    #[test]
    fn without_a_budget_it_measures_when_somebody_asks() {
        let (cost, mut keeper) = Cost::new(vec![], None);
        assert_eq!((keeper.measured(of_share(0.5)), keeper.failed(&broken())), (None, None));
        cost.set_budget(None);
        assert_eq!(keeper.orders.try_recv().ok(), None, "it is the same");
        let one = Share::budget("1%").unwrap();
        cost.set_budget(one);
        assert_eq!((keeper.orders.try_recv().ok(), cost.shown().budget), (Some(Order::Look), one));
        keeper.adopt_budget(one);
        assert_eq!(keeper.failed(&broken()), Some(RETRY));
        assert!(keeper.measured(of_share(0.5)).is_some() && cost.shown().level.number() == 1);
        keeper.adopt_budget(None);
        assert!(keeper.controller.is_none() && cost.shown().level == Level::default());
    }

    #[test]
    fn the_thread_ends_when_it_is_told_to() {
        let (_, keeper) = Cost::new(vec![], None);
        let began = Instant::now();
        drop(keeper.start().unwrap());
        assert!(began.elapsed() < WINDOW, "it does not wait for the end of a window");
    }
}
