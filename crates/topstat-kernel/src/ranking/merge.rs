// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From what the CPUs have ordered to what is shown.

use std::collections::HashMap;

use super::rows::{Row, Rows};

/// An object found on one or more CPUs.
pub struct Merged<'a> {
    pub row: Row<'a>,
    pub cpus: Vec<u32>,
}

/// The exact merge: each object once. Its value is the same on every CPU but for pushes that
/// came in between, and those only add: the largest is the latest. `unranked` is one more, of no CPU.
pub fn merge<'a>(
    sections: impl IntoIterator<Item = (u32, &'a Rows)>,
    pushed_since: Option<u64>,
    unranked: Option<Row<'a>>,
) -> Vec<Merged<'a>> {
    let mut by_id: HashMap<u64, Merged<'_>> = HashMap::new();
    for (cpu, rows) in sections {
        for row in rows.iter() {
            let head = &row.head;
            // Readers order objects that the kernel counts itself. The CPU of the latest event is another one then.
            let cpu = head.cpu.checked_sub(1).unwrap_or(cpu);
            // Rows that a refill has put here were not pushed here.
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
    // Equal values in the order of age, so that they don't jump about.
    all.sort_unstable_by(|a, b| {
        let (a, b) = (&a.row.head, &b.row.head);
        b.value.cmp(&a.value).then(a.id.cmp(&b.id))
    });
    all
}
