// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the daemon logs, to stderr: to the journal with priorities as systemd has them (`<6>text`), else with the time.
//!
//! Everything goes through the `log` crate, which fuser uses too; what writes it is small enough to be here.

use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use log::{Log, Metadata, Record};
use topstat_model::typeset::escape;

use crate::config::Level;
use crate::lock::lock;

/// Begins to log. Once begun, only the level changes.
pub fn begin(level: Level) {
    static STDERR: Mutex<Option<&Stderr>> = Mutex::new(None);
    let mut begun = lock(&STDERR);
    if begun.is_none() {
        // One for as long as the program runs.
        let stderr: &'static Stderr = Box::leak(Box::new(Stderr { journal: is_journal() }));
        // It fails only where somebody else logs already, as a test may.
        let _ = log::set_logger(stderr);
        *begun = Some(stderr);
    }
    log::set_max_level(level.into());
}

/// Whether stderr is the journal: systemd says in `JOURNAL_STREAM` which file that is, since the variable is inherited
/// by what writes elsewhere.
fn is_journal() -> bool {
    let Some(named) = std::env::var_os("JOURNAL_STREAM") else { return false };
    let Ok(stat) = rustix::fs::fstat(rustix::stdio::stderr()) else { return false };
    named.to_str() == Some(&format!("{}:{}", stat.st_dev, stat.st_ino))
}

struct Stderr {
    journal: bool,
}

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Of libraries only what fails: fuser warns of every request that a file system need not answer.
        metadata.level() <= log::max_level()
            && (metadata.target().starts_with("topstat") || metadata.level() <= log::Level::Error)
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let text = line(record.level(), &record.args().to_string(), self.journal, SystemTime::now());
            // Where that fails there is nobody left to tell.
            let _ = std::io::stderr().lock().write_all(text.as_bytes());
        }
    }

    fn flush(&self) {}
}

/// A record as it is written. Several lines stay several, each of the same level; what would disturb a terminal is
/// escaped, since names of cgroups and processes may be in it.
fn line(level: log::Level, text: &str, journal: bool, time: SystemTime) -> String {
    // As in sd-daemon(3).
    let (priority, name) = match level {
        log::Level::Error => (3, "error"),
        log::Level::Warn => (4, "warn"),
        log::Level::Info => (6, "info"),
        log::Level::Debug | log::Level::Trace => (7, "debug"),
    };
    let time = if journal { String::new() } else { topstat_model::rfc3339(time) };
    let written = |line: &str| match journal {
        true => format!("<{priority}>{}\n", escape(line)),
        false => format!("{time} {name:5} {}\n", escape(line)),
    };
    text.lines().map(written).collect()
}

/// Keeps messages that others cause (by bad writes, say) from filling the log: within a time so many are written, and the
/// others are counted.
pub struct Limit {
    most: u32,
    within: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    begun: Option<Instant>,
    passed: u32,
    held: u64,
}

impl Limit {
    /// Lets so many pass within that time.
    pub const fn new(most: u32, within: Duration) -> Self {
        Self { most, within, state: Mutex::new(State { begun: None, passed: 0, held: 0 }) }
    }

    /// Whether one more may be logged, and how many were held back since the last that was.
    pub fn pass(&self, now: Instant) -> Option<u64> {
        let mut state = lock(&self.state);
        if state.begun.is_none_or(|begun| now.saturating_duration_since(begun) >= self.within) {
            (state.begun, state.passed) = (Some(now), 0);
        }
        if state.passed == self.most {
            state.held += 1;
            return None;
        }
        state.passed += 1;
        Some(std::mem::take(&mut state.held))
    }

    /// Logs a warning, unless there were too many.
    pub fn warn(&self, text: fmt::Arguments<'_>) {
        match self.pass(Instant::now()) {
            None => {}
            Some(0) => log::warn!("{text}"),
            Some(held) => log::warn!("{text} (and {held} more like it before, not logged)"),
        }
    }
}

/// Logs why somebody got an error from the tree, at most ten times a minute: whoever may open it can cause as many.
pub fn refused(what: &str, file: &str, why: &str) {
    static REFUSALS: Limit = Limit::new(10, Duration::from_secs(60));
    REFUSALS.warn(format_args!("cannot {what} {}: {why}", Path::new("/").join(file).display()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_gets_priorities_and_a_terminal_the_time() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_248_000_000);
        assert_eq!(line(log::Level::Info, "loaded", true, at), "<6>loaded\n");
        assert_eq!(line(log::Level::Error, "one\ntwo", true, at), "<3>one\n<3>two\n");
        assert_eq!(line(log::Level::Warn, "\x1b[31mred", false, at), "2026-11-21T08:00:00.000Z warn  \\x1b[31mred\n");
    }

    #[test]
    fn a_flood_is_counted_and_not_written() {
        let limit = Limit::new(2, Duration::from_secs(60));
        let begun = Instant::now();
        let at = |s| limit.pass(begun + Duration::from_secs(s));
        assert_eq!([at(0), at(1), at(2), at(59)], [Some(0), Some(0), None, None]);
        assert_eq!([at(60), at(61), at(62)], [Some(2), Some(0), None]);
        assert_eq!(at(1000), Some(1));
    }
}
