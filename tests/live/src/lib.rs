// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the live tests share: tests that say what they need, guards that undo what a test made, and ground truth that
//! topstat did not produce (TCP_INFO, the load generator's own counts, `/proc`).

#![warn(missing_docs)]

pub mod attached;
pub mod busy;
pub mod cgroup;
pub mod daemon;
pub mod drops;
pub mod events;
pub mod faults;
pub mod harness;
pub mod injected;
pub mod instructions;
pub mod modules;
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

pub use busy::Busy;
pub use daemon::Daemon;
pub use harness::{Alone, Case, Tag, note};
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

/// Asks again and again until the answer is yes, for at most as long as given (on a slow host, longer). Gives the last
/// answer.
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

/// Two CPUs that this process may use, so that both ends of a connection are counted on both; `None` where there is one.
pub fn two_cpus() -> Option<(usize, usize)> {
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    let mut cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    Some((cpus.next()?, cpus.next()?))
}

/// The usual limits, for a busy host: a datagram that is late is not lost.
pub fn limits() -> Limits {
    let usual = Limits::default();
    Limits {
        time: pace::patience(usual.time),
        loss_timeout: pace::patience(Duration::from_secs(15)),
        drain: pace::patience(Duration::from_secs(20)),
        ..usual
    }
}

/// The CPU time of the calling thread. Unlike the time that passes, it does not depend on who else runs.
pub fn own_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
