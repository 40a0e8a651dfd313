// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes the daemon's log to stderr. If stderr is the journal, each line has a priority in systemd's form (`<6>text`). Otherwise
//! each line has the time.
//!
//! All messages go through the `log` crate, which fuser uses too. Their writer is small enough to be in this file.

use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use log::{Log, Metadata, Record};
use topstat_model::typeset::escape;

use crate::config::Level;
use crate::lock::lock;

/// Begins to log. Later calls only change the level.
pub fn begin(level: Level) {
    static STDERR: Mutex<Option<&Stderr>> = Mutex::new(None);
    let mut begun = lock(&STDERR);
    if begun.is_none() {
        // The writer lives as long as the program.
        let stderr: &'static Stderr = Box::leak(Box::new(Stderr { journal: is_journal() }));
        // This fails only if another logger is set already, as in a test.
        let _ = log::set_logger(stderr);
        *begun = Some(stderr);
    }
    log::set_max_level(level.into());
}

/// Whether stderr is the journal. systemd names the journal's file in `JOURNAL_STREAM`. The name is compared with stderr, since
/// programs that write elsewhere inherit the variable, too.
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
        // Libraries log only errors: fuser warns of each request that a file system may leave unanswered.
        metadata.level() <= log::max_level()
            && (metadata.target().starts_with("topstat") || metadata.level() <= log::Level::Error)
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let text = line(record.level(), &record.args().to_string(), self.journal, SystemTime::now());
            // If the write fails, there is no other place to report it.
            let _ = std::io::stderr().lock().write_all(text.as_bytes());
        }
    }

    fn flush(&self) {}
}

/// The text of a record. Each line of a record gets the level. Characters that would disturb a terminal are escaped, since names
/// of cgroups and processes may be in the text.
fn line(level: log::Level, text: &str, journal: bool, time: SystemTime) -> String {
    // Priorities of sd-daemon(3).
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

/// Keeps messages that users cause (for example by bad writes) from filling the log: in each period of time it passes a fixed
/// number of messages, and counts the others.
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
    /// Passes `most` messages in each period `within`.
    pub const fn new(most: u32, within: Duration) -> Self {
        Self { most, within, state: Mutex::new(State { begun: None, passed: 0, held: 0 }) }
    }

    /// The number of messages held back since the last logged one; `None` if this message may not be logged.
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

    /// Logs a warning, unless the limit is reached.
    pub fn warn(&self, text: fmt::Arguments<'_>) {
        match self.pass(Instant::now()) {
            None => {}
            Some(0) => log::warn!("{text}"),
            Some(held) => log::warn!("{text} (and {held} more like it before, not logged)"),
        }
    }
}

/// Logs why a request to the tree failed, at most ten times a minute: any user with access to the tree can cause any number of
/// errors.
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
