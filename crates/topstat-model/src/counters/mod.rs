// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A reading of counters: what the kernel has counted, of each network namespace or device, by protocol, in all and on
//! each CPU; and what it was at the reading before.
//!
//! A [`Picture`] is what is shown of it: a [`Reading`](crate::Reading), which a [`Sink`](crate::Sink) writes. JSON and CSV
//! lose nothing of what is shown; in text, rates are rounded.
//!
//! # What always holds
//!
//! The parts of the CPUs add up to the value (modulo 2⁶⁴, as the kernel adds them), and so do their changes.
//! [`Counters::check`] verifies it.

mod choice;
mod csv;
mod json;
mod picture;
mod text;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use choice::{Choice, Order, Shown};
pub use picture::Picture;

/// One reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// When it was taken.
    pub time: SystemTime,
    /// The time since the reading before, by a clock that is never set; `None`: it is the first one.
    pub elapsed: Option<Duration>,
    /// Where it was read.
    pub source: Source,
    /// The CPUs that have parts, in the order of the parts; empty where parts are not known.
    pub cpus: Vec<u32>,
    /// What has counters.
    pub scopes: Vec<Scope>,
    /// What is wrong with it.
    pub lost: CountersLost,
}

/// Where counters were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the kernel's own arrays, CPU by CPU.
    Arrays,
    /// In the files of `/proc/net`, for this reason: parts of CPUs are not known.
    Proc(String),
}

/// What is missing from a reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountersLost {
    /// Namespaces or devices that were not read, since there are too many.
    pub beyond: u64,
    /// Arrays that could not be read, and pass for zeros.
    pub unreadable: u64,
    /// Counters that the kernel shows in `/proc`, and of which it is not known where they are.
    pub unknown: Vec<String>,
}

/// A network namespace, or a device of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The namespace's inode, as in `/proc/PID/ns/net`.
    pub netns: u32,
    /// What it is called, where it has a name: that of `ip netns`, or of who is in it.
    pub name: Option<String>,
    /// The device; `None`: counters are those of the namespace.
    pub device: Option<String>,
    /// Counters, by protocol.
    pub protocols: Vec<Protocol>,
}

/// The counters of a protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// Its name: `tcpext`. Its sample is `snmp_tcpext`.
    pub name: &'static str,
    /// In the kernel's order.
    pub counters: Vec<Counter>,
}

/// A counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Its standard name: `InSegs`.
    pub name: Arc<str>,
    /// How it is to be understood.
    pub kind: CounterKind,
    /// What it stands at.
    pub now: Amount,
    /// What it stood at at the reading before, if that had it.
    pub before: Option<Amount>,
}

/// How a counter is to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// It only grows.
    Count,
    /// A level or a setting: it has no rate, and only the sum over CPUs means anything.
    Gauge,
}

/// What a counter stands at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// In all.
    pub all: u64,
    /// On each CPU; empty where that is not known, since all share the counter, or it was read elsewhere.
    pub cpus: Vec<u64>,
}

impl Counter {
    /// What has come since the reading before; of a gauge, nothing.
    pub fn change(&self) -> Option<u64> {
        let before = self.before.as_ref().filter(|_| self.kind == CounterKind::Count)?;
        Some(self.now.all.wrapping_sub(before.all))
    }

    /// The same on each CPU.
    pub fn cpu_changes(&self) -> Option<Vec<u64>> {
        let before = self.before.as_ref().filter(|_| self.kind == CounterKind::Count)?;
        if self.now.cpus.is_empty() || before.cpus.len() != self.now.cpus.len() {
            return None;
        }
        Some(self.now.cpus.iter().zip(&before.cpus).map(|(now, before)| now.wrapping_sub(*before)).collect())
    }

    /// How unevenly the CPUs share in these parts: the largest over the mean; 1 is even, the number of CPUs is one CPU
    /// alone. `None`: there are no parts, or nothing was counted.
    pub fn imbalance(parts: &[u64]) -> Option<f64> {
        let largest = parts.iter().copied().max().filter(|largest| *largest > 0)?;
        let sum: f64 = parts.iter().copied().map(as_f64).sum();
        Some(as_f64(largest) * as_f64(parts.len() as u64) / sum)
    }

    /// As a number with a sign: gauges may be below 0 (`MaxConn` is -1: no limit).
    pub fn level(&self) -> i64 {
        self.now.all.cast_signed()
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates are shown with few digits")]
pub(crate) fn as_f64(number: u64) -> f64 {
    number as f64
}

/// What came in a time, per second.
pub fn rate(change: u64, elapsed: Duration) -> f64 {
    let seconds = elapsed.as_secs_f64();
    if seconds > 0.0 { as_f64(change) / seconds } else { 0.0 }
}

impl Counters {
    /// What does not add up: the counter, and its sum.
    ///
    /// # Errors
    /// The first counter whose parts do not add up to its value.
    pub fn check(&self) -> Result<(), String> {
        let all = self.scopes.iter().flat_map(|scope| &scope.protocols);
        for (protocol, counter) in all.flat_map(|p| p.counters.iter().map(move |c| (p.name, c))) {
            for amount in [Some(&counter.now), counter.before.as_ref()].into_iter().flatten() {
                let sum = amount.cpus.iter().copied().fold(0, u64::wrapping_add);
                if !amount.cpus.is_empty() && sum != amount.all {
                    return Err(format!("{protocol} {}: {sum} on the CPUs, {} in all", counter.name, amount.all));
                }
                if !amount.cpus.is_empty() && amount.cpus.len() != self.cpus.len() {
                    return Err(format!(
                        "{protocol} {}: {} CPUs of {}",
                        counter.name,
                        amount.cpus.len(),
                        self.cpus.len()
                    ));
                }
            }
        }
        Ok(())
    }
}
