// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns a thread's account into its usage.

use topstat_model::interval::Usage;

use super::abi;

/// Brings a thread's usage up to a later account.
///
/// `run_ns` is exact to the nanosecond at the instant. Its parts are read in the moment after the instant. A part that is ahead
/// of the whole gets the excess with the next account, so that the parts always add up. The rest of `run_ns` is user and system
/// time, in the ratio of the kernel's own times. Neither of them ever runs backwards (as in the kernel's `cputime_adjust()`). If
/// `user_ns` is given, it decides instead of the ratio: it is the exact user time since the previous account.
pub fn advance(usage: &mut Usage, times: &abi::account_times, kernel_thread: bool, user_ns: Option<u64>) {
    let run_ns = times.own.run.max(usage.run_ns);
    let mut left = run_ns - usage.run_ns;
    let mut take = |part: &mut u64, now: u64| {
        let more = now.saturating_sub(*part).min(left);
        *part += more;
        left -= more;
    };
    take(&mut usage.irq_ns, times.own.irq);
    take(&mut usage.softirq_ns, times.own.softirq);
    take(&mut usage.steal_ns, times.own.steal);
    let busy = usage.user_ns + usage.system_ns + left;
    let (utime, stime) = (times.kernel.utime, times.kernel.stime);
    let system = match (utime, stime) {
        _ if kernel_thread => busy,
        _ if user_ns.is_some() => usage.system_ns + left.saturating_sub(user_ns.unwrap_or(0)),
        (_, 0) => 0,
        (0, _) => busy,
        _ => u64::try_from(u128::from(busy) * u128::from(stime) / (u128::from(utime) + u128::from(stime)))
            .unwrap_or(busy),
    };
    let system = system.clamp(usage.system_ns, busy - usage.user_ns);
    (usage.system_ns, usage.user_ns) = (system, busy - system);
    usage.run_ns = run_ns;
    let share = |part: u64| u128::from(usage.user_ns) * u128::from(part.min(utime)) / u128::from(utime.max(1));
    usage.guest_ns = usage.guest_ns.max(u64::try_from(share(times.kernel.gtime)).unwrap_or(usage.user_ns));
    usage.wait_ns = usage.wait_ns.max(times.kernel.wait);
    usage.switches = usage.switches.max(times.kernel.switches);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(own: [u64; 4], kernel: [u64; 5]) -> abi::account_times {
        let [run, irq, softirq, steal] = own;
        let [utime, stime, gtime, wait, switches] = kernel;
        abi::account_times {
            own: abi::account_own { run, irq, softirq, steal, ..Default::default() },
            kernel: abi::account_kernel { utime, stime, gtime, wait, switches },
        }
    }

    fn sum(usage: &Usage) -> u64 {
        usage.user_ns + usage.system_ns + usage.irq_ns + usage.softirq_ns + usage.steal_ns
    }

    #[test]
    fn parts_add_up_and_never_run_backwards() {
        let accounts = [
            times([1000, 100, 50, 0], [0, 0, 0, 7, 1]),
            times([2000, 100, 50, 10], [4_000_000, 0, 0, 7, 2]),
            times([2001, 600, 50, 10], [4_000_000, 8_000_000, 0, 9, 3]),
            times([9000, 600, 90, 10], [4_000_000, 8_000_000, 0, 9, 4]),
            times([20_000, 700, 90, 10], [400_000_000, 8_000_000, 100, 9, 5]),
        ];
        let mut usage = Usage::default();
        for account in &accounts {
            let before = usage;
            advance(&mut usage, account, false, None);
            assert_eq!((usage.run_ns, sum(&usage)), (account.own.run, account.own.run));
            for (now, then) in [
                (usage.user_ns, before.user_ns),
                (usage.system_ns, before.system_ns),
                (usage.irq_ns, before.irq_ns),
                (usage.softirq_ns, before.softirq_ns),
            ] {
                assert!(now >= then, "{account:?}");
            }
        }
        // After the last account, each part has caught up.
        assert_eq!((usage.irq_ns, usage.softirq_ns, usage.steal_ns), (700, 90, 10));
    }

    #[test]
    fn the_split_follows_the_kernels_ratio() {
        let mut usage = Usage::default();
        advance(&mut usage, &times([1_000_000, 0, 0, 0], [3_000_000, 1_000_000, 1_500_000, 0, 0]), false, None);
        assert_eq!((usage.user_ns, usage.system_ns, usage.guest_ns), (750_000, 250_000, 375_000));
        // The exact user time overrides the ratio of the ticks.
        advance(&mut usage, &times([1_001_000, 0, 0, 0], [3_000_000, 1_000_000, 0, 0, 0]), false, Some(300));
        assert_eq!((usage.user_ns, usage.system_ns), (750_300, 250_700));
        let mut never_ticked = Usage::default();
        advance(&mut never_ticked, &times([500, 0, 0, 0], [0; 5]), false, None);
        assert_eq!((never_ticked.user_ns, never_ticked.system_ns), (500, 0));
        let mut kernel = Usage::default();
        advance(&mut kernel, &times([500, 0, 0, 0], [0; 5]), true, None);
        assert_eq!((kernel.user_ns, kernel.system_ns), (0, 500));
    }
}
