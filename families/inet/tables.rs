// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of the four samples of sockets, and the columns of a socket.

use std::mem::offset_of;

use topstat_model::{ColumnKind, Unit};

use super::abi::{self, inet_row};
use topstat_kernel::family::{FieldAt, FilterBy, Objects, RowColumn, Variant, columns};
use topstat_kernel::process::abi::process_who;
use topstat_kernel::{SampleInfo, TableInfo};

/// The tables of all sockets.
fn sockets() -> Vec<TableInfo> {
    let packets = "packets per period, as on the wire (a GSO or GRO packet counts its segments)";
    let bytes = "bytes of payload, running total";
    vec![
        TableInfo::dynamic(abi::INET_PPS, "conns_pps", Unit::Packets, "pps", packets),
        TableInfo::dynamic(abi::INET_BPS, "conns_bps", Unit::Bits, "bps", "bits of payload per period"),
        TableInfo::running_total(abi::INET_BYTES, "conns_bytes", Unit::Bytes, "bytes", bytes),
    ]
}

/// The tables of connections.
fn connections() -> Vec<TableInfo> {
    let about = "segments sent again, per period";
    let resent = TableInfo::dynamic(abi::INET_RETRANS, "conns_retrans", Unit::Segments, "retrans", about);
    [sockets(), vec![resent]].concat()
}

/// In the order of `enum inet_sample`.
pub fn samples() -> Vec<SampleInfo> {
    let v4 = Variant { of: String::new(), option: '4', long: "ipv4".to_owned(), about: "Only IPv4".to_owned() };
    let v6 = Variant { of: String::new(), option: '6', long: "ipv6".to_owned(), about: "Only IPv6".to_owned() };
    let sample = |name: &str, about, tables, variant: &Variant| SampleInfo {
        variant: Some(Variant { of: name[..3].to_owned(), ..variant.clone() }),
        ..SampleInfo::new(name, about, Objects::Socket, columns(), tables)
    };
    vec![
        sample("tcp_v4", "TCP connections with an IPv4 peer", connections(), &v4),
        sample("tcp_v6", "TCP connections with an IPv6 peer", connections(), &v6),
        sample("udp_v4", "IPv4 UDP sockets", sockets(), &v4),
        sample("udp_v6", "IPv6 UDP sockets (dual-stack ones too)", sockets(), &v6),
    ]
}

/// The columns of a socket.
fn columns() -> Vec<RowColumn> {
    let owner = offset_of!(inet_row, about.owner);
    let address = |name, at| {
        let from = FieldAt::Address { at, family: offset_of!(inet_row, about.family) };
        RowColumn::new(name, ColumnKind::Address, from)
    };
    let port = |name, at| {
        let about = "Only with this port, at either end";
        let column = RowColumn::new(name, ColumnKind::Port, FieldAt::U16(at));
        column.by("port", "PORT", about, FilterBy::Number(u16::MAX.into()))
    };
    vec![
        address("sip", offset_of!(inet_row, about.sip)),
        port("sport", offset_of!(inet_row, about.sport)),
        address("dip", offset_of!(inet_row, about.dip)),
        port("dport", offset_of!(inet_row, about.dport)),
        columns::pid(FieldAt::KnownU32(owner + offset_of!(process_who, pid))),
        columns::comm(owner),
        columns::cgroup(owner),
        RowColumn::new("netns", ColumnKind::Id, FieldAt::U32(offset_of!(inet_row, about.netns))),
        columns::container(),
        columns::closed(offset_of!(inet_row, about.closed)),
    ]
}
