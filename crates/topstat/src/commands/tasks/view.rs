// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How intervals reach the output: one after the other, or each in the place of the last.

use std::io;

use topstat_model::interval::{self, Choice, Csv, Picture, Text};

use super::plan::Style;
use super::shot::{Shot, add_command_lines};
use crate::args::TopFormat;
use crate::backend::Account;
use crate::console::{Console, Size};
use crate::frame;

/// The size that a terminal has which does not know its own.
const USUAL: Size = Size { rows: 24, columns: 80 };

/// What was shown last, and how.
pub struct View {
    choice: Choice,
    style: Style,
    text: Text,
    csv: Csv,
    last: Option<Shot>,
    /// Something was written before.
    begun: bool,
    /// The cursor is hidden.
    entered: bool,
}

impl View {
    pub fn new(choice: Choice, style: Style) -> Self {
        Self {
            text: Text::new(&choice, style.text.clone()),
            csv: Csv::new(style.text.command_lines),
            choice,
            style,
            last: None,
            begun: false,
            entered: false,
        }
    }

    /// Shows an interval, with a single write.
    pub fn show(&mut self, shot: Shot, account: &mut dyn Account, console: &mut dyn Console) -> io::Result<()> {
        if self.style.output.in_place {
            self.last = Some(shot);
            return self.redraw(account, console);
        }
        let begun = std::mem::replace(&mut self.begun, true);
        let mut picture = shot.picture(&self.choice);
        if self.style.output.format != TopFormat::Text {
            self.complete(&mut picture, account);
        }
        match self.style.output.format {
            TopFormat::Text => {
                let size = self.style.output.terminal.then(|| console.size().unwrap_or(USUAL));
                let text = self.text(picture, size, account);
                match begun {
                    true => console.write(format!("\n{text}").as_bytes()),
                    false => console.write(text.as_bytes()),
                }
            }
            TopFormat::Json => {
                let mut line = Vec::new();
                interval::json(&picture, self.style.text.command_lines, &mut line)?;
                console.write(&line)
            }
            TopFormat::Csv => console.write(&self.csv.write(&picture)?),
        }
    }

    /// Shows again in place what was shown last, at the terminal's present size. Nothing where nothing was.
    pub fn redraw(&mut self, account: &mut dyn Account, console: &mut dyn Console) -> io::Result<()> {
        let Some(shot) = self.last.take() else { return Ok(()) };
        let size = console.size().unwrap_or(USUAL);
        let first = !self.entered;
        let text = self.text(shot.picture(&self.choice), Some(size), account);
        let frame = frame::frame(text.as_bytes(), usize::from(size.rows), first);
        self.entered = true;
        self.last = Some(shot);
        console.write(&frame)
    }

    /// Text for a terminal of this size, or for a pipe.
    fn text(&mut self, mut picture: Picture, size: Option<Size>, account: &mut dyn Account) -> &str {
        // Who asks for more than fits gets it where nothing is drawn in place.
        if let Some(size) = size
            && (self.style.output.in_place || self.choice.rows.is_none())
        {
            picture.truncate(Text::fitting(&picture, usize::from(size.rows)));
        }
        self.complete(&mut picture, account);
        self.text.write(&picture, size.map(|size| usize::from(size.columns)))
    }

    /// Adds what is only known of rows that are shown, if it is wanted.
    fn complete(&self, picture: &mut Picture, account: &mut dyn Account) {
        if self.style.text.command_lines {
            add_command_lines(picture, account);
        }
    }

    /// Gives the terminal back as it was. It can be entered again.
    pub fn leave(&mut self, console: &mut dyn Console) -> io::Result<()> {
        if std::mem::take(&mut self.entered) {
            console.write(frame::LEAVE)?;
        }
        Ok(())
    }
}
