// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fields and constants.

use super::number::number;
use super::rest::{After, Rest, is_name_char, starts_name};
use super::wrong::{NO_ARITHMETIC, NO_NOT, NO_PARENTHESES, SIGNS, quoted_char};
use super::{Constant, Fault, FieldName, MAX_PARTS, Part};

impl Rest<'_> {
    /// A field. `after` says for which part it is.
    pub fn field(&mut self, after: After) -> Result<FieldName, Fault> {
        let at = self.at;
        self.after = after;
        self.last = None;
        let is_text = self.text.starts_with("str.");
        if is_text {
            self.take("str.".len());
        }
        let mut parts = Vec::new();
        loop {
            let begin = self.at;
            parts.push(self.member(parts.is_empty() && !is_text)?);
            while self.text.starts_with('[') {
                parts.push(self.index()?);
            }
            if parts.len() > MAX_PARTS {
                let why = format!("a field has at most {MAX_PARTS} parts, names and indices");
                return Err(Fault { at: begin, why });
            }
            match self.next() {
                Some('.') => self.take(1),
                Some('-') if self.text.starts_with("->") => {
                    return self
                        .fault("a point stands between a structure and its member, also for pointers: sk.sk_family");
                }
                Some(c) if is_name_char(c) => return self.fault("after ] there is a point, a [ or a space"),
                _ => break,
            };
        }
        if parts.len() > 1 || is_text {
            self.last = None;
        }
        Ok(FieldName::new(parts, is_text, at))
    }

    fn member(&mut self, is_first: bool) -> Result<Part, Fault> {
        match self.next() {
            Some(c) if starts_name(c) => {
                let at = self.at;
                let name = self.take_name();
                self.last = Some((name, at));
                Ok(Part::Name(name.to_owned()))
            }
            Some('(' | ')') => self.fault(NO_PARENTHESES),
            Some('+' | '*' | '/' | '%' | '^' | '~') => self.fault(NO_ARITHMETIC),
            Some('!') => self.fault(NO_NOT),
            Some(c) if is_first && (c.is_ascii_digit() || "-\"'".contains(c)) => {
                self.fault("a field stands first, and its constant or factor after it: bytes >= 4096")
            }
            _ if is_first => self.fault("a field is missing here: its name begins with a letter or _"),
            _ => self.fault("the name of a member is missing here: it begins with a letter or _"),
        }
    }

    fn index(&mut self) -> Result<Part, Fault> {
        self.take(1);
        let end = self.text.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.text.len());
        let Ok(index) = self.text[..end].parse() else {
            return self.fault("an index is a number from 0 to 2^32 - 1: daddr[0]");
        };
        self.take(end);
        if !self.text.starts_with(']') {
            return self.fault("] is missing here, after the index");
        }
        self.take(1);
        Ok(Part::Index(index))
    }

    pub fn constant(&mut self) -> Result<Constant, Fault> {
        let at = self.at;
        let next = self.next();
        self.after = After::Constant;
        self.last = None;
        match next {
            Some(quote @ ('"' | '\'')) => Ok(Constant::Text(self.quoted(quote)?)),
            Some(c) if c.is_ascii_digit() || c == '-' => {
                let digits = self.take_number();
                let is_word = digits.contains(|c: char| c.is_ascii_alphabetic());
                let hint = if is_word { "; a text stands in quotes" } else { "" };
                number(digits).map(Constant::Number).map_err(|why| Fault { at, why: format!("{why}{hint}") })
            }
            Some(c) if starts_name(c) => {
                let name = self.take_name();
                self.last = Some((name, at));
                Ok(Constant::Name(name.to_owned()))
            }
            Some('(' | ')') => self.fault(NO_PARENTHESES),
            Some('=' | '<' | '>' | '!' | '~' | '&') => {
                self.fault(format!("a comparison is one of {SIGNS}, and a constant follows it"))
            }
            None => self.fault("a constant is missing here: a number, a name, or a text in quotes"),
            Some(c) => self.fault(format!(
                "no constant begins with {}: it is a number, a name, or a text in quotes",
                quoted_char(c)
            )),
        }
    }
}
