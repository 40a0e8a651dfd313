// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's SNMP counters of every network namespace and device, as sums and on each CPU.
//!
//! See `README.md` in this folder for where they are and how they are read.

abi!("snmp");
mod arrays;
mod devices;
mod files;
mod layout;
mod lists;
mod netns;
mod protocols;
mod raw;
mod reader;
mod samples;
mod select;
mod tables;

pub use netns::{Names, Netns, own_netns};
pub use protocols::protocols;
pub use raw::Keep;
pub use reader::{Reader, Select, Which};
pub use select::Wish;

use std::sync::Arc;

use topstat_kernel::Counting;
use topstat_kernel::family::Family;
use topstat_kernel::report::{Check, Outcome};

/// The family of SNMP counters.
pub fn family() -> Family {
    let (available, parts, lost) = (samples::available, samples::parts, tables::lost);
    Family {
        name: "snmp".to_owned(),
        abi: 0, // the family pins nothing
        samples: samples::samples().into_iter().map(Arc::new).collect(),
        kind: Arc::new(Counting { try_load: arrays::try_load, available, open: tables::open, parts, lost }),
        since: (5, 10),
        ready: || Ok(()),
        check: || vec![check()],
    }
}

/// The line of `topstat check`: where counters are read on this host.
fn check() -> Check {
    let (name, advice) = ("SNMP counters".to_owned(), String::new());
    let available = samples::available();
    let absent: Vec<_> =
        samples::samples().into_iter().map(|sample| sample.name).filter(|name| !available.contains(name)).collect();
    let without =
        if absent.is_empty() { String::new() } else { format!("; this kernel does not count {}", absent.join(", ")) };
    match arrays::try_load() {
        Ok(()) => {
            Check { name, outcome: Outcome::Ok, found: format!("by CPU, from the kernel's arrays{without}"), advice }
        }
        Err(why) => Check {
            name,
            outcome: Outcome::Degraded,
            found: format!("from /proc, without CPUs: {}{without}", topstat_kernel::report::explain(why, "snmp")),
            advice,
        },
    }
}
