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

pub use crate::family::AccountOptions;
use crate::family::{Account, AccountReader, Family, Kind};

/// The family of the account. It has no samples: `topstat tasks` shows it.
pub fn family() -> Family {
    let account = Account {
        checked_with: "tasks",
        programs: accountant::programs,
        load: |options, exact| {
            let accountant = Accountant::load(options)?;
            if !exact.is_empty() {
                accountant.choose(exact)?;
            }
            let reader: Box<dyn AccountReader> = Box::new(accountant.reader()?);
            Ok(reader)
        },
    };
    Family {
        name: "account".to_owned(),
        abi: 0, // the family pins nothing
        samples: Vec::new(),
        kind: Kind::Account(account),
        since: (6, 1),
        ready: || Ok(()),
        check: check::check,
    }
}
