// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A family of events: programs that put records into a stream, and the description of these records.

use std::sync::Arc;

use topstat_model::events;

use super::Options;
use crate::family::{Family, RowColumn};
use crate::{Error, cgroup};

/// A source of events.
pub struct Streaming {
    /// The name by which users ask for it: `tcp`.
    pub source: String,
    /// Its events, for people.
    pub about: String,
    /// Its programs. All of them are attached, in the order of the object.
    pub object: &'static [u8],
    /// The name of an iterator that finds earlier objects, once the programs are attached.
    pub adopt: Option<&'static str>,
    /// Whether it is delivered only where it is named, since there would be too many events.
    pub asked: bool,
    /// The bytes of the constants that the programs get before they are loaded.
    pub constants: fn(&Options) -> Result<Vec<u8>, Error>,
    /// The kinds of its events, by their number in records.
    pub kinds: Vec<EventKind>,
}

/// One kind of events.
pub struct EventKind {
    /// Its name: `close`.
    pub name: &'static str,
    /// When an event of this kind occurs, for people.
    pub about: &'static str,
    /// The fields of a record, without the head of all records.
    pub columns: Vec<RowColumn>,
    /// Bytes of a record before its payload.
    pub bytes: usize,
    /// Its payload, if it has one.
    pub payload: Option<Payload>,
}

/// The payload of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Its name in outputs: `data`.
    pub name: &'static str,
    /// Whether it is a list of texts, each ended by a zero; otherwise it is one text or any bytes.
    pub list: bool,
}

impl EventKind {
    /// A kind without a payload, whose records have `bytes` bytes.
    pub fn new(name: &'static str, about: &'static str, bytes: usize, columns: Vec<RowColumn>) -> Self {
        Self { name, about, columns, bytes, payload: None }
    }

    /// Its description in outputs, as an event of this source.
    pub fn shown(&self, source: &str) -> events::EventKind {
        let list = |list| if list { events::PayloadKind::List } else { events::PayloadKind::Bytes };
        let alias = |column: &RowColumn| column.filter.as_ref().map(|filter| filter.option.clone());
        events::EventKind {
            source: source.to_owned(),
            event: self.name.to_owned(),
            columns: self.columns.iter().map(|column| column.column.clone()).collect(),
            // An alias that equals the column's name is left out.
            aliases: self.columns.iter().map(|c| alias(c).filter(|alias| *alias != c.column.name)).collect(),
            payload: self.payload.map(|payload| (payload.name.to_owned(), list(payload.list))),
        }
    }
}

impl Streaming {
    /// The family of this source. It has no samples: `topstat events` shows it.
    pub fn family(self, name: &str, since: (u32, u32)) -> Family {
        Family {
            name: name.to_owned(),
            abi: 0, // nothing of it is ever pinned
            samples: Vec::new(),
            kind: Arc::new(self),
            since,
            ready: || Ok(()),
            check: Vec::new,
        }
    }

    /// Constants of programs that need only the v1 hierarchy to ask for cgroups.
    ///
    /// # Errors
    /// None.
    pub fn v1_controller(_: &Options) -> Result<Vec<u8>, Error> {
        Ok(cgroup::v1_number().to_ne_bytes().to_vec())
    }
}
