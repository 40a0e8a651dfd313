// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns readings of counters into the rows of a table.
//!
//! - **TC1** In a static table the value of a row is the state of its counter. In a dynamic table it is the growth between two
//!   readings, scaled to a period by the time that really passed.
//! - **TC2** A row is the sum of its parts on CPUs and of a rest that belongs to no CPU; so is the total. Rows and `other` add up
//!   to the total. This also holds after rates are rounded: of each object, the running sums over the CPUs are rounded, and not
//!   the parts.
//! - **TC3** An object that is not in the reading before counts from 0 if its counters began with it. Otherwise it counts from the
//!   state in which it was first seen.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

use topstat_model::{CpuRow, CpuSection, Field, Row};

/// Identifies an object in all readings.
pub type Key = [u64; 2];

/// An object, and the state of its counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tallied {
    /// Identifies it.
    pub key: Key,
    /// One field for each column of its sample; empty: [`Tallies::describe`](super::Tallies::describe) has it.
    pub object: Vec<Field>,
    /// As many as the table has parts, or one if the table has no parts. Their sum is the value.
    pub parts: Vec<u64>,
    /// The part of the sum on each CPU; empty where it is not known.
    pub cpus: Vec<u64>,
    /// Whether this is a level: it goes up and down, and has no rate.
    pub gauge: bool,
    /// Whether its counters began at 0 with it. If not, it may come from elsewhere, and may have counted there.
    pub from_zero: bool,
}

/// One reading of all objects of a sample, with the values that one table ranks by.
#[derive(Clone, Debug)]
pub struct Tally {
    /// When the reading was taken.
    pub time: SystemTime,
    /// As `time`, by the monotonic clock.
    pub instant: Instant,
    /// The numbers of the CPUs of [`Tallied::cpus`].
    pub cpus: Vec<u32>,
    /// All objects.
    pub objects: Vec<Tallied>,
    /// The name of the values, where it differs from the table's.
    pub value_name: Option<String>,
    /// Names and numbers of losses: counters or objects that could not be read.
    pub lost: Vec<(Cow<'static, str>, u64)>,
}

/// The rows and sums of a table.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ranked {
    pub rows: Vec<Row>,
    pub cpus: Vec<CpuSection>,
    pub total: u64,
    /// The part of the total that belongs to no CPU.
    pub shared: u64,
}

/// An object's value in a table.
struct Valued<'a> {
    key: Key,
    object: &'a [Field],
    value: u64,
    parts: Vec<u64>,
    cpus: Vec<u64>,
}

/// Scales changes between two readings to changes per period.
#[derive(Clone, Copy)]
struct Scale {
    period_ns: u128,
    elapsed_ns: u128,
}

impl Scale {
    fn of(self, change: u128) -> u64 {
        let scaled = (change * self.period_ns + self.elapsed_ns / 2) / self.elapsed_ns;
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// Scales the parts of a sum. Each scaled part is the growth of the scaled running sum, so that the parts add up to the
    /// scaled sum (TC2).
    fn parts(self, changes: &[u64]) -> Vec<u64> {
        let (mut sum, mut scaled) = (0_u128, 0);
        let part = |change: &u64| {
            sum += u128::from(*change);
            let before = std::mem::replace(&mut scaled, self.of(sum));
            scaled - before
        };
        changes.iter().map(part).collect()
    }
}

impl Tally {
    /// The rows of a static table: the states of counters, ranked.
    ///
    /// # Errors
    /// The values add up to more than a number holds.
    pub fn standing(&self, top: usize, cpu_rows: bool) -> Result<Ranked, TooMuch> {
        let valued = self.objects.iter().map(|one| {
            // A gauge's parts mean nothing. A gauge below 0 counts as 0.
            let parts: Vec<u64> = match one.gauge {
                true => one.parts.iter().map(|part| u64::try_from(part.cast_signed()).unwrap_or(0)).collect(),
                false => one.parts.clone(),
            };
            let cpus = if one.gauge { Vec::new() } else { one.cpus.clone() };
            Valued { key: one.key, object: &one.object, value: wrapping_sum(&parts), parts, cpus }
        });
        self.rank(valued.collect(), top, cpu_rows)
    }

