// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What topstat itself costs, for `<root>/self`: what was measured last, and what the budget has done. [`Cost`] is shared
//! by those who read that, and by the thread that measures, the [`Keeper`].

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

/// Whoever reads older figures has new ones measured: one second in sixty at most.
const FRESH: Duration = Duration::from_secs(60);
/// Changes that are remembered.
const HISTORY: usize = 16;

/// What was measured last, and what the budget has done.
pub struct Cost {
    states: Vec<Arc<dyn State>>,
    began: (Instant, SystemTime),
    shown: Mutex<Shown>,
    orders: SyncSender<Order>,
}

/// What is shown of it.
#[derive(Clone, Default)]
pub struct Shown {
    pub measured: Option<Measurement>,
    /// Why there is no measurement, or none since.
    pub failed: Option<String>,
    /// What is to be kept to.
    pub budget: Option<Share>,
    pub level: Level,
    /// The longest delays are not enough.
    pub exhausted: bool,
    pub changes: VecDeque<Change>,
}

/// A change of the level.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    pub time: String,
    pub from: usize,
    pub to: usize,
    /// The share that was measured before.
    pub share: f64,
}

/// All that `self` shows of it, at one moment.
pub struct Report<'a> {
    pub states: &'a [Arc<dyn State>],
    pub since: SystemTime,
    pub uptime: Duration,
    pub shown: Shown,
}

impl Cost {
    /// Of these states; and what is to be started to measure them, and to keep to the budget.
    pub fn new(states: Vec<Arc<dyn State>>, budget: Option<Share>) -> (Arc<Self>, Keeper) {
        // Room for one, see `look`.
        let (orders, ordered) = sync_channel(1);
        let shown = Mutex::new(Shown { budget, ..Shown::default() });
        let began = (Instant::now(), SystemTime::now());
        let cost = Arc::new(Self { states, began, shown, orders });
        let keeper = Keeper::new(Arc::clone(&cost), ordered);
        (cost, keeper)
    }

    /// What is known now. Has it measured again where it is old.
    pub(super) fn report(&self) -> Report<'_> {
        let shown = self.shown().clone();
        if shown.measured.as_ref().is_none_or(|measured| measured.taken.elapsed() >= FRESH) {
            self.look();
        }
        Report { states: &self.states, since: self.began.1, uptime: self.began.0.elapsed(), shown }
    }

    /// Another budget, or none: delays are then as users want them.
    pub fn set_budget(&self, budget: Option<Share>) {
        if std::mem::replace(&mut self.shown().budget, budget) != budget {
            self.look();
        }
    }

    /// Has the keeper look. Where it has not yet done so for somebody else, it looks once for both.
    fn look(&self) {
        let _ = self.orders.try_send(Order::Look);
    }

    /// Has the keeper end, where there is one.
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
