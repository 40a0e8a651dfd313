// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shows readings again and again: one after the other, or each in place of the last.

use std::io;
use std::time::Duration;

use topstat_model::text::TextOptions;
use topstat_model::{Reading, Sink, Space};

use crate::console::{Console, Schedule, Size, Wake};
use crate::error::Error;
use crate::frame;
use crate::output::Output;

/// The assumed size of a terminal that does not know its size.
const USUAL: Size = Size { rows: 24, columns: 80 };

/// The readings that a command takes again and again.
pub trait Watched {
    /// Takes the reading that is shown from now on.
    fn read(&mut self) -> Result<(), Error>;

    /// Shows the last reading, if there is one.
    fn draw(&mut self, view: &mut View, console: &mut dyn Console) -> Result<(), Error>;

    /// How often to call [`Watched::poll`] between two readings; `None`: never.
    fn poll_every(&self) -> Option<Duration> {
        None
    }

    /// Does the work that cannot wait for the next reading.
    fn poll(&mut self) {}
}

/// Makes the console catch signals from now on. The caller calls this before it loads anything, so that after a Ctrl-C the
/// program still runs and detaches it.
///
/// # Errors
///
/// When signals can't be caught.
pub fn catch_signals(output: &Output, console: &mut dyn Console) -> Result<(), Error> {
    let system = |source| Error::System { what: "catch signals", source };
    console.catch_signals(output.in_place).map_err(system)
}

/// Shows readings of any kind.
pub struct View {
    output: Output,
    /// Whether to show no more rows than the terminal has lines for.
    fits: bool,
    sink: Sink,
    /// The cursor is hidden.
    entered: bool,
}

impl View {
    /// A view of this output. If the user has given the number of rows, and nothing is drawn in place, all rows are shown, even
    /// if they don't fit.
    pub fn new(output: Output, rows_given: bool) -> Self {
        let options = TextOptions { human: output.terminal, color: output.color, width: None };
        Self {
            output,
            fits: output.in_place || !rows_given,
            sink: Sink::new(output.format.into(), options),
            entered: false,
        }
    }

