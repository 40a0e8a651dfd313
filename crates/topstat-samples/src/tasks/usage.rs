// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was used of the CPUs, and how it is split.

use std::ops::AddAssign;

use super::abi;

/// Time on the CPUs. `user_ns + system_ns + irq_ns + softirq_ns + steal_ns` is `run_ns`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// From when it came onto a CPU until it left it, all told. Exact.
    pub run_ns: u64,
    /// Of that, in user space, as the kernel accounts for it; `guest_ns` is contained.
    pub user_ns: u64,
    /// In the kernel.
    pub system_ns: u64,
    /// In interrupts that came while it ran.
    pub irq_ns: u64,
    /// In softirqs.
    pub softirq_ns: u64,
    /// Taken by the hypervisor.
    pub steal_ns: u64,
    /// As a virtual CPU.
    pub guest_ns: u64,
    /// Runnable, but waiting for a CPU: not contained in `run_ns`.
    pub wait_ns: u64,
    /// How often it left a CPU.
    pub switches: u64,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, more: Self) {
        self.run_ns += more.run_ns;
        self.user_ns += more.user_ns;
        self.system_ns += more.system_ns;
        self.irq_ns += more.irq_ns;
        self.softirq_ns += more.softirq_ns;
        self.steal_ns += more.steal_ns;
        self.guest_ns += more.guest_ns;
        self.wait_ns += more.wait_ns;
        self.switches += more.switches;
    }
}

impl Usage {
    /// Whether nothing was used.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// What was used since: no number runs backwards, so none is below what it was.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            run_ns: self.run_ns.saturating_sub(before.run_ns),
            user_ns: self.user_ns.saturating_sub(before.user_ns),
            system_ns: self.system_ns.saturating_sub(before.system_ns),
            irq_ns: self.irq_ns.saturating_sub(before.irq_ns),
            softirq_ns: self.softirq_ns.saturating_sub(before.softirq_ns),
            steal_ns: self.steal_ns.saturating_sub(before.steal_ns),
            guest_ns: self.guest_ns.saturating_sub(before.guest_ns),
            wait_ns: self.wait_ns.saturating_sub(before.wait_ns),
            switches: self.switches.saturating_sub(before.switches),
        }
    }

    /// Takes a thread's account on to a later one.
    ///
    /// `run_ns` is to the nanosecond at the instant; its parts were read within the moment after it. What a part is
    /// ahead of the whole it gets with the next account, so that the parts always add up. What is left is user and
    /// system, in the ratio of the kernel's own times and, like those, never running backwards (the kernel's
    /// `cputime_adjust()`); or as `user_ns` says, what was used in user space since the account before, where that is
    /// known exactly.
    pub(super) fn advance(&mut self, times: &abi::tasks_times, kernel_thread: bool, user_ns: Option<u64>) {
        let run_ns = times.own.run.max(self.run_ns);
        let mut left = run_ns - self.run_ns;
        let mut take = |part: &mut u64, now: u64| {
            let more = now.saturating_sub(*part).min(left);
            *part += more;
            left -= more;
        };
        take(&mut self.irq_ns, times.own.irq);
        take(&mut self.softirq_ns, times.own.softirq);
        take(&mut self.steal_ns, times.own.steal);
        let busy = self.user_ns + self.system_ns + left;
        let (utime, stime) = (times.kernel.utime, times.kernel.stime);
        let system = match (utime, stime) {
            _ if kernel_thread => busy,
            _ if user_ns.is_some() => self.system_ns + left.saturating_sub(user_ns.unwrap_or(0)),
            (_, 0) => 0,
            (0, _) => busy,
            _ => u64::try_from(u128::from(busy) * u128::from(stime) / (u128::from(utime) + u128::from(stime)))
                .unwrap_or(busy),
        };
        let system = system.clamp(self.system_ns, busy - self.user_ns);
        (self.system_ns, self.user_ns) = (system, busy - system);
        self.run_ns = run_ns;
        let share = |part: u64| u128::from(self.user_ns) * u128::from(part.min(utime)) / u128::from(utime.max(1));
        self.guest_ns = self.guest_ns.max(u64::try_from(share(times.kernel.gtime)).unwrap_or(self.user_ns));
        self.wait_ns = self.wait_ns.max(times.kernel.wait);
        self.switches = self.switches.max(times.kernel.switches);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(own: [u64; 4], kernel: [u64; 5]) -> abi::tasks_times {
        let [run, irq, softirq, steal] = own;
        let [utime, stime, gtime, wait, switches] = kernel;
        abi::tasks_times {
            own: abi::tasks_own { run, irq, softirq, steal, ..Default::default() },
            kernel: abi::tasks_kernel { utime, stime, gtime, wait, switches },
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
            usage.advance(account, false, None);
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
        // In the end, what was ahead has come in.
        assert_eq!((usage.irq_ns, usage.softirq_ns, usage.steal_ns), (700, 90, 10));
    }

    #[test]
    fn the_split_follows_the_kernels_ratio() {
        let mut usage = Usage::default();
        usage.advance(&times([1_000_000, 0, 0, 0], [3_000_000, 1_000_000, 1_500_000, 0, 0]), false, None);
        assert_eq!((usage.user_ns, usage.system_ns, usage.guest_ns), (750_000, 250_000, 375_000));
        // Known exactly, whatever the ticks say.
        usage.advance(&times([1_001_000, 0, 0, 0], [3_000_000, 1_000_000, 0, 0, 0]), false, Some(300));
        assert_eq!((usage.user_ns, usage.system_ns), (750_300, 250_700));
        let mut never_ticked = Usage::default();
        never_ticked.advance(&times([500, 0, 0, 0], [0; 5]), false, None);
        assert_eq!((never_ticked.user_ns, never_ticked.system_ns), (500, 0));
        let mut kernel = Usage::default();
        kernel.advance(&times([500, 0, 0, 0], [0; 5]), true, None);
        assert_eq!((kernel.user_ns, kernel.system_ns), (0, 500));
    }
}
