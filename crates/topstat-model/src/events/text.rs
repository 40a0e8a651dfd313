// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events as text for people, a line each:
//!
//! ```text
//! 08:00:00.000123 tcp close sip=10.0.0.1 sport=80 … reason=local
//! 08:00:10.000000 account tcp: 9 produced, 8 delivered, 1 dropped
//! ```
//!
//! The time is that of the time zone in use, with its offset. An unknown field is left out. No written character can act on a terminal, even where names come from a
//! recording.

use std::io::Write as _;

use super::{Account, Event, Payload, PayloadKind};
use crate::time::clock;
use crate::typeset::escape;

/// The number of bytes of a payload that are shown. JSON has all of them.
const SHOWN_BYTES: usize = 1024;

/// Appends an event as one line.
pub fn event(event: &Event, written: &mut Vec<u8>) {
    let put = &mut *written;
    let (source, name) = (escape(&event.kind.source), escape(&event.kind.event));
    write!(put, "{} {source} {name}", clock(event.time)).expect("a Vec takes all");
    for (column, field) in event.kind.columns.iter().zip(&event.fields).filter(|(_, field)| !field.is_none()) {
        write!(put, " {}={}", escape(&column.name), quoted(&field.to_string())).expect("a Vec takes all");
    }
    if let (Some((name, kind)), Some(payload)) = (&event.kind.payload, &event.payload) {
        write!(put, " {}={}", escape(name), shown(payload, *kind)).expect("a Vec takes all");
    }
    if event.late {
        write!(put, " (late)").expect("a Vec takes all");
    }
    put.push(b'\n');
}

/// Appends an account as one line. Numbers that are 0 are left out, except produced and delivered.
pub fn account(account: &Account, written: &mut Vec<u8>) {
    let Account { source, produced, delivered, .. } = account;
    let (time, source) = (clock(account.time), escape(source));
    write!(written, "{time} account {source}: {produced} produced, {delivered} delivered").expect("a Vec takes all");
    let rest = [
        (account.shown, "match the filter"),
        (account.cut, "with a payload that was cut"),
        (account.dropped, "dropped: the buffer was full"),
        (account.skipped, "skipped"),
        (account.late, "late"),
        (account.under_way(), "under way"),
    ];
    for (count, what) in rest.into_iter().skip(usize::from(account.shown == *delivered)) {
        if count > 0 {
            write!(written, ", {count} {what}").expect("a Vec takes all");
        }
    }
    written.push(b'\n');
}

/// The text, in quotes where it would be taken for several fields.
fn quoted(text: &str) -> String {
    match text.is_empty() || text.contains([' ', '"']) {
        true => format!("\"{}\"", text.replace('"', "\\\"")),
        false => text.to_owned(),
    }
}

fn shown(payload: &Payload, kind: PayloadKind) -> String {
    let here = &payload.bytes[..payload.bytes.len().min(SHOWN_BYTES)];
    let mut text = match kind {
        PayloadKind::List => {
            let texts = Payload { bytes: here.to_vec(), ..Payload::default() };
            let texts: Vec<_> = texts.list().map(|text| quoted(&escape(&text))).collect();
            format!("[{}]", texts.join(" "))
        }
        PayloadKind::Bytes => {
            let mut text = String::new();
            for chunk in here.utf8_chunks() {
                text += &escape(chunk.valid());
                chunk.invalid().iter().for_each(|byte| text += &format!("\\x{byte:02x}"));
            }
            format!("\"{}\"", text.replace('"', "\\\""))
        }
    };
    if payload.fault {
        text += &format!(" (not in memory, of {} bytes)", payload.whole);
    } else if payload.whole > here.len() as u64 {
        let why = if payload.cut { ", cut: the buffer was nearly full" } else { "" };
        text += &format!("… ({} of {} bytes{why})", here.len(), payload.whole);
    }
    text
}