    /// Shows readings until there are enough, or until the user ends the program. The first reading comes after `first_after`.
    /// `wait` names the wait in an error.
    ///
    /// # Errors
    ///
    /// Errors of reading, and errors of the console. The terminal is restored even then.
    pub fn watch(
        mut self,
        watched: &mut dyn Watched,
        (wait, first_after): (&'static str, Duration),
        console: &mut dyn Console,
    ) -> Result<(), Error> {
        let shown = self.until_enough(watched, (wait, first_after), console);
        let left = self.leave(console).map_err(Error::Output);
        shown.and(left)
    }

    fn until_enough(
        &mut self,
        watched: &mut dyn Watched,
        (wait, first_after): (&'static str, Duration),
        console: &mut dyn Console,
    ) -> Result<(), Error> {
        let mut schedule = Schedule::new(console.now() + first_after, self.output.interval);
        let mut left = self.output.count;
        let mut first = true;
        while left != Some(0) {
            let next = schedule.next();
            let until = watched.poll_every().map_or(next, |every| next.min(console.now() + every));
            let wake = console.wait_until(until).map_err(|source| Error::System { what: wait, source })?;
            match wake {
                Wake::Stop | Wake::Closed => return Ok(()),
                Wake::Resized if self.output.in_place => watched.draw(self, console)?,
                Wake::Resized | Wake::Ready => {}
                Wake::Suspend => {
                    self.leave(console).map_err(Error::Output)?;
                    console.suspend().map_err(|source| Error::System { what: "suspend", source })?;
                    if self.output.in_place {
                        watched.draw(self, console)?;
                    }
                }
                Wake::Deadline if until < next => watched.poll(),
                Wake::Deadline => {
                    watched.read()?;
                    // The first reading takes longer than others, often as long as an interval, because it settles all that
                    // happened before. The next reading comes one interval after the end of the first.
                    if std::mem::take(&mut first) {
                        schedule = Schedule::new(console.now(), self.output.interval);
                    }
                    watched.draw(self, console)?;
                    left = left.map(|left| left - 1);
                    schedule.advance(console.now());
                }
            }
        }
        Ok(())
    }

    /// Shows the readings of an instant, with a single write.
    ///
    /// # Errors
    ///
    /// Errors of the output.
    pub fn show(&mut self, readings: &[&dyn Reading], console: &mut dyn Console) -> Result<(), Error> {
        let written = self.written(readings, self.space(console)).map_err(Error::Output)?;
        console.write(&written).map_err(Error::Output)
    }

    fn written(&mut self, readings: &[&dyn Reading], space: Space) -> io::Result<Vec<u8>> {
        if !self.output.in_place {
            return self.sink.write(readings, space);
        }
        self.sink.restart();
        let content = self.sink.write(readings, space)?;
        let first = !std::mem::replace(&mut self.entered, true);
        Ok(frame::frame(&content, space.lines.unwrap_or(usize::MAX), first))
    }

    /// The most rows of this reading that are shown.
    pub fn rows(&self, reading: &dyn Reading, console: &dyn Console) -> usize {
        self.sink.rooms(&[reading], self.space(console)).first().map_or(0, |room| *room.min(&reading.rows()))
    }

    /// Restores the terminal. A later picture can enter it again.
    fn leave(&mut self, console: &mut dyn Console) -> io::Result<()> {
        if std::mem::take(&mut self.entered) {
            console.write(frame::LEAVE)?;
        }
        Ok(())
    }

    fn space(&self, console: &dyn Console) -> Space {
        if !self.output.terminal {
            return Space::default();
        }
        let Size { rows, columns } = console.size().unwrap_or(USUAL);
        Space { lines: self.fits.then_some(rows.into()), cells: Some(columns.into()) }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::fd::BorrowedFd;
    use std::rc::Rc;
    use std::time::Instant;

    use super::*;
    use crate::args::{ColorWhen, TopFormat};
    use crate::console::Facts;

    /// A clock that advances only by waits and readings.
    struct Clock {
        begin: Instant,
        elapsed: Rc<Cell<Duration>>,
    }

    impl Console for Clock {
        fn facts(&self) -> Facts {
            Facts::default()
        }

        fn size(&self) -> Option<Size> {
            None
        }

        fn write(&mut self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn write_note(&mut self, _: &str) {}

        fn catch_signals(&mut self, _: bool) -> io::Result<()> {
            Ok(())
        }

        fn now(&self) -> Instant {
            self.begin + self.elapsed.get()
        }

        fn wait_for(&mut self, _: Option<BorrowedFd<'_>>, deadline: Instant) -> io::Result<Wake> {
            self.elapsed.set(self.elapsed.get().max(deadline.saturating_duration_since(self.begin)));
            Ok(Wake::Deadline)
        }

        fn suspend(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Readings with these durations, and the times at which they ended.
    struct Readings {
        elapsed: Rc<Cell<Duration>>,
        take: Vec<u64>,
        over: Vec<u64>,
    }

    impl Watched for Readings {
        fn read(&mut self) -> Result<(), Error> {
            self.elapsed.set(self.elapsed.get() + Duration::from_millis(self.take[self.over.len()]));
            self.over.push(u64::try_from(self.elapsed.get().as_millis()).unwrap());
            Ok(())
        }

        fn draw(&mut self, _: &mut View, _: &mut dyn Console) -> Result<(), Error> {
            Ok(())
        }
    }

    #[test]
    fn the_second_reading_is_an_interval_after_a_slow_first_one() {
        let elapsed = Rc::new(Cell::new(Duration::ZERO));
        let mut console = Clock { begin: Instant::now(), elapsed: Rc::clone(&elapsed) };
        let mut readings = Readings { elapsed, take: vec![1200, 10, 400, 10], over: vec![] };
        let interval = (Some(Duration::from_secs(2)), Some(4));
        let output = Output::new(interval, TopFormat::Text, ColorWhen::Never, console.facts());
        let first = ("wait", Duration::from_secs(1));
        View::new(output, false).watch(&mut readings, first, &mut console).unwrap();
        assert_eq!(readings.over, [2200, 4210, 6600, 8210]);
    }
}
