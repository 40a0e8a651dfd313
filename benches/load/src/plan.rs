// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The number of transactions of each connection, their order, and the end of a run.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::error::{Error, Result};

/// The number of transactions whose order is computed at a time. A plan of billions of transactions must not need memory for
/// all of them, and this many indices fit a second-level cache.
const ROUND: u64 = 256 * 1024;

/// A repeated plan that is shorter than this is laid out several times at a time, so that refilling costs little.
const REFILL: usize = 4096;

/// How transactions are distributed over connections. In text: `uniform:K`, `flat:LOW..HIGH`, `zipf:S:MAX`, `list:A,B,…`.
#[derive(Debug, Clone, PartialEq)]
pub enum Dist {
    /// An equal number for every connection.
    Uniform(u64),
    /// From `low` for the first connection in a straight line to `high` for the last.
    Flat {
        /// Transactions of the first connection.
        low: u64,
        /// Transactions of the last connection.
        high: u64,
    },
    /// `max` for the first connection and `max / i^exponent` for the i-th, at least 1.
    Zipf {
        /// The skew: 0 is uniform, 1 is Zipf's law.
        exponent: f64,
        /// Transactions of the first connection.
        max: u64,
    },
    /// One listed number per connection.
    List(Vec<u64>),
}

impl Dist {
    /// The transactions of each of `connections` connections.
    pub fn counts(&self, connections: usize) -> Result<Vec<u64>> {
        match self {
            Dist::Uniform(count) => Ok(vec![*count; connections]),
            Dist::Flat { low, high } => {
                let (low, high, last) = (i128::from(*low), i128::from(*high), connections.max(2) as i128 - 1);
                Ok((0..connections as i128).map(|i| (low + (high - low) * i / last) as u64).collect())
            }
            Dist::Zipf { exponent, max } => {
                let count = |rank: usize| (*max as f64 / (rank as f64).powf(*exponent)).round() as u64;
                Ok((1..=connections).map(|rank| count(rank).max(1)).collect())
            }
            Dist::List(list) if list.len() == connections => Ok(list.clone()),
            Dist::List(list) => {
                Err(Error::Config(format!("the list has {} numbers for {connections} connections", list.len())))
            }
        }
    }
}

impl FromStr for Dist {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Dist, String> {
        let wrong = || format!("'{text}' is none of uniform:K, flat:LOW..HIGH, zipf:S:MAX, list:A,B,…");
        let number = |word: &str| word.parse::<u64>().map_err(|_| wrong());
        let (name, rest) = text.split_once(':').ok_or_else(wrong)?;
        match name {
            "uniform" => Ok(Dist::Uniform(number(rest)?)),
            "flat" => {
                let (low, high) = rest.split_once("..").ok_or_else(wrong)?;
                Ok(Dist::Flat { low: number(low)?, high: number(high)? })
            }
            "zipf" => {
                let (exponent, max) = rest.split_once(':').ok_or_else(wrong)?;
                let exponent = exponent.parse::<f64>().map_err(|_| wrong())?;
                if !exponent.is_finite() || exponent < 0.0 {
                    return Err(wrong());
                }
                Ok(Dist::Zipf { exponent, max: number(max)? })
            }
            "list" => rest.split(',').map(number).collect::<std::result::Result<_, _>>().map(Dist::List),
            _ => Err(wrong()),
        }
    }
}

/// The order of the transactions of different connections. In either order the transactions of every connection are spread
/// over the whole plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Order {
    /// Shuffled by the seed.
    #[default]
    Shuffled,
    /// One transaction on each connection that has any left, then again.
    RoundRobin,
}

/// The number of transactions of each connection, and their order.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    counts: Vec<u64>,
    order: Order,
    seed: u64,
    repeat: bool,
}

impl Plan {
    /// A plan with a number of transactions for each connection.
    #[must_use]
    pub fn new(counts: Vec<u64>) -> Plan {
        Plan { counts, order: Order::default(), seed: 1, repeat: false }
    }

    /// A plan whose numbers follow a distribution.
    pub fn from_dist(dist: &Dist, connections: usize) -> Result<Plan> {
        dist.counts(connections).map(Plan::new)
    }

    /// A plan without end: one transaction on every connection, again and again until a limit is reached.
    #[must_use]
    pub fn endless(connections: usize) -> Plan {
        Plan::new(vec![1; connections]).repeat(true)
    }

