// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The format of a recording of events: a line with the kinds of events that may follow, and then the lines of
//! [`json`](super::json). This module turns lines back into events.
//!
//! ```json
//! {"topstat_events":1,"begun":"2026-11-21T08:00:00.000000000Z","kinds":[{"source":"tcp","event":"open",
//!  "columns":[{"name":"sip","kind":"address","alias":"ip"}],"payload":{"name":"data","list":false}}]}
//! ```
//!
//! `optional`, `alias` and `payload` are there only where they apply.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Account, Event, EventKind, Payload, PayloadKind};
use crate::field::{Column, ColumnKind, Field};
use crate::json;
use crate::time::rfc3339_nanos;

/// The version of the format. It changes when a reader of this version would misread the new format.
pub const VERSION: u64 = 1;

/// A parsed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// An event.
    Event(Event),
    /// The account of a source.
    Account(Account),
}

/// The first line of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// When it was begun.
    pub begun: SystemTime,
    /// The kinds of events that may be in it.
    pub kinds: Vec<Arc<EventKind>>,
}

#[derive(Serialize, Deserialize)]
struct HeaderLine {
    topstat_events: u64,
    begun: String,
    kinds: Vec<KindLine>,
}

#[derive(Serialize, Deserialize)]
struct KindLine {
    source: String,
    event: String,
    columns: Vec<ColumnLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload: Option<PayloadLine>,
}

#[derive(Serialize, Deserialize)]
struct ColumnLine {
    name: String,
    kind: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    optional: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    alias: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct PayloadLine {
    name: String,
    list: bool,
}

const COLUMN_KINDS: [(&str, ColumnKind); 7] = [
    ("address", ColumnKind::Address),
    ("port", ColumnKind::Port),
    ("pid", ColumnKind::Pid),
    ("id", ColumnKind::Id),
    ("text", ColumnKind::Text),
    ("path", ColumnKind::Path),
    ("mark", ColumnKind::Mark),
];

impl Header {
    /// Appends the line.
    ///
    /// # Errors
    ///
    /// No error that can happen: see [`json::line`].
    pub fn write(&self, written: &mut Vec<u8>) -> io::Result<()> {
        let column = |(column, alias): (&Column, &Option<String>)| ColumnLine {
            name: column.name.to_string(),
            kind: COLUMN_KINDS.iter().find(|(_, kind)| *kind == column.kind).map_or("", |(name, _)| name).to_owned(),
            optional: column.optional,
            alias: alias.clone(),
        };
        let kind = |kind: &Arc<EventKind>| KindLine {
            source: kind.source.clone(),
            event: kind.event.clone(),
            columns: kind.columns.iter().zip(&kind.aliases).map(column).collect(),
            payload: kind
                .payload
                .as_ref()
                .map(|(name, kind)| PayloadLine { name: name.clone(), list: *kind == PayloadKind::List }),
        };
        let kinds = self.kinds.iter().map(kind).collect();
        json::line(&HeaderLine { topstat_events: VERSION, begun: rfc3339_nanos(self.begun), kinds }, written)
    }

    /// Parses the header line.
    ///
    /// # Errors
    ///
    /// A description of the fault in the line.
    pub fn read(text: &str) -> Result<Self, String> {
        let value: Value =
            serde_json::from_str(text).map_err(|_| "it is no recording of topstat's events".to_owned())?;
        match value.get("topstat_events").and_then(Value::as_u64) {
            Some(VERSION) => {}
            Some(other) => return Err(format!("it is of version {other}, and this topstat reads version {VERSION}")),
            None => return Err("it is no recording of topstat's events".to_owned()),
        }
        let line: HeaderLine = serde_json::from_value(value).map_err(|e| format!("its first line is wrong: {e}"))?;
        let column = |line: &ColumnLine| {
            let known = COLUMN_KINDS.iter().find(|(name, _)| *name == line.kind);
            let (_, kind) =
                known.ok_or_else(|| format!("its first line is wrong: a column can't be of {:?}", line.kind))?;
            Ok(Column { name: line.name.clone().into(), kind: *kind, optional: line.optional })
        };
        let kind = |line: KindLine| {
            Ok(Arc::new(EventKind {
                columns: line.columns.iter().map(column).collect::<Result<_, String>>()?,
                aliases: line.columns.into_iter().map(|column| column.alias).collect(),
                source: line.source,
                event: line.event,
                payload: line
                    .payload
                    .map(|payload| (payload.name, if payload.list { PayloadKind::List } else { PayloadKind::Bytes })),
            }))
        };
        let begun = time(&line.begun)?;
        let kinds = line.kinds.into_iter().map(kind).collect::<Result<_, String>>()?;
        Ok(Self { begun, kinds })
    }

