// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds of each object over all hosts.
//!
//! Of a host, the first rows of a snapshot are known, the sum `other` of all objects without a row, and how many rows are
//! `proven`. From these follow
//!
//! - B1 the most that an object without a row has there: `min(value of the last proven row, other)`; without a proven row `other`;
//! - B2 the most that a key without a row has there, where the key is a part of the table's key: `other`, since several objects of
//!   this key may be among the others. (A bound by the number of objects, `(objects − rows) × B1`, is never below `other` where
//!   `objects` counts all, and it does not count objects that have ended);
//! - B3 the most that an object with a row has there in addition to the row: 0; `other` where the key is a part, or where amounts
//!   had no object (`no_memory`, `full`).
//!
//! The lower bound of an object is the sum of its rows. The upper bound adds B3 of the hosts that show the object and, if it may be
//! on several hosts, B1 or B2 of all other hosts. An object that no host shows has at most the sum of B1 or B2 over all hosts; if
//! each object is on one host, the largest B1.
//!
//! The first k objects are the top k if the k-th lower bound is at least the upper bound of each further object, shown or not.
//!
//! Of several snapshots of a host the mean counts ([`HostMean`]):
//!
//! - B4 the lower bound is the mean of the rows, rounded down, with 0 for a snapshot without a row; the upper bound is the mean of
//!   the upper bounds, rounded up.

use std::collections::HashMap;

use topstat_model::Reach;

/// The most places that are proven or shown. Further objects count as others.
pub const MOST_PLACES: usize = 1000;

/// The values of a host.
pub trait Host {
    /// The sum of all pushes.
    fn total(&self) -> u64;

    /// The most that an object without a row has (B1, B2), and the bounds of each row's object. Several rows may be of one object.
    fn bounds(&self, reach: Reach) -> (u64, impl Iterator<Item = Part>);
}

/// What a host says of an object that it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The object's number, below the number of objects.
    pub object: u32,
    /// Whether the object may be on other hosts, too.
    pub spans: bool,
    /// The least that it has there.
    pub value: u64,
    /// The most that it has there in addition. It counts once, whatever the number of the object's rows.
    pub further: u64,
    /// What of the hidden amount of [`Host::bounds`] is no more than a bound of other objects: all of it in one snapshot, and in a
    /// mean the share of the snapshots that show the object. It counts once, too.
    pub hidden: u64,
}

/// The last snapshot of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostTop {
    /// The sum of all pushes.
    pub total: u64,
    /// The sum of the objects without a row.
    pub other: u64,
    /// The number of rows that are proven to be the top.
    pub proven: u64,
    /// Amounts had no object: each object of the host may have more.
    pub doubt: bool,
    /// The rows, in any order.
    pub rows: Vec<HostRow>,
}

/// A row of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRow {
    /// The object's number, below the number of objects.
    pub object: u32,
    /// The row's place, from 1.
    pub rank: u32,
    /// Whether the object may be on other hosts, too.
    pub spans: bool,
    /// The value.
    pub value: u64,
}

/// An object over all hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounded {
    /// The object's number.
    pub object: u32,
    /// The number of hosts that show it.
    pub hosts: u32,
    /// The least that it has over all hosts.
    pub lower: u64,
    /// The most that it has over all hosts.
    pub upper: u64,
}

/// The top of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Top {
    /// The objects, the largest lower bound first; at most [`MOST_PLACES`].
    pub rows: Vec<Bounded>,
    /// The number of rows that are proven to be the top.
    pub proven_to: usize,
    /// The number of hosts.
    pub reported: usize,
    /// The sum of the totals of all hosts.
    pub total: u64,
    /// The most that an object without a row on any host has.
    pub unseen: u64,
}

impl HostTop {
    /// B1, B2
    fn hidden(&self, reach: Reach) -> u64 {
        if reach == Reach::Part || self.doubt || self.proven == 0 {
            return self.other;
        }
        let proven = self.rows.iter().filter(|row| u64::from(row.rank) <= self.proven).map(|row| row.value);
        proven.min().map_or(self.other, |least| least.min(self.other))
    }
}

impl Host for HostTop {
    fn total(&self) -> u64 {
        self.total
    }

    fn bounds(&self, reach: Reach) -> (u64, impl Iterator<Item = Part>) {
        let hidden = self.hidden(reach);
        // B3
        let further = if reach == Reach::Part || self.doubt { self.other } else { 0 };
        let part =
            move |row: &HostRow| Part { object: row.object, spans: row.spans, value: row.value, further, hidden };
        (hidden, self.rows.iter().map(part))
    }
}

/// The sums of a host's snapshots. A sum that does not fit is [`u64::MAX`], and so are the upper bounds that it is a part of.
#[derive(Clone, Debug, Default)]
pub struct HostSums {
    snapshots: u64,
    total: u64,
    hidden: u64,
    objects: HashMap<u32, ObjectSums, foldhash::fast::RandomState>,
}

