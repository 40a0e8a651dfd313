// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events of TCP connections: opened, failed, and closed with their totals. `README.md` describes the events.

abi!("connections");

use std::mem::{offset_of, size_of};

use topstat_model::ColumnKind;

use topstat_kernel::events::{EventKind, Streaming};
use topstat_kernel::family::{Family, FieldAt, FilterBy, RowColumn, columns};

/// TCP's states, by the kernel's numbers.
const STATES: [&str; 12] = [
    "",
    "established",
    "syn_sent",
    "syn_recv",
    "fin_wait1",
    "fin_wait2",
    "time_wait",
    "",
    "close_wait",
    "last_ack",
    "listen",
    "closing",
];

/// By the numbers of `enum connections_reason`.
const REASONS: [&str; abi::CONNECTIONS_REASONS as usize] =
    ["unknown", "local", "remote", "aborted", "reset", "refused", "timeout", "abandoned", "error"];

/// The family of events of connections.
pub fn family() -> Family {
    let bytes = size_of::<abi::connections_event>();
    let kind = |name, about, more: Vec<RowColumn>| EventKind::new(name, about, bytes, [names(), more].concat());
    let mut kinds = vec![
        kind("open", "a connection is established", Vec::new()),
        kind("fail", "a connection could not be established from here", end(false)),
        kind("close", "a connection has ended", end(true)),
    ];
    debug_assert_eq!(kinds.len(), abi::CONNECTIONS_KINDS as usize);
    kinds[abi::CONNECTIONS_OPEN as usize].columns.push(side());
    kinds[abi::CONNECTIONS_CLOSE as usize].columns.push(side());
    let streaming = Streaming {
        source: "tcp".to_owned(),
        about: "TCP connections: open, fail, close with final totals".to_owned(),
        object: object!("connections/connections.bpf.o"),
        adopt: Some("connections_adopt"),
        asked: false,
        constants: Streaming::v1_controller,
        kinds,
    };
    streaming.family("connections", (6, 1))
}

const fn at(offset: usize) -> FieldAt {
    FieldAt::U64(offset)
}

fn side() -> RowColumn {
    const SIDES: [&str; abi::CONNECTIONS_SIDES as usize] = ["unknown", "connected", "accepted"];
    RowColumn::new("side", ColumnKind::Text, FieldAt::Named(offset_of!(abi::connections_event, side), &SIDES))
}

fn names() -> Vec<RowColumn> {
    let family = offset_of!(abi::connections_event, family);
    let address = |at| FieldAt::Address { at, family };
    let ip = |name, at| RowColumn::new(name, ColumnKind::Address, address(at)).by("ip", "IP", "", FilterBy::Text);
    let port = |name, at| {
        RowColumn::new(name, ColumnKind::Port, FieldAt::U16(at)).by(
            "port",
            "PORT",
            "",
            FilterBy::Number(u16::MAX.into()),
        )
    };
    let mut all = vec![
        ip("sip", offset_of!(abi::connections_event, local)),
        port("sport", offset_of!(abi::connections_event, sport)),
        ip("dip", offset_of!(abi::connections_event, remote)),
        port("dport", offset_of!(abi::connections_event, dport)),
    ];
    all.extend(columns::of_process(offset_of!(abi::connections_event, who)));
    all.push(RowColumn::new("netns", ColumnKind::Id, FieldAt::U32(offset_of!(abi::connections_event, netns))));
    all
}

/// The columns of an end; `whole`: the end of an established connection.
fn end(whole: bool) -> Vec<RowColumn> {
    let number = |name, at| RowColumn::new(name, ColumnKind::Id, at);
    let reason = FieldAt::Named(offset_of!(abi::connections_event, reason), &REASONS);
    let error = FieldAt::Error(offset_of!(abi::connections_event, error));
    let mut all = vec![
        RowColumn::new("reason", ColumnKind::Text, reason),
        RowColumn::optional("error", ColumnKind::Text, error),
        RowColumn::new("lived_ns", ColumnKind::Id, FieldAt::KnownU64(offset_of!(abi::connections_event, lived_ns))),
    ];
    if whole {
        let state = FieldAt::Named(offset_of!(abi::connections_event, state), &STATES);
        all.extend([
            RowColumn::new("state", ColumnKind::Text, state),
            number("rx_bytes", at(offset_of!(abi::connections_event, rx_bytes))),
            number("tx_bytes", at(offset_of!(abi::connections_event, tx_bytes))),
            number("rx_segments", FieldAt::U32(offset_of!(abi::connections_event, rx_segments))),
            number("tx_segments", FieldAt::U32(offset_of!(abi::connections_event, tx_segments))),
            number("resent_segments", FieldAt::U32(offset_of!(abi::connections_event, resent_segments))),
            number("resent_bytes", at(offset_of!(abi::connections_event, resent_bytes))),
            number("rtt_us", FieldAt::KnownU32(offset_of!(abi::connections_event, rtt_us))),
            number("rtt_min_us", FieldAt::KnownU32(offset_of!(abi::connections_event, rtt_min_us))),
        ]);
    }
    all
}
