// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of objects that have ended, by table and CPU: see the engine's `keep.h`.

use std::mem::offset_of;

use topstat_engine::abi::ts_ended;

use super::assemble::Section;
use crate::Error;
use crate::bpf::Shared;
use crate::family::{Keeps, TablePlace};
use crate::maps::Maps;

/// See the module.
pub struct Ended {
    memory: Shared,
    keeps: Keeps,
}

impl Ended {
    /// The state in these maps; `None`: the family keeps nothing.
    pub fn of(maps: &Maps, keeps: Option<Keeps>) -> Result<Option<Self>, Error> {
        let Some((keeps, map)) = keeps.and_then(|keeps| Some((keeps, maps.get(Keeps::ENDED)?))) else {
            return Ok(None);
        };
        Ok(Some(Self { memory: Shared::new(map)?, keeps }))
    }

    /// The number of objects of a table that have ended on a CPU (T9).
    pub fn ends(&self, cpu: u32, place: TablePlace) -> u64 {
        let entry = self.keeps.entry(cpu, place).filter(|entry| *entry < self.memory.entries());
        entry.map_or(0, |entry| self.memory.read(entry, offset_of!(ts_ended, ends)))
    }
}

/// Takes a section of each CPU that is `used` or on which an object has ended; if there is no such CPU, of the first one. `take`
/// takes all of them at one instant. Then another section is taken of each CPU on which objects have ended since its first one
/// (`ends`; `None`: nothing is kept). It has the objects that were only in the table of another CPU, and ended before that table
/// was read (T9). An object that ends still later was seen alive.
pub fn sections(
    cpus: u32,
    used: impl Fn(u32) -> bool,
    mut take: impl FnMut(u32, u64) -> Result<Section, Error>,
    ends: impl Fn(u32) -> Option<u64>,
) -> Result<Vec<Section>, Error> {
    let has_ends = |cpu: &u32| ends(*cpu).is_some_and(|ends| ends != 0);
    let (first, idle): (Vec<u32>, Vec<u32>) = (0..cpus).partition(|cpu| used(*cpu) || has_ends(cpu));
    let mut sections: Vec<Section> = Vec::with_capacity(first.len());
    // The idle CPUs are checked after the others were read: their first object may have ended by then.
    for cpu in first.into_iter().chain(idle.into_iter().filter(has_ends)) {
        let now = sections.first().map_or(0, |first| first.head.tick.now);
        sections.push(take(cpu, now)?);
    }
    if sections.is_empty() {
        sections.push(take(0, 0)?);
    }
    sections.sort_by_key(|section| section.cpu);
    for place in 0..sections.len() {
        let Section { cpu, head, .. } = sections[place];
        if ends(cpu).is_some_and(|ends| ends != head.ends) {
            sections.push(Section { again: true, ..take(cpu, head.tick.now)? });
        }
    }
    Ok(sections)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use topstat_engine::abi::{ts_row, ts_section};

    use super::*;
    use crate::bpf;
    use crate::ranking::assemble::first;
    use crate::ranking::merge::merge;
    use crate::ranking::rows::Rows;

    /// The instant of the first section.
    const NOW: u64 = 77;
    const OBJECTS: u64 = 8;

    /// CPUs and the objects in their tables, as the engine's `keep.h` defines them.
    #[derive(Debug)]
    struct Host {
        ends: Vec<u64>,
        tables: Vec<BTreeSet<u64>>,
        /// Objects that have ended.
        gone: BTreeSet<u64>,
        /// The next objects to end, each with its CPU. An object ends in steps.
        next: Vec<(u64, usize)>,
        began: Option<(u64, usize)>,
    }

    impl Host {
        /// Does the next step of an object's end, during the reading.
        fn step(&mut self) {
            if let Some((object, cpu)) = self.began.take() {
                self.gone.insert(object);
                let others = self.tables.iter_mut().enumerate().filter(|(other, _)| *other != cpu);
                others.for_each(|(_, table)| table.retain(|other| *other != object));
            } else if let Some((object, cpu)) = self.next.pop().filter(|(object, _)| !self.gone.contains(object)) {
                self.ends[cpu] += 1;
                self.tables[cpu].insert(object);
                self.began = Some((object, cpu));
            }
        }
    }

    fn section(cpu: u32, ends: u64, ids: &BTreeSet<u64>) -> Section {
        let row = |id: &u64| bpf::as_bytes(&ts_row { id: *id, value: *id, ..Default::default() }).to_vec();
        let rows = Rows::new(ids.iter().flat_map(row).collect(), size_of::<ts_row>());
        let mut head = ts_section { ends, ..Default::default() };
        head.tick.now = NOW;
        Section { cpu, head, rows, stale: false, again: false }
    }

    proptest! {
        /// Each object has a row, whichever tables it was in, wherever and whenever it ends.
        #[test]
        fn no_object_is_missed_that_ends_meanwhile(
            tables in prop::collection::vec(prop::collection::btree_set(1..=OBJECTS, 0..8), 1..5),
            next in prop::collection::vec((1..=OBJECTS, 0_usize..5), 0..12),
            steps in prop::collection::vec(0_usize..5, 40),
        ) {
            let all: BTreeSet<u64> = tables.iter().flatten().copied().collect();
            let cpus = tables.len() as u32;
            let next = next.into_iter().filter(|(id, _)| all.contains(id)).map(|(id, cpu)| (id, cpu % tables.len()));
            let host = Host { ends: vec![0; tables.len()], next: next.collect(), tables, gone: BTreeSet::new(), began: None };
            let (host, steps) = (RefCell::new(host), RefCell::new(steps.into_iter().cycle()));
            let pass = || (0..steps.borrow_mut().next().unwrap_or(0)).for_each(|_| host.borrow_mut().step());
            let mut instants = Vec::new();
            let take = |cpu: u32, now| {
                instants.push(now);
                pass();
                let ends = host.borrow().ends[cpu as usize];
                pass();
                let taken = section(cpu, ends, &host.borrow().tables[cpu as usize]);
                pass();
                Ok(taken)
            };
            let used = |cpu: u32| !host.borrow().tables[cpu as usize].is_empty();
            let sections = sections(cpus, used, take, |cpu| Some(host.borrow().ends[cpu as usize])).unwrap();
            let seen: BTreeSet<u64> = merge(sections.iter().map(|s| (s.cpu, &s.rows)), None, None).iter().map(|merged| merged.row.head.id).collect();
            prop_assert_eq!(seen, all);
            prop_assert!(instants[0] == 0 && instants[1..].iter().all(|now| *now == NOW), "{:?}", instants);
            let once: Vec<_> = first(&sections).map(|section| section.cpu).collect();
            prop_assert!(!once.is_empty() && once.is_sorted_by(|a, b| a < b), "{:?}", once);
        }
    }

    #[test]
    fn a_cpu_on_which_nothing_has_ended_is_read_once_or_not_at_all() {
        let none = BTreeSet::new();
        let taken = |used: &[u32], ends: &dyn Fn(u32) -> Option<u64>| -> Vec<u32> {
            let take = |cpu, _| Ok(section(cpu, 9, &none));
            sections(6, |cpu| used.contains(&cpu), take, ends).unwrap().iter().map(|s| s.cpu).collect()
        };
        assert_eq!(taken(&[0, 3, 5], &|_| None), [0, 3, 5]);
        assert_eq!(taken(&[], &|_| None), [0]);
        assert_eq!(taken(&[0, 5], &|cpu| Some(if [0, 3, 5].contains(&cpu) { 9 } else { 0 })), [0, 3, 5]);
        assert_eq!(taken(&[0, 3, 5], &|cpu| Some(if cpu == 3 { 10 } else { 9 })), [0, 1, 2, 3, 4, 5, 3]);
    }
}
