// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How readings reach the output: one after the other, or each in the place of the last.

use std::io;

use topstat_model::counters::{Counters, Csv, Text, json};

use super::plan::Plan;
use crate::args::TopFormat;
use crate::console::{Console, Size};
use crate::frame;
use crate::output::Output;

/// The size that a terminal has which does not know its own.
const USUAL: Size = Size { rows: 24, columns: 80 };
/// Lines of a namespace or device besides its counters: a title, the names of the columns, and an empty line.
const LINES_BESIDES: usize = 3;

/// What was shown last, and how.
pub struct View {
    output: Output,
    text: Text,
    csv: Csv,
    last: Option<Counters>,
    /// Something was written before.
    begun: bool,
    /// The cursor is hidden.
    entered: bool,
}

impl View {
    pub fn new(plan: &Plan) -> Self {
        let text = Text { choice: plan.choice.clone(), cpus: plan.cpus, color: plan.output.color };
        Self {
            csv: Csv::new(plan.choice.clone(), plan.cpus),
            output: plan.output,
            text,
            last: None,
            begun: false,
            entered: false,
        }
    }

    /// Shows a reading, with a single write.
    pub fn show(&mut self, counters: Counters, console: &mut dyn Console) -> io::Result<()> {
        if self.output.in_place {
            self.last = Some(counters);
            return self.redraw(console);
        }
        let begun = std::mem::replace(&mut self.begun, true);
        match self.output.format {
            TopFormat::Text => {
                let size = self.output.terminal.then(|| console.size().unwrap_or(USUAL));
                let text = self.text(&counters, size);
                console.write(if begun { format!("\n{text}") } else { text }.as_bytes())
            }
            TopFormat::Json => {
                let mut line = Vec::new();
                json(&counters, &self.text.choice, self.text.cpus, &mut line)?;
                console.write(&line)
            }
            TopFormat::Csv => console.write(&self.csv.write(&counters)?),
        }
    }

    /// Shows again in place what was shown last, at the terminal's present size. Nothing where nothing was.
    pub fn redraw(&mut self, console: &mut dyn Console) -> io::Result<()> {
        let Some(counters) = &self.last else { return Ok(()) };
        let size = console.size().unwrap_or(USUAL);
        let text = self.text(counters, Some(size));
        let first = !std::mem::replace(&mut self.entered, true);
        console.write(&frame::frame(text.as_bytes(), usize::from(size.rows), first))
    }

    /// Text for a terminal of this size, or for a pipe.
    fn text(&self, counters: &Counters, size: Option<Size>) -> String {
        let Some(size) = size else { return self.text.write(counters, None) };
        let mut text = self.text.clone();
        if text.choice.rows.is_none() {
            // A line is the cursor's; with no row at all there would be nothing to see.
            let scopes = counters.scopes.len().max(1);
            let room = usize::from(size.rows).saturating_sub(1 + text.notes(counters));
            text.choice.rows = Some((room / scopes).saturating_sub(LINES_BESIDES).max(1));
        }
        text.write(counters, Some(usize::from(size.columns)))
    }

    /// Gives the terminal back as it was. It can be entered again.
    pub fn leave(&mut self, console: &mut dyn Console) -> io::Result<()> {
        if std::mem::take(&mut self.entered) {
            console.write(frame::LEAVE)?;
        }
        Ok(())
    }
}
