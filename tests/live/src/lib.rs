// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the live tests share: tests that say what they need, guards that undo what a test made, and ground truth that
//! topstat did not produce (TCP_INFO, the load generator's own counts, `/proc`).

#![warn(missing_docs)]

pub mod attached;
pub mod cgroup;
pub mod drops;
pub mod harness;
pub mod nest;
pub mod netns;
pub mod role;
pub mod tally;
pub mod truth;
pub mod watch;

pub use harness::{Case, Need, note};
pub use nest::Nest;
pub use netns::Netns;
pub use role::Role;
pub use truth::{Counts, End, Key};
pub use watch::{View, Watch};

use std::time::{Duration, Instant};

use topstat_load::Limits;

/// Asks again and again until the answer is yes, for at most as long as given. Gives the last answer.
pub fn eventually(patience: Duration, mut ask: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if ask() {
            return true;
        }
        if begun.elapsed() > patience {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Two CPUs that this process may use, so that both ends of a connection are counted on both; `None` where there is one.
pub fn two_cpus() -> Option<(usize, usize)> {
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    let mut cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    Some((cpus.next()?, cpus.next()?))
}

/// The usual limits, for a busy host: a datagram that is late is not lost.
pub fn limits() -> Limits {
    Limits { loss_timeout: Duration::from_secs(15), drain: Duration::from_secs(20), ..Limits::default() }
}
