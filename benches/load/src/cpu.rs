// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU time of this process and of the whole system, which gives the cost of other code.

use std::ops::Sub;
use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::sys;

/// CPU time spent during a run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct CpuUse {
    /// User time of the whole process, both ends included, in nanoseconds.
    pub user_ns: u64,
    /// System time of the whole process in nanoseconds.
    pub system_ns: u64,
    /// The time of all CPUs, used by any process.
    pub host: SystemTime,
}

/// The first line of `/proc/stat` as time. Its resolution is a tick (10 ms), and it is summed over all CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct SystemTime {
    /// In user mode, niced or not.
    pub user_ns: u64,
    /// In the kernel, on behalf of a task.
    pub system_ns: u64,
    /// In interrupts.
    pub irq_ns: u64,
    /// In soft interrupts.
    pub softirq_ns: u64,
    /// Taken by the hypervisor for others.
    pub steal_ns: u64,
    /// Idle, waits for disks included.
    pub idle_ns: u64,
}

impl SystemTime {
    /// Time in which CPUs worked. Stolen time is neither busy nor idle.
    #[must_use]
    pub fn busy_ns(&self) -> u64 {
        self.user_ns + self.system_ns + self.irq_ns + self.softirq_ns
    }

    fn now() -> Result<SystemTime> {
        let text = std::fs::read_to_string("/proc/stat").map_err(|error| Error::system("read /proc/stat", error))?;
        SystemTime::parse(&text, rustix::param::clock_ticks_per_second())
            .ok_or_else(|| Error::system("read /proc/stat", std::io::Error::other("its first line is not 'cpu …'")))
    }

    fn parse(text: &str, ticks_per_second: u64) -> Option<SystemTime> {
        let mut words = text.lines().next()?.split_ascii_whitespace();
        if words.next()? != "cpu" {
            return None;
        }
        let ns: Vec<u64> = words
            .map(|word| word.parse::<u64>().map(|ticks| ticks * (1_000_000_000 / ticks_per_second)))
            .collect::<std::result::Result<_, _>>()
            .ok()?;
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ns[..] else {
            return None;
        };
        Some(SystemTime {
            user_ns: user + nice,
            system_ns: system,
            irq_ns: irq,
            softirq_ns: softirq,
            steal_ns: steal,
            idle_ns: idle + iowait,
        })
    }
}

impl Sub for SystemTime {
    type Output = SystemTime;

    /// Idle time can step back by a tick, so no field goes below 0.
    fn sub(self, earlier: SystemTime) -> SystemTime {
        SystemTime {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
            irq_ns: self.irq_ns.saturating_sub(earlier.irq_ns),
            softirq_ns: self.softirq_ns.saturating_sub(earlier.softirq_ns),
            steal_ns: self.steal_ns.saturating_sub(earlier.steal_ns),
            idle_ns: self.idle_ns.saturating_sub(earlier.idle_ns),
        }
    }
}

/// A point in time to measure CPU time from.
pub(crate) struct CpuMark {
    user: Duration,
    system: Duration,
    host: SystemTime,
}

impl CpuMark {
    pub fn now() -> Result<CpuMark> {
        let (user, system) = sys::process_times();
        Ok(CpuMark { user, system, host: SystemTime::now()? })
    }

    /// The CPU time used since the mark.
    pub fn elapsed(&self) -> Result<CpuUse> {
        let now = CpuMark::now()?;
        Ok(CpuUse {
            user_ns: now.user.saturating_sub(self.user).as_nanos() as u64,
            system_ns: now.system.saturating_sub(self.system).as_nanos() as u64,
            host: now.host - self.host,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_parsed() {
        let time = SystemTime::parse("cpu  10 1 20 300 5 2 4 7 0 0\ncpu0 1 2 3\n", 100).unwrap();
        assert_eq!(time.busy_ns(), 370_000_000);
        assert_eq!((time.idle_ns, time.steal_ns), (3_050_000_000, 70_000_000));
        assert_eq!(SystemTime::parse("cpu 1 2\n", 100), None);
        assert_eq!(SystemTime::parse("", 100), None);
    }

    #[test]
    fn this_kernel_can_be_read() {
        assert!(SystemTime::now().unwrap().busy_ns() > 0);
    }
}
