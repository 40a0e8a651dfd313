// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples the kernel's stacks: they show where the network stack spends its CPU time.
//!
//! See `README.md` in this folder for how samples are taken and classified.

abi!("netstack");
mod classify;
mod events;
mod histograms;
mod loss;
mod rules;
mod sampler;

pub use classify::{Classifier, Sampled, Why};
pub use histograms::{Chosen, Counter};
pub use loss::{Loss, Lost};
pub use rules::Verdict;
pub use sampler::{DEFAULT_HZ, MOST_HZ, Options, Sampler};

use std::sync::Arc;

use topstat_model::stacks::Event;

use topstat_kernel::Error;
use topstat_kernel::family::{Family, Kind};
use topstat_kernel::report::{Check, Outcome};

/// The family of sampled stacks. It has no samples in the daemon's tree: `topstat netstack` shows them.
pub fn family() -> Family {
    Family {
        name: "netstack".to_owned(),
        abi: 0, // the family pins nothing
        samples: Vec::new(),
        kind: Arc::new(Stacks),
        since: (5, 10),
        ready: || Ok(()),
        check: || vec![check()],
    }
}

/// The kind of sampled stacks, while a reader exists.
struct Stacks;

impl Kind for Stacks {
    fn try_load(&self, _family: &Arc<Family>) -> Result<(), Error> {
        sampler::try_load()?;
        histograms::try_load()?;
        loss::try_load()
    }
}

/// The index of a device in the calling thread's network namespace.
fn device_index(device: &str) -> std::io::Result<u32> {
    use rustix::net::{AddressFamily, SocketType, netdevice::name_to_index, socket};
    Ok(name_to_index(socket(AddressFamily::INET, SocketType::DGRAM, None)?, device)?)
}

/// The line of `topstat check`: the event that samples stacks on this host.
fn check() -> Check {
    let name = "stacks of the kernel".to_owned();
    let found = sampler::try_load().map(|()| events::chosen());
    let (outcome, found, advice) = match found {
        Ok(Ok(Event::Cycles | Event::CacheMisses)) => {
            (Outcome::Ok, "sampled by cycles of the CPUs".to_owned(), String::new())
        }
        Ok(Ok(Event::CpuClock)) => (
            Outcome::Degraded,
            "sampled by a timer: there is no counter of cycles, and what runs with interrupts masked is seen late"
                .to_owned(),
            "in a virtual machine, give it a performance monitoring unit".to_owned(),
        ),
        Ok(Err(e)) | Err(e) => {
            if let Some(obstacle) = topstat_kernel::report::obstacle() {
                return Check::untried(&name, &obstacle);
            }
            let why = topstat_kernel::report::explain(e, "netstack").to_string();
            (Outcome::Missing, why, "the lines above say what is missing".to_owned())
        }
    };
    Check { name, outcome, found, advice }
}