    /// Parses a later line.
    ///
    /// # Errors
    ///
    /// A description of the fault in the line.
    pub fn line(&self, text: &str) -> Result<Line, String> {
        let mut map: Map<String, Value> = serde_json::from_str(text).map_err(|e| format!("it is no document: {e}"))?;
        let source = take_text(&mut map, "source")?;
        let event = take_text(&mut map, "event")?;
        let time = time(&take_text(&mut map, "time")?)?;
        if event == "account" {
            return account(time, source, &mut map).map(Line::Account);
        }
        let kind = self.kinds.iter().find(|kind| kind.source == source && kind.event == event);
        let kind = kind.ok_or_else(|| format!("its first line knows of no event {source} {event}"))?;
        let cpu = match map.get("cpu") {
            Some(Value::Null) => None,
            _ => Some(u32::try_from(take_number(&mut map, "cpu")?).map_err(|_| "there is no such CPU".to_owned())?),
        };
        let seq = take_number(&mut map, "seq")?;
        let field = |column: &Column| {
            let value = map.get(&*column.name).unwrap_or(&Value::Null);
            field(column, value).ok_or_else(|| format!("{} can't be {value}", column.name))
        };
        let fields = kind.columns.iter().map(field).collect::<Result<_, _>>()?;
        let payload = kind.payload.as_ref().map(|(name, kind)| payload(&map, name, *kind)).transpose()?;
        let late = map.get("late") == Some(&Value::Bool(true));
        Ok(Line::Event(Event { time, cpu, seq, kind: Arc::clone(kind), fields, payload, late }))
    }
}

fn time(text: &str) -> Result<SystemTime, String> {
    humantime::parse_rfc3339(text).map_err(|e| format!("{text:?} is no time: {e}"))
}

fn take_text(map: &mut Map<String, Value>, key: &str) -> Result<String, String> {
    match map.remove(key) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(format!("it has no text {key}")),
    }
}

fn take_number(map: &mut Map<String, Value>, key: &str) -> Result<u64, String> {
    map.remove(key).as_ref().and_then(Value::as_u64).ok_or_else(|| format!("it has no number {key}"))
}

fn field(column: &Column, value: &Value) -> Option<Field> {
    Some(match (column.kind, value) {
        (_, Value::Null) => Field::None,
        (ColumnKind::Address, Value::String(text)) => Field::Ip(text.parse().ok()?),
        (ColumnKind::Mark, Value::Bool(true)) => Field::True,
        (ColumnKind::Address | ColumnKind::Mark, _) => return None,
        (_, Value::String(text)) => Field::Text(text.clone()),
        (_, Value::Number(number)) => {
            number.as_u64().map(Field::U64).or_else(|| number.as_i64().map(Field::Negative))?
        }
        _ => return None,
    })
}

fn payload(map: &Map<String, Value>, name: &str, kind: PayloadKind) -> Result<Payload, String> {
    let key = |end: &str| format!("{name}{end}");
    let bytes = match (kind, map.get(name), map.get(&key("_hex"))) {
        (PayloadKind::List, Some(Value::Array(texts)), _) => {
            let text = |value: &Value| value.as_str().map(|text| [text.as_bytes(), b"\0"].concat());
            texts.iter().map(text).collect::<Option<Vec<_>>>().map(|texts| texts.concat())
        }
        (PayloadKind::Bytes, Some(Value::String(text)), _) => Some(text.clone().into_bytes()),
        (PayloadKind::Bytes, None, Some(Value::String(hex))) => from_hex(hex),
        _ => None,
    };
    let bytes = bytes.ok_or_else(|| format!("its {name} is wrong"))?;
    let whole = map.get(&key("_bytes")).and_then(Value::as_u64).unwrap_or(bytes.len() as u64);
    let says = |end: &str| map.get(&key(end)) == Some(&Value::Bool(true));
    Ok(Payload { whole, cut: says("_cut"), fault: says("_fault"), bytes })
}

fn from_hex(hex: &str) -> Option<Vec<u8>> {
    if !hex.len().is_multiple_of(2) || !hex.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).ok()).collect()
}

