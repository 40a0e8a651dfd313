// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests on a slow host. An emulated guest is ten times slower than the host that runs it, and forty times with KASAN and
//! lockdep. The caller sets `TOPSTAT_SLOWDOWN` to this factor (`topstat-vm` does). The factor divides loads that are large
//! only for the sake of size, and multiplies timeouts. Assertions stay unchanged.

use std::sync::LazyLock;
use std::time::Duration;

const VARIABLE: &str = "TOPSTAT_SLOWDOWN";
/// The largest factor that is accepted.
const MAX: u32 = 1000;

/// The factor by which this host is slower than a usual host; 1 if the variable is not set.
pub fn slowdown() -> u32 {
    static SLOWDOWN: LazyLock<u32> = LazyLock::new(|| parse(std::env::var(VARIABLE).ok().as_deref()));
    *SLOWDOWN
}

fn parse(value: Option<&str>) -> u32 {
    match value {
        None | Some("") => 1,
        Some(text) => match text.parse() {
            Ok(times) if (1..=MAX).contains(&times) => times,
            _ => panic!("{VARIABLE}={text}: this is a number from 1 to {MAX}"),
        },
    }
}

/// An amount of work that takes this host as long as `usual` takes a usual host: at least `least`.
pub fn work(usual: u64, least: u64) -> u64 {
    (usual / u64::from(slowdown())).max(least.min(usual))
}

/// A rate that this host can keep, from the rate of a usual host.
pub fn rate(usual: f64) -> f64 {
    usual / f64::from(slowdown())
}

/// The error, in ns, that the kernel's own account of a short task's CPU time may have. In an emulated guest the counters of
/// the CPUs are not in step, and then the clock of the accounts is only as good as a CPU's last tick ("TSC unstable"): for a
/// child of 35 ms they said 2.5 ms too much, for four threads of 120 ms each 23 ms too little. Elsewhere the error is 0.
pub fn tick_ns() -> u64 {
    const AT_250_HZ: u64 = 4_000_000;
    if slowdown() > 1 { AT_250_HZ } else { 0 }
}

/// The timeout on this host for an action that takes a usual host that long.
pub fn patience(usual: Duration) -> Duration {
    usual * slowdown()
}
