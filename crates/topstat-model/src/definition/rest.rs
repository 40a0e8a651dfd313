// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The text that is not parsed yet, and the normalised text that is.

use super::{Fault, MAX_BYTES};

/// The part that the parser has taken last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// A field after `by`.
    Key,
    /// A field after `on`.
    Common,
    /// The field of `add`, or its factor.
    Amount,
    /// The constant of a condition.
    Constant,
    /// Any other part.
    Other,
}

/// The text that is not parsed yet.
pub struct Rest<'a> {
    pub text: &'a str,
    /// The character at which it begins, from 1.
    pub at: usize,
    /// The last part.
    pub after: After,
    /// The last part and its character, if it is a single word: a field or a constant that may be meant as a clause.
    pub last: Option<(&'a str, usize)>,
    /// The text before, with one space for each run of white space.
    normal: String,
    /// White space was skipped after the normalised text.
    space: bool,
    /// The character with which the normalised text becomes too long.
    over: Option<usize>,
}

impl<'a> Rest<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 1, after: After::Other, last: None, normal: String::new(), space: false, over: None }
    }

    /// The normalised text, and the first character beyond [`MAX_BYTES`].
    pub fn finish(self) -> (String, Option<usize>) {
        (self.normal, self.over)
    }

    pub fn fault<T>(&self, why: impl Into<String>) -> Result<T, Fault> {
        Err(Fault { at: self.at, why: why.into() })
    }

    pub fn next(&self) -> Option<char> {
        self.text.chars().next()
    }

    pub fn skip_space(&mut self) {
        let rest = self.text.trim_start();
        let skipped = &self.text[..self.text.len() - rest.len()];
        self.at += skipped.chars().count();
        self.space |= !skipped.is_empty() && !self.normal.is_empty();
        self.text = rest;
    }

    pub fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.text.split_at(bytes);
        if self.space && !taken.is_empty() {
            self.normal.push(' ');
            self.space = false;
        }
        for c in taken.chars() {
            self.normal.push(c);
            if self.normal.len() > MAX_BYTES {
                self.over.get_or_insert(self.at);
            }
            self.at += 1;
        }
        self.text = rest;
        taken
    }

    /// The text up to white space.
    pub fn peek_word(&self) -> &'a str {
        self.text.split(char::is_whitespace).next().unwrap_or_default()
    }

    pub fn take_word(&mut self) -> &'a str {
        self.take(self.peek_word().len())
    }

    /// Letters, digits and `_`.
    pub fn peek_name(&self) -> &'a str {
        &self.text[..self.text.find(|c| !is_name_char(c)).unwrap_or(self.text.len())]
    }

    pub fn take_name(&mut self) -> &'a str {
        self.take(self.peek_name().len())
    }

    /// The characters of a number: its sign, digits, a point and a unit.
    pub fn take_number(&mut self) -> &'a str {
        let sign = usize::from(self.text.starts_with('-'));
        let is_end = |c| !is_name_char(c) && c != '.';
        let end = self.text[sign..].find(is_end).map_or(self.text.len(), |end| sign + end);
        self.take(end)
    }

    /// A text in quotes. Between `"`, a backslash stands before `"` and `\`; between `'`, it is a character like
    /// others.
    pub fn quoted(&mut self, quote: char) -> Result<String, Fault> {
        let begin = self.at;
        self.take(1);
        let mut value = String::new();
        loop {
            let Some(c) = self.next() else {
                return Err(Fault { at: begin, why: "the quote that begins here does not end".to_owned() });
            };
            if c.is_control() {
                return self.fault("a text has no control characters");
            }
            self.take(c.len_utf8());
            match c {
                c if c == quote => break,
                '\\' if quote == '"' => match self.next() {
                    Some(c @ ('"' | '\\')) => value.push_str(self.take(c.len_utf8())),
                    _ => return self.fault("in quotes, \\ stands before \" or \\ only"),
                },
                c => value.push(c),
            }
        }
        match self.next() {
            Some(c) if is_name_char(c) => self.fault("after a quote there is a space or the end"),
            _ => Ok(value),
        }
    }
}

/// Whether a name, of a field or a clause, may begin with it.
pub fn starts_name(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

pub fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
