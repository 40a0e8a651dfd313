// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a TOML text key by key, so that all its errors are found at once, each with its place.

use std::ops::RangeInclusive;

use toml::de::{DeTable, DeValue};
use topstat_model::typeset::escape;

/// An error and its place. Lines and columns are counted from 1, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
    /// The wrong text, and the allowed values.
    pub text: String,
}

/// An error of a key.
#[derive(Debug)]
pub enum Wrong {
    /// The value is wrong: the text says what is allowed, or why the value is impossible.
    Value(String),
    /// The key is wrong: the text is a whole sentence.
    Key(String),
    /// The key has another value instead of a table.
    NoTable,
}

impl From<String> for Wrong {
    fn from(why: String) -> Self {
        Self::Value(why)
    }
}

/// The errors that were found so far, each with its byte in the text.
#[derive(Default)]
pub struct Problems(Vec<(usize, String)>);

/// A table of the text.
pub struct Table<'t>(&'t DeTable<'t>);

/// The value of a key.
pub struct Value<'t>(&'t DeValue<'t>);

/// Parses a text, and passes its root table to `read`.
///
/// # Errors
///
/// All errors, in the order of the text. If the text is not TOML, `read` is not called.
pub fn read(text: &str, read: impl FnOnce(Table<'_>, &mut Problems)) -> Result<(), Vec<Problem>> {
    let mut problems = Problems::default();
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let place = error.span().map_or(0, |span| span.start);
        problems.add(place, format!("not TOML: {}", error.message().replace('\n', ", ")));
    }
    if errors.is_empty() {
        read(Table(root.get_ref()), &mut problems);
    }
    if problems.0.is_empty() { Ok(()) } else { Err(problems.placed(text)) }
}

impl Problems {
    /// Adds an error at a byte of the text.
    pub fn add(&mut self, place: usize, text: String) {
        self.0.push((place, text));
    }

    /// All errors with lines and columns, in the order of the text.
    fn placed(mut self, text: &str) -> Vec<Problem> {
        self.0.sort();
        let at = |(place, what): (usize, String)| {
            let before = text.get(..place).unwrap_or(text);
            let line = before.rfind('\n').map_or(0, |end| end + 1);
            Problem { line: before.matches('\n').count() + 1, column: before[line..].chars().count() + 1, text: what }
        };
        self.0.into_iter().map(at).collect()
    }
}

impl Table<'_> {
    /// Calls `read` for each key with its value. An error that it returns is added to the problems, and the next key is read.
    pub fn each(
        &self,
        problems: &mut Problems,
        mut read: impl FnMut(&str, Value<'_>, &mut Problems) -> Result<(), Wrong>,
    ) {
        for (key, value) in self.0 {
            let written = || format!("{} = {}", key.get_ref(), shown(value.get_ref()));
            match read(key.get_ref(), Value(value.get_ref()), problems) {
                Ok(()) => {}
                Err(Wrong::Key(why)) => problems.add(key.span().start, why),
                Err(Wrong::Value(why)) => problems.add(value.span().start, format!("{}: {why}", written())),
                Err(Wrong::NoTable) => {
                    let text = format!("{}: allowed is a table with keys of its own", written());
                    problems.add(key.span().start, text);
                }
            }
        }
    }

    /// The byte at which a key stands.
    pub fn place(&self, key: &str) -> usize {
        self.0.keys().find(|name| name.get_ref() == key).map_or(0, |name| name.span().start)
    }
}

impl<'t> Value<'t> {
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

    /// A table.
    pub fn table(&self) -> Result<Table<'t>, Wrong> {
        match self.0 {
            DeValue::Table(table) => Ok(Table(table)),
            _ => Err(Wrong::NoTable),
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

/// A value as an error shows it: short, and without characters that a terminal would execute.
fn shown(value: &DeValue<'_>) -> String {
    /// A longer text would add nothing.
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
