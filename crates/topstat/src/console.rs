// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The output of a command, and the events that it waits for.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use jiff::tz::TimeZone;
use topstat_model::typeset::escape_lines;

/// The cells of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Lines.
    pub rows: u16,
    /// Cells of a line.
    pub columns: u16,
}

/// The properties of the output when the program began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Data goes to a terminal.
    pub terminal: bool,
    /// Diagnostics go to a terminal: a user may be waiting in front of it.
    pub notes: bool,
    /// The terminal does not understand cursor movements (`TERM` is `dumb` or not set).
    pub dumb: bool,
    /// The user wants no colours (`NO_COLOR` is set and not empty).
    pub no_color: bool,
}

/// Why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The deadline has come.
    Deadline,
    /// The terminal has another size.
    Resized,
    /// The user wants the program to stop for a while (Ctrl-Z): see [`Console::suspend`].
    Suspend,
    /// The program was asked to end: SIGINT (Ctrl-C) or SIGTERM.
    Stop,
    /// The output has no reader any more.
    Closed,
    /// There is something to read: see [`Console::wait_for`].
    Ready,
}

/// The output of a command, and the events that it waits for.
pub trait Console {
    /// The properties of the output.
    fn facts(&self) -> Facts;

    /// Whether a user can press keys: input and output are a terminal, which understands cursor movements.
    fn is_interactive(&self) -> bool {
        false
    }

    /// The time zone of the user.
    fn zone(&self) -> TimeZone {
        TimeZone::UTC
    }

    /// The terminal's present size, if there is a terminal that knows it.
    fn size(&self) -> Option<Size>;

    /// Writes all data, at once. If the program is asked to end, a write that has begun is finished, if the data is read soon.
    ///
    /// # Errors
    ///
    /// Errors of the output. [`io::ErrorKind::BrokenPipe`]: the output has no reader any more. There are two errors if the
    /// program was asked to end and the output did not take the data. [`io::ErrorKind::Interrupted`]: nothing of the data was
    /// written, or it was a picture for a terminal. [`io::ErrorKind::TimedOut`]: a part of the data was written, so that the
    /// output is cut off.
    fn write(&mut self, data: &[u8]) -> io::Result<()>;

    /// Writes lines of diagnostics. They may quote a file or a name from another user, so all that a terminal would obey is
    /// escaped.
    fn note(&mut self, lines: &str) {
        self.write_note(&escape_lines(lines));
    }

    /// Writes lines of diagnostics as they are. A failure is ignored: there is no other place to report it.
    fn write_note(&mut self, lines: &str);

    /// From now on signals no longer end the program; they end [`wait_until`](Self::wait_until). `in_place` also catches the
    /// signals of a display that is drawn again and again, such as Ctrl-Z.
    ///
    /// # Errors
    ///
    /// When signals cannot be caught.
    fn catch_signals(&mut self, in_place: bool) -> io::Result<()>;

    /// The flag that is set when a caught signal asks the program to end.
    fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::default()
    }

    /// The time of a clock that is never set.
    fn now(&self) -> Instant;

    /// Waits until the deadline, unless an event comes before. An event between two waits ends the next wait.
    ///
    /// # Errors
    ///
    /// When the system cannot wait.
    fn wait_until(&mut self, deadline: Instant) -> io::Result<Wake> {
        self.wait_for(None, deadline)
    }

    /// Waits as [`wait_until`](Self::wait_until) does, or until there is data to read from this descriptor.
    ///
    /// # Errors
    ///
    /// When the system cannot wait.
    fn wait_for(&mut self, readable: Option<BorrowedFd<'_>>, deadline: Instant) -> io::Result<Wake>;

    /// Stops the program until it is continued, as Ctrl-Z asked for.
    ///
    /// # Errors
    ///
    /// When the program cannot be stopped.
    fn suspend(&mut self) -> io::Result<()>;
}

/// The schedule of a repeated action. Its times are absolute, so that it does not drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    next: Instant,
    interval: Duration,
}

impl Schedule {
    /// The times are `first`, and then every `interval` (above 0).
    pub fn new(first: Instant, interval: Duration) -> Self {
        Self { next: first, interval }
    }

    /// The next time.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Goes on to the next time from `now` on that is a whole number of intervals after the first. Missed times (the program was
    /// stopped, the output was slow) are not made up for.
    pub fn advance(&mut self, now: Instant) {
        self.next += self.interval;
        let late = now.saturating_duration_since(self.next);
        if late > Duration::ZERO {
            let interval = self.interval.as_nanos().max(1);
            let into = late.as_nanos() % interval;
            let wait = if into == 0 { 0 } else { interval - into };
            // This is below one interval, which came from a `Duration`.
            self.next = now + Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_schedule_does_not_drift() {
        let first = Instant::now();
        let mut schedule = Schedule::new(first, SECOND);
        for second in 0..1000 {
            assert_eq!(schedule.next(), first + SECOND * second);
            // Each action takes a different time.
            schedule.advance(schedule.next() + ms(u64::from(second) % 999));
        }
    }

    #[test]
    fn missed_times_are_left_out() {
        let first = Instant::now();
        let mut schedule = Schedule::new(first, SECOND);
        schedule.advance(first + ms(3200));
        assert_eq!(schedule.next(), first + 4 * SECOND);
        schedule.advance(first + 7 * SECOND);
        assert_eq!(schedule.next(), first + 7 * SECOND);
        schedule.advance(first + 7 * SECOND);
        assert_eq!(schedule.next(), first + 8 * SECOND);
    }
}