    /// The rows of a dynamic table: the growth since another reading, per period, ranked. Objects without growth have no row.
    ///
    /// # Errors
    /// As [`Tally::standing`].
    pub fn since(&self, before: &Self, period: Duration, top: usize, cpu_rows: bool) -> Result<Ranked, TooMuch> {
        let elapsed_ns = self.instant.saturating_duration_since(before.instant).as_nanos().max(1);
        let scale = Scale { period_ns: period.as_nanos(), elapsed_ns };
        let earlier: HashMap<Key, &Tallied> = before.objects.iter().map(|one| (one.key, one)).collect();
        let valued = self.objects.iter().filter(|one| !one.gauge).filter_map(|one| {
            let earlier = earlier.get(&one.key).copied();
            if earlier.is_none() && !one.from_zero {
                return None; // TC3
            }
            let parts = one.changes(&one.parts, earlier.map(|e| e.parts.as_slice()));
            let mut cpus = one.changes(&one.cpus, earlier.map(|e| e.cpus.as_slice()));
            let sum = |parts: &[u64]| parts.iter().map(|part| u128::from(*part)).sum::<u128>();
            // A decrease on one CPU can't be told from an increase on another one.
            if sum(&cpus) != sum(&parts) {
                cpus.clear();
            }
            let value = scale.of(sum(&parts));
            (value > 0).then(|| Valued {
                key: one.key,
                object: &one.object,
                value,
                parts: scale.parts(&parts),
                cpus: scale.parts(&cpus),
            })
        });
        self.rank(valued.collect(), top, cpu_rows)
    }

    fn rank(&self, mut valued: Vec<Valued<'_>>, top: usize, cpu_rows: bool) -> Result<Ranked, TooMuch> {
        // The sort is stable: equal values stay in the order of reading.
        valued.sort_by_key(|one| Reverse(one.value));
        let total = sum(valued.iter().map(|one| one.value))?;
        let mut cpus = Vec::with_capacity(self.cpus.len());
        for (place, cpu) in self.cpus.iter().enumerate() {
            let part = |one: &Valued<'_>| one.cpus.get(place).copied().unwrap_or(0);
            let mut rows: Vec<_> = valued.iter().filter(|one| cpu_rows && part(one) > 0).collect();
            rows.sort_by_key(|one| Reverse(part(one)));
            rows.truncate(top);
            let rows = rows.into_iter().map(|one| CpuRow { value: part(one), object: one.object.to_vec() });
            let total = sum(valued.iter().map(part))?;
            cpus.push(CpuSection { cpu: *cpu, total, stale: false, rows: rows.collect() });
        }
        let by_cpu = sum(cpus.iter().map(|section| section.total))?;
        let rows = (1..).zip(valued.into_iter().take(top)).map(|(rank, one)| {
            let there = self.cpus.iter().zip(&one.cpus).filter(|(_, part)| **part > 0).map(|(cpu, _)| *cpu);
            let cpus = there.collect();
            // A value of one part is its own part, which is left out.
            let parts = if one.parts.len() > 1 { one.parts } else { Vec::new() };
            Row { id: one.key, rank, value: one.value, object: one.object.to_vec(), parts, cpus }
        });
        Ok(Ranked { rows: rows.collect(), cpus, total, shared: total.checked_sub(by_cpu).ok_or(TooMuch)? })
    }
}

/// The values of a table add up to more than a number holds; no real count comes near it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMuch;

fn sum(mut values: impl Iterator<Item = u64>) -> Result<u64, TooMuch> {
    values.try_fold(0, u64::checked_add).ok_or(TooMuch)
}

fn wrapping_sum(parts: &[u64]) -> u64 {
    parts.iter().copied().fold(0, u64::wrapping_add)
}

impl Tallied {
    /// The growth of each part.
    fn changes(&self, now: &[u64], before: Option<&[u64]>) -> Vec<u64> {
        let before = |place: usize| before.and_then(|before| before.get(place)).copied().unwrap_or(0);
        now.iter().enumerate().map(|(place, now)| self.change(*now, before(place))).collect()
    }

