// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Metrics of objects: a bounded number of series for each table, and a bounded number of new ones in an hour, however many
//! objects come and go.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Objects of a table that have a series at once, and the ranks that they must have to get one.
pub const SLOTS: usize = 20;
/// How many scrapes in a row an object must be among the first [`SLOTS`] before it gets a series.
pub const ENTRY: u32 = 3;
/// How long an object may be below these ranks before it loses its series.
pub const LEAVE: Duration = Duration::from_secs(15 * 60);
/// New series in an hour, of all tables.
pub const NEW_AN_HOUR: usize = 120;
/// Scrapes nearer to each other count as one.
pub const APART: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// The objects that have a series, or may get one.
#[derive(Debug, Default)]
pub struct Objects {
    tables: HashMap<String, Table>,
    /// When series of the last hour were begun.
    begun: VecDeque<Instant>,
    /// How often an object got no series because all places of its table were taken.
    pub refused_slots: u64,
    /// How often an object got no series because too many have begun in the last hour.
    pub refused_budget: u64,
}

#[derive(Debug, Default)]
struct Table {
    scraped: Option<Instant>,
    objects: HashMap<String, Object>,
}

#[derive(Debug)]
enum Object {
    /// Seen in this many scrapes in a row.
    Waits(u32),
    /// Has a series, and was last among the first ranks at this time.
    Has(Instant),
}

impl Objects {
    /// Takes the keys of a table's rows, the largest row first, and returns which of them have a series, in the same order.
    pub fn scrape(&mut self, table: &str, keys: &[String], now: Instant) -> Vec<bool> {
        let state = self.tables.entry(table.to_owned()).or_default();
        if state.scraped.is_none_or(|scraped| now.duration_since(scraped) >= APART) {
            state.scraped = Some(now);
            self.step(table, keys, now);
        }
        let state = &self.tables[table];
        keys.iter().map(|key| matches!(state.objects.get(key), Some(Object::Has(_)))).collect()
    }

    fn step(&mut self, table: &str, keys: &[String], now: Instant) {
        let Some(state) = self.tables.get_mut(table) else { return };
        let first = &keys[..keys.len().min(SLOTS)];
        state.objects.retain(|key, object| match object {
            Object::Waits(_) => first.contains(key),
            Object::Has(seen) => first.contains(key) || now.duration_since(*seen) < LEAVE,
        });
        while self.begun.front().is_some_and(|begun| now.duration_since(*begun) >= HOUR) {
            self.begun.pop_front();
        }
        let mut taken = state.objects.values().filter(|object| matches!(object, Object::Has(_))).count();
        for key in first {
            let object = state.objects.entry(key.clone()).or_insert(Object::Waits(0));
            match object {
                Object::Has(seen) => *seen = now,
                Object::Waits(scrapes) if *scrapes + 1 < ENTRY => *scrapes += 1,
                Object::Waits(_) if taken >= SLOTS => self.refused_slots += 1,
                Object::Waits(_) if self.begun.len() >= NEW_AN_HOUR => self.refused_budget += 1,
                Object::Waits(_) => {
                    taken += 1;
                    self.begun.push_back(now);
                    *object = Object::Has(now);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(from: usize, to: usize) -> Vec<String> {
        (from..to).map(|number| number.to_string()).collect()
    }

    fn scrape(objects: &mut Objects, keys: &[String], at: Instant) -> usize {
        objects.scrape("a/b", keys, at).iter().filter(|has| **has).count()
    }

    const STEP: Duration = Duration::from_secs(15);

    #[test]
    fn an_object_must_stay_to_get_a_series_and_loses_it_late() {
        let (mut objects, mut now) = (Objects::default(), Instant::now());
        assert_eq!(scrape(&mut objects, &keys(0, 2), now), 0);
        assert_eq!(scrape(&mut objects, &keys(0, 2), now + APART / 2), 0, "two scrapes at once are one");
        now += STEP;
        assert_eq!(scrape(&mut objects, &keys(0, 1), now), 0);
        now += STEP;
        assert_eq!(objects.scrape("a/b", &keys(0, 2), now), [true, false], "the second was away");
        now += LEAVE - STEP;
        assert_eq!(scrape(&mut objects, &keys(1, 2), now), 0);
        assert_eq!(scrape(&mut objects, &keys(0, 1), now), 1, "it still has its series");
        now += LEAVE;
        assert_eq!(scrape(&mut objects, &[], now), 0);
        now += STEP;
        assert_eq!(scrape(&mut objects, &keys(0, 1), now), 0, "it has lost it");
    }

    #[test]
    fn series_are_bounded_at_any_time_and_in_any_hour() {
        let (mut objects, begun) = (Objects::default(), Instant::now());
        let mut all = std::collections::HashSet::new();
        // Every minute other objects are on top.
        for scrape in 0..4 * 240 {
            let now = begun + STEP * scrape;
            let from = (scrape / 4) as usize * SLOTS;
            let keys = keys(from, from + 2 * SLOTS);
            let has = objects.scrape("a/b", &keys, now);
            all.extend(keys.iter().zip(&has).filter(|(_, has)| **has).map(|(key, _)| key.clone()));
            let table = &objects.tables["a/b"];
            assert!(table.objects.values().filter(|object| matches!(object, Object::Has(_))).count() <= SLOTS);
            assert!(table.objects.len() <= 2 * SLOTS && objects.begun.len() <= NEW_AN_HOUR);
        }
        assert!(all.len() <= 4 * NEW_AN_HOUR && !all.is_empty(), "{}", all.len());
        assert!(objects.refused_slots > 0);
    }

    #[test]
    fn the_budget_is_for_all_tables() {
        let (mut objects, begun) = (Objects::default(), Instant::now());
        let mut series = 0;
        for table in 0..NEW_AN_HOUR / SLOTS + 1 {
            for scrape in 0..ENTRY {
                let has = objects.scrape(&table.to_string(), &keys(0, SLOTS), begun + STEP * scrape);
                series += has.iter().filter(|has| **has).count();
            }
        }
        assert_eq!((series, objects.refused_budget), (NEW_AN_HOUR, SLOTS as u64));
    }
}
