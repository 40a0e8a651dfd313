// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests on a slow host: an emulated guest is ten times slower than the host that runs it, with KASAN and lockdep forty
//! times. Who starts them there says so in `TOPSTAT_SLOWDOWN` (`topstat-vm` does): there is that much less to do in
//! loads that are only large to be large, and that much more patience. What is asserted stays the same.

use std::sync::LazyLock;
use std::time::Duration;

const VARIABLE: &str = "TOPSTAT_SLOWDOWN";
/// Slower than this nobody has waited for.
const MAX: u32 = 1000;

/// How many times slower than a usual host this one is; 1 where nobody says so.
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

/// So much work of a usual host, as much as takes this one as long: at least `least`.
pub fn work(usual: u64, least: u64) -> u64 {
    (usual / u64::from(slowdown())).max(least.min(usual))
}

/// A rate of a usual host, as this one keeps it.
pub fn rate(usual: f64) -> f64 {
    usual / f64::from(slowdown())
}

/// What the kernel's own account of a short task's CPU time may be off by, in ns. In an emulated guest CPUs' counters are
/// not in step, and then the clock that the accounts go by is only as good as a CPU's last tick ("TSC unstable"): of a
/// child of 35 ms they said 2.5 ms too much, of four threads of 120 ms each 23 ms too little. Elsewhere it is nothing.
pub fn tick_ns() -> u64 {
    const AT_250_HZ: u64 = 4_000_000;
    if slowdown() > 1 { AT_250_HZ } else { 0 }
}

/// How long to wait here for what a usual host does within that time.
pub fn patience(usual: Duration) -> Duration {
    usual * slowdown()
}
