// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which counters of a reading are shown, and in which order.

use super::{Counter, CounterKind, Counters, Scope, is_trouble};

/// The choice of counters to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Show the values, and not the changes since the previous reading.
    pub totals: bool,
    /// The counters.
    pub shown: Shown,
    /// Only counters that stand for trouble: see [`is_trouble`].
    pub errors: bool,
    /// Their order.
    pub order: Order,
    /// The largest number of counters of each scope.
    pub rows: Option<usize>,
}

/// The counters that are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    /// The counters that have changed since the previous reading.
    #[default]
    Changed,
    /// The counters that are not zero.
    NotZero,
    /// All.
    All,
}

/// The order of counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By the change since the previous reading, largest first; without a previous reading, by the value.
    #[default]
    Change,
    /// The value, largest first.
    Total,
    /// By the imbalance between the CPUs, largest first.
    Imbalance,
    /// In the kernel's order: by protocol.
    Kernel,
}

/// A counter that is shown, and its protocol's name.
pub(crate) type Line<'a> = (&'static str, &'a Counter);

impl Choice {
    /// The shown counters of a scope, and the number of counters that only the limit hides.
    pub(crate) fn lines<'a>(&self, scope: &'a Scope) -> (Vec<Line<'a>>, usize) {
        let all = scope.protocols.iter().flat_map(|p| p.counters.iter().map(|counter| (p.name, counter)));
        let mut lines: Vec<Line> = all.filter(|(_, counter)| self.is_shown(counter)).collect();
        match self.order {
            Order::Kernel => {}
            // The sort is stable: equal counters stay in the kernel's order. Gauges come after counts.
            Order::Change => lines.sort_by_key(|(_, c)| std::cmp::Reverse(c.change().or_else(|| count(c)))),
            Order::Total => lines.sort_by_key(|(_, c)| std::cmp::Reverse(count(c))),
            Order::Imbalance => lines.sort_by(|(_, a), (_, b)| self.imbalance(b).total_cmp(&self.imbalance(a))),
        }
        let hidden = self.rows.map_or(0, |rows| lines.len().saturating_sub(rows));
        lines.truncate(lines.len() - hidden);
        (lines, hidden)
    }

    fn is_shown(&self, counter: &Counter) -> bool {
        self.shown.is(counter) && (!self.errors || is_trouble(&counter.name))
    }

    /// The numbers in the columns of CPUs: the changes; the values if these are asked for, or without a previous reading. `None`
    /// for a gauge, because parts of a gauge have no meaning.
    pub(crate) fn parts(&self, counter: &Counter) -> Option<Vec<u64>> {
        if counter.kind == CounterKind::Gauge || counter.now.cpus.is_empty() {
            return None;
        }
        let changes = if self.totals { None } else { counter.cpu_changes() };
        Some(changes.unwrap_or_else(|| counter.now.cpus.clone()))
    }

    fn imbalance(&self, counter: &Counter) -> f64 {
        self.parts(counter).as_deref().and_then(Counter::imbalance).unwrap_or(0.0)
    }

    /// The number of shown counters of a reading.
    pub fn count(&self, counters: &Counters) -> usize {
        counters.scopes.iter().map(|scope| self.lines(scope).0.len()).sum()
    }
}

/// The value of a count; `None` for a gauge, whose value may be negative, and is not comparable.
fn count(counter: &Counter) -> Option<u64> {
    (counter.kind == CounterKind::Count).then_some(counter.now.all)
}

impl Shown {
    fn is(self, counter: &Counter) -> bool {
        match self {
            Self::All => true,
            Self::NotZero => counter.now.all != 0,
            // The kernel has counters that it shows only once they count: a counter that was missing before has changed.
            Self::Changed => {
                counter.before.as_ref().map_or(counter.now.all != 0, |before| before.all != counter.now.all)
            }
        }
    }
}