    /// The growth of a counter. A counter that stands lower has taken something back, as a few of the kernel's counters do. Or
    /// its object is known by name alone, and another object has the name by now, whose counter began anew. (Counters of 64 bits
    /// don't overflow.)
    fn change(&self, now: u64, before: u64) -> u64 {
        let began_anew = if self.from_zero { 0 } else { now };
        now.checked_sub(before).unwrap_or(began_anew)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tally(at_ms: u64, began: Instant, objects: Vec<Tallied>) -> Tally {
        Tally {
            time: SystemTime::UNIX_EPOCH,
            instant: began + Duration::from_millis(at_ms),
            cpus: vec![0, 3],
            objects,
            value_name: None,
            lost: Vec::new(),
        }
    }

    fn object(name: &str, cpus: [u64; 2]) -> Tallied {
        let key = [name.bytes().fold(0, |key, byte| key << 8 | u64::from(byte)), 0];
        let sum = cpus[0].wrapping_add(cpus[1]);
        let (object, parts) = (vec![name.into()], vec![sum]);
        Tallied { key, object, parts, cpus: cpus.to_vec(), gauge: false, from_zero: true }
    }

    fn values(ranked: &Ranked) -> Vec<(String, u64)> {
        ranked.rows.iter().map(|row| (row.object[0].to_string(), row.value)).collect()
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn rates_are_by_the_time_that_has_passed() {
        let began = Instant::now();
        let before = tally(0, began, vec![object("a", [10, 0]), object("b", [7, 7])]);
        let after = tally(2500, began, vec![object("a", [20, 15]), object("b", [7, 7]), object("c", [5, 0])]);
        let ranked = after.since(&before, SECOND, 8, true).unwrap();
        assert_eq!(values(&ranked), [("a".into(), 10), ("c".into(), 2)]);
        assert_eq!((ranked.total, ranked.shared), (12, 0));
        let sections: Vec<_> = ranked.cpus.iter().map(|s| (s.cpu, s.total, s.rows.len())).collect();
        assert_eq!(sections, [(0, 6, 2), (3, 6, 1)]);
        assert_eq!(ranked.rows[1].cpus, [0]);
    }

    #[test]
    fn what_comes_from_elsewhere_counts_from_when_it_was_seen() {
        let began = Instant::now();
        let moved = Tallied { from_zero: false, ..object("moved", [1 << 40, 0]) };
        let (none, one) = (tally(0, began, vec![]), tally(1000, began, vec![moved.clone()]));
        assert_eq!(one.since(&none, SECOND, 8, true).unwrap().total, 0);
        let two =
            tally(2000, began, vec![Tallied { parts: vec![(1 << 40) + 3], cpus: vec![(1 << 40) + 3, 0], ..moved }]);
        assert_eq!(two.since(&one, SECOND, 8, true).unwrap().total, 3);
        // The object was made anew under the same name.
        let anew = tally(3000, began, vec![Tallied { from_zero: false, ..object("moved", [9, 0]) }]);
        assert_eq!(anew.since(&two, SECOND, 8, true).unwrap().total, 9);
    }

    #[test]
    fn gauges_are_sums_without_parts_and_without_a_rate() {
        let began = Instant::now();
        let gauge = |cpus| Tallied { gauge: true, ..object("CurrEstab", cpus) };
        // Connections were made on one CPU, and ended on the other.
        let ups = [7_392, (-7_390_i64).cast_unsigned()];
        let before = tally(0, began, vec![gauge([0, 0])]);
        let after = tally(1000, began, vec![gauge(ups), object("InSegs", [1, 2])]);
        let ranked = after.standing(8, true).unwrap();
        assert_eq!(values(&ranked), [("InSegs".into(), 3), ("CurrEstab".into(), 2)]);
        assert_eq!((ranked.total, ranked.shared), (5, 2));
        assert_eq!(ranked.rows[1].cpus, [] as [u32; 0]);
        assert_eq!(values(&after.since(&before, SECOND, 8, true).unwrap()), [("InSegs".into(), 3)]);
        // A gauge that is read while connections move may be below 0.
        let below = tally(0, began, vec![gauge([0, u64::MAX])]);
        assert_eq!(below.standing(8, true).unwrap().total, 0);
    }

    #[test]
    fn what_is_taken_back_is_nothing() {
        let began = Instant::now();
        let before = tally(0, began, vec![object("a", [10, 10]), object("b", [5, 5])]);
        let after = tally(1000, began, vec![object("a", [8, 15]), object("b", [4, 4])]);
        let ranked = after.since(&before, SECOND, 8, true).unwrap();
        assert_eq!((values(&ranked), ranked.shared), (vec![("a".into(), 3)], 3));
    }

    #[test]
    fn more_than_a_number_holds_is_an_error() {
        let whole = tally(0, Instant::now(), vec![object("a", [u64::MAX, 0]), object("b", [1, 0])]);
        assert_eq!(whole.standing(8, true).unwrap_err(), TooMuch);
    }

    proptest! {
        /// TC2: rows, `other`, CPUs and the total agree, however rates are rounded.
        #[test]
        fn rounded_rates_add_up(
            counters in prop::collection::vec((0..1000_u64, 0..1000_u64, 0..9_000_000_u64, 0..9_u64), 0..40),
            elapsed_ms in 1..100_000_u64,
            period_ms in 1..3_600_000_u64,
            top in 1..20_usize,
        ) {
            let began = Instant::now();
            let name = |number: usize| format!("c{number:02}");
            let of = |place: usize, cpus: [u64; 2]| {
                let half = cpus[0] / 2;
                Tallied { parts: vec![half, cpus[0] + cpus[1] - half], ..object(&name(place), cpus) }
            };
            let first = counters.iter().enumerate().map(|(i, (a, b, ..))| of(i, [*a, *b])).collect();
            let then = counters.iter().enumerate().map(|(i, (a, b, more, few))| of(i, [a + more, b + few])).collect();
            let (before, after) = (tally(0, began, first), tally(elapsed_ms, began, then));
            let period = Duration::from_millis(period_ms);
            for ranked in [after.since(&before, period, top, true).unwrap(), after.standing(top, true).unwrap()] {
                let rows: u64 = ranked.rows.iter().map(|row| row.value).sum();
                prop_assert!(rows <= ranked.total && ranked.rows.len() <= top);
                prop_assert!(counters.len() > top || rows == ranked.total);
                prop_assert_eq!(ranked.cpus.iter().map(|s| s.total).sum::<u64>() + ranked.shared, ranked.total);
                prop_assert_eq!(ranked.shared, 0);
                prop_assert!(ranked.rows.iter().all(|row| row.parts.iter().sum::<u64>() == row.value));
                prop_assert!(ranked.rows.windows(2).all(|two| two[0].value >= two[1].value));
            }
            // Each object is within a half of its exact value.
            let exact: f64 = counters.iter().map(|(.., more, few)| (more + few) as f64).sum::<f64>() * period_ms as f64
                / elapsed_ms as f64;
            let total = after.since(&before, period, top, true).unwrap().total as f64;
            prop_assert!((total - exact).abs() <= 0.5 * counters.len() as f64 + 1e-6 * exact, "{} {}", total, exact);
        }
    }
}
