// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One reading for all tables of a refresh.

use std::time::{Duration, Instant};

/// A reading serves further tables for this long after its end.
const FRESH: Duration = Duration::from_millis(50);

/// The latest reading of counters that several tables are made of.
///
/// A table never gets a reading twice. So a table that is read alone is read anew each time, and the reading that a table gets has
/// ended at most [`FRESH`] ago.
#[derive(Debug)]
pub struct Refresh<T> {
    last: Option<Last<T>>,
}

#[derive(Debug)]
struct Last<T> {
    reading: T,
    ended: Instant,
    /// The paths of the tables that have had the reading.
    had: Vec<String>,
}

impl<T> Default for Refresh<T> {
    fn default() -> Self {
        Self { last: None }
    }
}

impl<T> Refresh<T> {
    /// Returns the reading for the table of this path. Calls `read` if it takes a new one; `read` gets the former reading, whose
    /// memory it may use again.
    ///
    /// # Errors
    /// As `read`. Then there is no reading, and the next call reads.
    pub fn of<E>(&mut self, table: String, read: impl FnOnce(Option<T>) -> Result<T, E>) -> Result<&T, E> {
        let last = match self.last.take() {
            Some(mut last) if last.ended.elapsed() < FRESH && !last.had.contains(&table) => {
                last.had.push(table);
                last
            }
            former => {
                let reading = read(former.map(|last| last.reading))?;
                Last { reading, ended: Instant::now(), had: vec![table] }
            }
        };
        Ok(&self.last.insert(last).reading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(former: Option<u32>) -> Result<u32, &'static str> {
        Ok(former.map_or(0, |former| former + 1))
    }

    #[test]
    fn each_table_gets_a_reading_once() {
        let mut refresh = Refresh::default();
        let of = |table: &str| refresh.of(table.to_owned(), next).copied();
        assert_eq!(["a", "b", "c", "a", "b", "b"].map(of), [0, 0, 0, 1, 1, 2].map(Ok));
    }

    #[test]
    fn a_reading_that_is_old_is_taken_anew() {
        let mut refresh = Refresh::default();
        assert_eq!(refresh.of("a".to_owned(), next), Ok(&0));
        std::thread::sleep(FRESH);
        assert_eq!(refresh.of("b".to_owned(), next), Ok(&1));
    }

    #[test]
    fn a_reading_that_fails_leaves_none() {
        let mut refresh = Refresh::default();
        assert_eq!(refresh.of("a".to_owned(), next), Ok(&0));
        assert_eq!(refresh.of("a".to_owned(), |_| Err("refused")), Err("refused"));
        assert_eq!(refresh.of("b".to_owned(), next), Ok(&0));
    }
}