/// The sums of an object over the snapshots of a host that show it.
#[derive(Clone, Copy, Debug, Default)]
struct ObjectSums {
    spans: bool,
    value: u64,
    further: u64,
    hidden: u64,
    /// The snapshot that was added last.
    last: u64,
}

impl HostSums {
    /// Adds a snapshot.
    pub fn add(&mut self, snapshot: &HostTop, reach: Reach) {
        self.snapshots += 1;
        self.total = self.total.saturating_add(snapshot.total);
        let (hidden, parts) = snapshot.bounds(reach);
        self.hidden = self.hidden.saturating_add(hidden);
        for part in parts {
            let sums = self.objects.entry(part.object).or_default();
            sums.value = sums.value.saturating_add(part.value);
            sums.spans |= part.spans;
            if sums.last != self.snapshots {
                sums.last = self.snapshots;
                sums.further = sums.further.saturating_add(part.further);
                sums.hidden = sums.hidden.saturating_add(part.hidden);
            }
        }
    }

    /// The mean: B4. `None` if there is no snapshot.
    pub fn mean(self) -> Option<HostMean> {
        let snapshots = self.snapshots;
        let least = |sum: u64| sum.checked_div(snapshots);
        let most = |sum: u64| if sum == u64::MAX { sum } else { sum.div_ceil(snapshots) };
        let (total, hidden) = (least(self.total)?, most(self.hidden));
        let part = |(object, sums): (u32, ObjectSums)| {
            let value = sums.value / snapshots;
            // An object of this host alone may be hidden in the snapshots that do not show it.
            let elsewhere = match self.hidden {
                _ if sums.spans => 0,
                u64::MAX => u64::MAX,
                hidden => hidden - sums.hidden,
            };
            let most = most(sums.value.saturating_add(sums.further).saturating_add(elsewhere));
            Part { object, spans: sums.spans, value, further: most - value, hidden: sums.hidden / snapshots }
        };
        Some(HostMean { snapshots, total, hidden, parts: self.objects.into_iter().map(part).collect() })
    }
}

/// The mean of a host's snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMean {
    /// The number of snapshots.
    pub snapshots: u64,
    /// The mean of the totals.
    pub total: u64,
    /// The mean of B1 or B2.
    pub hidden: u64,
    /// One of each object, in any order.
    pub parts: Vec<Part>,
}

impl Host for HostMean {
    fn total(&self) -> u64 {
        self.total
    }

    fn bounds(&self, _: Reach) -> (u64, impl Iterator<Item = Part>) {
        (self.hidden, self.parts.iter().copied())
    }
}

/// What is known of an object while hosts are added up.
#[derive(Clone, Copy, Default)]
struct Sum {
    lower: u64,
    further: u64,
    hidden_here: u64,
    hosts: u32,
    spans: bool,
    /// The number of the host that was added last, from 1.
    last: u32,
}

