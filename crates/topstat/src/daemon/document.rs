// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A TOML text, taken apart key by key, with the place of everything: each key is taken out once, so that those which
//! are left over are the ones that nobody knows.

use std::ops::RangeInclusive;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};
use topstat_model::typeset::escape;

/// What is wrong, and where: counted from 1, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
    /// What was found, and what is allowed.
    pub text: String,
}

/// A text while it is taken apart, and the problems found so far.
pub struct Document<'t> {
    text: &'t str,
    problems: Vec<(usize, String)>,
}

/// One table of the text: what nobody has taken yet.
pub struct Section<'t> {
    keys: Vec<(Spanned<DeString<'t>>, Spanned<DeValue<'t>>)>,
    place: usize,
}

/// The value of a key.
pub struct Value<'v>(&'v DeValue<'v>);

impl<'t> Section<'t> {
    fn new(table: DeTable<'t>, place: usize) -> Self {
        Self { keys: table.into_iter().collect(), place }
    }

    /// Where it begins, for [`Document::problem`].
    pub fn place(&self) -> usize {
        self.place
    }

    fn remove(&mut self, key: &str) -> Option<(Spanned<DeString<'t>>, Spanned<DeValue<'t>>)> {
        let at = self.keys.iter().position(|(name, _)| name.get_ref() == key)?;
        Some(self.keys.swap_remove(at))
    }
}

impl<'t> Document<'t> {
    pub fn new(text: &'t str) -> Self {
        Self { text, problems: Vec::new() }
    }

    /// The whole text; nothing if it is not TOML.
    pub fn root(&mut self) -> Option<Section<'t>> {
        let (root, errors) = DeTable::parse_recoverable(self.text);
        for error in &errors {
            let place = error.span().map_or(0, |span| span.start);
            self.problem(place, format!("not TOML: {}", error.message().replace('\n', ", ")));
        }
        errors.is_empty().then(|| Section::new(root.into_inner(), 0))
    }

    /// Takes a key's value, if it is there. Where the function does not take it, its reason is a problem: what is
    /// allowed, or why it cannot be.
    pub fn take<T>(
        &mut self,
        section: &mut Section<'t>,
        key: &str,
        read: impl FnOnce(Value<'_>) -> Result<T, String>,
    ) -> Option<T> {
        let (_, value) = section.remove(key)?;
        match read(Value(value.get_ref())) {
            Ok(value) => Some(value),
            Err(why) => {
                self.problem(value.span().start, format!("{key} = {}: {why}", shown(value.get_ref())));
                None
            }
        }
    }

    /// Takes a table, if it is there.
    pub fn section(&mut self, within: &mut Section<'t>, key: &str) -> Option<Section<'t>> {
        let (name, value) = within.remove(key)?;
        let place = name.span().start;
        match value.into_inner() {
            DeValue::Table(table) => Some(Section::new(table, place)),
            other => {
                self.problem(place, format!("{key} = {}: allowed is a table with keys of its own", shown(&other)));
                None
            }
        }
    }

    /// Whatever is left is not known.
    pub fn finish(&mut self, section: Section<'t>, why: impl Fn(&str) -> String) {
        for (key, _) in section.keys {
            self.problem(key.span().start, why(key.get_ref()));
        }
    }

    /// Something is wrong at a place (in bytes).
    pub fn problem(&mut self, place: usize, text: String) {
        self.problems.push((place, text));
    }

    /// All that is wrong, in the order of the text.
    pub fn problems(mut self) -> Vec<Problem> {
        self.problems.sort();
        let at = |(place, text): (usize, String)| {
            let before = self.text.get(..place).unwrap_or(self.text);
            let line = before.rfind('\n').map_or(0, |end| end + 1);
            Problem { line: before.matches('\n').count() + 1, column: before[line..].chars().count() + 1, text }
        };
        self.problems.into_iter().map(at).collect()
    }
}

impl Value<'_> {
    /// A text.
    pub fn string(&self) -> Result<&str, String> {
        match self.0 {
            DeValue::String(text) => Ok(text),
            _ => Err("allowed is a text in quotes".to_owned()),
        }
    }

    /// `true` or `false`.
    pub fn boolean(&self) -> Result<bool, String> {
        match self.0 {
            DeValue::Boolean(value) => Ok(*value),
            _ => Err("allowed are true and false".to_owned()),
        }
    }

    /// A number in a range.
    pub fn integer(&self, range: RangeInclusive<u32>) -> Result<u32, String> {
        let number = match self.0 {
            DeValue::Integer(number) => u32::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        number
            .filter(|number| range.contains(number))
            .ok_or_else(|| format!("allowed is a number from {} to {}", range.start(), range.end()))
    }

    /// A time: a number of milliseconds, or a text with a unit.
    pub fn milliseconds(&self, read: impl FnOnce(&str) -> Result<u32, String>) -> Result<u32, String> {
        match self.0 {
            DeValue::String(text) => read(text),
            DeValue::Integer(number) if number.radix() == 10 => read(number.as_str()),
            _ => Err("allowed is a number of milliseconds (500), or a text with a unit (\"1s\")".to_owned()),
        }
    }
}

/// A value as it is shown in an error: short, and without what a terminal would take for an order.
fn shown(value: &DeValue<'_>) -> String {
    /// More says no more.
    const LONGEST: usize = 40;
    match value {
        DeValue::String(text) => {
            let cut: String = text.chars().take(LONGEST).collect();
            let more = if cut.len() < text.len() { "…" } else { "" };
            format!("\"{}{more}\"", escape(&cut))
        }
        DeValue::Integer(number) => number.to_string().chars().take(LONGEST).collect(),
        DeValue::Float(number) => number.to_string().chars().take(LONGEST).collect(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "[…]".to_owned(),
        DeValue::Table(_) => "{…}".to_owned(),
    }
}