fn account(time: SystemTime, source: String, map: &mut Map<String, Value>) -> Result<Account, String> {
    let mut number = |key| take_number(map, key);
    let account = Account {
        time,
        source,
        produced: number("produced")?,
        delivered: number("delivered")?,
        cut: number("cut")?,
        dropped: number("dropped")?,
        skipped: number("skipped")?,
        shown: number("shown")?,
        late: number("late")?,
    };
    let known = account.delivered.checked_add(account.dropped).is_some_and(|known| known <= account.produced);
    known.then_some(account).ok_or_else(|| "its account does not add up".to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use proptest::prelude::*;

    use super::*;

    fn kinds() -> Vec<Arc<EventKind>> {
        let columns = vec![
            Column::new("sip", ColumnKind::Address),
            Column::new("sport", ColumnKind::Port),
            Column::optional("error", ColumnKind::Text),
            Column::new("lived_ns", ColumnKind::Id),
        ];
        let kind = |event: &str, payload| {
            Arc::new(EventKind {
                source: "tcp".into(),
                event: event.into(),
                columns: columns.clone(),
                aliases: vec![Some("ip".into()), Some("port".into()), None, None],
                payload,
            })
        };
        vec![
            kind("open", None),
            kind("data", Some(("data".into(), PayloadKind::Bytes))),
            kind("exec", Some(("args".into(), PayloadKind::List))),
        ]
    }

    fn header() -> Header {
        let header = Header { begun: UNIX_EPOCH + Duration::from_nanos(1_795_248_000_123_456_789), kinds: kinds() };
        let mut written = Vec::new();
        header.write(&mut written).unwrap();
        let read = Header::read(std::str::from_utf8(&written).unwrap()).unwrap();
        assert_eq!(read, header);
        read
    }

    fn written(event: &Event) -> String {
        let mut written = Vec::new();
        super::super::json::event(event, &mut written).unwrap();
        String::from_utf8(written).unwrap()
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            kind in 0..3_usize, time in 0..4_000_000_000_000_000_000_u64, seq: u64, cpu: Option<u32>, port: Option<u64>,
            error in prop::option::of(".{0,8}"), ip: Option<[u8; 16]>, bytes: Vec<u8>, texts in prop::collection::vec("[^\0]{0,6}", 0..4),
            flags: [bool; 3], more in 0..9_u64,
        ) {
            let kind = Arc::clone(&kinds()[kind]);
            let bytes = match &kind.payload {
                Some((_, PayloadKind::List)) => texts.iter().map(|text| format!("{text}\0")).collect::<String>().into_bytes(),
                _ => bytes,
            };
            let whole = bytes.len() as u64 + more;
            let event = Event {
                time: UNIX_EPOCH + Duration::from_nanos(time),
                cpu,
                seq,
                fields: vec![
                    ip.map(std::net::IpAddr::from).into(), port.into(), error.into(), Field::U64(7),
                ],
                payload: kind.payload.is_some().then(|| Payload { bytes, whole, cut: flags[0], fault: flags[1] }),
                kind,
                late: flags[2],
            };
            prop_assert_eq!(header().line(&written(&event)).unwrap(), Line::Event(event));
        }

        #[test]
        fn no_line_makes_it_fall(text in "[\\PC{}\":,\\[\\]]{0,60}") {
            let _ = header().line(&text);
            let _ = Header::read(&text);
        }
    }

    #[test]
    fn accounts_are_read() {
        let account = Account {
            time: UNIX_EPOCH + Duration::from_secs(7),
            source: "tcp".into(),
            produced: 9,
            delivered: 5,
            cut: 1,
            dropped: 2,
            skipped: 3,
            shown: 4,
            late: 1,
        };
        let mut written = Vec::new();
        super::super::json::account(&account, &mut written).unwrap();
        let text = String::from_utf8(written).unwrap();
        assert_eq!(header().line(&text), Ok(Line::Account(account)));
        let wrong = header().line(&text.replace("\"dropped\":2", "\"dropped\":5")).unwrap_err();
        assert_eq!(wrong, "its account does not add up");
    }

    #[test]
    fn what_is_no_recording_is_told_from_another_version() {
        assert_eq!(Header::read("{\"a\":1}").unwrap_err(), "it is no recording of topstat's events");
        assert_eq!(Header::read("hello").unwrap_err(), "it is no recording of topstat's events");
        assert_eq!(
            Header::read("{\"topstat_events\":2}").unwrap_err(),
            "it is of version 2, and this topstat reads version 1"
        );
        let wrong =
            header().line("{\"time\":\"2026-11-21T08:00:00Z\",\"source\":\"tcp\",\"event\":\"x\"}").unwrap_err();
        assert_eq!(wrong, "its first line knows of no event tcp x");
    }
}