/// The top over these hosts, of the objects that are wanted. `objects` is the number of objects; `order` compares those with equal
/// lower bounds.
pub fn top<H: Host>(
    reach: Reach,
    hosts: &[H],
    objects: usize,
    wanted: &dyn Fn(u32) -> bool,
    order: &dyn Fn(u32, u32) -> std::cmp::Ordering,
) -> Top {
    let mut sums = vec![Sum::default(); objects];
    let (mut total, mut hidden_all, mut hidden_most) = (0_u64, 0_u64, 0);
    for (number, host) in (1..).zip(hosts) {
        let (hidden, parts) = host.bounds(reach);
        total = total.saturating_add(host.total());
        hidden_all = hidden_all.saturating_add(hidden);
        hidden_most = hidden_most.max(hidden);
        for part in parts {
            let Some(sum) = sums.get_mut(part.object as usize) else { continue };
            sum.lower = sum.lower.saturating_add(part.value);
            sum.spans |= part.spans;
            if sum.last != number {
                sum.last = number;
                sum.hosts += 1;
                sum.further = sum.further.saturating_add(part.further);
                sum.hidden_here = sum.hidden_here.saturating_add(part.hidden);
            }
        }
    }
    let unseen = if reach == Reach::Local { hidden_most } else { hidden_all };
    let bounded = |(object, sum): (u32, &Sum)| {
        let elsewhere = if sum.spans { hidden_all.saturating_sub(sum.hidden_here) } else { 0 };
        let upper = sum.lower.saturating_add(sum.further).saturating_add(elsewhere);
        Bounded { object, hosts: sum.hosts, lower: sum.lower, upper }
    };
    let shown = (0..).zip(&sums).filter(|(object, sum)| sum.hosts > 0 && wanted(*object));
    let mut rows: Vec<_> = shown.map(bounded).collect();
    let by_lower = |a: &Bounded, b: &Bounded| b.lower.cmp(&a.lower).then_with(|| order(a.object, b.object));
    let mut others = unseen;
    if rows.len() > MOST_PLACES {
        rows.select_nth_unstable_by(MOST_PLACES - 1, by_lower);
        others = rows[MOST_PLACES..].iter().map(|row| row.upper).fold(others, u64::max);
        rows.truncate(MOST_PLACES);
    }
    rows.sort_unstable_by(by_lower);
    let mut proven_to = 0;
    for (place, row) in rows.iter().enumerate().rev() {
        if row.lower >= others {
            proven_to = place + 1;
            break;
        }
        others = others.max(row.upper);
    }
    Top { rows, proven_to, reported: hosts.len(), total, unseen }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(values: &[(u32, u64)], other: u64, proven: u64) -> HostTop {
        let row =
            |(rank, (object, value)): (u32, &(u32, u64))| HostRow { object: *object, rank, spans: true, value: *value };
        let rows: Vec<_> = (1..).zip(values).map(row).collect();
        let total = values.iter().map(|(_, value)| value).sum::<u64>() + other;
        HostTop { total, other, proven, doubt: false, rows }
    }

    fn bounds(reach: Reach, hosts: &[HostTop]) -> (Vec<(u32, u64, u64)>, usize, u64) {
        let top = top(reach, hosts, 4, &|_| true, &|a, b| a.cmp(&b));
        (top.rows.iter().map(|row| (row.object, row.lower, row.upper)).collect(), top.proven_to, top.unseen)
    }

    #[test]
    fn an_object_that_a_host_hides_has_at_most_the_last_proven_row() {
        let hosts = [host(&[(0, 90), (1, 50)], 70, 2), host(&[(0, 40), (2, 30)], 10, 2)];
        let rows = vec![(0, 130, 130), (1, 50, 60), (2, 30, 80)];
        assert_eq!(bounds(Reach::Spanning, &hosts), (rows, 1, 60));
        // Without a proven row it may have all that is left.
        let hosts = [host(&[(0, 90), (1, 50)], 70, 0), hosts[1].clone()];
        assert_eq!(bounds(Reach::Spanning, &hosts).0[2], (2, 30, 100));
    }

    #[test]
    fn a_part_of_a_key_may_have_all_others_of_each_host() {
        let hosts = [host(&[(0, 90), (1, 50)], 70, 2), host(&[(0, 40), (2, 30)], 10, 2)];
        let rows = vec![(0, 130, 210), (1, 50, 130), (2, 30, 110)];
        assert_eq!(bounds(Reach::Part, &hosts), (rows, 1, 80));
    }

    #[test]
    fn an_object_of_one_host_is_known() {
        let mut hosts = [host(&[(0, 90), (1, 50)], 70, 2), host(&[(2, 40), (3, 30)], 10, 2)];
        hosts.iter_mut().flat_map(|host| &mut host.rows).for_each(|row| row.spans = false);
        let rows = vec![(0, 90, 90), (1, 50, 50), (2, 40, 40), (3, 30, 30)];
        assert_eq!(bounds(Reach::Local, &hosts), (rows, 2, 50));
        // Amounts without an object may belong to each object of their host.
        hosts[0].doubt = true;
        assert_eq!(bounds(Reach::Local, &hosts).0[0], (0, 90, 160));
    }

    #[test]
    fn a_mean_counts_snapshots_without_a_row_as_hidden() {
        let snapshots = [host(&[(0, 90), (1, 50)], 70, 2), host(&[(1, 41)], 10, 1)];
        let mean = |spans: bool| {
            let mut sums = HostSums::default();
            for mut snapshot in snapshots.clone() {
                snapshot.rows.iter_mut().for_each(|row| row.spans = spans);
                sums.add(&snapshot, Reach::Spanning);
            }
            sums.mean().unwrap()
        };
        // (50 + 10) / 2 is hidden; the first object is at 90 in one snapshot, and at 10 at most in the other.
        let other = host(&[(2, 30)], 0, 1);
        for (spans, rows) in
            [(true, vec![(0, 45, 50), (1, 45, 46), (2, 30, 60)]), (false, vec![(0, 45, 50), (1, 45, 46), (2, 30, 30)])]
        {
            let mut beside = HostSums::default();
            let mut other = other.clone();
            other.rows[0].spans = spans;
            beside.add(&other, Reach::Spanning);
            let mean = mean(spans);
            assert_eq!((mean.snapshots, mean.hidden, mean.total), (2, 30, 130));
            let top = top(Reach::Spanning, &[mean, beside.mean().unwrap()], 3, &|_| true, &|a, b| a.cmp(&b));
            assert_eq!(top.rows.iter().map(|row| (row.object, row.lower, row.upper)).collect::<Vec<_>>(), rows);
        }
        assert_eq!(HostSums::default().mean(), None);
    }

    #[test]
    fn objects_beyond_the_last_place_are_others() {
        let many: Vec<_> = (0..2000).map(|object| (object, 10)).collect();
        let hosts = [host(&many, 0, 2000), host(&[(1500, 1)], 0, 1)];
        let top = top(Reach::Spanning, &hosts, 2000, &|_| true, &|a, b| a.cmp(&b));
        assert_eq!((top.rows.len(), top.rows[0].object, top.rows[1].object, top.proven_to), (1000, 1500, 0, 1000));
    }
}
