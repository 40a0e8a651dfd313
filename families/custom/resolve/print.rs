// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The line of a format that says how the kernel prints a record (`print fmt: "…%d…", REC->x, …`). It has the names of
//! numbers, and what an address or bytes are.

use std::collections::HashMap;

use super::expression;

const SYMBOLIC: &str = "__print_symbolic";
const FLAGS: &str = "__print_flags";

/// Names of a field's numbers or bits.
#[derive(Default)]
pub struct Names {
    /// The names are of bits.
    pub are_flags: bool,
    pub names: Vec<(u64, String)>,
}

/// How the kernel prints the fields of a record.
#[derive(Default)]
pub struct Print {
    /// The letters behind the `%`, without width: `lx`, `pS`.
    conversions: HashMap<String, String>,
    names: HashMap<String, Names>,
}

impl Print {
    /// Reads the text behind `print fmt:`. Parts that are not understood are left out.
    pub fn parse(text: &str) -> Self {
        let mut print = Self::default();
        let arguments = split(text);
        let Some((&format, mut arguments)) = arguments.split_first() else { return print };
        for conversion in conversions(format) {
            let Some((argument, rest)) = arguments.split_first() else { break };
            arguments = rest;
            if let Some(field) = field_of(argument) {
                print.conversions.entry(field.to_owned()).or_insert(conversion);
            }
        }
        for are_flags in [false, true] {
            let function = if are_flags { FLAGS } else { SYMBOLIC };
            for (at, _) in text.match_indices(function) {
                if let Some((field, names)) = names(&text[at + function.len()..], are_flags) {
                    print.names.entry(field.to_owned()).or_insert(Names { are_flags, names });
                }
            }
        }
        print
    }

    /// The letters of the conversion that prints the field: `x`, `pI6c`.
    pub fn conversion(&self, field: &str) -> Option<&str> {
        self.conversions.get(field).map(String::as_str)
    }

    pub fn names(&self, field: &str) -> Option<&Names> {
        self.names.get(field)
    }
}

/// The bytes of a text that are neither in a string nor in a character, with their places and the depth of brackets
/// around them. The bracket that opens or closes has the depth outside it; the first bracket that opens nothing has -1.
fn code(text: &str) -> impl Iterator<Item = (usize, u8, i32)> {
    let (mut quote, mut escaped, mut depth) = (None, false, 0);
    text.bytes().enumerate().filter_map(move |(at, byte)| {
        if let Some(end) = quote {
            if byte == end && !escaped {
                quote = None;
            }
            escaped = byte == b'\\' && !escaped;
            return None;
        }
        match byte {
            b'"' | b'\'' => {
                quote = Some(byte);
                return None;
            }
            b'(' | b'{' | b'[' => depth += 1,
            b')' | b'}' | b']' => depth -= 1,
            _ => {}
        }
        Some((at, byte, if b"({[".contains(&byte) { depth - 1 } else { depth }))
    })
}

/// The text between commas that are outside all brackets.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut begin = 0;
    for (at, _, _) in code(text).filter(|(_, byte, depth)| *byte == b',' && *depth == 0) {
        parts.push(text[begin..at].trim());
        begin = at + 1;
    }
    parts.push(text[begin..].trim());
    parts
}

/// The text in the bracket that the text begins with, and the text behind it.
fn bracket(text: &str) -> Option<(&str, &str)> {
    let inside = text.strip_prefix(['(', '{'])?;
    let (end, ..) = code(inside).find(|(_, _, depth)| *depth < 0)?;
    Some((&inside[..end], &inside[end + 1..]))
}

/// The conversion of each argument: `d` of `%08d`, nothing for the width in `%*d`.
fn conversions(format: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = format;
    while let Some((_, behind)) = rest.split_once('%') {
        let mut letters = behind.trim_start_matches(|c: char| c.is_ascii_digit() || " -+#.*".contains(c));
        let widths = behind[..behind.len() - letters.len()].matches('*').count();
        found.extend(std::iter::repeat_n(String::new(), widths));
        let conversion = letters;
        letters = letters.trim_start_matches(['h', 'l', 'L', 'z', 't', 'j', 'q']);
        let end = match letters.chars().next() {
            Some('%') => {
                rest = &letters[1..];
                continue;
            }
            Some('p') => letters.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(letters.len()),
            Some(c) => c.len_utf8(),
            None => 0,
        };
        found.push(conversion[..conversion.len() - letters.len() + end].to_owned());
        rest = &letters[end..];
    }
    found
}

