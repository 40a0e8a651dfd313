// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is shown of a profile.

use std::io;

use super::{Choice, Profile, Table, csv, json, text};
use crate::sink::{Reading, Records};
use crate::text::TextOptions;

/// What is shown of a profile.
#[derive(Clone, Debug)]
pub struct Picture<'a> {
    /// What was sampled.
    pub profile: &'a Profile,
    /// What of it.
    pub choice: &'a Choice,
    /// All rows of it.
    table: Table,
}

impl<'a> Picture<'a> {
    /// Counts what was chosen.
    pub fn new(profile: &'a Profile, choice: &'a Choice) -> Self {
        Self { profile, choice, table: Table::of(profile, choice) }
    }

    /// The counted samples.
    pub fn table(&self) -> &Table {
        &self.table
    }
}

impl Reading for Picture<'_> {
    fn rows(&self) -> usize {
        self.table.rows.len()
    }

    fn lines_besides(&self, _: TextOptions) -> usize {
        text::lines_besides(&self.table)
    }

    fn text(&self, room: usize, options: TextOptions, written: &mut Vec<u8>) {
        text::write(self, room, options, written);
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
