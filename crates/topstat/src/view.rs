// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How readings reach the output: one after the other, or each in the place of the last.

use std::io;

use topstat_model::text::TextOptions;
use topstat_model::{Reading, Sink, Space};

use crate::console::{Console, Size};
use crate::frame;
use crate::output::Output;

/// The size that a terminal has which does not know its own.
const USUAL: Size = Size { rows: 24, columns: 80 };

/// Shows readings of any kind.
pub struct View {
    output: Output,
    /// No more rows than the terminal has lines for.
    fits: bool,
    sink: Sink,
    /// The cursor is hidden.
    entered: bool,
}

impl View {
    /// Rows that were asked for by number are all there where nothing is drawn in place, whether they fit or not.
    pub fn new(output: Output, rows: Option<u32>) -> Self {
        let options = TextOptions { human: output.terminal, color: output.color, width: None };
        Self {
            output,
            fits: output.in_place || rows.is_none(),
            sink: Sink::new(output.format.into(), options),
            entered: false,
        }
    }

    /// Whether each takes the place of the last: then it is to be shown again when the terminal has another size.
    pub fn in_place(&self) -> bool {
        self.output.in_place
    }

    /// Shows the readings of an instant, with a single write.
    pub fn show(&mut self, readings: &[&dyn Reading], console: &mut dyn Console) -> io::Result<()> {
        let space = self.space(console);
        if !self.output.in_place {
            return console.write(&self.sink.write(readings, space)?);
        }
        self.sink.restart();
        let content = self.sink.write(readings, space)?;
        let first = !std::mem::replace(&mut self.entered, true);
        console.write(&frame::frame(&content, space.lines.unwrap_or(usize::MAX), first))
    }

    /// How many rows of this reading are shown at most.
    pub fn rows(&self, reading: &dyn Reading, console: &dyn Console) -> usize {
        self.sink.rooms(&[reading], self.space(console)).first().map_or(0, |room| *room.min(&reading.rows()))
    }

    /// Gives the terminal back as it was. It can be entered again.
    pub fn leave(&mut self, console: &mut dyn Console) -> io::Result<()> {
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