/// The field that an argument is, with casts and parentheses around it: `((unsigned long)(REC->dfd))`.
fn field_of(argument: &str) -> Option<&str> {
    let mut text = argument.trim();
    while let Some((inside, behind)) = bracket(text) {
        text = if behind.trim().is_empty() { inside.trim() } else { behind.trim() };
    }
    let name = text.strip_prefix("REC->")?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then_some(name)
}

/// The field whose bits an argument has: also `REC->flags & 0xff`.
fn field_of_flags(argument: &str) -> Option<&str> {
    field_of(argument).or_else(|| field_of(argument.split_once('&')?.0))
}

/// The field and the names that `(REC->x, "|", { 1, "A" }, …)` gives to its numbers. A number that the kernel's text
/// does not have, because the name of a constant stands for it, is left out.
fn names(call: &str, are_flags: bool) -> Option<(&str, Vec<(u64, String)>)> {
    let (inside, _) = bracket(call.strip_prefix("_u64").unwrap_or(call))?;
    let arguments = split(inside);
    let field = if are_flags { field_of_flags(arguments.first()?)? } else { field_of(arguments.first()?)? };
    let pair = |argument: &&str| {
        let (inside, _) = bracket(argument)?;
        let [number, name] = split(inside)[..] else { return None };
        let name = name.strip_prefix('"')?.strip_suffix('"')?;
        Some((expression::value(number)?, name.to_owned()))
    };
    let names: Vec<_> = arguments.iter().skip(1 + usize::from(are_flags)).filter_map(pair).collect();
    (!names.is_empty()).then_some((field, names))
}

#[cfg(test)]
mod tests {
    use super::{Print, conversions, field_of, split};

    #[test]
    fn arguments_end_at_commas_outside_of_brackets_and_texts() {
        assert_eq!(split(r#""a,\"b", f(1, 2), ',', { 1, "x" }"#), [r#""a,\"b""#, "f(1, 2)", "','", r#"{ 1, "x" }"#]);
        assert_eq!(split(")))a,b"), [")))a,b"]);
    }

    #[test]
    fn conversions_belong_to_arguments() {
        assert_eq!(conversions("a=%08lx 100%% %*ph %pI6c/%-5d %.*s"), ["lx", "", "ph", "pI6c", "d", "", "s"]);
        assert_eq!(conversions("%"), [""]);
        assert_eq!(conversions("%é%d"), ["é", "d"]);
    }

    #[test]
    fn casts_are_no_part_of_a_field() {
        for text in ["REC->x", "((unsigned long)(REC->x))", "(void *)REC->x", " ( REC->x ) "] {
            assert_eq!(field_of(text), Some("x"), "{text}");
        }
        for text in ["REC->x >> 1", "(REC->x) + 1", "REC->", "x", "((", "__get_str(x)", "f(REC->x)"] {
            assert_eq!(field_of(text), None, "{text}");
        }
    }

    #[test]
    fn names_are_of_numbers_or_bits() {
        let print = Print::parse(
            r#""%s %s", __print_symbolic(REC->a, { 1, "ONE" }, { SECOND, "TWO" }, {-1, "NO, NOT \"}"}), REC->b ?
               __print_flags(REC->b & (3 | 4), "|", { (1UL << 3), "C" }) : "0",
               __print_symbolic(REC->c >> 1, { 1, "X" })"#,
        );
        let a = print.names("a").unwrap();
        assert!(!a.are_flags);
        assert_eq!(a.names, [(1, "ONE".to_owned()), (u64::MAX, r#"NO, NOT \"}"#.to_owned())]);
        let b = print.names("b").unwrap();
        assert!(b.are_flags);
        assert_eq!(b.names, [(8, "C".to_owned())]);
        assert!(print.names("c").is_none());
    }
}