    /// Sets the order; [`Order::Shuffled`] if not called.
    #[must_use]
    pub fn order(self, order: Order) -> Plan {
        Plan { order, ..self }
    }

    /// Sets the seed of the shuffling; 1 if not called.
    #[must_use]
    pub fn seed(self, seed: u64) -> Plan {
        Plan { seed, ..self }
    }

    /// Sets whether the plan begins again at its end, until a limit is reached.
    #[must_use]
    pub fn repeat(self, repeat: bool) -> Plan {
        Plan { repeat, ..self }
    }

    /// The transactions of each connection.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// The transactions of all connections, once through the plan.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// The connections' indices in the order of their transactions.
    #[must_use]
    pub fn schedule(&self) -> Schedule<'_> {
        let total = self.total();
        Schedule {
            plan: self,
            rounds: total.div_ceil(ROUND).max(1),
            round: 0,
            empty: total == 0,
            random: SplitMix64(self.seed),
            queue: Vec::new(),
            next: 0,
        }
    }
}

/// An iterator over a plan: one connection's index per transaction. See [`Plan::schedule`].
///
/// The plan is cut into rounds in which each connection has its share of its transactions, rounded so that the shares
/// add up exactly; only one round is held in memory.
#[derive(Debug, Clone)]
pub struct Schedule<'a> {
    plan: &'a Plan,
    rounds: u64,
    round: u64,
    empty: bool,
    random: SplitMix64,
    queue: Vec<u32>,
    next: usize,
}

impl Schedule<'_> {
    fn refill(&mut self) {
        self.queue.clear();
        self.next = 0;
        while self.queue.len() < REFILL && !self.empty {
            if self.round == self.rounds {
                if !self.plan.repeat {
                    return;
                }
                self.round = 0;
            }
            self.append_round();
            self.round += 1;
        }
    }

    /// The number of transactions of connection `i` in this round.
    fn share(&self, i: usize) -> u64 {
        let until = |round: u64| u128::from(self.plan.counts[i]) * u128::from(round) / u128::from(self.rounds);
        (until(self.round + 1) - until(self.round)) as u64
    }

    fn append_round(&mut self) {
        let start = self.queue.len();
        let shares = (0..self.plan.counts.len()).map(|i| (i as u32, self.share(i))).filter(|&(_, share)| share > 0);
        match self.plan.order {
            Order::Shuffled => {
                let shares: Vec<_> = shares.collect();
                for (i, share) in shares {
                    self.queue.extend(std::iter::repeat_n(i, share as usize));
                }
                let round = &mut self.queue[start..];
                for i in (1..round.len()).rev() {
                    round.swap(i, self.random.below(i as u64 + 1) as usize);
                }
            }
            Order::RoundRobin => {
                let mut left: Vec<_> = shares.collect();
                while !left.is_empty() {
                    self.queue.extend(left.iter().map(|&(i, _)| i));
                    left.retain_mut(|(_, share)| {
                        *share -= 1;
                        *share > 0
                    });
                }
            }
        }
    }
}

impl Iterator for Schedule<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.next == self.queue.len() {
            self.refill();
        }
        let connection = self.queue.get(self.next).copied()?;
        self.next += 1;
        Some(connection)
    }
}

