// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a family of events is: programs that put records into a stream, and what these records are.

use libbpf_rs::OpenObject;
use topstat_model::events;

use super::RowColumn;
use crate::events::Options;
use crate::{Error, bpf, process};

/// A source of events.
pub struct Streaming {
    /// The name by which users ask for it: `tcp`.
    pub source: String,
    /// What its events tell, for people.
    pub about: String,
    /// Its programs, all of which are attached, in the order in which the object has them.
    pub object: &'static [u8],
    /// Finds what was there before, once the programs are attached: the name of an iterator.
    pub adopt: Option<&'static str>,
    /// Whether it is told of only where it is named: there would be too much of it.
    pub asked: bool,
    /// What the programs are told before they are loaded: the bytes of their constants.
    pub constants: fn(&Options) -> Result<Vec<u8>, Error>,
    /// The kinds of its events, by the number that records have.
    pub kinds: Vec<EventKind>,
}

/// One kind of events.
pub struct EventKind {
    /// Its name: `close`.
    pub name: &'static str,
    /// When there is one, for people.
    pub about: &'static str,
    /// What a record says, without what all records begin with.
    pub columns: Vec<RowColumn>,
    /// Bytes of a record before its payload.
    pub bytes: usize,
    /// What stands for its payload, if it has one.
    pub payload: Option<Payload>,
}

/// What the payload of a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Its name in outputs: `data`.
    pub name: &'static str,
    /// Texts, each of which ends with a zero; otherwise it is one text or any bytes.
    pub list: bool,
}

impl EventKind {
    /// One without a payload, whose records have so many bytes.
    pub fn new(name: &'static str, about: &'static str, bytes: usize, columns: Vec<RowColumn>) -> Self {
        Self { name, about, columns, bytes, payload: None }
    }

    /// How it is shown, as an event of this source.
    pub fn shown(&self, source: &str) -> events::EventKind {
        let list = |list| if list { events::PayloadKind::List } else { events::PayloadKind::Bytes };
        let alias = |column: &RowColumn| column.filter.as_ref().map(|filter| filter.option.clone());
        events::EventKind {
            source: source.to_owned(),
            event: self.name.to_owned(),
            columns: self.columns.iter().map(|column| column.column.clone()).collect(),
            // What it is called anyway is no other name.
            aliases: self.columns.iter().map(|c| alias(c).filter(|alias| *alias != c.column.name)).collect(),
            payload: self.payload.map(|payload| (payload.name.to_owned(), list(payload.list))),
        }
    }
}

impl Streaming {
    /// The constants of programs that are told nothing but where processes belong.
    ///
    /// # Errors
    /// None.
    pub fn v1_controller(_: &Options) -> Result<Vec<u8>, Error> {
        Ok(process::v1_controller().to_ne_bytes().to_vec())
    }

    /// The names of its programs.
    pub fn programs(&self) -> Vec<String> {
        let open = bpf::open(&self.source, self.object);
        let names =
            |object: OpenObject| object.progs().map(|program| program.name().to_string_lossy().into_owned()).collect();
        open.map(names).unwrap_or_default()
    }

    /// Loads and attaches it, and drops it.
    ///
    /// # Errors
    /// What of it this kernel or this user does not allow.
    pub fn try_load(&self) -> Result<(), Error> {
        crate::events::try_load(self)
    }
}
