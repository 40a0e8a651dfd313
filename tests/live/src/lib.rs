// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shared code of the live tests: the declaration of needs, guards that undo a test's changes, and ground truth that topstat
//! did not produce (TCP_INFO, the load generator's own counts, `/proc`).

#![warn(missing_docs)]

pub mod accounts;
pub mod attached;
pub mod busy;
pub mod case;
pub mod cgroup;
pub mod daemon;
pub mod drops;
pub mod events;
pub mod faults;
pub mod harness;
pub mod injected;
pub mod instructions;
pub mod modules;
pub mod mounts;
pub mod need;
pub mod nest;
pub mod netns;
pub mod offline;
pub mod pace;
pub mod role;
pub mod scratch;
pub mod tally;
pub mod taskstats;
pub mod tree;
pub mod truth;
pub mod watch;
pub mod witness;

pub use accounts::own_cpu_time;
pub use busy::Busy;
pub use case::{Alone, Case, Tag};
pub use daemon::Daemon;
pub use harness::note;
pub use need::Need;
pub use nest::Nest;
pub use netns::Netns;
pub use offline::Offline;
pub use role::Role;
pub use scratch::Scratch;
pub use tree::Tree;
pub use truth::{Counts, End, Key};
pub use watch::{View, Watch};
pub use witness::{Transport, Witness};

use std::time::{Duration, Instant};

use topstat_load::Limits;

/// Calls `ask` until it returns true, at most for the given time (longer on a slow host). Returns the last answer.
pub fn eventually(patience: Duration, mut ask: impl FnMut() -> bool) -> bool {
    let (begun, patience) = (Instant::now(), pace::patience(patience));
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

/// Two CPUs that this process may use, so that both ends of a connection are counted on both; `None` if it has only one CPU.
pub fn two_cpus() -> Option<(usize, usize)> {
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    let mut cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    Some((cpus.next()?, cpus.next()?))
}

/// The usual limits, adapted to a slow host: a late datagram is not lost.
pub fn limits() -> Limits {
    let usual = Limits::default();
    Limits {
        time: pace::patience(usual.time),
        loss_timeout: pace::patience(Duration::from_secs(15)),
        drain: pace::patience(Duration::from_secs(20)),
        ..usual
    }
}
