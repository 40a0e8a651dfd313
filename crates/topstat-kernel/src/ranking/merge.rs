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
