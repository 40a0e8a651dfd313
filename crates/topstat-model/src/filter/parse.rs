// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parser of filters.

use std::net::IpAddr;

use super::{Fault, Filter, Key, Op, Term, Word};

/// The longest operators come first: `<=` begins with `<`.
const OPS: [(&str, Op, bool); 8] = [
    ("!=", Op::Is, true),
    ("<=", Op::AtMost, false),
    (">=", Op::AtLeast, false),
    (":", Op::Matches, false),
    ("=", Op::Is, false),
    ("~", Op::Contains, false),
    ("<", Op::Less, false),
    (">", Op::More, false),
];

pub fn filter(text: &str) -> Result<Filter, Fault> {
    let mut rest = Rest { text, at: 1 };
    let mut terms = Vec::new();
    loop {
        rest.skip(|c| c.is_whitespace());
        if rest.text.is_empty() {
            connectives(&terms)?;
            return Ok(Filter { text: text.trim().to_owned(), terms });
        }
        terms.push(rest.term()?);
    }
}

/// Characters of the operators of other languages, which this grammar does not have.
const FOREIGN: [char; 4] = ['(', ')', '&', '|'];
const NO_OPERATORS: &str = "there are no parentheses, && or ||: terms side by side must all match, values are separated by \
    commas (port:80,443), and a text with such characters stands in quotes";

/// Refuses a word between other terms that connects terms in other languages. A single word is a text to look for.
fn connectives(terms: &[Term]) -> Result<(), Fault> {
    let connects = |word: &&Word| ["and", "or", "not"].contains(&&*word.text.to_ascii_lowercase()) && !word.quoted;
    let bare = terms.iter().filter(|term| terms.len() > 1 && term.key.is_none()).flat_map(|term| &term.values);
    match bare.into_iter().find(connects) {
        None => Ok(()),
        Some(word) => {
            let why = format!(
                "{:?} connects nothing: terms side by side must all match, ! before a term negates it, and values are \
                 separated by commas (port:80,443); a text stands in quotes",
                word.text
            );
            Err(Fault { at: word.at, why })
        }
    }
}

/// The text that is not parsed yet.
struct Rest<'a> {
    text: &'a str,
    /// The character at which it begins, from 1.
    at: usize,
}

impl<'a> Rest<'a> {
    fn fault<T>(&self, why: impl Into<String>) -> Result<T, Fault> {
        Err(Fault { at: self.at, why: why.into() })
    }

    fn advance(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.text.split_at(bytes);
        self.at += taken.chars().count();
        self.text = rest;
        taken
    }

    fn skip(&mut self, skipped: impl Fn(char) -> bool) {
        let end = self.text.find(|c| !skipped(c)).unwrap_or(self.text.len());
        self.advance(end);
    }

    fn term(&mut self) -> Result<Term, Fault> {
        let negated = self.text.starts_with('!');
        if negated {
            self.advance(1);
        }
        let name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let end = self.text.find(|c| !name(c)).unwrap_or(self.text.len());
        let op = OPS.iter().find(|(sign, ..)| self.text[end..].starts_with(sign));
        let Some((sign, op, not)) = op.filter(|_| end > 0) else {
            let value = self.bare()?;
            return Ok(Term { negated, key: None, op: Op::Contains, values: vec![value] });
        };
        let at = self.at;
        let key = Word { text: self.advance(end).to_owned(), at, quoted: false };
        self.advance(sign.len());
        let mut values = vec![self.value()?];
        while self.text.starts_with(',') {
            if !matches!(op, Op::Matches | Op::Is | Op::Contains) {
                return self.fault(format!("{sign} compares with one value"));
            }
            self.advance(1);
            values.push(self.value()?);
        }
        Ok(Term { negated: negated != *not, key: Some(key), op: *op, values })
    }

    /// A text without a key. Operators of other languages between and around terms are refused.
    fn bare(&mut self) -> Result<Word, Fault> {
        let value = self.value()?;
        match value.text.chars().position(|c| FOREIGN.contains(&c)).filter(|_| !value.quoted) {
            None => Ok(value),
            Some(place) => Err(Fault { at: value.at + place, why: NO_OPERATORS.to_owned() }),
        }
    }

