// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What describes a socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use topstat_model::{Column, ColumnKind, Field};

use super::abi;
use crate::cgroup::Paths;
use crate::process;

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
    let [cgroup, container] = process::describe_cgroup(owner, paths);
    vec![
        Field::Ip(address(row.family, row.sip)),
        Field::U64(row.sport.into()),
        Field::Ip(address(row.family, row.dip)),
        Field::U64(row.dport.into()),
        if owner.pid == 0 { Field::None } else { Field::U64(owner.pid.into()) },
        process::name(&owner.comm).into(),
        cgroup,
        Field::U64(row.netns.into()),
        container,
    ]
}
