// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Filters as users type them: one grammar for all things that have columns.
//!
//! ```text
//! filter  = { term }                   all terms must match
//! term    = [ "!" ] ( key op values | text )
//! op      = ":" "=" "!=" "~" "<" "<=" ">" ">="
//! values  = value { "," value }        one of them must match; with < <= > >= there is one
//! text    = a value without ( ) & |, which mean something elsewhere and nothing here
//! value   = anything up to a space or a comma, or "quoted", where \" and \\ stand for " and \
//! ```
//!
//! | op | a number | an address | a text | a path | a mark |
//! |---|---|---|---|---|---|
//! | `:` | equal | equal, or in the network `10.0.0.0/8` | equal; `*` stands for any text | with `/` at its beginning the path
//! and all paths below it, otherwise a path that contains the text | `yes` or `no`: an object without the mark is `no` |
//! | `=` `!=` | equal, or not | equal, or not | equal, or not, letter by letter | the same | the same |
//! | `~` | some digits | some text of it | some text in it | some text in it | |
//! | `<` … | compared | | | | |
//!
//! Numbers may have a unit: `k M G T` (1000), `Ki Mi Gi Ti` (1024). A time may have `ns us ms s m h`: a column is a time if its
//! name ends with a unit (`_ns`, `_us`, `_ms`), or if the unit of its table is a time. A term without a key matches if any column
//! contains the text, except a row's figures: its rank, its value and the parts of its value. A key is the name of a column, or a
//! common name of several columns (`port` is `sport` or `dport`). An object without a column of the key does not match the term,
//! so `!port:22` matches every object that has no port.

mod parse;
mod rows;

use std::borrow::Borrow;
use std::net::IpAddr;

use crate::field::{Column, ColumnKind, Field};

pub use rows::{RowFilter, amount, keys};

/// The bytes of a process's name that the kernel keeps: TASK_COMM_LEN less the final zero.
const COMM_BYTES: usize = 15;

/// A fault in a filter: the place, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at character {at}: {why}")]
pub struct Fault {
    /// The character at which the fault begins, counted from 1.
    pub at: usize,
    /// The fault, and the right form.
    pub why: String,
}

/// A key that a filter may use: a column, and its common name.
#[derive(Clone, Debug)]
pub struct Key {
    /// The column.
    pub column: Column,
    /// A name that it may share with other columns: `port`.
    pub alias: Option<String>,
    /// The column is a quantity: terms without a key do not search it.
    pub is_figure: bool,
    /// For a time, the number of nanoseconds in its unit.
    pub ns: Option<u64>,
}

impl Key {
    /// A key for a column of a description. The column's name says whether it is a time.
    pub fn new(column: Column, alias: Option<String>) -> Self {
        let ns = parse::time_unit_of(&column.name);
        Self { column, alias, is_figure: false, ns }
    }

    fn is(&self, name: &str) -> bool {
        self.column.name == name || self.alias.as_deref() == Some(name)
    }
}

/// A parsed filter. It is not bound to columns yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    text: String,
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    negated: bool,
    key: Option<Word>,
    op: Op,
    values: Vec<Word>,
}

/// A text, and the character at which it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Word {
    text: String,
    at: usize,
    quoted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Matches,
    Is,
    Contains,
    Less,
    AtMost,
    More,
    AtLeast,
}

impl std::str::FromStr for Filter {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        parse::filter(text)
    }
}

impl Filter {
    /// The user's text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the filter is empty, and so matches everything.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Binds the filter to things with these columns. A key that is not among these columns matches none of the things.
    ///
    /// # Errors
    ///
    /// A value that a column can't have.
    pub fn resolve(&self, keys: &[Key]) -> Result<Resolved, Fault> {
        self.terms.iter().map(|term| term.resolve(keys)).collect::<Result<_, _>>().map(Resolved)
    }

    /// Verifies that each key is one of `known`, which are the keys of all things that exist.
    ///
    /// # Errors
    ///
    /// The first unknown key.
    pub fn check(&self, known: &[Key]) -> Result<(), Fault> {
        for key in self.terms.iter().filter_map(|term| term.key.as_ref()) {
            if !known.iter().any(|known| known.is(&key.text)) {
                let mut names: Vec<&str> = known.iter().map(|key| key.column.name.as_ref()).collect();
                names.extend(known.iter().filter_map(|key| key.alias.as_deref()));
                names.sort_unstable();
                names.dedup();
                let why = format!("there is no column {:?}; there are: {}", key.text, names.join(", "));
                return Err(Fault { at: key.at, why });
            }
        }
        self.resolve(known).map(drop)
    }
}

/// A filter that is bound to certain columns.
#[derive(Clone, Debug)]
pub struct Resolved(Vec<Test>);

#[derive(Clone, Debug)]
struct Test {
    negated: bool,
    /// The indices of the columns.
    places: Vec<usize>,
    wanted: Vec<Wanted>,
}

#[derive(Clone, Debug)]
enum Wanted {
    Number(Op, u64),
    Network(IpAddr, u8),
    /// Parts of a text, with any text between them.
    Text(Vec<String>),
    Same(String),
    /// A process's name as the kernel keeps it.
    Comm(String),
    Below(String),
    Contains(String),
    /// Whether the mark is set.
    Mark(bool),
}

impl Resolved {
    /// Whether a thing with these fields matches.
    pub fn matches(&self, fields: &[impl Borrow<Field>]) -> bool {
        self.0.iter().all(|test| test.matches(fields))
    }
}

