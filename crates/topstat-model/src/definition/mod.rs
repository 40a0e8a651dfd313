// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables that users define: an event of the kernel or of a program, and the figures that a table shows about it.
//!
//! ```text
//! definition = event { clause }
//!            | "from" event "to" event "on" common { "," common } { clause }
//! event      = group:name                     a tracepoint
//!            | btf:name                       a tracepoint, with the kernel's own types of its arguments
//!            | kprobe:f | kretprobe:f         the call of a function of the kernel, or its return
//!            | uprobe:path:f[+0xoffset]       the call of a function of a program or a library
//!            | uretprobe:path:f               its return
//!            | usdt:path:provider:name        a place that a program or a library has marked
//!            | perf:name[:period]             a counter of the CPU or a clock: an event for each period of it
//! common     = field [ "=" field ]            the second field is one of the event after "to"
//! clause     = "by" field { "," field }       a row for each value of the fields; without it there is one row
//!            | "add" field [ "*" number ]     adds up the field; without it the events are counted
//!            | "where" condition { "and" condition }
//!            | "unit" unit | "period" time | "top" number | "keys" number
//! condition  = field op constant
//! op         = "=" "==" "!=" "<" "<=" ">" ">=" "&"    & is met if the field has any bit of the constant
//! constant   = number | name | "text" | 'text'        in "text", \" and \\ stand for " and \
//! field      = [ "str." ] name { "." name | "[" index "]" }
//! ```
//!
//! | part | form |
//! |---|---|
//! | number | decimal, or hexadecimal with `0x`; may be negative; from -2^63 to 2^64 - 1 |
//! | units of a number | `k M G` (1000), `Ki Mi Gi` (1024), `ns us ms s`: a time, in nanoseconds; `1.5ms` is 1500000 |
//! | name | a name that the kernel has for a value: `NOT_SPECIFIED`, `vda` |
//! | `str.` | the text that the field points to |
//! | unit | the name of a [`Unit`], or `ns` |
//! | time | a number with a unit, `500ms`, `1s`, `1m`, `1h`, and sums of them: `1m30s` |
//!
//! Spaces and ends of lines are equal, and a space is needed only between words. Clauses have any order, and each
//! stands once. A table with `from` shows the time between two events, and so has no `add`. A word with a meaning here
//! may be a field: `by period` is the field `period`. No text has control characters.
//!
//! The parser knows neither the kernel nor its events: a definition that it accepts may name an event or a field that
//! does not exist. Each part has its place in the text, for the errors that are found later.

mod event;
mod number;
mod parse;
mod part;
mod rest;
mod wrong;

use std::fmt;

use crate::unit::Unit;

pub use crate::filter::Fault;
pub use parse::{is_definition, parse};

/// The most bytes of a definition; a run of white space counts as one byte. With the final zero of C it is 1 KiB.
pub const MAX_BYTES: usize = 1023;
/// The most fields after `by`: the columns of a row.
pub const MAX_KEYS: usize = 4;
/// The most conditions after `where`: each costs time at each event.
pub const MAX_CONDITIONS: usize = 4;
/// The most fields that the two events of a table with `from` have in common.
pub const MAX_COMMON: usize = 2;
/// The most parts of a field, names and indices: each may cost a read of the kernel's memory at each event.
pub const MAX_PARTS: usize = 8;
/// The most rows that `top` shows.
pub const MAX_TOP: u32 = 1024;
/// The shortest period, in milliseconds.
pub const MIN_PERIOD_MS: u32 = 1;
/// The longest period, in milliseconds: an hour, as for all tables.
pub const MAX_PERIOD_MS: u32 = 3_600_000;
/// The most objects that a table keeps at a time: the kernel's memory for it is allocated in advance.
pub const MAX_PLACES: u32 = 1_000_000;

/// A parsed definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The user's text. Outside of quotes each run of white space is one space. Parsing it gives an equal definition,
    /// except for the places.
    pub text: String,
    /// The events.
    pub source: Source,
    /// The fields after `by`, at most [`MAX_KEYS`]. No field stands twice. Without fields the table has one row.
    pub keys: Vec<FieldName>,
    /// The field that is added up. Without it, a table of one event counts the events. A table with `from` has no
    /// amount.
    pub amount: Option<Amount>,
    /// The conditions, at most [`MAX_CONDITIONS`]. An event counts if all of them are met.
    pub conditions: Vec<Condition>,
    /// The unit of the values.
    pub unit: Option<Unit>,
    /// The period of the table, in milliseconds: [`MIN_PERIOD_MS`] to [`MAX_PERIOD_MS`].
    pub period_ms: Option<u32>,
    /// The number of rows: 1 to [`MAX_TOP`].
    pub top: Option<u32>,
    /// The number of objects that the table keeps (`keys`): 1 to [`MAX_PLACES`].
    pub places: Option<u32>,
}

/// The events of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// One event, which is counted.
    Event(Event),
    /// Two events: the table shows the time between them.
    Span {
        /// The event that begins the time.
        from: Event,
        /// The event that ends it.
        to: Event,
        /// The fields with equal values in both events, 1 to [`MAX_COMMON`] pairs: the field of `from`, and the field
        /// of `to`. If the user gives one field for both events, the pair has it twice, with one place.
        common: Vec<(FieldName, FieldName)>,
    },
}

/// An event, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The event.
    pub kind: EventKind,
    /// The character of the original text at which it begins, counted from 1.
    pub at: usize,
}

