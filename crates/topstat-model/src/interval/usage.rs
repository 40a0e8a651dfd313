// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The usage of CPU time, and its parts.

use std::ops::AddAssign;

/// Time on the CPUs. `user_ns + system_ns + irq_ns + softirq_ns + steal_ns` is `run_ns`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The sum of the times from coming onto a CPU to leaving it. Exact.
    pub run_ns: u64,
    /// The part in user space, as the kernel accounts for it; contains `guest_ns`.
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
    /// Number of times that it left a CPU.
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
    /// Whether the usage is zero.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// The usage since `before`: no number runs backwards, so none is below its earlier value.
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
}
