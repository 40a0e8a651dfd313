// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How intervals reach the output: one after the other, or each in the place of the last.

use std::io;

use super::csv::Csv;
use super::json;
use super::picture::Picture;
use super::plan::{Choice, Style};
use super::shot::Shot;
use super::text::Text;
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
            text: Text::new(&choice, &style),
            csv: Csv::new(style.command_lines),
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
        let picture = Picture::new(&shot.interval, &self.choice);
        match self.style.output.format {
            TopFormat::Text => {
                let size = self.style.output.terminal.then(|| console.size().unwrap_or(USUAL));
                let text = self.text(&shot, picture, size, account);
                match begun {
                    true => console.write(format!("\n{text}").as_bytes()),
                    false => console.write(text.as_bytes()),
                }
            }
            TopFormat::Json => {
                let mut line = Vec::new();
                json::write(&shot, &picture, self.style.command_lines, account, &mut line)?;
                console.write(&line)
            }
            TopFormat::Csv => console.write(&self.csv.write(&shot, &picture, account)?),
        }
    }

    /// Shows again in place what was shown last, at the terminal's present size. Nothing where nothing was.
    pub fn redraw(&mut self, account: &mut dyn Account, console: &mut dyn Console) -> io::Result<()> {
        let Some(shot) = self.last.take() else { return Ok(()) };
        let size = console.size().unwrap_or(USUAL);
        let picture = Picture::new(&shot.interval, &self.choice);
        let first = !self.entered;
        let text = self.text(&shot, picture, Some(size), account);
        let frame = frame::frame(text.as_bytes(), usize::from(size.rows), first);
        self.entered = true;
        self.last = Some(shot);
        console.write(&frame)
    }

    /// Text for a terminal of this size, or for a pipe.
    fn text(&mut self, shot: &Shot, mut picture: Picture, size: Option<Size>, account: &mut dyn Account) -> &str {
        // Who asks for more than fits gets it where nothing is drawn in place.
        if let Some(size) = size
            && (self.style.output.in_place || self.choice.rows.is_none())
        {
            picture.truncate(Text::fitting(&picture, usize::from(size.rows)));
        }
        self.text.write(shot, &picture, size.map(|size| usize::from(size.columns)), account)
    }

    /// Gives the terminal back as it was. It can be entered again.
    pub fn leave(&mut self, console: &mut dyn Console) -> io::Result<()> {
        if std::mem::take(&mut self.entered) {
            console.write(frame::LEAVE)?;
        }
        Ok(())
    }
}