/// An event by its name. `Display` writes it as users do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A tracepoint: `block:block_rq_issue`. Both names have letters, digits and `_`.
    Tracepoint {
        /// The group, which tracefs calls a system.
        group: String,
        /// The name in the group.
        name: String,
    },
    /// A tracepoint with the kernel's own types of its arguments: `btf:tcp_retransmit_skb`.
    Btf {
        /// The name of the tracepoint: letters, digits and `_`.
        name: String,
    },
    /// A function of the kernel: `kprobe:vfs_read`, `kretprobe:vfs_read`.
    Kprobe {
        /// The function: letters, digits, `_`, `.` and `$`.
        function: String,
        /// The event is the function's return, and not its call.
        at_return: bool,
    },
    /// A function of a program or a library: `uprobe:/bin/bash:readline`, `uretprobe:/bin/bash:readline`.
    Uprobe {
        /// The file: any text without white space and control characters. It may be relative, and may have colons.
        path: String,
        /// The function: letters, digits, `_`, `.` and `$`.
        function: String,
        /// The bytes from the function's beginning to the probed instruction. It is 0 at a return.
        offset: u64,
        /// The event is the function's return, and not its call.
        at_return: bool,
    },
    /// A place that a program or a library has marked: `usdt:/usr/bin/python3:python:line`.
    Usdt {
        /// The file: as in [`EventKind::Uprobe`].
        path: String,
        /// The provider of the probe: letters, digits, `_`, `.` and `-`.
        provider: String,
        /// The name of the probe: as the provider.
        name: String,
    },
    /// A counter of the CPU or a clock: `perf:cpu-clock:1000000`.
    Perf {
        /// The name of the counter: letters, digits, `_` and `-`.
        name: String,
        /// The counts of the counter from one event to the next; for a clock, in nanoseconds. At least 1.
        period: Option<u64>,
    },
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let returns = |at_return: &bool| if *at_return { "ret" } else { "" };
        match self {
            Self::Tracepoint { group, name } => write!(f, "{group}:{name}"),
            Self::Btf { name } => write!(f, "btf:{name}"),
            Self::Kprobe { function, at_return } => write!(f, "k{}probe:{function}", returns(at_return)),
            Self::Uprobe { path, function, offset, at_return } => {
                write!(f, "u{}probe:{path}:{function}", returns(at_return))?;
                if *offset == 0 { Ok(()) } else { write!(f, "+{offset:#x}") }
            }
            Self::Usdt { path, provider, name } => write!(f, "usdt:{path}:{provider}:{name}"),
            Self::Perf { name, period: None } => write!(f, "perf:{name}"),
            Self::Perf { name, period: Some(period) } => write!(f, "perf:{name}:{period}"),
        }
    }
}

/// A field of an event. `Display` writes its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldName {
    /// The field as text, with `str.` and without leading zeros of its indices: two names of one field are equal.
    pub text: String,
    /// The path to the field: 1 to [`MAX_PARTS`] parts, and the first is a name. `str.` is no part.
    pub parts: Vec<Part>,
    /// The field is a pointer, and stands for the text that it points to: `str.filename`.
    pub is_text: bool,
    /// The character of the original text at which it begins, with `str.`, counted from 1.
    pub at: usize,
}

impl FieldName {
    fn new(parts: Vec<Part>, is_text: bool, at: usize) -> Self {
        let mut text = String::new();
        for part in &parts {
            match part {
                Part::Name(name) if text.is_empty() => text = name.clone(),
                Part::Name(name) => text += &format!(".{name}"),
                Part::Index(index) => text += &format!("[{index}]"),
            }
        }
        let text = if is_text { format!("str.{text}") } else { text };
        Self { text, parts, is_text, at }
    }
}

impl fmt::Display for FieldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A step on the path to a field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// A field, or a member of a structure: letters, digits and `_`, and no digit at the beginning.
    Name(String),
    /// An element of an array, counted from 0.
    Index(u32),
}

/// The amount that an event adds to its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amount {
    /// The field.
    pub field: FieldName,
    /// The factor of the field's value, at least 1: `add nr_sector * 512`.
    pub times: u64,
}

/// A condition that an event must meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The field.
    pub field: FieldName,
    /// The comparison. With a [`Constant::Text`] it is [`Op::Is`] or [`Op::IsNot`].
    pub op: Op,
    /// The value that the field is compared with.
    pub constant: Constant,
    /// The character of the original text at which the constant begins, counted from 1.
    pub at: usize,
}

/// A comparison of a field with a constant. `Display` writes its sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// `=` or `==`: equal.
    Is,
    /// `!=`: not equal.
    IsNot,
    /// `<`: the field is less.
    Less,
    /// `<=`: the field is less, or equal.
    AtMost,
    /// `>`: the field is more.
    More,
    /// `>=`: the field is more, or equal.
    AtLeast,
    /// `&`: the field has at least one of the constant's bits.
    AnyBit,
}

impl Op {
    /// All comparisons.
    pub const ALL: [Self; 7] =
        [Self::Is, Self::IsNot, Self::Less, Self::AtMost, Self::More, Self::AtLeast, Self::AnyBit];

    /// The sign of the comparison: `>=`.
    pub fn sign(self) -> &'static str {
        match self {
            Self::Is => "=",
            Self::IsNot => "!=",
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::More => ">",
            Self::AtLeast => ">=",
            Self::AnyBit => "&",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sign())
    }
}

/// A value that a field is compared with. `Display` writes a constant that parses to an equal one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Constant {
    /// A number from -2^63 to 2^64 - 1; a time is in nanoseconds.
    Number(i128),
    /// A text in quotes, without the quotes and their escapes. It may be empty, and has no control characters.
    Text(String),
    /// A word without quotes, whose meaning depends on the field: a name of a number, or a text. Letters, digits and
    /// `_`.
    Name(String),
}

impl fmt::Display for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
            Self::Name(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod faults;
#[cfg(test)]
mod tests;
