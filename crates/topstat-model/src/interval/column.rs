// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The columns of numbers, and the amounts of rows.

use super::Usage;

/// The amount of a row: of the task itself, and of its ended children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Of the task itself.
    pub own: Usage,
    /// Of its ended children, and of their ended children.
    pub children: Usage,
}

impl Amount {
    /// Adds another amount.
    pub fn add(&mut self, more: &Self) {
        self.own += more.own;
        self.children += more.children;
    }

    /// All time on a CPU.
    pub fn total_ns(&self) -> u64 {
        self.own.run_ns + self.children.run_ns
    }
}

/// A column of numbers. The shares are the columns from `User` to `Ckernel`. They add up to `Total` if either all of `Sys`, `Irq`
/// and `Softirq` are shown, or `Kernel`; and likewise for the children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// In user space.
    User,
    /// In the kernel, without interrupts.
    Sys,
    /// In the kernel, with the interrupts that came.
    Kernel,
    /// Interrupts.
    Irq,
    /// Softirqs.
    Softirq,
    /// Taken by the hypervisor.
    Ste,
    /// As `User`, of children.
    Cuser,
    /// As `Sys`, of children.
    Csys,
    /// As `Kernel`, of children.
    Ckernel,
    /// As `Irq`, of children.
    Cirq,
    /// As `Softirq`, of children.
    Csoftirq,
    /// As `Ste`, of children.
    Cste,
    /// All time on a CPU.
    Total,
    /// As a virtual CPU: contained in `User`.
    Guest,
    /// Runnable, but waiting for a CPU.
    Wait,
    /// A count; all others are nanoseconds.
    Switches,
}

impl Column {
    /// The title above the column.
    pub fn title(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Sys | Self::Kernel => "sys",
            Self::Irq => "irq",
            Self::Softirq => "sirq",
            Self::Ste => "ste",
            Self::Cuser => "cuser",
            Self::Csys | Self::Ckernel => "csys",
            Self::Cirq => "cirq",
            Self::Csoftirq => "csirq",
            Self::Cste => "cste",
            Self::Total => "total",
            Self::Guest => "guest",
            Self::Wait => "wait",
            Self::Switches => "switches",
        }
    }

    /// The number in the column.
    pub fn of(self, amount: &Amount) -> u64 {
        let Amount { own, children } = amount;
        let kernel = |usage: &Usage| usage.system_ns + usage.irq_ns + usage.softirq_ns;
        match self {
            Self::User => own.user_ns,
            Self::Sys => own.system_ns,
            Self::Kernel => kernel(own),
            Self::Irq => own.irq_ns,
            Self::Softirq => own.softirq_ns,
            Self::Ste => own.steal_ns,
            Self::Cuser => children.user_ns,
            Self::Csys => children.system_ns,
            Self::Ckernel => kernel(children),
            Self::Cirq => children.irq_ns,
            Self::Csoftirq => children.softirq_ns,
            Self::Cste => children.steal_ns,
            Self::Total => amount.total_ns(),
            Self::Guest => own.guest_ns + children.guest_ns,
            Self::Wait => own.wait_ns + children.wait_ns,
            Self::Switches => own.switches + children.switches,
        }
    }

    /// The columns that are shown.
    pub fn shown(wide: bool, dead: bool) -> Vec<Self> {
        let mut columns = match wide {
            false => vec![Self::User, Self::Kernel, Self::Ste],
            true => vec![Self::User, Self::Sys, Self::Irq, Self::Softirq, Self::Ste],
        };
        // An ended task has its own row there, so no row has an amount of children.
        match (dead, wide) {
            (true, _) => {}
            (_, false) => columns.extend([Self::Cuser, Self::Ckernel, Self::Cste]),
            (_, true) => columns.extend([Self::Cuser, Self::Csys, Self::Cirq, Self::Csoftirq, Self::Cste]),
        }
        columns.push(Self::Total);
        if wide {
            columns.extend([Self::Guest, Self::Wait, Self::Switches]);
        }
        columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount() -> Amount {
        let usage = |n: u64| Usage {
            run_ns: 31 * n,
            user_ns: n,
            system_ns: 2 * n,
            irq_ns: 4 * n,
            softirq_ns: 8 * n,
            steal_ns: 16 * n,
            guest_ns: n,
            wait_ns: 5,
            switches: 7,
        };
        Amount { own: usage(1), children: usage(1000) }
    }

    #[test]
    fn the_shares_that_are_shown_add_up_to_the_total() {
        for wide in [false, true] {
            let columns = Column::shown(wide, false);
            let shares = columns.split(|column| *column == Column::Total).next().unwrap();
            let sum: u64 = shares.iter().map(|column| column.of(&amount())).sum();
            assert_eq!(sum, Column::Total.of(&amount()), "{columns:?}");
        }
        for wide in [false, true] {
            let columns = Column::shown(wide, true);
            let own = Amount { children: Usage::default(), ..amount() };
            let shares = columns.split(|column| *column == Column::Total).next().unwrap();
            assert_eq!(shares.iter().map(|column| column.of(&own)).sum::<u64>(), 31, "{columns:?}");
        }
    }
}
