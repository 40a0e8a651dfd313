// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Constant expressions of C, as formats have them for the values of names: `0x10`, `(1UL << 3)`, `(( gfp_t)0)`.

/// Nested parentheses and signs at most: more is no expression of the kernel.
const DEPTH: u32 = 64;

/// The value of an expression; none if it has the name of a constant, or is not understood. Casts change nothing.
pub fn value(text: &str) -> Option<u64> {
    let mut rest = Rest { text: text.trim_start(), depth: 0 };
    let value = rest.binary(0)?;
    rest.text.is_empty().then_some(value)
}

/// Operators of two sides, those that bind least first.
const OPERATORS: [&[&str]; 6] = [&["|"], &["^"], &["&"], &["<<", ">>"], &["+", "-"], &["*"]];

struct Rest<'a> {
    text: &'a str,
    depth: u32,
}

impl Rest<'_> {
    fn skip(&mut self, token: &str) -> bool {
        let Some(rest) = self.text.strip_prefix(token) else { return false };
        self.text = rest.trim_start();
        true
    }

    fn binary(&mut self, level: usize) -> Option<u64> {
        let Some(operators) = OPERATORS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = operators.iter().find(|operator| self.skip(operator)) {
            let right = self.binary(level + 1)?;
            left = match *operator {
                "|" => left | right,
                "^" => left ^ right,
                "&" => left & right,
                "<<" => left.checked_shl(right.try_into().ok()?)?,
                ">>" => left.checked_shr(right.try_into().ok()?)?,
                "+" => left.wrapping_add(right),
                "-" => left.wrapping_sub(right),
                _ => left.wrapping_mul(right),
            };
        }
        Some(left)
    }

    fn unary(&mut self) -> Option<u64> {
        self.depth += 1;
        if self.depth > DEPTH {
            return None;
        }
        let value = if self.skip("~") {
            !self.unary()?
        } else if self.skip("-") {
            self.unary()?.wrapping_neg()
        } else if self.skip_cast() {
            self.unary()?
        } else if self.skip("(") {
            let value = self.binary(0)?;
            self.skip(")").then_some(value)?
        } else {
            self.number()?
        };
        self.depth -= 1;
        Some(value)
    }

    /// `(unsigned long)`, in front of a value.
    fn skip_cast(&mut self) -> bool {
        let is_type = |inner: &str| {
            inner.trim_start().starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && inner.chars().all(|c| c.is_ascii_alphanumeric() || c.is_ascii_whitespace() || "_*".contains(c))
        };
        let inner = self.text.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        let Some((_, rest)) = inner.filter(|(inner, _)| is_type(inner)) else { return false };
        self.text = rest.trim_start();
        true
    }

    fn number(&mut self) -> Option<u64> {
        let end = self.text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.text.len());
        let (number, rest) = self.text.split_at(end);
        let number = number.trim_end_matches(['u', 'U', 'l', 'L']);
        let value = if let Some(hex) = number.strip_prefix("0x").or_else(|| number.strip_prefix("0X")) {
            u64::from_str_radix(hex, 16)
        } else if number.len() > 1 && number.starts_with('0') {
            u64::from_str_radix(number, 8)
        } else {
            number.parse()
        };
        self.text = rest.trim_start();
        value.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::value;

    #[test]
    fn values_are_computed() {
        for (text, expected) in [
            ("0", 0),
            ("0x00000010", 16),
            ("00000100", 64),
            ("1UL", 1),
            (" (1u << 30) ", 1 << 30),
            ("-1", u64::MAX),
            ("~0xffff", !0xffff),
            ("( unsigned long)(( gfp_t)((((1UL))) << (5)))|(( gfp_t)((((1UL))) << (11)))", 1 << 5 | 1 << 11),
            ("1 | 2 & 3 << 1", 1 | 2 & 3 << 1),
            ("(7 - 2) * 3 + 1", 16),
        ] {
            assert_eq!(value(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_have_no_value() {
        let deep = "(".repeat(100_000);
        let signs = "-".repeat(100_000) + "1";
        for text in ["", "TCP_CLOSE", "1 +", "(1", "1)", "1 << 64", "1 << -1", "0x", "09", "1 2", "é", &deep, &signs] {
            assert_eq!(value(text), None, "{:.20}", text);
        }
    }
}
