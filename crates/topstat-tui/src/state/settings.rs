// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What tables are set to: read when it is to be seen, and again once something was set.

use super::{App, Screen};
use crate::feed::TableSettings;

/// What is known of a table's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// What they are, or why that can't be told; nothing while they are on the way for the first time.
    pub settings: Option<Result<TableSettings, String>>,
    /// They need not be asked for.
    asked: bool,
}

impl App {
    /// Shows the settings of all tables, as they are now.
    pub(super) fn open_settings(&mut self) {
        self.data.iter_mut().for_each(|data| data.known.asked = false);
        self.screens.push(Screen::Settings);
    }

    /// The tables whose settings are to be read now: those in sight.
    pub fn settings_wanted(&mut self) -> Vec<usize> {
        if *self.screen() != Screen::Settings {
            return vec![];
        }
        let wanted: Vec<_> = self.in_page().filter(|table| !self.data[*table].known.asked).collect();
        wanted.iter().for_each(|table| self.data[*table].known.asked = true);
        wanted
    }

    /// Something of a table is being set.
    pub fn setting(&mut self, table: usize) {
        if let Some(data) = self.data.get_mut(table) {
            data.known.asked = false;
        }
    }

    /// What a table is set to was read.
    pub fn settings(&mut self, table: usize, settings: Result<TableSettings, String>) {
        let Some(data) = self.data.get_mut(table) else { return };
        data.known.settings = Some(settings);
        self.dirty = true;
    }
}
