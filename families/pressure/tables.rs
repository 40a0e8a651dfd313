// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The objects that the tables rank, from a reading of all groups.

use std::collections::HashMap;
use std::sync::Arc;

use topstat_model::Field;
use topstat_model::names::container;

use super::abi;
use super::reader::{Reader, Reading};
use super::rolled::Rolled;
use super::{LIMITS, MEMORY, PRESSURE};
use topstat_kernel::counting::{Key, Refresh, Tallied, Tallier, Tallies, Tally, Whose};
use topstat_kernel::{Error, Options, TableInfo};

/// The names of lost counts.
pub const LOST: [&str; 2] = ["beyond", "unreadable"];
/// The number of the first table of events of memory.
pub const EVENTS_FROM: u32 = 2;

/// Opens a reader of the tables.
///
/// # Errors
/// This kernel or this user does not allow it.
pub fn open(options: &Options, _: &Whose) -> Result<Tallier, Error> {
    let level = options.depth;
    let page = rustix::param::page_size() as u64;
    let (reader, refresh, rolled) = (Reader::open(level)?, Refresh::default(), HashMap::new());
    Ok(Box::new(Meter { reader, level, page, refresh, truncated: false, rolled }))
}

struct Meter {
    reader: Reader,
    level: Option<u32>,
    /// Bytes.
    page: u64,
    refresh: Refresh<Arc<Reading>>,
    /// Whether a reading lacked groups. A group that is new in a later one may not be new.
    truncated: bool,
    /// By hierarchy and table.
    rolled: HashMap<(usize, u32), Rolled>,
}

impl Tallies for Meter {
    fn tally(&mut self, table: &TableInfo) -> Result<Tally, Error> {
        let reading = Arc::clone(self.refresh.of(table.path(), |_| self.reader.read().map(Arc::new))?);
        self.truncated |= reading.beyond > 0;
        let mut objects = Vec::new();
        for (hierarchy, groups) in reading.groups.iter().enumerate() {
            let values = match table.sample.as_str() {
                LIMITS => self.limits(hierarchy, table.number, groups),
                // The kernel counts pressure in v2's hierarchy, which is the first.
                PRESSURE if hierarchy == 0 => stalls(groups, table.number as usize, self.level),
                MEMORY => own_memory(groups, self.level, self.page),
                _ => Vec::new(),
            };
            objects.extend(values.into_iter().map(|(id, value)| Tallied {
                key: [hierarchy as u64, id],
                parts: vec![value],
                gauge: table.sample == MEMORY,
                // The counters of a group begin at 0.
                from_zero: !self.truncated,
                ..Tallied::default()
            }));
        }
        let lost = LOST.into_iter().zip([reading.beyond, reading.unreadable]);
        Ok(Tally {
            time: reading.time,
            instant: reading.instant,
            cpus: Vec::new(),
            objects,
            value_name: None,
            lost: lost.map(|(name, count)| (name.into(), count)).collect(),
        })
    }

    fn describe(&mut self, key: Key) -> Vec<Field> {
        let path = usize::try_from(key[0]).ok().and_then(|hierarchy| self.reader.path(hierarchy, key[1]));
        let container = path.as_deref().and_then(container).map(str::to_owned);
        vec![path.into(), container.into()]
    }
}

impl Meter {
    /// What groups have reached of their limits, which the kernel counts for the group that has the limit alone.
    fn limits(&mut self, hierarchy: usize, table: u32, groups: &[abi::pressure_group]) -> Vec<(u64, u64)> {
        let counter = |group: &abi::pressure_group| match table {
            0 => group.throttled_ns,
            1 => group.throttled_periods,
            event => group.events.get((event - EVENTS_FROM) as usize).copied().unwrap_or(0),
        };
        let counters = groups.iter().map(|group| (group.id, group.above, counter(group)));
        if self.level.is_none() {
            return counters.filter(|(.., counter)| *counter > 0).map(|(id, _, counter)| (id, counter)).collect();
        }
        let rolled = self.rolled.entry((hierarchy, table)).or_default();
        rolled.take(counters).iter().filter(|(_, sum)| **sum > 0).map(|(id, sum)| (*id, *sum)).collect()
    }
}

/// Whether a group stands for all groups below it. Every other group is above or below one that does.
fn is_front(group: &abi::pressure_group, level: Option<u32>) -> bool {
    match level {
        Some(level) => group.level == level || (group.level < level && group.below == 0),
        None => group.below == 0,
    }
}

fn stalls(groups: &[abi::pressure_group], kind: usize, level: Option<u32>) -> Vec<(u64, u64)> {
    let front = groups.iter().filter(|group| group.has & abi::PRESSURE_HAS_STALLS != 0 && is_front(group, level));
    front.map(|group| (group.id, group.stalled_ns[kind])).filter(|(_, ns)| *ns > 0).collect()
}

/// The memory of each group less the memory of the groups below it. The sum is the memory of the groups below the root; memory that is
/// charged during the reading may be missing from a group above.
fn own_memory(groups: &[abi::pressure_group], level: Option<u32>, page: u64) -> Vec<(u64, u64)> {
    let shown = |group: &&abi::pressure_group| {
        group.has & abi::PRESSURE_HAS_MEMORY != 0 && level.is_none_or(|level| group.level <= level)
    };
    let mut below: HashMap<u64, u64> = HashMap::new();
    for group in groups.iter().filter(shown) {
        *below.entry(group.parent).or_default() += group.memory_pages;
    }
    let own =
        |group: &abi::pressure_group| group.memory_pages.saturating_sub(below.get(&group.id).copied().unwrap_or(0));
    groups.iter().filter(shown).map(|group| (group.id, own(group) * page)).filter(|(_, bytes)| *bytes > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree: 1 is the root; 2 and 3 are below it; 4 and 5 are below 2.
    fn groups() -> Vec<abi::pressure_group> {
        let group = |id, parent, level, below, memory_pages| abi::pressure_group {
            id,
            parent,
            level,
            below,
            memory_pages,
            above: id,
            stalled_ns: [id * 10; abi::PRESSURE_KINDS as usize],
            has: abi::PRESSURE_HAS_MEMORY | if level > 0 { abi::PRESSURE_HAS_STALLS } else { 0 },
            ..Default::default()
        };
        vec![
            group(1, 0, 0, 4, 0),
            group(2, 1, 1, 2, 100),
            group(4, 2, 2, 0, 60),
            group(5, 2, 2, 0, 30),
            group(3, 1, 1, 0, 7),
        ]
    }

    #[test]
    fn pressure_is_of_groups_that_do_not_contain_each_other() {
        let ids = |level| stalls(&groups(), 0, level).into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(ids(None), [4, 5, 3]);
        assert_eq!(ids(Some(1)), [2, 3]);
        assert_eq!(ids(Some(2)), [4, 5, 3]);
        assert_eq!(ids(Some(9)), [4, 5, 3]);
    }

    #[test]
    fn memory_adds_up_on_every_level() {
        assert_eq!(own_memory(&groups(), None, 1), [(2, 10), (4, 60), (5, 30), (3, 7)]);
        assert_eq!(own_memory(&groups(), Some(1), 1), [(2, 100), (3, 7)]);
        // Charged while the groups were read: nothing is negative.
        let mut racing = groups();
        racing[1].memory_pages = 80;
        assert_eq!(own_memory(&racing, None, 4096)[0], (4, 60 * 4096));
    }
}
