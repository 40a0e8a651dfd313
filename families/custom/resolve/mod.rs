// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Resolves the names of a user-defined table on this kernel: turns the name of a field into the place where the
//! program reads it.
//!
//! Offsets move from one kernel to the next, so a table is resolved each time that it is loaded. Records of classic
//! tracepoints are described by tracefs (`format.rs`, `print.rs`), arguments of BTF tracepoints by the kernel's types
//! (`btf.rs`), probes by the ABI of the processor (`registers.rs`), and marked places of programs by notes in their files (`usdt.rs`). Errors are sentences for the user, who wrote
//! the name.

mod btf;
mod builtin;
mod expression;
pub mod file;
mod format;
mod list;
mod meaning;
mod print;
mod registers;
mod similar;
mod system;
#[cfg(test)]
mod tests;
mod types;
pub mod usdt;

use std::sync::Arc;

use topstat_model::definition::{EventKind as Place, FieldName, Part};

use super::abi;
pub use list::list;
pub use system::System;
use topstat_kernel::family::EventFormat as Format;

/// The first part of a field's name, and the parts behind it.
fn split(name: &FieldName) -> Option<(&str, &[Part])> {
    match name.parts.split_first()? {
        (Part::Name(first), rest) => Some((first, rest)),
        (Part::Index(_), _) => None,
    }
}

/// The format for people, unless it is a plain number.
fn for_people(format: Format) -> Option<&'static str> {
    Some(match format {
        Format::Unsigned | Format::Signed => return None,
        Format::Text => "text",
        Format::Ipv4 => "IPv4 address",
        Format::Ipv6 => "IPv6 address",
        Format::Mac => "MAC address",
        Format::Bytes => "bytes",
        Format::Device => "device",
        Format::Symbol => "function",
        Format::Cgroup => "control group",
        Format::Container => "container",
        Format::Named => "name",
        Format::Flags => "flags",
        Format::Bool => "0 or 1",
        Format::Hex => "hexadecimal",
    })
}

/// A field that was resolved.
#[derive(Clone, Debug)]
pub struct Field {
    /// For the program. Its word in the key (`first`) is 0: the key is laid out later.
    pub field: abi::custom_field,
    pub format: Format,
    /// Names of numbers ([`Format::Named`]) or of bits ([`Format::Flags`]); otherwise empty. A number is as the key has
    /// it: a negative one is extended to 64 bits. The name of several bits comes before the names of its bits, as the
    /// kernel prints them.
    pub names: Arc<[(u64, String)]>,
    /// The text may be longer than the program keeps.
    pub is_cut: bool,
}

/// Bytes of a text, or of an array of bytes, that the program keeps.
const KEPT: u32 = abi::CUSTOM_TEXT_WORDS * 8;

impl Field {
    /// A field at the beginning of its source. Text and bytes are kept up to [`KEPT`] bytes.
    fn new(source: u32, size: u32, format: Format) -> Self {
        let kept = size.min(KEPT);
        let unused = u64::BITS.saturating_sub(kept * u8::BITS) as u8;
        let field = abi::custom_field {
            source: source as u8,
            size: kept as u8,
            flags: 0,
            words: kept.div_ceil(8) as u8,
            at: 0,
            first: 0,
            steps: 0,
            step: [0; abi::CUSTOM_STEPS as usize],
            left: unused,
            right: unused,
        };
        Self { field, format, names: Arc::from([]), is_cut: size > KEPT }
    }

    /// A text whose length is known at run time only.
    fn text(source: u32) -> Self {
        Self { is_cut: true, ..Self::new(source, KEPT, Format::Text) }
    }

    fn at(mut self, at: u16) -> Self {
        self.field.at = at;
        self
    }

    /// A number in `width` bits of the `size` bytes that are read, above `below` other bits.
    fn in_bits(mut self, size: u8, below: u8, width: u8) -> Self {
        self.field.size = size;
        self.field.left = u64::BITS as u8 - below - width;
        self.field.right = u64::BITS as u8 - width;
        self
    }
}

/// A field for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    /// The type in C, with its meaning where that says more: `char[16] (text)`.
    pub kind: String,
}

impl Listed {
    fn new(name: &str, kind: &str, meaning: Option<&str>) -> Self {
        let kind = meaning.map_or_else(|| kind.to_owned(), |meaning| format!("{kind} ({meaning})"));
        Self { name: name.to_owned(), kind }
    }
}

/// An event that was looked up.
pub struct Event<'s> {
    title: String,
    kind: Kind<'s>,
}

enum Kind<'s> {
    Record(format::Record),
    Arguments(btf::Arguments<'s>),
    Registers(registers::Registers<'s>),
    Usdt(usdt::Probe),
}

impl<'s> Event<'s> {
    /// Looks up an event. The functions of probes and the names of perf's events are checked later, when the program is
    /// attached.
    ///
    /// # Errors
    /// No such event; tracefs or the kernel's types can't be read.
    pub fn open(place: &Place, system: &'s System) -> Result<Self, String> {
        let title = place.to_string();
        let kind = match place {
            Place::Tracepoint { group, name } => {
                Kind::Record(format::Record::parse(group, &list::read_format(system, group, name)?))
            }
            Place::Btf { name } => Kind::Arguments(btf::Arguments::open(system, name)?),
            Place::Kprobe { .. } | Place::Uprobe { .. } | Place::Perf { .. } => {
                Kind::Registers(registers::Registers::new(place, system))
            }
            Place::Usdt { path, provider, name } => Kind::Usdt(usdt::Probe::open(path, provider, name)?),
        };
        Ok(Self { title, kind })
    }

    /// Resolves a field of the event, or else a built-in field.
    ///
    /// # Errors
    /// No such field; the program can't read it. The message has the event's name and says which fields exist.
    pub fn field(&self, name: &FieldName) -> Result<Field, String> {
        let Some((first, rest)) = split(name) else {
            return Err(format!("'{name}' does not begin with the name of a field"));
        };
        let of_event = match &self.kind {
            Kind::Record(record) => record.field(first, rest, name.is_text),
            Kind::Arguments(arguments) => arguments.field(first, rest, name.is_text),
            Kind::Registers(registers) => registers.field(first, rest, name.is_text),
            Kind::Usdt(probe) => probe.field(first, rest, name.is_text),
        };
        let found = of_event.or_else(|| builtin::field(first, rest, name.is_text));
        found.ok_or_else(|| self.lacks(first))?.map_err(|why| format!("{}: '{name}' {why}", self.title))
    }

    /// All fields of the event, without the built-in ones, in the order of the event.
    pub fn fields(&self) -> Vec<Listed> {
        match &self.kind {
            Kind::Record(record) => record.fields(),
            Kind::Arguments(arguments) => arguments.fields(),
            Kind::Registers(registers) => registers.fields(),
            Kind::Usdt(probe) => probe.fields(),
        }
    }

    fn lacks(&self, name: &str) -> String {
        let own: Vec<String> = self.fields().into_iter().map(|listed| listed.name).collect();
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        let builtin: Vec<&str> = builtin::names().collect();
        let all: Vec<&str> = own.iter().chain(&builtin).copied().collect();
        let perhaps = similar::perhaps(name, &all);
        let (title, builtin) = (&self.title, builtin.join(", "));
        if own.is_empty() {
            return format!("{title} has no field '{name}'{perhaps}; it has only {builtin}");
        }
        format!("{title} has no field '{name}'{perhaps}; it has {} (and {builtin})", own.join(", "))
    }
}
