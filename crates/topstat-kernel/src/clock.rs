// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock that programs read, and the CPUs that they run on.

use crate::Error;

/// The length of a jiffy, the grain of the coarse clock.
pub fn jiffy_ns() -> u64 {
    let grain = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    u64::try_from(grain.tv_nsec).unwrap_or(0) + u64::try_from(grain.tv_sec).unwrap_or(0) * 1_000_000_000
}

/// Jiffies in a second.
pub fn hz() -> u32 {
    let ns = jiffy_ns();
    u32::try_from((1_000_000_000 + ns / 2) / ns.max(1)).unwrap_or(250)
}

/// All CPUs that the machine could ever have. Each of them has banks.
pub fn possible_cpus() -> Result<u32, Error> {
    let cpus = libbpf_rs::num_possible_cpus()
        .map_err(|e| Error::Kernel { what: "count the CPUs".to_owned(), why: e.to_string() })?;
    Ok(u32::try_from(cpus).unwrap_or(u32::MAX))
}
