// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A reading of counters: the kernel's counts of each network namespace or device, by protocol, in all and on each CPU; and their
//! values at the previous reading.
//!
//! A [`Picture`] has the shown counters: it is a [`Reading`](crate::Reading), which a [`Sink`](crate::Sink) writes. JSON and CSV
//! are lossless for the shown counters; in text, rates are rounded.
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
mod trouble;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use choice::{Choice, Order, Shown};
pub use picture::Picture;
pub use trouble::is_trouble;

/// One reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// When it was taken.
    pub time: SystemTime,
    /// The time since the previous reading, by a clock that is never set; `None`: it is the first one.
    pub elapsed: Option<Duration>,
    /// The place where it was read.
    pub source: Source,
    /// The CPUs that have parts, in the order of the parts; empty where parts are not known.
    pub cpus: Vec<u32>,
    /// The namespaces and devices that have counters.
    pub scopes: Vec<Scope>,
    /// The losses.
    pub lost: CountersLost,
}

/// The place where counters were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the kernel's own arrays, CPU by CPU.
    Arrays,
    /// In the files of `/proc/net`, for this reason: parts of CPUs are not known.
    Proc(String),
}

/// The losses of a reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountersLost {
    /// Namespaces or devices that were not read, because there are too many.
    pub beyond: u64,
    /// Arrays that could not be read, and count as zeros.
    pub unreadable: u64,
    /// Counters that the kernel shows in `/proc`, and whose place in the arrays is not known.
    pub unknown: Vec<String>,
}

/// A network namespace, or a device of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The namespace's inode, as in `/proc/PID/ns/net`.
    pub netns: u32,
    /// The name of the namespace, if it has one: from `ip netns`, or from a process in it.
    pub name: Option<String>,
    /// The device; `None`: the counters belong to the namespace.
    pub device: Option<String>,
    /// Counters, by protocol.
    pub protocols: Vec<Protocol>,
}

/// The counters of a protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// Its name: `tcpext`. Its sample is `snmp_tcpext`.
    pub name: &'static str,
    /// The counters in the kernel's order.
    pub counters: Vec<Counter>,
}

/// A counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Its standard name: `InSegs`.
    pub name: Arc<str>,
    /// The meaning of its value.
    pub kind: CounterKind,
    /// Its value.
    pub now: Amount,
    /// Its value at the previous reading, if that reading has it.
    pub before: Option<Amount>,
}

/// The meaning of a counter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// It only grows.
    Count,
    /// A level or a setting: it has no rate, and only the sum over CPUs has a meaning.
    Gauge,
}

/// The value of a counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// The sum.
    pub all: u64,
    /// The value on each CPU; empty if it is not known, because all CPUs share the counter, or it was read elsewhere.
    pub cpus: Vec<u64>,
}

impl Counter {
    /// The change since the previous reading; `None` for a gauge.
    pub fn change(&self) -> Option<u64> {
        let before = self.before.as_ref().filter(|_| self.kind == CounterKind::Count)?;
        Some(self.now.all.wrapping_sub(before.all))
    }

    /// The change on each CPU.
    pub fn cpu_changes(&self) -> Option<Vec<u64>> {
        let before = self.before.as_ref().filter(|_| self.kind == CounterKind::Count)?;
        if self.now.cpus.is_empty() || before.cpus.len() != self.now.cpus.len() {
            return None;
        }
        Some(self.now.cpus.iter().zip(&before.cpus).map(|(now, before)| now.wrapping_sub(*before)).collect())
    }

    /// The imbalance between the CPUs' parts: the largest over the mean. 1 is even; the number of CPUs means that one CPU has
    /// all. `None`: there are no parts, or their sum is 0.
    pub fn imbalance(parts: &[u64]) -> Option<f64> {
        let largest = parts.iter().copied().max().filter(|largest| *largest > 0)?;
        let sum: f64 = parts.iter().copied().map(as_f64).sum();
        Some(as_f64(largest) * as_f64(parts.len() as u64) / sum)
    }

    /// The value as a number with a sign: gauges may be below 0 (`MaxConn` is -1: no limit).
    pub fn level(&self) -> i64 {
        self.now.all.cast_signed()
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates are shown with few digits")]
pub(crate) fn as_f64(number: u64) -> f64 {
    number as f64
}

/// The change in a time, per second.
pub fn rate(change: u64, elapsed: Duration) -> f64 {
    let seconds = elapsed.as_secs_f64();
    if seconds > 0.0 { as_f64(change) / seconds } else { 0.0 }
}

impl Counters {
    /// Verifies that the parts of the CPUs add up.
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