    fn value(&mut self) -> Result<Word, Fault> {
        let at = self.at;
        if self.text.starts_with('"') {
            return Ok(Word { text: self.quoted()?, at, quoted: true });
        }
        let end = self.text.find(|c: char| c.is_whitespace() || c == ',').unwrap_or(self.text.len());
        if end == 0 {
            return self.fault("a value is missing here");
        }
        let text = self.advance(end);
        match text.find('"') {
            Some(quote) => {
                let why = "a quote stands at the beginning of a value, or in quotes as \\\"".to_owned();
                Err(Fault { at: at + text[..quote].chars().count(), why })
            }
            None => Ok(Word { text: text.to_owned(), at, quoted: false }),
        }
    }

    fn quoted(&mut self) -> Result<String, Fault> {
        let begin = self.at;
        self.advance(1);
        let mut value = String::new();
        loop {
            let Some(c) = self.text.chars().next() else {
                return Err(Fault { at: begin, why: "the quote that begins here does not end".to_owned() });
            };
            self.advance(c.len_utf8());
            match c {
                '"' => break,
                '\\' => match self.text.chars().next() {
                    Some(c @ ('"' | '\\')) => value.push_str(self.advance(c.len_utf8())),
                    _ => return self.fault("in quotes, \\ stands before \" or \\ only"),
                },
                c => value.push(c),
            }
        }
        match self.text.chars().next() {
            None | Some(',') => Ok(value),
            Some(c) if c.is_whitespace() => Ok(value),
            Some(_) => self.fault("after a quote there is a space, a comma or the end"),
        }
    }
}

const UNITS: [(&str, u64); 8] = [
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
];

/// Times, in ns.
const TIMES: [(&str, u64); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// The nanoseconds of the unit at the end of a column's name: `lived_ms`.
pub fn time_unit_of(column: &str) -> Option<u64> {
    let (_, unit) = column.rsplit_once('_')?;
    TIMES.iter().find(|(name, _)| *name == unit).map(|(_, ns)| *ns)
}

/// Parses a number for this column.
pub fn number(text: &str, key: &Key) -> Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let factor = if unit.is_empty() {
        (1, 1)
    } else if let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit) {
        (*factor, 1)
    } else if let Some((_, ns)) = TIMES.iter().find(|(name, _)| *name == unit) {
        let own = key.ns.ok_or_else(|| format!("{} is no time, and has no unit {unit}", key.column.name))?;
        (*ns, own)
    } else {
        return Err(format!(
            "{text:?} is no number; a unit is one of k M G T Ki Mi Gi Ti, or of a time ns us ms s m h"
        ));
    };
    scaled(digits, factor).ok_or_else(|| format!("{text:?} is no number from 0 to 2^64"))
}

/// Decimal digits, perhaps with a point, times a fraction; the result is rounded down.
fn scaled(digits: &str, (times, by): (u64, u64)) -> Option<u64> {
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    // No unit has this many digits.
    if part.len() > 18 || whole.is_empty() || part.contains('.') || (digits.contains('.') && part.is_empty()) {
        return None;
    }
    let scale = 10_u128.pow(part.len() as u32);
    let number = whole.parse::<u64>().ok()?;
    let part = if part.is_empty() { 0 } else { part.parse::<u64>().ok()? };
    let number = (u128::from(number) * scale + u128::from(part)).checked_mul(times.into())?;
    u64::try_from(number / scale / u128::from(by)).ok()
}

/// Parses an address, or a network: `10.0.0.0/8`.
pub fn network(text: &str) -> Result<(IpAddr, u8), String> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let wrong = || format!("{text:?} is no address (10.0.0.1, 2001:db8::1) and no network (10.0.0.0/8)");
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(most), |bits| bits.parse().ok()).filter(|bits| *bits <= most);
    Ok((address, bits.ok_or_else(|| format!("{text:?}: a network of this kind has 0 to {most} bits"))?))
}
