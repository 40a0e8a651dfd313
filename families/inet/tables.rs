// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of the four samples of sockets.

use topstat_model::{TableType, Unit};

use super::abi;
use crate::{SampleInfo, TableInfo};

macro_rules! connections {
    ($sample:literal) => {
        &[
            TableInfo {
                sample: $sample,
                name: "conns_pps",
                number: abi::INET_PPS,
                kind: TableType::Dynamic,
                unit: Unit::Packets,
                value_name: "pps",
                about: "packets per period, as on the wire (a GSO or GRO packet counts its segments)",
            },
            TableInfo {
                sample: $sample,
                name: "conns_bps",
                number: abi::INET_BPS,
                kind: TableType::Dynamic,
                unit: Unit::Bits,
                value_name: "bps",
                about: "bits of payload per period",
            },
            TableInfo {
                sample: $sample,
                name: "conns_bytes",
                number: abi::INET_BYTES,
                kind: TableType::Static,
                unit: Unit::Bytes,
                value_name: "bytes",
                about: "bytes of payload, running total",
            },
            TableInfo {
                sample: $sample,
                name: "conns_retrans",
                number: abi::INET_RETRANS,
                kind: TableType::Dynamic,
                unit: Unit::Segments,
                value_name: "retrans",
                about: "segments sent again, per period",
            },
        ]
    };
}

const fn without_last(tables: &'static [TableInfo]) -> &'static [TableInfo] {
    match tables.split_last() {
        Some((_, rest)) => rest,
        None => tables,
    }
}

pub static SAMPLES: &[SampleInfo] = &[
    SampleInfo {
        name: "tcp_v4",
        about: "TCP connections with an IPv4 peer",
        tables: connections!("tcp_v4"),
        threads: false,
    },
    SampleInfo {
        name: "tcp_v6",
        about: "TCP connections with an IPv6 peer",
        tables: connections!("tcp_v6"),
        threads: false,
    },
    SampleInfo {
        name: "udp_v4",
        about: "IPv4 UDP sockets",
        tables: without_last(connections!("udp_v4")),
        threads: false,
    },
    SampleInfo {
        name: "udp_v6",
        about: "IPv6 UDP sockets (dual-stack ones too)",
        tables: without_last(connections!("udp_v6")),
        threads: false,
    },
];
