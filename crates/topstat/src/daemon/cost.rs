// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What topstat itself costs, for `<root>/self`: what is pushed, what a push takes, CPU and memory of the daemon, memory
//! of the maps; and the budget, kept by raising delays.
//!
//! A thread of its own measures: for [`WINDOW`], when it begins, then when somebody has read the figures and they are
//! older than [`FRESH`]; with a budget, as often as the controller wants. In between it sleeps.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use topstat_kernel::cost::{Meter, Runs};
use topstat_kernel::{Program, State, TableInfo, TableSettings, update};

use super::budget::{Controller, Level, Measured};
use super::caps;
use crate::config::Share;

/// How long runs are counted: long enough for a share of a hundredth of a percent, short enough not to be felt.
const WINDOW: Duration = Duration::from_secs(1);
/// Who reads older figures has new ones measured: one second in sixty at most.
const FRESH: Duration = Duration::from_secs(60);
/// With a budget: when it is tried again to measure, after that has failed.
const RETRY: Duration = Duration::from_secs(10);
/// So many failures in a row, a minute of them, and delays are as users want them: a budget that nobody can check must
/// not raise them for good.
const FAILURES_MOST: u32 = 6;
/// Changes that are remembered.
const HISTORY: usize = 16;

/// What was measured last, and what the budget has done. Shared by those who read it and the thread that measures.
pub struct Cost {
    states: Vec<Arc<dyn State>>,
    began: (Instant, SystemTime),
    inner: Mutex<Inner>,
    wake: Condvar,
}

#[derive(Default)]
struct Inner {
    asked: bool,
    stop: bool,
    /// What is to be kept to, and whether that was just changed.
    budget: Option<Share>,
    budget_changed: bool,
    measured: Option<Measurement>,
    /// Why there is none, or none since.
    failed: Option<String>,
    level: Level,
    exhausted: bool,
    changes: VecDeque<Change>,
}

/// One window.
#[derive(Clone)]
pub struct Measurement {
    pub at: SystemTime,
    taken: Instant,
    pub elapsed: Duration,
    pub cpus: u32,
    pub programs: Vec<(Program, Runs)>,
    /// What the kernel's clock reading has added to each run.
    pub empty_run_ns: f64,
    pub map_bytes: u64,
    pub storage_bytes: u64,
}

/// A change of the level.
#[derive(Clone, Copy)]
pub struct Change {
    pub at: SystemTime,
    pub from: Level,
    pub to: Level,
    /// The share that was measured before.
    pub share: f64,
}

/// All that `self` shows, at one moment.
pub struct Report<'a> {
    pub states: &'a [Arc<dyn State>],
    pub since: SystemTime,
    pub uptime: Duration,
    pub measured: Option<Measurement>,
    pub failed: Option<String>,
    pub budget: Option<Share>,
    pub level: Level,
    pub exhausted: bool,
    pub changes: Vec<Change>,
}

impl Measurement {
    /// Time of all runs, without what measuring has added.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it is an estimate
    pub fn cost_ns(&self, runs: &Runs) -> u64 {
        (runs.time_ns as f64 - runs.count as f64 * self.empty_run_ns).max(0.0) as u64
    }

    /// The whole of it.
    pub fn measured(&self) -> Measured {
        Measured {
            cost_ns: self.programs.iter().map(|(_, runs)| self.cost_ns(runs)).sum(),
            runs: self.programs.iter().map(|(_, runs)| runs.count).sum(),
            elapsed_ns: u64::try_from(self.elapsed.as_nanos()).unwrap_or(u64::MAX),
            cpus: self.cpus,
        }
    }
}

