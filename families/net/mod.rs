// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples `net_procs`, `net_cgroups`, `net_hosts` and `net_ports`: the use of the network by owner. `README.md` describes what
//! is counted, and where.

abi!("net");
mod builds;

use std::mem::{offset_of, size_of};

use topstat_model::Reach::{Local, Part, Spanning};
use topstat_model::{ColumnKind, Unit};

use topstat_kernel::family::{
    Constant, Constants, Family, FieldAt, FilterBy, Objects, OwnLost, Ranked, RowColumn, columns,
};
use topstat_kernel::{SampleInfo, TableInfo};

/// The family of the samples `net_*`.
pub fn family() -> Family {
    let fields = [
        (offset_of!(abi::net_constants, jiffy_ns), Constant::JiffyNs),
        (offset_of!(abi::net_constants, v1_controller), Constant::V1Controller),
        (offset_of!(abi::net_constants, build), Constant::Build),
    ];
    let constants = Constants::new(size_of::<abi::net_constants>(), fields);
    let samples = samples();
    let unseen = |path| OwnLost { table: path, name: "unseen".to_owned(), map: builds::UNSEEN.to_owned() };
    let paths = samples.iter().flat_map(|sample| &sample.tables).map(|table| table.path());
    let ranked = Ranked {
        sample_banks: abi::NET_SAMPLE_BANKS,
        lost: paths.map(unseen).collect(),
        opaque: true,
        full: true,
        parts: ["rx", "tx"].map(str::to_owned).to_vec(),
        ..Ranked::new::<abi::net_section, abi::net_row>(builds::builds(), constants)
    };
    let family = Family::ranked("net", abi::NET_ABI, (6, 1), samples, ranked);
    Family { ready: builds::ready, check: builds::check, ..family }
}

/// In the order of `enum net_sample`; tables in the order of `enum net_table`.
fn samples() -> [SampleInfo; 4] {
    const KEY: usize = offset_of!(abi::net_row, key);
    const OWNER: usize = offset_of!(abi::net_row, owner);
    let sample = |name, whom: &str, columns: Vec<RowColumn>| {
        let about = format!("{whom}, by their TCP and UDP traffic");
        SampleInfo::new(name, &about, Objects::Keyed, columns, tables())
    };
    let closed = || vec![columns::closed(offset_of!(abi::net_row, closed))];
    let host = FieldAt::Address { at: KEY + offset_of!(abi::net_key, host), family: offset_of!(abi::net_row, family) };
    let about = "Only this remote host";
    let host = RowColumn::new("host", ColumnKind::Address, host).by("host", "ADDRESS", about, FilterBy::Address);
    let about = "Only with this port, at either end";
    let port = RowColumn::new("port", ColumnKind::Port, FieldAt::U16(KEY + offset_of!(abi::net_key, port)));
    let port = port.by("port", "PORT", about, FilterBy::Number(u16::MAX.into()));
    let proto = FieldAt::Word(KEY + offset_of!(abi::net_key, proto), &["", "tcp", "udp"]);
    let about = "Only ports of this protocol: tcp or udp";
    let proto = RowColumn::new("proto", ColumnKind::Text, proto).by("proto", "PROTO", about, FilterBy::Text);
    let side = FieldAt::Word(KEY + offset_of!(abi::net_key, side), &["server", "client"]);
    let about = "Only ports that are served here (server), or that this host connects to (client)";
    let side = RowColumn::new("side", ColumnKind::Text, side).by("side", "SIDE", about, FilterBy::Text);
    let netns = RowColumn::new("netns", ColumnKind::Id, FieldAt::U32(KEY + offset_of!(abi::net_key, netns)));
    let ports = [vec![port, proto, side], columns::process(OWNER), vec![netns]].concat();
    [
        sample("net_procs", "processes", [columns::process(OWNER), closed()].concat())
            .keyed(Local, &["pid", "comm", "cgroup", "container"]),
        sample("net_cgroups", "control groups", [columns::group(OWNER).to_vec(), closed()].concat())
            .keyed(Spanning, &["cgroup"]),
        sample("net_hosts", "remote hosts", vec![host]).keyed(Spanning, &["host"]),
        // The network namespace is in the key, too.
        sample("net_ports", "ports that are served or connected to", ports).keyed(Part, &["port", "proto", "side"]),
    ]
}

fn tables() -> [TableInfo; 5] {
    let dynamic = TableInfo::dynamic;
    [
        dynamic(abi::NET_PPS, "pps", Unit::Packets, "pps", "packets, per period"),
        dynamic(abi::NET_BPS, "bps", Unit::Bits, "bps", "payload, in bits per period"),
        dynamic(abi::NET_RETRANS, "retrans", Unit::Segments, "retrans", "segments sent again, per period"),
        dynamic(abi::NET_OPENED, "opened", Unit::Count, "opened", "connections opened, per period"),
        TableInfo::running_total(abi::NET_BYTES, "bytes", Unit::Bytes, "bytes", "payload, since topstat began"),
    ]
}
