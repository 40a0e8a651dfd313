// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's own lists of its counters' names: arrays of `struct snmp_mib { const char *name; int entry; }` in its read-only
//! memory. The kernel writes `/proc` from these lists, name by name, so a list is known by its names.
//!
//! Only some kernels export the address of a list (CONFIG_KALLSYMS_ALL), so the lists are searched for. A list is believed only
//! if all its names stand in it in the order in which `/proc` shows them.

use std::collections::HashMap;

/// A copy of a part of the kernel's memory.
pub struct Memory {
    /// The address of the part.
    pub base: u64,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// The offsets of the fields in an element of a list.
#[derive(Clone, Copy, Debug)]
pub struct Element {
    /// The size of an element.
    pub size: usize,
    /// The pointer to the name.
    pub name: usize,
    /// The number in the array of counters: an `int`.
    pub entry: usize,
}

impl Memory {
    /// The bytes from an address on.
    fn at(&self, address: u64) -> Option<&[u8]> {
        let offset = usize::try_from(address.checked_sub(self.base)?).ok()?;
        self.bytes.get(offset..)
    }

    /// Whether exactly this text, with its final zero, is at an address.
    fn has(&self, address: u64, text: &str) -> bool {
        self.at(address)
            .and_then(|bytes| bytes.strip_prefix(text.as_bytes()))
            .is_some_and(|rest| rest.first() == Some(&0))
    }

    fn pointer(&self, offset: usize) -> Option<u64> {
        self.bytes.get(offset..)?.first_chunk().copied().map(u64::from_ne_bytes)
    }

    /// The entries of a list whose first element is at an offset: for the leading names that the list has in this order.
    fn entries(&self, offset: usize, names: &[&str], element: Element) -> Vec<usize> {
        let entry = |(index, name): (usize, &&str)| {
            let at = offset + index * element.size;
            self.has(self.pointer(at + element.name)?, name).then_some(())?;
            let entry = self.bytes.get(at + element.entry..)?.first_chunk().copied().map(i32::from_ne_bytes)?;
            usize::try_from(entry).ok()
        };
        names.iter().enumerate().map_while(entry).collect()
    }

    /// Finds the lists that begin with these names. For each list: the entries of the leading names that stand in this order. A
    /// list may have fewer names.
    pub fn lists(&self, wanted: &[Vec<&str>], element: Element) -> Vec<Vec<usize>> {
        let mut found = vec![Vec::new(); wanted.len()];
        let mut by_beginning: HashMap<[u8; 4], Vec<usize>> = HashMap::new();
        for (index, names) in wanted.iter().enumerate() {
            if let Some(beginning) = names.first().and_then(|name| name.as_bytes().first_chunk()) {
                by_beginning.entry(*beginning).or_default().push(index);
            }
        }
        for offset in (0..self.bytes.len().saturating_sub(element.size)).step_by(size_of::<u64>()) {
            let Some(beginning) = self.pointer(offset + element.name).and_then(|name| self.at(name)?.first_chunk())
            else {
                continue;
            };
            for index in by_beginning.get::<[u8; 4]>(beginning).into_iter().flatten() {
                let entries = self.entries(offset, &wanted[*index], element);
                if entries.len() > found[*index].len() {
                    found[*index] = entries;
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELEMENT: Element = Element { size: 16, name: 0, entry: 8 };

    /// Memory with names and lists of them.
    fn memory(lists: &[&[(&str, i32)]]) -> Memory {
        let base = 0xffff_8000_0000_0000_u64;
        let mut strings = Vec::new();
        let lists: Vec<_> = lists
            .iter()
            .map(|list| {
                let place = |(name, entry): &(&str, i32)| {
                    let at = base + strings.len() as u64;
                    strings.extend(name.bytes().chain([0]));
                    (at, *entry)
                };
                list.iter().map(place).collect::<Vec<_>>()
            })
            .collect();
        let mut bytes = strings;
        bytes.resize(bytes.len().next_multiple_of(8), 0xcc);
        for (name, entry) in lists.into_iter().flatten() {
            bytes.extend(name.to_ne_bytes());
            bytes.extend(entry.to_ne_bytes());
            bytes.extend([0; 4]);
        }
        bytes.extend([0; 32]);
        Memory { base, bytes }
    }

    #[test]
    fn a_list_is_known_by_all_its_names() {
        let memory = memory(&[&[("InErrs", 3), ("Else", 4)], &[("InErrs", 7), ("OutErrs", 5), ("InMsgs", 1)]]);
        let found = memory.lists(&[vec!["InErrs", "OutErrs", "InMsgs"], vec!["Absent"], vec![]], ELEMENT);
        assert_eq!(found, [vec![7, 5, 1], vec![], vec![]]);
    }

    #[test]
    fn what_follows_a_list_is_none_of_it() {
        // A list without an end is followed by another one, as in Linux 6.18.
        let memory = memory(&[&[("Ip6In", 1), ("Ip6Out", 2)], &[("Udp6In", 1), ("Udp6Out", 4)]]);
        let found = memory.lists(&[vec!["Ip6In", "Ip6Out", "Ip6OutType1"], vec!["Udp6In"]], ELEMENT);
        assert_eq!(found, [vec![1, 2], vec![1]]);
    }

    #[test]
    fn names_must_end_where_they_end() {
        let memory = memory(&[&[("InErrors", 3)]]);
        assert_eq!(memory.lists(&[vec!["InErr"]], ELEMENT), [Vec::<usize>::new()]);
    }
}
