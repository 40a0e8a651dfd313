// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The engine's results, computed in the plain way: the model keeps all pushes, and sums them for each question.

use std::collections::BTreeMap;
use topstat_engine::{Value, ts_config};

/// Slides in a period: the number that window.h promises, not its constant.
pub const SLIDES: u64 = 10;

#[derive(Clone, Copy, Debug)]
pub struct Push {
    pub ns: u64,
    pub table: usize,
    /// 0: a push to the total alone.
    pub id: u64,
    /// The amount was refused: the object did not get it.
    pub refused: bool,
    pub part: usize,
    pub amount: u64,
}

/// A push in ticks of a table's clock.
#[derive(Clone, Copy, Debug)]
pub struct Tick {
    pub ticks: u64,
    pub part: usize,
    pub amount: u64,
}

/// Sums of the pushes that are certainly in the period, and of the slide that the period begins in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    pub recent: [u64; 2],
    pub fading: [u64; 2],
    first: u64,
    last: u64,
}

fn fraction(config: &ts_config, ticks: u64) -> u64 {
    ((ticks % config.slide) * config.fraction) >> 48
}

impl Sums {
    /// The sums of pushes in any order, at the moment `now`.
    pub fn of(pushes: impl IntoIterator<Item = Tick>, config: &ts_config, now: u64) -> Self {
        let mut sums = Self { first: u64::MAX, ..Self::default() };
        let slide = now / config.slide;
        for push in pushes {
            let age = slide.saturating_sub(push.ticks / config.slide);
            if age < SLIDES {
                sums.recent[push.part] += push.amount;
            } else if age == SLIDES {
                let place = fraction(config, push.ticks);
                sums.first = sums.first.min(place);
                sums.last = sums.last.max(place);
                sums.fading[push.part] += push.amount;
            }
        }
        sums
    }

    /// The value by the definition in window.h: the fading slide's pushes are spread evenly from the first to the last of them,
    /// and the value is rounded to the nearest unit.
    pub fn value(&self, config: &ts_config, now: u64) -> Value {
        let place = fraction(config, now);
        let fade = |sum: u64| {
            let (sum, whole) = (u128::from(sum), u128::from(self.last.wrapping_sub(self.first)) + 1);
            let left = u128::from((self.last + 1).saturating_sub(place)).min(whole);
            u64::try_from((sum * left + whole / 2) / whole).expect("less than the sum")
        };
        if self.fading == [0, 0] {
            return Value { value: self.recent[0] + self.recent[1], parts: self.recent };
        }
        let value = self.recent[0] + self.recent[1] + fade(self.fading[0] + self.fading[1]);
        let received = self.recent[0] + fade(self.fading[0]);
        Value { value, parts: [received, value - received] }
    }

    pub fn least(&self) -> u64 {
        self.recent[0] + self.recent[1]
    }

    pub fn most(&self) -> u64 {
        self.least() + self.fading[0] + self.fading[1]
    }
}

/// Every push to every table.
#[derive(Debug, Default)]
pub struct Model {
    pub pushes: Vec<Push>,
}

impl Model {
    /// The pushes to a table, by object: the pushes that the object got, or the pushes that were refused.
    pub fn by_object(&self, table: usize, since: usize, refused: bool) -> BTreeMap<u64, Vec<Push>> {
        let mut objects = BTreeMap::<u64, Vec<Push>>::new();
        for push in self.pushes[since..].iter().filter(|push| push.table == table && push.refused == refused) {
            objects.entry(push.id).or_default().push(*push);
        }
        objects
    }

    /// The running total of pushes.
    pub fn sum<'a>(pushes: impl IntoIterator<Item = &'a Push>) -> Value {
        let mut v = Value::default();
        for push in pushes {
            v.parts[push.part] += push.amount;
            v.value += push.amount;
        }
        v
    }
}
