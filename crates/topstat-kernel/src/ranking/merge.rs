// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Merges the rows that the CPUs have ordered.

use std::collections::HashMap;

use super::rows::{Row, Rows};

/// An object found on one or more CPUs.
pub struct Merged<'a> {
    pub row: Row<'a>,
    pub cpus: Vec<u32>,
}

/// The exact merge: each object once. Its value is equal on every CPU, except for pushes between the reads. These only add, so
/// the largest value is the latest. `unranked` is one more row, of no CPU.
pub fn merge<'a>(
    sections: impl IntoIterator<Item = (u32, &'a Rows)>,
    pushed_since: Option<u64>,
    unranked: Option<Row<'a>>,
) -> Vec<Merged<'a>> {
    let mut by_id: HashMap<u64, Merged<'_>> = HashMap::new();
    for (cpu, rows) in sections {
        for row in rows.iter() {
            let head = &row.head;
            // Readers order objects that the kernel counts itself. Their rows name the CPU of the latest event.
            let cpu = head.cpu.checked_sub(1).unwrap_or(cpu);
            // Rows that a refill put on this CPU were not pushed on it.
            let here = pushed_since.is_none_or(|since| head.pushed >= since);
            let merged = by_id.entry(head.id).or_insert_with(|| Merged { row, cpus: Vec::new() });
            if let Err(place) = merged.cpus.binary_search(&cpu)
                && here
            {
                merged.cpus.insert(place, cpu);
            }
            if head.value > merged.row.head.value {
                merged.row = row;
            }
        }
    }
    let mut all: Vec<Merged<'_>> = by_id.into_values().collect();
    all.extend(unranked.map(|row| Merged { row, cpus: Vec::new() }));
    // Equal values are in the order of age, so that rows don't jump about.
    all.sort_unstable_by(|a, b| {
        let (a, b) = (&a.row.head, &b.row.head);
        b.value.cmp(&a.value).then(a.id.cmp(&b.id))
    });
    all
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;
    use topstat_engine::abi::ts_row;

    use super::*;
    use crate::bpf;

    fn row() -> impl Strategy<Value = ts_row> {
        let fields = (1..6_u64, 0..20_u64, 0..10_u64, 0..4_u32);
        fields.prop_map(|(id, value, pushed, cpu)| ts_row { id, value, pushed, cpu, ..Default::default() })
    }

    fn rows(of: &[ts_row]) -> Rows {
        Rows::new(of.iter().flat_map(|row| bpf::as_bytes(row).to_vec()).collect(), size_of::<ts_row>())
    }

    proptest! {
        /// Each object once, with the largest of its values and the CPUs of its recent pushes; the largest value first, and of
        /// equal values the object with the lower id.
        #[test]
        fn it_is_what_a_plain_model_makes_of_the_rows(
            sections in prop::collection::vec(prop::collection::vec(row(), 0..8), 0..4),
            since in prop::option::of(0..10_u64),
        ) {
            let mut model = BTreeMap::<u64, (u64, BTreeSet<u32>)>::new();
            for (cpu, section) in (0..).zip(&sections) {
                for row in section {
                    let (value, cpus) = model.entry(row.id).or_default();
                    *value = (*value).max(row.value);
                    if since.is_none_or(|since| row.pushed >= since) {
                        cpus.insert(if row.cpu > 0 { row.cpu - 1 } else { cpu });
                    }
                }
            }
            let mut wanted: Vec<_> = model.into_iter().map(|(id, (value, cpus))| (id, value, cpus)).collect();
            wanted.sort_by_key(|(id, value, _)| (std::cmp::Reverse(*value), *id));
            let sections: Vec<_> = sections.iter().map(|section| rows(section)).collect();
            let merged = merge((0..).zip(&sections), since, None);
            let found: Vec<_> =
                merged.iter().map(|m| (m.row.head.id, m.row.head.value, m.cpus.iter().copied().collect())).collect();
            prop_assert_eq!(found, wanted);
            prop_assert!(merged.iter().all(|m| m.cpus.is_sorted()));
        }
    }
}
