// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From what the programs wrote to what is shown.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use topstat_model::{Column, ColumnKind, Field, Row};

use super::abi;
use crate::cgroup::{Paths, container};

/// The columns that describe a socket.
pub fn columns() -> Vec<Column> {
    vec![
        Column::new("sip", ColumnKind::Address),
        Column::new("sport", ColumnKind::Port),
        Column::new("dip", ColumnKind::Address),
        Column::new("dport", ColumnKind::Port),
        Column::new("pid", ColumnKind::Pid),
        Column::new("comm", ColumnKind::Text),
        Column::new("cgroup", ColumnKind::Path),
        Column::new("netns", ColumnKind::Id),
        Column::optional("container", ColumnKind::Id),
    ]
}

/// An address; an IPv4 address mapped into IPv6 is shown as what it is.
fn address(family: u32, bytes: [u8; 16]) -> IpAddr {
    const AF_INET6: u32 = libc::AF_INET6 as u32;
    let [a, b, c, d, ..] = bytes;
    if family == AF_INET6 {
        let v6 = Ipv6Addr::from(bytes);
        v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
    } else {
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    }
}

/// The fields of a row, in the order of [`columns`].
pub fn describe(row: &abi::inet_row, paths: &mut Paths) -> Vec<Field> {
    let owner = &row.owner;
    let end = owner.comm.iter().position(|c| *c == 0).unwrap_or(owner.comm.len());
    let comm: Vec<u8> = owner.comm[..end].iter().map(|c| c.to_ne_bytes()[0]).collect();
    let comm = (!comm.is_empty()).then(|| String::from_utf8_lossy(&comm).into_owned());
    let path = paths.of(owner.cgroup, owner.cgroup_v1);
    let id = path.as_deref().and_then(container).map(str::to_owned);
    vec![
        Field::Ip(address(row.family, row.sip)),
        Field::U64(row.sport.into()),
        Field::Ip(address(row.family, row.dip)),
        Field::U64(row.dport.into()),
        if owner.pid == 0 { Field::None } else { Field::U64(owner.pid.into()) },
        comm.into(),
        path.into(),
        Field::U64(row.netns.into()),
        id.into(),
    ]
}

/// An object found on one or more CPUs.
pub struct Merged<'a> {
    pub row: &'a abi::inet_row,
    pub cpus: Vec<u32>,
}

/// The exact merge: each object once. Its value is the same on every CPU but for pushes that
/// came in between, and those only add: the largest is the latest.
pub fn merge<'a>(
    sections: impl IntoIterator<Item = (u32, &'a [abi::inet_row])>,
    pushed_since: Option<u64>,
) -> Vec<Merged<'a>> {
    let mut by_id: HashMap<u64, Merged<'_>> = HashMap::new();
    for (cpu, rows) in sections {
        for row in rows {
            // Rows that a refill has put here were not pushed here.
            let here = pushed_since.is_none_or(|since| row.pushed >= since);
            let merged = by_id.entry(row.id).or_insert_with(|| Merged { row, cpus: Vec::new() });
            if here {
                merged.cpus.push(cpu);
            }
            if row.value > merged.row.value {
                merged.row = row;
            }
        }
    }
    let mut all: Vec<Merged<'_>> = by_id.into_values().collect();
    // Equal values in the order of age, so that they don't jump about.
    all.sort_unstable_by(|a, b| b.row.value.cmp(&a.row.value).then(a.row.id.cmp(&b.row.id)));
    all
}

/// The shown rows of the merge. `scale` turns what is pushed into the table's unit.
pub fn rows(merged: &[Merged<'_>], top: usize, scale: u64, paths: &mut Paths) -> Vec<Row> {
    let shown = merged.iter().take(top).filter(|m| m.row.value > 0);
    (1..)
        .zip(shown)
        .map(|(rank, m)| Row {
            rank,
            value: m.row.value.saturating_mul(scale),
            object: describe(m.row, paths),
            parts: m.row.part.iter().map(|p| p.saturating_mul(scale)).collect(),
            cpus: m.cpus.clone(),
        })
        .collect()
}
