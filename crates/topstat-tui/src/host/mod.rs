// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host: its CPUs, memory, network and disks, and the cost of this program. Read from /proc and /sys without any privilege.

mod look;
mod proc;

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

pub use look::Looker;

/// The activity of the host between two looks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Host {
    /// How busy each CPU was, from 0 to 1.
    pub cpus: Vec<f64>,
    /// How all CPUs together spent their time; `None` where /proc/stat can't be read.
    pub cpu: Option<Cpu>,
    /// The memory at the second look.
    pub memory: Option<Memory>,
    /// Bits per second that devices have received and sent. Loopback does not count. Where the host has hardware devices, virtual
    /// ones (bridges, bonds, tunnels) do not count either, since their packets pass a hardware device, too.
    pub net: Option<(u64, u64)>,
    /// TCP segments sent again per second, in the network namespace of this program.
    pub retrans: Option<f64>,
    /// The disks.
    pub disk: Option<Disk>,
    /// How much of the time some task waited for each resource.
    pub pressure: Pressure,
    /// The load average of the last minute.
    pub load: Option<f64>,
    /// The share of a CPU that this program has used.
    pub own: Option<f64>,
}

/// Shares of the time of all CPUs, from 0 to 1 each.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cpu {
    /// Programs, niced ones and guests included.
    pub user: f64,
    /// The kernel on behalf of programs.
    pub system: f64,
    /// Interrupts, hard and soft.
    pub irq: f64,
    /// Time that the hypervisor gave to others.
    pub steal: f64,
}

impl Cpu {
    /// The sum of all shares.
    pub fn busy(self) -> f64 {
        (self.user + self.system + self.irq + self.steal).clamp(0.0, 1.0)
    }
}

/// The memory of the host, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All memory.
    pub total: u64,
    /// The memory that programs can get without swapping.
    pub available: u64,
    /// All swap.
    pub swap_total: u64,
    /// The swap in use.
    pub swap_used: u64,
}

impl Memory {
    /// The bytes in use.
    pub fn used(self) -> u64 {
        self.total.saturating_sub(self.available)
    }

    /// The share in use, from 0 to 1.
    #[allow(clippy::cast_precision_loss)] // a figure for people
    pub fn share(self) -> f64 {
        self.used() as f64 / self.total.max(1) as f64
    }
}

/// The disks of the host. Partitions, and devices on top of other devices, do not count: their requests reach a disk, too.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Disk {
    /// Bytes read per second.
    pub read: u64,
    /// Bytes written per second.
    pub written: u64,
    /// The disk that was busy for the longest, and the share of the time, from 0 to 1.
    pub busiest: Option<(String, f64)>,
}

/// Shares of the time, from 0 to 1, in which some task waited for a resource: pressure stall information, "some". `None` where
/// the kernel does not measure it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// Tasks waited for a CPU.
    pub cpu: Option<f64>,
    /// Tasks waited for memory.
    pub memory: Option<f64>,
    /// Tasks waited for disks.
    pub io: Option<f64>,
}

/// The host's activity of the last ten minutes.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    all: VecDeque<(SystemTime, Host)>,
}

/// The time that is kept, as of the readings of tables.
const KEPT: Duration = Duration::from_secs(600);

impl Hosts {
    /// Adds the activity that was seen at this instant.
    pub fn add(&mut self, time: SystemTime, host: Host) {
        // If the clock was set back, a new past begins.
        if self.all.back().is_some_and(|(last, _)| *last > time) {
            self.all.clear();
        }
        let oldest = time.checked_sub(KEPT).unwrap_or(SystemTime::UNIX_EPOCH);
        self.all.push_back((time, host));
        while self.all.front().is_some_and(|(first, _)| *first < oldest) {
            self.all.pop_front();
        }
    }

    /// The activity of the last `most` looks up to an instant (`None`: all), the oldest first.
    pub fn until(&self, instant: Option<SystemTime>, most: usize) -> impl DoubleEndedIterator<Item = &Host> {
        let end = instant.map_or(self.all.len(), |instant| self.all.partition_point(|(time, _)| *time <= instant));
        self.all.range(end.saturating_sub(most)..end).map(|(_, host)| host)
    }
}
