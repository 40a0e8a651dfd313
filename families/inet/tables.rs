// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of the four samples of sockets.

use topstat_model::Unit;

use super::abi;
use crate::{SampleInfo, TableInfo};

/// The tables that all sockets have.
fn sockets() -> Vec<TableInfo> {
    let packets = "packets per period, as on the wire (a GSO or GRO packet counts its segments)";
    let bytes = "bytes of payload, running total";
    vec![
        TableInfo::dynamic(abi::INET_PPS, "conns_pps", Unit::Packets, "pps", packets),
        TableInfo::dynamic(abi::INET_BPS, "conns_bps", Unit::Bits, "bps", "bits of payload per period"),
        TableInfo::running_total(abi::INET_BYTES, "conns_bytes", Unit::Bytes, "bytes", bytes),
    ]
}

/// Those of connections.
fn connections() -> Vec<TableInfo> {
    let about = "segments sent again, per period";
    let resent = TableInfo::dynamic(abi::INET_RETRANS, "conns_retrans", Unit::Segments, "retrans", about);
    [sockets(), vec![resent]].concat()
}

/// In the order of `enum inet_sample`.
pub fn samples() -> Vec<SampleInfo> {
    vec![
        SampleInfo::new("tcp_v4", "TCP connections with an IPv4 peer", connections()),
        SampleInfo::new("tcp_v6", "TCP connections with an IPv6 peer", connections()),
        SampleInfo::new("udp_v4", "IPv4 UDP sockets", sockets()),
        SampleInfo::new("udp_v6", "IPv6 UDP sockets (dual-stack ones too)", sockets()),
    ]
}
