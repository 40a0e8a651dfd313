// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of topstat itself, for `<root>/self`: the last measurement, and the changes that the budget has made. The threads
//! that read the report and the thread that measures, the [`Keeper`], share a [`Cost`].

use std::collections::VecDeque;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use topstat_kernel::State;

use super::budget::Level;
use super::keeper::{Keeper, Order};
use super::measure::Measurement;
use crate::config::Share;
use crate::lock::lock;

/// A read of figures older than this starts a new measurement. So reads cause at most one second of measuring in sixty.
const FRESH: Duration = Duration::from_secs(60);
/// How many changes of the level are remembered.
const HISTORY: usize = 16;

/// The last measurement, and the changes that the budget has made.
pub struct Cost {
    states: Vec<Arc<dyn State>>,
    began: (Instant, SystemTime),
    shown: Mutex<Shown>,
    orders: SyncSender<Order>,
}

/// The figures of the cost that `self` shows.
#[derive(Clone, Default)]
pub struct Shown {
    pub measured: Option<Measurement>,
    /// Why there is no measurement, or no newer one.
    pub failed: Option<String>,
    /// The budget, if one is set.
    pub budget: Option<Share>,
    pub level: Level,
    /// Whether the longest delays are not enough for the budget.
    pub exhausted: bool,
    pub changes: VecDeque<Change>,
}

/// A change of the level.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    pub time: String,
    pub from: usize,
    pub to: usize,
    /// The share of each CPU that was measured before the change.
    pub share: f64,
}

/// All that `self` shows of the cost, at one moment.
pub struct Report<'a> {
    pub states: &'a [Arc<dyn State>],
    pub since: SystemTime,
    pub uptime: Duration,
    pub shown: Shown,
}

impl Cost {
    /// The cost of these states, and the keeper that measures them and keeps to the budget. The caller starts the keeper.
    pub fn new(states: Vec<Arc<dyn State>>, budget: Option<Share>) -> (Arc<Self>, Keeper) {
        // Room for one order, see `look`.
        let (orders, ordered) = sync_channel(1);
        let shown = Mutex::new(Shown { budget, ..Shown::default() });
        let began = (Instant::now(), SystemTime::now());
        let cost = Arc::new(Self { states, began, shown, orders });
        let keeper = Keeper::new(Arc::clone(&cost), ordered);
        (cost, keeper)
    }

    /// The present figures. If they are old, the keeper measures again.
    pub(super) fn report(&self) -> Report<'_> {
        let shown = self.shown().clone();
        if shown.measured.as_ref().is_none_or(|measured| measured.taken.elapsed() >= FRESH) {
            self.look();
        }
        Report { states: &self.states, since: self.began.1, uptime: self.began.0.elapsed(), shown }
    }

    /// Sets another budget, or none. Without a budget delays are as users set them.
    pub fn set_budget(&self, budget: Option<Share>) {
        if std::mem::replace(&mut self.shown().budget, budget) != budget {
            self.look();
        }
    }

    /// Sends the keeper an order to look. If an earlier order still waits, the keeper looks once for both.
    fn look(&self) {
        let _ = self.orders.try_send(Order::Look);
    }

    /// Ends the keeper's thread, if it runs.
    pub(super) fn stop(&self) {
        let _ = self.orders.send(Order::Stop);
    }

    pub(super) fn states(&self) -> &[Arc<dyn State>] {
        &self.states
    }

    pub(super) fn shown(&self) -> MutexGuard<'_, Shown> {
        lock(&self.shown)
    }
}

impl Shown {
    /// Remembers a change of the level.
    pub fn remember(&mut self, change: Change) {
        if self.changes.len() == HISTORY {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::measure::tests::second;

    #[test]
    fn figures_are_measured_when_they_are_asked_for_and_old() {
        let (cost, keeper) = Cost::new(vec![], None);
        let asked = || keeper.orders().try_iter().count();
        assert!(cost.report().shown.measured.is_none() && cost.report().shown.measured.is_none());
        assert_eq!(asked(), 1, "there are none, and that was said once");
        cost.shown().measured = Some(second(SystemTime::now()));
        assert!(cost.report().shown.measured.is_some());
        assert_eq!(asked(), 0, "they are fresh");
        let Some(taken) = Instant::now().checked_sub(FRESH) else { return };
        cost.shown().measured = Some(Measurement { taken, ..second(SystemTime::now()) });
        assert!(cost.report().shown.measured.is_some());
        assert_eq!(asked(), 1, "they are old");
    }
}
