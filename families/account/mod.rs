// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The precise account of CPU time: the time that each task used between two instants. All of it adds up to
//! time × CPUs.
//!
//! See `README.md` in this folder for what is counted, and where.

abi!("account");
mod accountant;
mod check;
mod ledger;
mod precise;
mod usage;

pub use accountant::Accountant;
pub use precise::Precise;

use std::sync::Arc;

use topstat_kernel::Error;
use topstat_kernel::family::{Family, Kind};

/// Options of the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountOptions {
    /// Whether interrupts and softirqs are counted apart from the tasks that they interrupt. It costs two readings of the clock
    /// for each of them.
    pub interrupts: bool,
}

impl Default for AccountOptions {
    fn default() -> Self {
        Self { interrupts: true }
    }
}

/// Loads and attaches the account, for as long as the reader lives, and begins its first interval. User and system time of the
/// processes in `exact` are separated by their system calls.
///
/// # Errors
/// As [`topstat_kernel::load`]; also if `exact` has too many processes.
pub fn load(options: &AccountOptions, exact: &[u32]) -> Result<Precise, Error> {
    let accountant = Accountant::load(options)?;
    if !exact.is_empty() {
        accountant.choose(exact)?;
    }
    accountant.reader()
}

/// The kind of the account.
struct Account;

impl Kind for Account {
    fn programs(&self) -> Vec<String> {
        accountant::programs()
    }

    fn try_load(&self, _family: &Arc<Family>) -> Result<(), Error> {
        load(&AccountOptions::default(), &[]).map(drop)
    }

    /// `tasks` has the same objects.
    fn is_checked_with(&self, _family: &Family, sample: &str) -> bool {
        sample == "tasks"
    }
}

/// The family of the account. It has no samples: `topstat tasks` shows it.
pub fn family() -> Family {
    Family {
        name: "account".to_owned(),
        abi: 0, // the family pins nothing
        samples: Vec::new(),
        kind: Arc::new(Account),
        since: (6, 1),
        ready: || Ok(()),
        check: check::check,
    }
}
