// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's SNMP counters: of every network namespace and device, in all and on each CPU.
//!
//! See `README.md` in this folder for where they are and how they are read.

abi!("snmp");
mod arrays;
mod files;
mod layout;
mod lists;
mod netns;
mod protocols;
mod reader;
mod select;

pub use netns::{Names, Netns, own_netns};
pub use protocols::protocols;
pub use reader::{Reader, Select, Which, fold};
pub use select::Wish;

use crate::family::{Counting, Family, Kind};
use crate::report::{Check, Outcome};

/// The family of SNMP counters. It has no samples: `topstat snmp` shows them.
pub fn family() -> Family {
    Family {
        name: "snmp".to_owned(),
        abi: 0, // nothing of it is ever pinned
        samples: Vec::new(),
        kind: Kind::Counters(Counting { try_load: arrays::try_load }),
        since: (5, 10),
        ready: || Ok(()),
        check: || vec![check()],
    }
}

/// Where counters are read here.
fn check() -> Check {
    let (name, advice) = ("SNMP counters".to_owned(), String::new());
    match arrays::try_load() {
        Ok(()) => Check { name, outcome: Outcome::Ok, found: "by CPU, from the kernel's arrays".to_owned(), advice },
        Err(why) => Check {
            name,
            outcome: Outcome::Degraded,
            found: format!("from /proc, without CPUs: {}", crate::report::explain(why, "snmp")),
            advice,
        },
    }
}
