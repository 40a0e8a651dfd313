// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples of the kernel's stacks: the work of the CPUs, and the side that they work for.
//!
//! A [`Profile`] has the samples of an interval. A [`Picture`] is a table of it: samples by category, function, stack, CPU, side,
//! process or control group. The shown rows and the others ([`Table::other`]) add up to the chosen samples.

mod category;
mod csv;
mod json;
mod picture;
mod table;
mod text;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use category::{Category, Side};
pub use picture::Picture;
pub use table::{By, Choice, Row, Table};

/// The event that makes the kernel take a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Cycles of the CPU, which a performance counter counts. A CPU that waits for work uses no cycles.
    Cycles,
    /// A timer, where there is no performance counter. It can't interrupt where interrupts are masked.
    CpuClock,
    /// Fetches of the CPU from memory, which a performance counter counts.
    CacheMisses,
}

impl Event {
    /// The name in perf(1).
    pub fn name(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::CpuClock => "cpu-clock",
            Self::CacheMisses => "cache-misses",
        }
    }
}

/// The rule that assigns a sample to a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// To the function in which it was found.
    Leaf,
    /// To that function; where it has just enabled interrupts, to its caller, which had them masked.
    #[default]
    Corrected,
}

impl View {
    /// Both, in the order of [`Sample::found`].
    pub const ALL: [Self; 2] = [Self::Leaf, Self::Corrected];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leaf => "leaf",
            Self::Corrected => "corrected",
        }
    }
}

/// The category of a sample, and how it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The function is known by its name, or by the functions around it.
    ByName(Category),
    /// The nearest of its callers is known by its name.
    ByCaller(Category),
    /// No function of the stack is known.
    Unknown,
}

impl Found {
    /// The category; `None`: unclassified.
    pub fn category(self) -> Option<Category> {
        match self {
            Self::ByName(category) | Self::ByCaller(category) => Some(category),
            Self::Unknown => None,
        }
    }
}

/// A function of a stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame {
    /// Its name, or its address.
    pub name: String,
    /// Its module.
    pub module: Option<String>,
}

/// Equal samples, with their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The number of samples.
    pub count: u64,
    /// The CPU.
    pub cpu: u32,
    /// The process that it ran; 0: the idle task.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// Its control group.
    pub cgroup: Option<String>,
    /// The side that it ran for.
    pub side: Side,
    /// Its category, by [`View::ALL`].
    pub found: [Found; 2],
    /// For each of [`View::ALL`], the index of the function in `stack` that the sample is assigned to.
    pub leaf: [usize; 2],
    /// The functions, the innermost first.
    pub stack: Arc<[Arc<Frame>]>,
}

/// Samples without a stack of the kernel at work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Besides {
    /// In user space.
    pub user: u64,
    /// The CPU waited for work.
    pub idle: u64,
    /// There was no room for the stack, or the kernel gave none.
    pub lost: u64,
    /// Samples that the timer was due to take and did not: the CPU itself did not run, or interrupts were masked for longer than
    /// the time between two samples. They are in no sum.
    pub missed: u64,
}

/// The samples of an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// When it ended.
    pub time: SystemTime,
    /// Its length.
    pub elapsed: Duration,
    /// The event that made the kernel take samples.
    pub event: Event,
    /// The number of samples per second on each CPU.
    pub hz: u32,
    /// The CPUs that were sampled.
    pub cpus: Vec<u32>,
    /// The samples in the kernel, at work.
    pub samples: Vec<Sample>,
    /// The other samples.
    pub besides: Besides,
}

impl Profile {
    /// The number of samples in the kernel, at work.
    pub fn kernel(&self) -> u64 {
        self.samples.iter().map(|sample| sample.count).sum()
    }

    /// The number of all samples.
    pub fn total(&self) -> u64 {
        let Besides { user, idle, lost, missed: _ } = self.besides;
        self.kernel() + user + idle + lost
    }

    /// Adds the profile of the next interval.
    pub fn append(&mut self, next: Profile) {
        self.time = next.time;
        self.elapsed += next.elapsed;
        for cpu in next.cpus {
            if !self.cpus.contains(&cpu) {
                self.cpus.push(cpu);
            }
        }
        self.samples.extend(next.samples);
        for (sum, more) in [
            (&mut self.besides.user, next.besides.user),
            (&mut self.besides.idle, next.besides.idle),
            (&mut self.besides.lost, next.besides.lost),
            (&mut self.besides.missed, next.besides.missed),
        ] {
            *sum += more;
        }
    }
}

/// A part of a whole in percent; 0 if the whole is 0.
#[expect(clippy::cast_precision_loss, reason = "shares are shown with few digits")]
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}
