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

use topstat_model::Reach;

/// The most places that are proven or shown. Further objects count as others.
pub const MOST_PLACES: usize = 1000;

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

    /// B3
    fn further(&self, reach: Reach) -> u64 {
        if reach == Reach::Part || self.doubt { self.other } else { 0 }
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
pub fn top(
    reach: Reach,
    hosts: &[HostTop],
    objects: usize,
    wanted: &dyn Fn(u32) -> bool,
    order: &dyn Fn(u32, u32) -> std::cmp::Ordering,
) -> Top {
    let mut sums = vec![Sum::default(); objects];
    let (mut total, mut hidden_all, mut hidden_most) = (0_u64, 0_u64, 0);
    for (number, host) in (1..).zip(hosts) {
        let (hidden, further) = (host.hidden(reach), host.further(reach));
        total = total.saturating_add(host.total);
        hidden_all = hidden_all.saturating_add(hidden);
        hidden_most = hidden_most.max(hidden);
        for row in &host.rows {
            let Some(sum) = sums.get_mut(row.object as usize) else { continue };
            sum.lower = sum.lower.saturating_add(row.value);
            sum.spans |= row.spans;
            if sum.last != number {
                sum.last = number;
                sum.hosts += 1;
                sum.further = sum.further.saturating_add(further);
                sum.hidden_here = sum.hidden_here.saturating_add(hidden);
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
    fn objects_beyond_the_last_place_are_others() {
        let many: Vec<_> = (0..2000).map(|object| (object, 10)).collect();
        let hosts = [host(&many, 0, 2000), host(&[(1500, 1)], 0, 1)];
        let top = top(Reach::Spanning, &hosts, 2000, &|_| true, &|a, b| a.cmp(&b));
        assert_eq!((top.rows.len(), top.rows[0].object, top.rows[1].object, top.proven_to), (1000, 1500, 0, 1000));
    }
}
