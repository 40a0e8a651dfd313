// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How snapshots reach the output: one after the other, or each in the place of the last.

use std::io;

use topstat_model::csv::CsvOptions;
use topstat_model::text::TextOptions;
use topstat_model::{Snapshot, csv, json, text};

use crate::args::TopFormat;
use crate::console::{Console, Size};
use crate::frame;
use crate::output::Output;

/// How to show snapshots.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    pub output: Output,
    /// The most rows to show of each table.
    pub rows: Option<u32>,
}

/// The size that a terminal has which does not know its own.
const USUAL: Size = Size { rows: 24, columns: 80 };

/// What was shown last.
pub struct View {
    style: Style,
    last: Vec<Snapshot>,
    /// The names of the columns that CSV has shown last.
    header: Vec<String>,
    /// Something was written before.
    begun: bool,
    /// The cursor is hidden.
    entered: bool,
}

impl View {
    pub fn new(style: Style) -> Self {
        Self { style, last: vec![], header: vec![], begun: false, entered: false }
    }

    /// Shows the snapshots of one instant, one after the other.
    pub fn show(&mut self, snapshots: Vec<Snapshot>, console: &mut dyn Console) -> io::Result<()> {
        if self.style.output.in_place {
            self.last = snapshots;
            return self.redraw(console);
        }
        let written = match self.style.output.format {
            TopFormat::Text => self.text(&snapshots, console.size()),
            TopFormat::Json => self.json(snapshots)?,
            TopFormat::Csv => self.csv(snapshots)?,
        };
        self.begun = true;
        console.write(&written)
    }

    /// Shows again in place what was shown last, at the terminal's present size. Nothing where nothing was.
    pub fn redraw(&mut self, console: &mut dyn Console) -> io::Result<()> {
        if !self.style.output.in_place || self.last.is_empty() {
            return Ok(());
        }
        let size = console.size().unwrap_or(USUAL);
        let lines = usize::from(size.rows);
        let content = self.fitting(&self.last, size);
        let first = !self.entered;
        self.entered = true;
        console.write(&frame::frame(&content, lines, first))
    }

    /// Gives the terminal back as it was. It can be entered again.
    pub fn leave(&mut self, console: &mut dyn Console) -> io::Result<()> {
        if std::mem::take(&mut self.entered) {
            console.write(frame::LEAVE)?;
        }
        Ok(())
    }

    fn text(&self, snapshots: &[Snapshot], size: Option<Size>) -> Vec<u8> {
        let mut written = Vec::new();
        if self.begun {
            written.push(b'\n');
        }
        if self.style.output.terminal && self.style.rows.is_none() {
            written.extend(self.fitting(snapshots, size.unwrap_or(USUAL)));
            return written;
        }
        let width = size.filter(|_| self.style.output.terminal).map(|size| size.columns);
        for (index, snapshot) in snapshots.iter().enumerate() {
            if index > 0 {
                written.push(b'\n');
            }
            written.extend(self.table(snapshot, self.style.rows, width));
        }
        written
    }

    /// The snapshots with as many rows as fit the terminal, with a line left for the cursor.
    fn fitting(&self, snapshots: &[Snapshot], size: Size) -> Vec<u8> {
        let width = Some(size.columns);
        let all: Vec<_> = snapshots
            .iter()
            .map(|snapshot| {
                let mut snapshot = snapshot.clone();
                snapshot.truncate(self.style.rows.map_or(usize::MAX, |rows| rows as usize));
                snapshot
            })
            .collect();
        // What a table needs besides its rows depends on what its title has to say.
        let besides: usize = all
            .iter()
            .map(|snapshot| {
                let lines = lines(&self.table(snapshot, None, width));
                lines.saturating_sub(snapshot.rows.len()) + 1
            })
            .sum();
        // The line between tables and the cursor's are as many as the tables.
        let room = usize::from(size.rows).saturating_sub(besides);
        let wanted: Vec<_> = all.iter().map(|snapshot| snapshot.rows.len()).collect();
        let shares = frame::shares(room, &wanted);
        let mut written = Vec::new();
        for (snapshot, share) in all.iter().zip(shares) {
            if !written.is_empty() {
                written.push(b'\n');
            }
            // With no row at all there would be nothing to see.
            let rows = u32::try_from(share.max(1)).unwrap_or(u32::MAX);
            written.extend(self.table(snapshot, Some(rows), width));
        }
        written
    }

    fn table(&self, snapshot: &Snapshot, rows: Option<u32>, width: Option<u16>) -> Vec<u8> {
        let options = TextOptions {
            human: self.style.output.terminal,
            color: self.style.output.color,
            width: width.map(usize::from),
        };
        let mut written = Vec::new();
        let cut = rows.map(|rows| {
            let mut cut = snapshot.clone();
            cut.truncate(rows as usize);
            cut
        });
        text::write(cut.as_ref().unwrap_or(snapshot), options, &mut written).expect("a Vec takes all");
        written
    }

    fn json(&self, snapshots: Vec<Snapshot>) -> io::Result<Vec<u8>> {
        let mut written = Vec::new();
        for mut snapshot in snapshots {
            self.cut(&mut snapshot);
            json::write(&snapshot, &mut written)?;
        }
        Ok(written)
    }

    /// Begins with the names of the columns, and writes them again only where they change.
    fn csv(&mut self, snapshots: Vec<Snapshot>) -> io::Result<Vec<u8>> {
        let mut written = Vec::new();
        for mut snapshot in snapshots {
            self.cut(&mut snapshot);
            let columns = snapshot.columns.iter().map(|column| &column.name);
            let names: Vec<_> = columns.chain(&snapshot.parts).map(|n| n.to_string()).collect();
            let header = !self.begun || self.header != names;
            self.header = names;
            self.begun = true;
            csv::write(&snapshot, CsvOptions { header }, &mut written)?;
        }
        Ok(written)
    }

    fn cut(&self, snapshot: &mut Snapshot) {
        if let Some(rows) = self.style.rows {
            snapshot.truncate(rows as usize);
        }
    }
}

fn lines(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte == b'\n').count()
}