impl Test {
    fn matches(&self, fields: &[impl Borrow<Field>]) -> bool {
        let one = |field: &Field| self.wanted.iter().any(|wanted| wanted.matches(field));
        let found = self.places.iter().filter_map(|place| fields.get(*place)).any(|field| one(field.borrow()));
        found != self.negated
    }
}

impl Term {
    fn resolve(&self, keys: &[Key]) -> Result<Test, Fault> {
        let is_meant = |key: &Key| match &self.key {
            Some(name) => key.is(&name.text),
            None => !key.is_figure,
        };
        let places: Vec<_> = (0..keys.len()).filter(|place| is_meant(&keys[*place])).collect();
        let key = places.first().map(|place| &keys[*place]);
        let wanted = match key {
            Some(key) => self.values.iter().map(|value| self.wanted(key, value)).collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        Ok(Test { negated: self.negated, places, wanted })
    }

    fn wanted(&self, key: &Key, value: &Word) -> Result<Wanted, Fault> {
        let column = &key.column;
        let fault = |why: String| Fault { at: value.at, why };
        let text = || value.text.clone();
        if column.kind == ColumnKind::Mark && self.key.is_some() {
            return match value.text.as_str() {
                "yes" if matches!(self.op, Op::Matches | Op::Is) => Ok(Wanted::Mark(true)),
                "no" if matches!(self.op, Op::Matches | Op::Is) => Ok(Wanted::Mark(false)),
                _ => Err(fault(format!("{0} is asked for by {0}:yes or {0}:no", column.name))),
            };
        }
        if self.op == Op::Contains {
            return Ok(Wanted::Contains(text()));
        }
        let number = matches!(column.kind, ColumnKind::Port | ColumnKind::Pid)
            || (column.kind == ColumnKind::Id && column.name != "container");
        if number {
            let number = parse::number(&value.text, key).map_err(fault)?;
            return Ok(Wanted::Number(self.op, number));
        }
        if !matches!(self.op, Op::Matches | Op::Is) {
            return Err(fault(format!("{} is no number, and can't be compared", column.name)));
        }
        Ok(match column.kind {
            ColumnKind::Address => {
                let (address, bits) = parse::network(&value.text).map_err(fault)?;
                Wanted::Network(address, bits)
            }
            ColumnKind::Text | ColumnKind::Id if self.op == Op::Matches && value.text.contains('*') => {
                Wanted::Text(value.text.split('*').map(str::to_owned).collect())
            }
            ColumnKind::Text if column.name == "comm" => Wanted::Comm(text()),
            ColumnKind::Path if self.op == Op::Matches => Wanted::Below(text()),
            _ => Wanted::Same(text()),
        })
    }
}

impl Wanted {
    fn matches(&self, field: &Field) -> bool {
        match (self, field) {
            (Self::Mark(wanted), field) => *wanted == (*field == Field::True),
            (_, Field::None) => false,
            (Self::Number(op, wanted), Field::U64(number)) => match op {
                Op::Less => number < wanted,
                Op::AtMost => number <= wanted,
                Op::More => number > wanted,
                Op::AtLeast => number >= wanted,
                Op::Matches | Op::Is | Op::Contains => number == wanted,
            },
            (Self::Number(op, _), Field::Negative(_)) => matches!(op, Op::Less | Op::AtMost),
            (Self::Same(wanted), Field::Negative(number)) => *wanted == number.to_string(),
            (Self::Network(wanted, bits), Field::Ip(address)) => in_network(*address, *wanted, *bits),
            (Self::Text(parts), Field::Text(text)) => is_like(text, parts),
            (Self::Same(wanted), Field::Text(text)) => wanted == text,
            (Self::Comm(wanted), Field::Text(comm)) => {
                let kept = wanted.as_bytes();
                comm == wanted || comm.as_bytes() == &kept[..kept.len().min(COMM_BYTES)]
            }
            (Self::Below(wanted), Field::Text(path)) => is_below(path, wanted),
            (Self::Contains(wanted), Field::Text(text)) => text.contains(wanted),
            (Self::Contains(_), Field::True) => false,
            (Self::Contains(wanted), other) => other.to_string().contains(wanted),
            _ => false,
        }
    }
}

fn in_network(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let same = |left: u128, right: u128, all: u8| bits == 0 || left >> (all - bits) == right >> (all - bits);
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) => same(a.to_bits().into(), n.to_bits().into(), 32),
        (IpAddr::V6(a), IpAddr::V6(n)) => same(a.to_bits(), n.to_bits(), 128),
        _ => false,
    }
}

/// Whether the text consists of the parts in their order, the first at the beginning and the last at the end, with any text
/// between.
fn is_like(text: &str, parts: &[String]) -> bool {
    let [first, middle @ .., last] = parts else { return parts.first().is_some_and(|only| only == text) };
    let Some(mut rest) = text.strip_prefix(first.as_str()) else { return false };
    for part in middle {
        match rest.find(part.as_str()) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last.as_str())
}

/// Whether the path is `wanted`, or is below it: `/ab` is not below `/a`. A `wanted` without a slash at its beginning may be
/// anywhere in the path.
fn is_below(path: &str, wanted: &str) -> bool {
    if !wanted.starts_with('/') {
        return path.contains(wanted);
    }
    path.strip_prefix(wanted.trim_end_matches('/')).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests;
