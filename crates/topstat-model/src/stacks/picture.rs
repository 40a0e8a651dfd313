// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The picture of a profile.

use std::io;

use super::{Choice, Profile, Table, csv, json, text};
use crate::sink::{Reading, Records};
use crate::text::TextOptions;

/// The contents of a profile that are shown.
#[derive(Clone, Debug)]
pub struct Picture<'a> {
    /// The samples.
    pub profile: &'a Profile,
    /// The choice of samples.
    pub choice: &'a Choice,
    /// All rows of the chosen samples.
    table: Table,
}

impl<'a> Picture<'a> {
    /// Counts the chosen samples.
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
