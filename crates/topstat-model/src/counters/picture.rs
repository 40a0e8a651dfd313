// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The picture of a reading of counters.

use std::io;

use super::text::Text;
use super::{Choice, Counters, csv, json};
use crate::sink::{Reading, Records};
use crate::text::TextOptions;

/// Lines of a namespace or device besides its counters: a title, the names of the columns, and an empty line.
const LINES_BESIDES: usize = 3;

/// The contents of a reading that are shown.
#[derive(Clone, Copy, Debug)]
pub struct Picture<'a> {
    /// The reading.
    pub counters: &'a Counters,
    /// The choice of counters.
    pub choice: &'a Choice,
    /// Show the parts of CPUs.
    pub cpus: bool,
}

impl Reading for Picture<'_> {
    fn rows(&self) -> usize {
        self.choice.count(self.counters)
    }

    fn lines_besides(&self, _: TextOptions) -> usize {
        self.counters.scopes.len().max(1) * LINES_BESIDES + super::text::notes(self.counters).len()
    }

    fn text(&self, room: usize, options: TextOptions, written: &mut Vec<u8>) {
        let mut choice = self.choice.clone();
        if room < self.rows() {
            let each = (room / self.counters.scopes.len().max(1)).max(1);
            choice.rows = Some(choice.rows.map_or(each, |rows| rows.min(each)));
        }
        let text = Text { choice, cpus: self.cpus, color: options.color };
        written.extend(text.write(self.counters, options.width).bytes());
    }

    fn json(&self, written: &mut Vec<u8>) -> io::Result<()> {
        json::write(self, written)
    }

    fn csv_columns(&self) -> Vec<String> {
        csv::columns(self)
    }

    fn csv_records(&self, records: &mut Records) -> io::Result<()> {
        csv::records(self, records)
    }
}