impl Cost {
    /// Of these states.
    pub fn new(states: Vec<Arc<dyn State>>, budget: Option<Share>) -> Arc<Self> {
        let inner = Inner { asked: true, budget, budget_changed: true, ..Inner::default() };
        let began = (Instant::now(), SystemTime::now());
        Arc::new(Self { states, began, inner: Mutex::new(inner), wake: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known now. Has it measured again where it is old.
    pub(super) fn report(&self) -> Report<'_> {
        let mut inner = self.lock();
        if inner.measured.as_ref().is_none_or(|measured| measured.taken.elapsed() >= FRESH) {
            inner.asked = true;
            self.wake.notify_all();
        }
        Report {
            states: &self.states,
            since: self.began.1,
            uptime: self.began.0.elapsed(),
            measured: inner.measured.clone(),
            failed: inner.failed.clone(),
            budget: inner.budget,
            level: inner.level,
            exhausted: inner.exhausted,
            changes: inner.changes.iter().copied().collect(),
        }
    }

    /// Another budget, or none: delays are then as users want them.
    pub fn set_budget(&self, budget: Option<Share>) {
        let mut inner = self.lock();
        if inner.budget != budget {
            (inner.budget, inner.budget_changed) = (budget, true);
            self.wake.notify_all();
        }
    }

    /// Starts to measure, and to keep to the budget.
    ///
    /// # Errors
    ///
    /// When there can be no thread.
    pub fn start(self: &Arc<Self>) -> std::io::Result<Keeper> {
        let cost = Arc::clone(self);
        let thread = std::thread::Builder::new().name("topstat-cost".to_owned()).spawn(move || cost.run())?;
        Ok(Keeper { cost: Arc::clone(self), thread: Some(thread) })
    }

    fn run(&self) {
        let mut meter = None;
        self.measure_by(RETRY, || self.measure(&mut meter));
    }

    /// Measures by a function, which gives nothing once the daemon stops; where that fails, again after `retry`.
    fn measure_by(
        &self,
        retry: Duration,
        mut measure: impl FnMut() -> Result<Option<Measurement>, topstat_kernel::Error>,
    ) {
        let mut failures = Failures::default();
        let mut controller: Option<Controller> = None;
        let mut next: Option<Instant> = None;
        loop {
            {
                let mut inner = self.lock();
                while !inner.stop && !inner.asked && !inner.budget_changed && next.is_none_or(|at| at > Instant::now())
                {
                    inner = match next {
                        None => self.wake.wait(inner).unwrap_or_else(PoisonError::into_inner),
                        Some(at) => {
                            let left = at.saturating_duration_since(Instant::now());
                            self.wake.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0
                        }
                    };
                }
                if inner.stop {
                    return;
                }
                inner.asked = false;
                if std::mem::take(&mut inner.budget_changed) {
                    let budget = inner.budget;
                    drop(inner);
                    self.adopt_budget(&mut controller, budget);
                }
            }
            next = match measure() {
                Ok(None) => return,
                Ok(Some(measurement)) => {
                    if failures.end() {
                        log::info!("what topstat costs is measured again");
                    }
                    let measured = self.take_down(measurement);
                    controller.as_mut().map(|controller| Instant::now() + self.keep(controller, &measured))
                }
                Err(error) => {
                    let news = failures.count();
                    self.fail(&error, news, &mut controller);
                    // Without a budget whoever reads the figures has it tried again.
                    controller.is_some().then(|| Instant::now() + retry)
                }
            };
        }
    }

    /// It could not be measured. The level stays as it is, until that has lasted for long.
    fn fail(&self, error: &topstat_kernel::Error, news: Option<News>, controller: &mut Option<Controller>) {
        self.lock().failed = Some(error.to_string());
        match (news, controller) {
            (Some(News::Begun), None) => log::warn!("what topstat costs is not measured: {error}"),
            (Some(News::Begun), Some(_)) => log::warn!(
                "what topstat costs is not measured: {error}; delays stay as they are, and it is tried again every {} s",
                RETRY.as_secs()
            ),
            (Some(News::Lasts), Some(controller)) => {
                log::warn!(
                    "what topstat costs can't be measured ({error}): no budget is kept until it can, and delays are as users want them"
                );
                *controller = Controller::new(controller.budget(), Level::default());
                self.set_level(Level::default());
                self.lock().exhausted = false;
            }
            _ => {}
        }
    }

    /// Keeps what was measured, for who reads it.
    fn take_down(&self, measurement: Measurement) -> Measured {
        let measured = measurement.measured();
        let mut inner = self.lock();
        let first = inner.measured.replace(measurement).is_none();
        inner.failed = None;
        drop(inner);
        if first {
            #[allow(clippy::cast_precision_loss)]
            let per_run = measured.cost_ns as f64 / (measured.runs as f64).max(1.0);
            let share = measured.share() * 100.0;
            log::info!(
                "in a second the programs ran {} times: {per_run:.0} ns each, {share:.3}% of each CPU",
                measured.runs
            );
        }
        measured
    }

    /// Counts runs for a while. Nothing where the daemon stops meanwhile. What fails is opened anew the next time.
    fn measure(&self, meter: &mut Option<Meter>) -> Result<Option<Measurement>, topstat_kernel::Error> {
        let opened = match meter.take() {
            Some(opened) => opened,
            None => {
                let programs = self.states.iter().flat_map(|state| state.programs()).collect();
                caps::raised(|| Meter::open(programs))?
            }
        };
        let measurement = self.measure_with(&opened)?;
        *meter = Some(opened);
        Ok(measurement)
    }

    fn measure_with(&self, meter: &Meter) -> Result<Option<Measurement>, topstat_kernel::Error> {
        let enabled = caps::raised(topstat_kernel::cost::enable)?;
        let (begun, before) = (Instant::now(), meter.read()?);
        if self.sleep(WINDOW) {
            return Ok(None);
        }
        let (elapsed, after) = (begun.elapsed(), meter.read()?);
        drop(enabled);
        let since = |(after, before): (&Runs, &Runs)| Runs {
            time_ns: after.time_ns.saturating_sub(before.time_ns),
            count: after.count.saturating_sub(before.count),
        };
        let runs = after.iter().zip(&before).map(since);
        Ok(Some(Measurement {
            at: SystemTime::now(),
            taken: Instant::now(),
            elapsed,
            cpus: online_cpus(),
            programs: meter.programs().cloned().zip(runs).collect(),
            empty_run_ns: meter.empty_run_ns(),
            map_bytes: meter.map_bytes()?,
            storage_bytes: meter.storage_bytes(),
        }))
    }

    /// Sleeps, unless the daemon stops. Says whether it does.
    fn sleep(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut inner = self.lock();
        while !inner.stop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            inner = self.wake.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// A budget was set, changed, or taken away.
    fn adopt_budget(&self, controller: &mut Option<Controller>, budget: Option<Share>) {
        match (budget, controller.as_mut()) {
            (None, _) => {
                *controller = None;
                self.set_level(Level::default());
                self.lock().exhausted = false;
            }
            (Some(budget), Some(controller)) => controller.set_budget(budget),
            (Some(budget), None) => {
                // Where a daemon that was killed has left off.
                let level = self.found_level();
                log::info!(
                    "the budget is {budget} of each CPU; delays begin at level {} of {}",
                    level.number(),
                    Level::LAST.number()
                );
                *controller = Some(Controller::new(budget, level));
                self.set_level(level);
            }
        }
    }

    /// Takes a step of the controller, and says when the next is due.
    fn keep(&self, controller: &mut Controller, measured: &Measured) -> Duration {
        let share = measured.share();
        let step = controller.step(measured);
        let (level, budget) = (controller.level(), controller.budget());
        // Also where it has not changed: a user may have set a period, on which delays depend.
        self.set_level(level);
        if let Some(from) = step.changed_from {
            let up = if level > from { "raised" } else { "lowered" };
            log::info!(
                "the programs took {:.3}% of each CPU, the budget is {budget}: delays {up} from level {} to {} of {} ({} ms of a period of 1 s)",
                share * 100.0,
                from.number(),
                level.number(),
                Level::LAST.number(),
                level.delay_ms(1000, 0),
            );
            let mut inner = self.lock();
            if inner.changes.len() == HISTORY {
                inner.changes.pop_front();
            }
            inner.changes.push_back(Change { at: SystemTime::now(), from, to: level, share });
        }
        if step.exhausted {
            log::warn!(
                "the programs take {:.3}% of each CPU with the longest delays, the budget is {budget}: disable tables, or allow more",
                share * 100.0
            );
        }
        self.lock().exhausted = controller.exhausted();
        step.wait
    }

    fn set_level(&self, level: Level) {
        self.lock().level = level;
        self.apply(level);
    }

    /// Raises delays to a level, where they are not.
    fn apply(&self, level: Level) {
        for (state, table) in self.tables() {
            let raised = |settings: &TableSettings| level.delay_ms(settings.period_ms, 0);
            // Mostly there is nothing to be changed, and nobody has to be waited for.
            if state.settings(table).is_ok_and(|settings| settings.raised_ms == raised(&settings)) {
                continue;
            }
            if let Err(error) = update(&**state, table, |settings| settings.raised_ms = raised(settings)) {
                log::warn!("cannot raise the delay of {}/{}: {error}", table.sample, table.name);
            }
        }
    }

    /// The level that delays are at: the highest of all, since tables may have had other periods then.
    fn found_level(&self) -> Level {
        let of = |(state, table): (&Arc<dyn State>, &Arc<TableInfo>)| {
            let settings = state.settings(table).ok()?;
            Some(Level::of_delay(settings.raised_ms, settings.period_ms))
        };
        self.tables().filter_map(of).max().unwrap_or_default()
    }

    fn tables(&self) -> impl Iterator<Item = (&Arc<dyn State>, &Arc<TableInfo>)> {
        self.states
            .iter()
            .flat_map(|state| state.samples().iter().flat_map(|sample| &sample.tables).map(move |table| (state, table)))
    }
}

/// Failures in a row, of which only some are news.
#[derive(Debug, Default)]
struct Failures(u32);

/// What is to be said of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// It is the first.
    Begun,
    /// There were [`FAILURES_MOST`].
    Lasts,
}

impl Failures {
    fn count(&mut self) -> Option<News> {
        self.0 = self.0.saturating_add(1);
        match self.0 {
            1 => Some(News::Begun),
            FAILURES_MOST => Some(News::Lasts),
            _ => None,
        }
    }

    /// It has succeeded. Says whether that is news.
    fn end(&mut self) -> bool {
        std::mem::take(&mut self.0) > 0
    }
}

/// The thread that measures. Dropping it ends it; delays stay as they are, for a daemon that comes after.
pub struct Keeper {
    cost: Arc<Cost>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.cost.lock().stop = true;
        self.cost.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of it is already written.
            let _ = thread.join();
        }
    }
}

