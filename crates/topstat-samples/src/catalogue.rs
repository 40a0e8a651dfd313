// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which samples and tables there are.

use topstat_model::{TableType, Unit};

/// One sample: a family of tables about one kind of object.
#[derive(Debug)]
pub struct SampleInfo {
    /// Its directory: `tcp_v4`.
    pub name: &'static str,
    /// What its objects are, for people.
    pub about: &'static str,
    /// Its tables.
    pub tables: &'static [TableInfo],
}

/// One table.
#[derive(Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// The sample it belongs to.
    pub sample: &'static str,
    /// Its directory: `conns_pps`.
    pub name: &'static str,
    /// How it values pushes.
    pub kind: TableType,
    /// What its values count.
    pub unit: Unit,
    /// The title of its value column: `pps`.
    pub value_name: &'static str,
    /// What it ranks by, for people.
    pub about: &'static str,
}

macro_rules! connections {
    ($sample:literal) => {
        &[
            TableInfo {
                sample: $sample,
                name: "conns_pps",
                kind: TableType::Dynamic,
                unit: Unit::Packets,
                value_name: "pps",
                about: "packets per period, as on the wire (a GSO or GRO packet counts its segments)",
            },
            TableInfo {
                sample: $sample,
                name: "conns_bps",
                kind: TableType::Dynamic,
                unit: Unit::Bits,
                value_name: "bps",
                about: "bits of payload per period",
            },
            TableInfo {
                sample: $sample,
                name: "conns_bytes",
                kind: TableType::Static,
                unit: Unit::Bytes,
                value_name: "bytes",
                about: "bytes of payload, running total",
            },
            TableInfo {
                sample: $sample,
                name: "conns_retrans",
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

static SAMPLES: &[SampleInfo] = &[
    SampleInfo { name: "tcp_v4", about: "TCP connections with an IPv4 peer", tables: connections!("tcp_v4") },
    SampleInfo { name: "tcp_v6", about: "TCP connections with an IPv6 peer", tables: connections!("tcp_v6") },
    SampleInfo { name: "udp_v4", about: "IPv4 UDP sockets", tables: without_last(connections!("udp_v4")) },
    SampleInfo { name: "udp_v6", about: "IPv6 UDP sockets (dual-stack ones too)", tables: without_last(connections!("udp_v6")) },
];

/// All samples, in the order they are listed.
pub fn samples() -> &'static [SampleInfo] {
    SAMPLES
}

/// The table of that name.
pub fn find(sample: &str, table: &str) -> Option<&'static TableInfo> {
    samples().iter().find(|s| s.name == sample)?.tables.iter().find(|t| t.name == table)
}
