// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An interval, and the other figures that are needed to show it.

use topstat_model::interval::{Choice, Interval, Picture, Row, add_ancestors};

use crate::backend::Account;
use crate::error::Error;

/// An interval that is shown once or several times.
#[derive(Debug)]
pub struct Shot {
    interval: Interval,
    suspended_ns: u64,
}

impl Shot {
    /// Takes the CPU time that was used since the last call.
    pub fn take(choice: &Choice, account: &mut dyn Account) -> Result<Self, Error> {
        let mut interval = account.interval(choice.each)?;
        let suspended_ns = account.suspended_ns();
        if choice.tree {
            add_ancestors(&mut interval, choice, |pid| account.look_up(pid));
        }
        Ok(Self { interval, suspended_ns })
    }

    /// The part of the interval that the choice shows.
    pub fn picture<'a>(&'a self, choice: &'a Choice) -> Picture<'a> {
        Picture::new(&self.interval, self.suspended_ns, choice)
    }
}

/// Looks up the command lines of the tasks that have not ended.
pub fn add_command_lines(rows: &mut [Row], account: &mut dyn Account) {
    for row in rows.iter_mut().filter(|row| row.task.ended_ns.is_none()) {
        row.command_line = account.command_line(row.task);
    }
}