/// CPUs that are online, whichever of them this process may use.
fn online_cpus() -> u32 {
    let cpus = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    cpus.and_then(|cpus| u32::try_from(cpus).ok()).unwrap_or(1).max(1)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A second in which two programs took 30 and 20 ns a run, and measuring added 10 ns to each.
    pub fn window(at: SystemTime) -> Measurement {
        let program = |name: &str, id, hook: &str| Program { name: name.to_owned(), id, hook: hook.to_owned() };
        Measurement {
            at,
            taken: Instant::now(),
            elapsed: Duration::from_secs(1),
            cpus: 2,
            programs: vec![
                (program("inet_ingress", 7, "cgroup ingress"), Runs { time_ns: 8_000_000, count: 200_000 }),
                (program("inet_egress", 8, "cgroup egress"), Runs { time_ns: 3_000_000, count: 100_000 }),
            ],
            empty_run_ns: 10.0,
            map_bytes: 582_112,
            storage_bytes: 888,
        }
    }

    #[test]
    fn what_measuring_adds_is_taken_off() {
        let window = window(SystemTime::UNIX_EPOCH);
        let measured = window.measured();
        assert_eq!((measured.cost_ns, measured.runs), (8_000_000, 300_000));
        assert!((measured.share() - 0.004).abs() < 1e-9);
        // A run that was shorter than what measuring takes is no gain.
        assert_eq!(window.cost_ns(&Runs { time_ns: 10, count: 5 }), 0);
    }

    #[test]
    fn figures_are_measured_when_they_are_asked_for_and_old() {
        let cost = Cost::new(vec![], None);
        std::mem::take(&mut cost.lock().asked);
        assert!(cost.report().measured.is_none() && cost.lock().asked, "there are none");
        let mut inner = cost.lock();
        (inner.asked, inner.measured) = (false, Some(window(SystemTime::now())));
        drop(inner);
        assert!(cost.report().measured.is_some() && !cost.lock().asked, "they are fresh");
        let mut old = window(SystemTime::now());
        let Some(taken) = old.taken.checked_sub(FRESH) else { return };
        old.taken = taken;
        cost.lock().measured = Some(old);
        assert!(cost.report().measured.is_some() && cost.lock().asked, "they are old");
    }

    #[test]
    fn a_failure_is_said_when_it_begins_and_when_it_lasts() {
        let mut failures = Failures::default();
        for _ in 0..2 {
            let said: Vec<_> = (0..1000).map(|_| failures.count()).collect();
            assert_eq!((said[0], said[FAILURES_MOST as usize - 1]), (Some(News::Begun), Some(News::Lasts)));
            assert_eq!(said.iter().flatten().count(), 2);
            assert!(failures.end() && !failures.end());
        }
    }

    /// What measuring brings, one after the other, with a budget of 1%: windows of this share of each CPU, or failures.
    /// Gives the budget's level and whether there is an error, after each.
    fn levels(script: &[Option<f64>]) -> Vec<(usize, bool)> {
        let cost = Cost::new(vec![], Share::budget("1%").unwrap());
        let (mut script, mut seen) = (script.iter(), Vec::new());
        cost.measure_by(Duration::ZERO, || {
            // What the last one came to; and the next is due now.
            let mut inner = cost.lock();
            seen.push((inner.level.number(), inner.failed.is_some()));
            inner.asked = true;
            drop(inner);
            let broken =
                || topstat_kernel::Error::Kernel { what: "measure".to_owned(), why: "it is broken".to_owned() };
            script.next().map(|share| share.ok_or_else(broken)).transpose().map(|share| {
                let mut window = window(SystemTime::now());
                window.programs.truncate(1);
                let time_ns = share? * window.elapsed.as_nanos() as f64 * f64::from(window.cpus);
                window.programs[0].1 = Runs { time_ns: time_ns as u64, count: 1 };
                Some(window)
            })
        });
        seen.split_off(1)
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
    fn the_thread_ends_when_it_is_told_to() {
        let cost = Cost::new(vec![], None);
        let began = Instant::now();
        drop(cost.start().unwrap());
        assert!(began.elapsed() < WINDOW, "it does not wait for the end of a window");
    }
}
