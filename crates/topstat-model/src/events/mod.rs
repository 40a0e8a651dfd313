// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events, one by one, and the account of all events of a source. [`json`] and [`text`] write them, a line each.

pub mod json;
pub mod record;
pub mod text;

use std::sync::Arc;
use std::time::SystemTime;

use crate::field::{Column, ColumnKind, Field};
use crate::filter::Key;

/// The properties that all events of a kind share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventKind {
    /// The source: `tcp`.
    pub source: String,
    /// The name of the event: `close`.
    pub event: String,
    /// The columns of its fields.
    pub columns: Vec<Column>,
    /// For each column, a second name in filters: `port`.
    pub aliases: Vec<Option<String>>,
    /// The name of the payload, if there is one, and its kind.
    pub payload: Option<(String, PayloadKind)>,
}

impl EventKind {
    /// The keys that a filter may use: the keys of all events, followed by the columns.
    pub fn keys(&self) -> Vec<Key> {
        let all = [("source", ColumnKind::Text), ("event", ColumnKind::Text), ("cpu", ColumnKind::Pid)];
        let all = all.map(|(name, kind)| Key::new(Column::new(name, kind), None));
        let own = self.columns.iter().zip(&self.aliases);
        let own = own.map(|(column, alias)| Key::new(column.clone(), alias.clone()));
        all.into_iter().chain(own).collect()
    }
}

/// The format of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadKind {
    /// Any bytes.
    Bytes,
    /// Texts; each text ends with a zero.
    List,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it happened, by the host's clock.
    pub time: SystemTime,
    /// The CPU on which it happened; `None`: on no single CPU, because it was found by reading all of them.
    pub cpu: Option<u32>,
    /// Its number among the events of the source on this CPU, or among those without a CPU: a gap has the size of the number of
    /// dropped events.
    pub seq: u64,
    /// Its kind.
    pub kind: Arc<EventKind>,
    /// The values of its columns.
    pub fields: Vec<Field>,
    /// Its payload.
    pub payload: Option<Payload>,
    /// An event with a later time came before it: it was delayed for longer than the ordering of events waits.
    pub late: bool,
}

/// The payload of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// The bytes that were kept.
    pub bytes: Vec<u8>,
    /// The size of the whole payload in bytes.
    pub whole: u64,
    /// `bytes` has fewer bytes than were wanted, because the buffer was nearly full.
    pub cut: bool,
    /// The payload could not be read: it was not in memory.
    pub fault: bool,
}

/// The account of the events of a source up to now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The time of the account.
    pub time: SystemTime,
    /// The source.
    pub source: String,
    /// The number of events.
    pub produced: u64,
    /// The number of events that were taken out of the buffer.
    pub delivered: u64,
    /// The number of delivered events with less of their payload than was wanted, because the buffer was nearly full.
    pub cut: u64,
    /// The number of events that found no place in the buffer.
    pub dropped: u64,
    /// The number of events that the kernel has kept from the program: a program does not run where it would interrupt itself.
    /// They are not in `produced`. For a table's top: the number of looks that were due and not taken.
    pub skipped: u64,
    /// The number of delivered events that the filter has let through.
    pub shown: u64,
    /// The number of delivered events that came after an event with a later time.
    pub late: u64,
}

impl Account {
    /// The number of events that are in the buffer, or are being made. At the end it is 0.
    pub fn under_way(&self) -> u64 {
        self.produced - self.delivered - self.dropped
    }
}
