// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The names of events.

use super::number::within;
use super::wrong::{did_you_mean, quoted_char};
use super::{Event, EventKind, Fault};

/// The kinds of events that a word before the first colon gives. All other words are groups of tracepoints.
const KINDS: [&str; 7] = ["btf", "kprobe", "kretprobe", "uprobe", "uretprobe", "usdt", "perf"];

/// The forms of all events.
pub const FORMS: &str = "group:name, btf:name, kprobe:function, kretprobe:function, uprobe:path:function, \
    uretprobe:path:function, usdt:path:provider:name or perf:name:period";

/// A part of an event's name, and the character at which it begins.
#[derive(Clone, Copy)]
struct Piece<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Piece<'a> {
    fn fault<T>(self, why: impl Into<String>) -> Result<T, Fault> {
        Err(Fault { at: self.at, why: why.into() })
    }

    /// The piece from this byte on.
    fn from(self, byte: usize) -> Self {
        Self { text: &self.text[byte..], at: self.at + self.text[..byte].chars().count() }
    }

    /// The pieces before and after a byte that is a separator.
    fn split(self, byte: usize) -> (Self, Self) {
        (Self { text: &self.text[..byte], ..self }, self.from(byte + 1))
    }

    /// The name, if it has letters, digits, and the other characters only.
    fn name(self, thing: &str, others: &str) -> Result<String, Fault> {
        if self.text.is_empty() {
            return self.fault(format!("{thing} is missing here; an event is {FORMS}"));
        }
        match self.text.char_indices().find(|(_, c)| !c.is_ascii_alphanumeric() && !others.contains(*c)) {
            None => Ok(self.text.to_owned()),
            Some((byte, c)) => {
                let others: Vec<String> = others.chars().map(String::from).collect();
                let why = format!("{thing} has letters, digits and {}, but no {}", others.join(" "), quoted_char(c));
                self.from(byte).fault(why)
            }
        }
    }

    fn function(self) -> Result<String, Fault> {
        match self.text.find('@') {
            Some(byte) => self.from(byte).fault("the version of a function, from @ on, is not given"),
            None => self.name("the name of a function", "_.$"),
        }
    }
}

/// Parses an event that begins at a character of the text.
pub fn event(text: &str, at: usize) -> Result<Event, Fault> {
    let all = Piece { text, at };
    let Some(colon) = text.find(':') else {
        return all.fault(format!("{text:?} is no event: an event is {FORMS}"));
    };
    let (kind, rest) = all.split(colon);
    let kind = match kind.text {
        "btf" => EventKind::Btf { name: rest.name("the name of a tracepoint", "_")? },
        "kprobe" | "kretprobe" => {
            if let Some(plus) = rest.text.find('+') {
                return rest.from(plus).fault("only uprobe has an offset");
            }
            EventKind::Kprobe { function: rest.function()?, at_return: kind.text == "kretprobe" }
        }
        "uprobe" | "uretprobe" => uprobe(rest, kind.text == "uretprobe")?,
        "usdt" => usdt(rest)?,
        "perf" => perf(rest)?,
        group => {
            let suggestion = did_you_mean(group, &KINDS);
            let hint = |fault: Fault| Fault { why: format!("{}{suggestion}", fault.why), ..fault };
            let group = kind.name("the group of a tracepoint", "_").map_err(hint)?;
            EventKind::Tracepoint { group, name: rest.name("the name of a tracepoint", "_").map_err(hint)? }
        }
    };
    Ok(Event { kind, at })
}

fn uprobe(rest: Piece<'_>, at_return: bool) -> Result<EventKind, Fault> {
    let Some(colon) = rest.text.rfind(':') else {
        return rest.fault("the path or the function is missing: uprobe:path:function");
    };
    let (path, symbol) = rest.split(colon);
    if path.text.is_empty() {
        return path.fault("the path of a program or a library is missing here: uprobe:path:function");
    }
    let (function, offset) = match symbol.text.find('+') {
        None => (symbol, 0),
        // A return address is on top of the stack only at the function's first instruction.
        Some(plus) if at_return => {
            return symbol.from(plus).fault("uretprobe has no offset: it is the function's return");
        }
        Some(plus) => {
            let (function, offset) = symbol.split(plus);
            (function, hexadecimal(offset)?)
        }
    };
    Ok(EventKind::Uprobe { path: path.text.to_owned(), function: function.function()?, offset, at_return })
}

fn usdt(rest: Piece<'_>) -> Result<EventKind, Fault> {
    const MISSING: &str = "the path, the provider or the name is missing: usdt:path:provider:name";
    let Some(colon) = rest.text.rfind(':') else { return rest.fault(MISSING) };
    let (before, name) = rest.split(colon);
    let Some(colon) = before.text.rfind(':').filter(|colon| *colon > 0) else { return rest.fault(MISSING) };
    let (path, provider) = before.split(colon);
    let part = |piece: Piece<'_>, thing: &str| piece.name(thing, "_.-");
    let provider = part(provider, "the provider of a probe")?;
    Ok(EventKind::Usdt { path: path.text.to_owned(), provider, name: part(name, "the name of a probe")? })
}

fn hexadecimal(offset: Piece<'_>) -> Result<u64, Fault> {
    let digits = offset.text.strip_prefix("0x").filter(|digits| digits.bytes().all(|c| c.is_ascii_hexdigit()));
    match digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
        Some(number) => Ok(number),
        None => offset.fault(format!("{:?} is no offset: it is hexadecimal, in bytes, such as +0x1f", offset.text)),
    }
}

fn perf(rest: Piece<'_>) -> Result<EventKind, Fault> {
    let (name, period) = match rest.text.find(':') {
        Some(colon) => {
            let (name, period) = rest.split(colon);
            (name, Some(period))
        }
        None => (rest, None),
    };
    let name = name.name("the name of a counter", "_-")?;
    let period = match period {
        None => None,
        Some(Piece { text: "", at }) => {
            return Err(Fault { at, why: "the period is missing here: perf:name:period".to_owned() });
        }
        Some(Piece { text, at }) => Some(within(text, 1..=u64::MAX).map_err(|why| Fault { at, why })?),
    };
    Ok(EventKind::Perf { name, period })
}
