// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The settings of tables: read when their screen is opened, and again after a setting was changed.

use super::{App, Screen};
use crate::feed::TableSettings;

/// The known settings of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The settings, or why they can't be read; `None` until they are read for the first time.
    pub settings: Option<Result<TableSettings, String>>,
    /// The settings have been asked for.
    asked: bool,
}

impl App {
    /// Opens the screen with the present settings of all tables.
    pub(super) fn open_settings(&mut self) {
        self.data.iter_mut().for_each(|data| data.known.asked = false);
        self.screens.push(Screen::Settings);
    }

    /// The tables whose settings have to be read now: the tables in sight.
    pub fn settings_wanted(&mut self) -> Vec<usize> {
        if *self.screen() != Screen::Settings {
            return vec![];
        }
        let wanted: Vec<_> = self.in_page().into_iter().filter(|table| !self.data[*table].known.asked).collect();
        wanted.iter().for_each(|table| self.data[*table].known.asked = true);
        wanted
    }

    /// Has the settings of a table read again, since one of them is being set.
    pub fn setting(&mut self, table: usize) {
        if let Some(data) = self.data.get_mut(table) {
            data.known.asked = false;
        }
    }

    /// Takes the settings of a table.
    pub fn settings(&mut self, table: usize, settings: Result<TableSettings, String>) {
        let Some(data) = self.data.get_mut(table) else { return };
        data.known.settings = Some(settings);
        self.dirty = true;
    }
}
