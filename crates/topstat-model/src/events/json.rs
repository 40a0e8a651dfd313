// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events as JSON: one document per event and line.
//!
//! ```json
//! {"time":"2026-11-21T08:00:00.000123456Z","cpu":1,"seq":7,"source":"tcp","event":"open","sip":"10.0.0.1","sport":80}
//! {"time":"…","event":"account","source":"tcp","produced":9,"delivered":8,"cut":0,"dropped":1,"skipped":0,"under_way":0,"shown":8,"late":0}
//! ```
//!
//! Keys come in this order. A payload `data` of valid UTF-8 is a text, any other payload is `data_hex`; a list is an array of
//! texts. An optional column without a value is left out. Further keys are there only where they apply: `data_bytes` is the size
//! of a payload that is not whole, `data_cut` says that the payload was cut because the buffer was nearly full, `data_fault` that
//! it could not be read, `late` that an event with a later time came before.

use std::fmt::Write as _;
use std::io;

use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

use super::{Account, Event, Payload, PayloadKind};
use crate::json::{FieldView, line};
use crate::time::rfc3339_local_nanos;

/// Appends an event as one line.
///
/// # Errors
///
/// No error that can happen: see [`line`].
pub fn event(event: &Event, written: &mut Vec<u8>) -> io::Result<()> {
    line(&EventView(event), written)
}

/// Appends an account as one line.
///
/// # Errors
///
/// No error that can happen: see [`line`].
pub fn account(account: &Account, written: &mut Vec<u8>) -> io::Result<()> {
    line(&AccountView::from(account), written)
}

struct EventView<'a>(&'a Event);

impl Serialize for EventView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let event = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("time", &rfc3339_local_nanos(event.time))?;
        map.serialize_entry("cpu", &event.cpu)?;
        map.serialize_entry("seq", &event.seq)?;
        map.serialize_entry("source", &event.kind.source)?;
        map.serialize_entry("event", &event.kind.event)?;
        for (column, field) in event.kind.columns.iter().zip(&event.fields) {
            if !(column.optional && field.is_none()) {
                map.serialize_entry(&column.name, &FieldView(field))?;
            }
        }
        if let (Some((name, kind)), Some(payload)) = (&event.kind.payload, &event.payload) {
            serialize_payload(&mut map, name, *kind, payload)?;
        }
        if event.late {
            map.serialize_entry("late", &true)?;
        }
        map.end()
    }
}

fn serialize_payload<M: serde::ser::SerializeMap>(
    map: &mut M,
    name: &str,
    kind: PayloadKind,
    payload: &Payload,
) -> Result<(), M::Error> {
    match (kind, std::str::from_utf8(&payload.bytes)) {
        (PayloadKind::List, _) => map.serialize_entry(name, &payload.list().collect::<Vec<_>>())?,
        (PayloadKind::Bytes, Ok(text)) => map.serialize_entry(name, text)?,
        (PayloadKind::Bytes, Err(_)) => {
            let hex = payload.bytes.iter().fold(String::new(), |mut hex, byte| {
                write!(hex, "{byte:02x}").expect("a String takes all");
                hex
            });
            map.serialize_entry(&format!("{name}_hex"), &hex)?;
        }
    }
    if payload.whole != payload.bytes.len() as u64 {
        map.serialize_entry(&format!("{name}_bytes"), &payload.whole)?;
    }
    if payload.cut {
        map.serialize_entry(&format!("{name}_cut"), &true)?;
    }
    if payload.fault {
        map.serialize_entry(&format!("{name}_fault"), &true)?;
    }
    Ok(())
}

impl Payload {
    /// The texts of a list. Each text ends with a zero; the last one may lack it, where the payload was cut.
    pub fn list(&self) -> impl Iterator<Item = std::borrow::Cow<'_, str>> {
        let ended = self.bytes.strip_suffix(b"\0").unwrap_or(&self.bytes);
        let texts = ended.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        texts.take(if self.bytes.is_empty() { 0 } else { usize::MAX })
    }
}

#[derive(Serialize)]
struct AccountView<'a> {
    time: String,
    event: &'static str,
    source: &'a str,
    produced: u64,
    delivered: u64,
    cut: u64,
    dropped: u64,
    skipped: u64,
    under_way: u64,
    shown: u64,
    late: u64,
}

impl<'a> From<&'a Account> for AccountView<'a> {
    fn from(account: &'a Account) -> Self {
        Self {
            time: rfc3339_local_nanos(account.time),
            event: "account",
            source: &account.source,
            produced: account.produced,
            delivered: account.delivered,
            cut: account.cut,
            dropped: account.dropped,
            skipped: account.skipped,
            under_way: account.under_way(),
            shown: account.shown,
            late: account.late,
        }
    }
}
