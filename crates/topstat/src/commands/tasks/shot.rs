// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An interval, and what else is needed to show it.

use topstat_samples::tasks::{Interval, Task};

use super::plan::Choice;
use super::tree;
use crate::backend::Account;
use crate::error::Error;

/// An interval to be shown, once or more.
#[derive(Debug)]
pub struct Shot {
    pub interval: Interval,
    suspended_ns: u64,
}

impl Shot {
    /// What was used since the last one.
    pub fn take(choice: &Choice, account: &mut dyn Account) -> Result<Self, Error> {
        let mut interval = account.interval(choice.each)?;
        let suspended_ns = account.suspended_ns();
        if choice.tree {
            tree::add_ancestors(&mut interval, choice, account);
        }
        Ok(Self { interval, suspended_ns })
    }

    /// How long ago it was started, when the interval ended; or how long it lived.
    pub fn elapsed_ns(&self, task: &Task) -> u64 {
        let end_ns = task.ended_ns.unwrap_or(self.interval.end_ns);
        (end_ns + self.suspended_ns).saturating_sub(task.start_ns)
    }
}