/// Steele, Lea and Flood's generator: five lines, with equal numbers in every version of every library.
#[derive(Debug, Clone)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; the bias of the multiplication is below 2^-40 for the bounds used here.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// The end of a run, and its intensity. A run is always bounded, in time and in count.
#[derive(Debug, Clone)]
pub struct Limits {
    /// No transaction begins later than this after the start. Default: 60 s.
    pub time: Duration,
    /// No more transactions than this begin. Default: a billion.
    pub total: u64,
    /// Transactions per second over all connections; `None` is as fast as possible. After a delay the run catches up, which
    /// keeps the average.
    pub rate: Option<f64>,
    /// Connections that have a transaction in flight at the same time; 0 is [`Limits::DEFAULT_DEPTH`].
    pub depth: usize,
    /// Connections per second that are closed and replaced by new ones.
    pub churn: f64,
    /// How long to wait at the end for transactions in flight. Default: 5 s.
    pub drain: Duration,
    /// The time without an answer after which a datagram counts as lost. Default: 1 s.
    pub loss_timeout: Duration,
    /// Ends the run when it becomes true.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Limits {
    /// Enough to keep both ends busy, and few enough for the buffer of a shared UDP socket.
    pub const DEFAULT_DEPTH: usize = 64;

    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |text: String| Err(Error::Config(text));
        if let Some(rate) = self.rate
            && (!rate.is_finite() || rate <= 0.0)
        {
            return wrong(format!("a rate of {rate} transactions per second is not possible"));
        }
        if !self.churn.is_finite() || self.churn < 0.0 {
            return wrong(format!("a churn of {} connections per second is not possible", self.churn));
        }
        Ok(())
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            time: Duration::from_secs(60),
            total: 1_000_000_000,
            rate: None,
            depth: 0,
            churn: 0.0,
            drain: Duration::from_secs(5),
            loss_timeout: Duration::from_secs(1),
            stop: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(schedule: impl Iterator<Item = u32>, connections: usize) -> Vec<u64> {
        let mut counts = vec![0; connections];
        schedule.for_each(|i| counts[i as usize] += 1);
        counts
    }

    #[test]
    fn distributions_have_the_sums_they_should() {
        let counts = |text: &str, n| text.parse::<Dist>().unwrap().counts(n).unwrap();
        assert_eq!(counts("uniform:3", 4), [3; 4]);
        assert_eq!(counts("flat:1..10", 10), (1..=10).collect::<Vec<_>>());
        assert_eq!(counts("flat:10..1", 10), (1..=10).rev().collect::<Vec<_>>());
        assert_eq!(counts("flat:7..9", 1), [7]);
        let flat = counts("flat:100..200", 5000);
        assert_eq!((flat[0], flat[4999]), (100, 200));
        assert!(flat.is_sorted());
        assert_eq!(counts("zipf:1:100", 5), [100, 50, 33, 25, 20]);
        assert_eq!(counts("zipf:2:4", 5), [4, 1, 1, 1, 1]);
        assert_eq!(counts("list:5,0,2", 3), [5, 0, 2]);
        assert!(Dist::List(vec![1]).counts(2).is_err());
        for wrong in ["", "uniform", "uniform:x", "flat:1", "zipf:1", "zipf:-1:5", "zipf:nan:5", "list:", "other:1"] {
            assert!(wrong.parse::<Dist>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_schedule_is_the_plan_exactly() {
        for order in [Order::Shuffled, Order::RoundRobin] {
            for dist in ["flat:1..1000", "zipf:1.1:500000", "uniform:0", "list:0,0,9,0,0,0,1,0,0,0"] {
                let connections = if dist.starts_with("list") { 10 } else { 1000 };
                let plan = Plan::from_dist(&dist.parse().unwrap(), connections).unwrap().order(order);
                assert_eq!(counted(plan.schedule(), connections), plan.counts(), "{dist}");
            }
        }
    }

    #[test]
    fn the_seed_decides_the_order() {
        let plan = |seed| Plan::new(vec![100; 50]).seed(seed);
        let order = |seed| plan(seed).schedule().collect::<Vec<_>>();
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
    }

    #[test]
    fn every_part_of_a_long_plan_looks_like_the_whole() {
        let plan = Plan::new(vec![3_000_000, 1_000_000]);
        let part = counted(plan.schedule().skip(1_000_000).take(400_000), 2);
        assert!((295_000..305_000).contains(&part[0]), "{part:?}");
    }

    #[test]
    fn round_robin_takes_turns() {
        let plan = Plan::new(vec![1, 3, 2]).order(Order::RoundRobin);
        assert_eq!(plan.schedule().collect::<Vec<_>>(), [0, 1, 2, 1, 2, 1]);
    }

    #[test]
    fn a_repeated_plan_goes_on_fairly() {
        let plan = Plan::endless(7);
        assert_eq!(counted(plan.schedule().take(7 * 5000), 7), [5000; 7]);
        assert_eq!(Plan::new(vec![0; 3]).repeat(true).schedule().next(), None);
    }

    #[test]
    fn impossible_limits_are_refused() {
        assert!(Limits::default().check().is_ok());
        assert!(Limits { rate: Some(0.0), ..Limits::default() }.check().is_err());
        assert!(Limits { churn: f64::NAN, ..Limits::default() }.check().is_err());
    }
}
