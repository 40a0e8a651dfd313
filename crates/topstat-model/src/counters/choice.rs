// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which counters of a reading are shown, and in which order.

use super::{Counter, CounterKind, Counters, Scope};

/// What is shown of a reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// What they stand at, and not what has come since the reading before.
    pub totals: bool,
    /// Which counters.
    pub shown: Shown,
    /// In which order.
    pub order: Order,
    /// How many of each scope at most.
    pub rows: Option<usize>,
}

/// Which counters are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    /// Those that have changed since the reading before.
    #[default]
    Changed,
    /// Those that are not zero.
    NotZero,
    /// All.
    All,
}

/// In which order counters are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// What has come since the reading before, largest first; where there is none, the value.
    #[default]
    Change,
    /// The value, largest first.
    Total,
    /// By how unevenly the CPUs share in it, most uneven first.
    Imbalance,
    /// The kernel's: by protocol.
    Kernel,
}

/// A counter that is shown, and its protocol's name.
pub(crate) type Line<'a> = (&'static str, &'a Counter);

impl Choice {
    /// The counters of a scope that are shown, and how many others would have been but for the limit.
    pub(crate) fn lines<'a>(&self, scope: &'a Scope) -> (Vec<Line<'a>>, usize) {
        let all = scope.protocols.iter().flat_map(|p| p.counters.iter().map(|counter| (p.name, counter)));
        let mut lines: Vec<Line> = all.filter(|(_, counter)| self.shown.is(counter)).collect();
        match self.order {
            Order::Kernel => {}
            // Stable: those that are equal stay in the kernel's order. Levels come after what is counted.
            Order::Change => lines.sort_by_key(|(_, c)| std::cmp::Reverse(c.change().or_else(|| count(c)))),
            Order::Total => lines.sort_by_key(|(_, c)| std::cmp::Reverse(count(c))),
            Order::Imbalance => lines.sort_by(|(_, a), (_, b)| self.imbalance(b).total_cmp(&self.imbalance(a))),
        }
        let hidden = self.rows.map_or(0, |rows| lines.len().saturating_sub(rows));
        lines.truncate(lines.len() - hidden);
        (lines, hidden)
    }

    /// What a column of a CPU shows: the changes, or the values where these are asked for, or where there is no reading
    /// before. Of a gauge, nothing: parts of it mean nothing.
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

    /// How many counters of a reading are shown.
    pub fn count(&self, counters: &Counters) -> usize {
        counters.scopes.iter().map(|scope| self.lines(scope).0.len()).sum()
    }
}

/// A gauge's value is no count: it may be negative, and a large one says nothing.
fn count(counter: &Counter) -> Option<u64> {
    (counter.kind == CounterKind::Count).then_some(counter.now.all)
}

impl Shown {
    fn is(self, counter: &Counter) -> bool {
        match self {
            Self::All => true,
            Self::NotZero => counter.now.all != 0,
            // The kernel has counters that it shows only once they count: what was not there before has changed.
            Self::Changed => {
                counter.before.as_ref().map_or(counter.now.all != 0, |before| before.all != counter.now.all)
            }
        }
    }
}
