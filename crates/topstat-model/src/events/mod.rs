// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events: what has happened, one by one, and what became of all of them. [`json`] and [`text`] write them, a line each.

pub mod json;
pub mod record;
pub mod text;

use std::sync::Arc;
use std::time::SystemTime;

use crate::field::{Column, ColumnKind, Field};
use crate::filter::Key;

/// What events of a kind have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventKind {
    /// Where it comes from: `tcp`.
    pub source: String,
    /// What has happened: `close`.
    pub event: String,
    /// What else is known of it.
    pub columns: Vec<Column>,
    /// What each column is called in filters besides: `port`.
    pub aliases: Vec<Option<String>>,
    /// What the payload is called, where there is one, and whether it is a list of texts.
    pub payload: Option<(String, PayloadKind)>,
}

impl EventKind {
    /// What a filter may ask for: what all events have, and then their columns.
    pub fn keys(&self) -> Vec<Key> {
        let all = [("source", ColumnKind::Text), ("event", ColumnKind::Text), ("cpu", ColumnKind::Pid)];
        let all = all.map(|(name, kind)| Key::new(Column::new(name, kind), None));
        let own = self.columns.iter().zip(&self.aliases);
        let own = own.map(|(column, alias)| Key::new(column.clone(), alias.clone()));
        all.into_iter().chain(own).collect()
    }
}

/// What a payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadKind {
    /// Any bytes.
    Bytes,
    /// Texts, each of which ends with a zero.
    List,
}

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, by the host's clock.
    pub time: SystemTime,
    /// On which CPU; `None`: on no one, for it was found out by looking at all of them.
    pub cpu: Option<u32>,
    /// Its number among the events of the source on this CPU, or on no one: a gap is as many as were dropped.
    pub seq: u64,
    /// What it is.
    pub kind: Arc<EventKind>,
    /// What is in its columns.
    pub fields: Vec<Field>,
    /// What it carries.
    pub payload: Option<Payload>,
    /// One with a later time came before it: it was held up for longer than the order is waited for.
    pub late: bool,
}

/// What an event carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// What is here of it.
    pub bytes: Vec<u8>,
    /// How many bytes it had.
    pub whole: u64,
    /// Fewer are here than were wanted, since the buffer was nearly full.
    pub cut: bool,
    /// It could not be read: it was not in memory.
    pub fault: bool,
}

/// What became of the events of a source so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// When this was so.
    pub time: SystemTime,
    /// Of which source.
    pub source: String,
    /// How many there were.
    pub produced: u64,
    /// Of them, how many were taken out of the buffer.
    pub delivered: u64,
    /// Of those, how many came with less of their payload than was wanted, since the buffer was nearly full.
    pub cut: u64,
    /// How many found no place in the buffer.
    pub dropped: u64,
    /// How many the kernel has kept from the program: one does not run where it would interrupt itself. They are not
    /// among those produced. Of a table's top: how often nobody looked when it was time to.
    pub skipped: u64,
    /// Of those delivered, how many the filter has let through.
    pub shown: u64,
    /// Of those delivered, how many came after one with a later time.
    pub late: u64,
}

impl Account {
    /// How many are on their way: in the buffer, or just being made. At the end there are none.
    pub fn under_way(&self) -> u64 {
        self.produced - self.delivered - self.dropped
    }
}
