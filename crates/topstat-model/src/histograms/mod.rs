// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Histograms of numbers in the kernel: the distribution of a number, by powers of two.

mod write;

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::unit::Unit;

/// The distribution of a number. Bucket 0 counts zeroes, bucket n the numbers from 2^(n-1) to below 2^n, and the kernel's last
/// bucket all larger numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// The counts, by bucket; empty buckets at the end may be missing.
    pub buckets: Vec<u64>,
    /// The sum of all numbers.
    pub sum: u64,
}

impl Histogram {
    /// The count of numbers.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The mean; 0 without numbers.
    #[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.count().max(1) as f64
    }

    /// The bound that this part of all numbers, in percent, is below: the end of a bucket; 0 without numbers.
    pub fn part_below(&self, percent: u64) -> u64 {
        let (count, mut seen) = (u128::from(self.count()), 0);
        let reached = |part: &u64| {
            seen += u128::from(*part);
            seen * 100 >= count * u128::from(percent)
        };
        if count == 0 { 0 } else { self.buckets.iter().position(reached).map_or(0, |bucket| Self::bounds(bucket).1) }
    }

    /// The bounds of a bucket: from the first number, to below the second.
    pub fn bounds(bucket: usize) -> (u64, u64) {
        let power = |n: usize| u32::try_from(n).ok().and_then(|n| 1_u64.checked_shl(n)).unwrap_or(u64::MAX);
        (bucket.checked_sub(1).map_or(0, power), power(bucket))
    }

    /// The counts since `before`, which was read earlier.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let then = before.buckets.iter().copied().chain(std::iter::repeat(0));
        let buckets = self.buckets.iter().zip(then).map(|(now, then)| now.saturating_sub(then)).collect();
        Self { buckets, sum: self.sum.saturating_sub(before.sum) }.trimmed()
    }

    /// Without empty buckets at the end.
    #[must_use]
    pub fn trimmed(mut self) -> Self {
        while self.buckets.last() == Some(&0) {
            self.buckets.pop();
        }
        self
    }

    /// Adds the counts of another one.
    pub fn add(&mut self, other: &Self) {
        self.buckets.resize(self.buckets.len().max(other.buckets.len()), 0);
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(sum, more)| *sum += more);
        self.sum += other.sum;
    }
}

/// The subject of histograms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Lengths of packets, before and after GRO.
    Skb,
    /// Times from a packet's arrival to the copy of its data.
    Latency,
}

impl Subject {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Skb => "skb",
            Self::Latency => "latency",
        }
    }

    /// The unit of its numbers.
    pub fn unit(self) -> Unit {
        match self {
            Self::Skb => Unit::Bytes,
            Self::Latency => Unit::Nanoseconds,
        }
    }

    /// The name of the counted things.
    fn of(self) -> &'static str {
        match self {
            Self::Skb => "packets",
            Self::Latency => "copies",
        }
    }
}

/// Histograms of an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Histograms {
    /// When it ended.
    pub time: SystemTime,
    /// How long it was.
    pub elapsed: Duration,
    /// The subject.
    pub subject: Subject,
    /// The histograms, with their names.
    pub series: Vec<(&'static str, Histogram)>,
    /// Other counts, with their names: mostly counts of events that are in no histogram.
    pub besides: Vec<(&'static str, u64)>,
}

impl Histograms {
    /// The histogram of this name.
    pub fn series(&self, name: &str) -> Option<&Histogram> {
        self.series.iter().find(|(known, _)| *known == name).map(|(_, histogram)| histogram)
    }

    /// The other count of this name; 0 if the name is unknown.
    pub fn beside(&self, name: &str) -> u64 {
        self.besides.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
    }

    /// The buckets from the first to the last that is not empty.
    fn used(&self) -> std::ops::Range<usize> {
        let has = |bucket: &usize| self.series.iter().any(|(_, h)| h.buckets.get(*bucket).is_some_and(|n| *n > 0));
        let end = self.series.iter().map(|(_, h)| h.buckets.len()).max().unwrap_or(0);
        let last = (0..end).rev().find(has).map_or(0, |last| last + 1);
        (0..end).find(has).unwrap_or(last)..last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_powers_of_two() {
        assert_eq!([0, 1, 2, 11].map(Histogram::bounds), [(0, 1), (1, 2), (2, 4), (1024, 2048)]);
        assert_eq!(Histogram::bounds(64), (1 << 63, u64::MAX));
    }

    #[test]
    fn parts_are_below_the_end_of_a_bucket() {
        let histogram = Histogram { buckets: vec![0, 50, 0, 49, 1], sum: 400 };
        assert_eq!([50, 51, 99, 100].map(|part| histogram.part_below(part)), [2, 8, 8, 16]);
        assert_eq!(Histogram::default().part_below(50), 0);
    }

    #[test]
    fn an_interval_is_what_has_come_since() {
        let before = Histogram { buckets: vec![1, 2], sum: 2 };
        let now = Histogram { buckets: vec![1, 4, 3, 0], sum: 12 };
        let since = now.since(&before);
        assert_eq!(since, Histogram { buckets: vec![0, 2, 3], sum: 10 });
        assert_eq!((since.count(), since.mean(), Histogram::default().mean()), (5, 2.0, 0.0));
        let mut sum = before.clone();
        sum.add(&since);
        assert_eq!(sum, now.trimmed());
    }
}
