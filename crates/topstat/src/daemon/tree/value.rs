// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The settings, their allowed values, and the texts of both.

use std::fmt;
use std::ops::RangeInclusive;

use topstat_model::typeset::escape;

use crate::time;

/// The longest period and delay: an hour.
const MOST_MS: u32 = 3_600_000;

/// The longest text that can be a value, with spaces and newline: a number of ten digits, and room to align it.
pub const LONGEST: usize = 32;

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Whether pushes count.
    Enabled,
    /// The time over which a dynamic table sums, in ms.
    Period,
    /// The longest time by which the ordering of an object is put off, in ms.
    Delay,
    /// Whether a snapshot is taken on each CPU itself.
    Sync,
}

impl Setting {
    /// The name of the setting's file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Enabled => "enabled",
            Self::Period => "period",
            Self::Delay => "delay",
            Self::Sync => "sync",
        }
    }

    /// The allowed values.
    pub fn range(self) -> RangeInclusive<u32> {
        match self {
            Self::Enabled | Self::Sync => 0..=1,
            Self::Period => 1..=MOST_MS,
            Self::Delay => 0..=MOST_MS,
        }
    }

    /// The allowed values, in words.
    pub fn allowed(self) -> String {
        match self {
            Self::Enabled | Self::Sync => "0 or 1".to_owned(),
            Self::Period | Self::Delay => {
                let range = self.range();
                format!("{} to {} (milliseconds), or a time such as 5s", range.start(), range.end())
            }
        }
    }

    /// The value of a text: decimal digits, or a time with its unit, with white space around them.
    ///
    /// # Errors
    ///
    /// The fault of the text, and the allowed values.
    pub fn parse(self, written: &[u8]) -> Result<u32, Bad> {
        let bad = |what| Err(Bad { setting: self, what });
        if written.len() > LONGEST {
            return bad(What::Long(written.len()));
        }
        let digits = written.trim_ascii();
        if digits.is_empty() {
            return bad(What::Empty);
        }
        let is_number = digits.iter().all(u8::is_ascii_digit);
        let text = match std::str::from_utf8(digits) {
            Ok(text) if is_number => text,
            Ok(text) if matches!(self, Self::Period | Self::Delay) => {
                let parsed = if self == Self::Period { time::period(text) } else { time::delay(text) };
                return parsed.or_else(|why| bad(What::NoTime(text.to_owned(), why)));
            }
            _ => return bad(What::NoNumber(String::from_utf8_lossy(digits).into_owned())),
        };
        match text.parse() {
            Ok(value) if self.range().contains(&value) => Ok(value),
            _ => bad(What::OutOfRange(text.to_owned())),
        }
    }
}

/// A value that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    setting: Setting,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Empty,
    Long(usize),
    NoNumber(String),
    /// The text, and the reason why it is no time.
    NoTime(String, String),
    OutOfRange(String),
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Empty => f.write_str("an empty value")?,
            What::Long(bytes) => write!(f, "{bytes} bytes are no value")?,
            What::NoNumber(text) => write!(f, "'{}' is not a whole number", escape(text))?,
            What::NoTime(text, why) => write!(f, "'{}': {}", escape(text), escape(why))?,
            What::OutOfRange(text) => write!(f, "{text} is out of range")?,
        }
        write!(f, "; {} takes {}", self.setting.name(), self.setting.allowed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_however_a_shell_writes_them() {
        for (setting, written, value) in [
            (Setting::Period, "5\n", 5),
            (Setting::Period, "5", 5),
            (Setting::Period, "  5  \n", 5),
            (Setting::Period, "\t0005\r\n", 5),
            (Setting::Period, "3600000\n", 3_600_000),
            (Setting::Delay, "0\n", 0),
            (Setting::Period, "5s\n", 5000),
            (Setting::Period, " 1h ", 3_600_000),
            (Setting::Delay, "10ms", 10),
            (Setting::Delay, "0s\n", 0),
            (Setting::Enabled, "1\n", 1),
            (Setting::Sync, "0", 0),
        ] {
            assert_eq!(setting.parse(written.as_bytes()), Ok(value), "{written:?}");
        }
    }

    #[test]
    fn what_is_not_allowed_is_told_with_what_is() {
        for (setting, written, error) in [
            (
                Setting::Period,
                "0\n",
                "0 is out of range; period takes 1 to 3600000 (milliseconds), or a time such as 5s",
            ),
            (
                Setting::Period,
                "3600001\n",
                "3600001 is out of range; period takes 1 to 3600000 (milliseconds), or a time such as 5s",
            ),
            (
                Setting::Delay,
                "99999999999999999999\n",
                "99999999999999999999 is out of range; delay takes 0 to 3600000 (milliseconds), or a time such as 5s",
            ),
            (Setting::Enabled, "2\n", "2 is out of range; enabled takes 0 or 1"),
            (Setting::Enabled, "\n", "an empty value; enabled takes 0 or 1"),
            (Setting::Enabled, "yes\n", "'yes' is not a whole number; enabled takes 0 or 1"),
            (Setting::Sync, "-1\n", "'-1' is not a whole number; sync takes 0 or 1"),
            (Setting::Sync, "+1\n", "'+1' is not a whole number; sync takes 0 or 1"),
            (
                Setting::Delay,
                "1\n2\n",
                "'1\\x0a2': not a time: give milliseconds (500) or a unit (500ms, 1s, 1m); delay takes 0 to 3600000 (milliseconds), or a time such as 5s",
            ),
            (
                Setting::Delay,
                "1 2",
                "'1 2': not a time: give milliseconds (500) or a unit (500ms, 1s, 1m); delay takes 0 to 3600000 (milliseconds), or a time such as 5s",
            ),
            (
                Setting::Delay,
                "0x10",
                "'0x10': not a time: give milliseconds (500) or a unit (500ms, 1s, 1m); delay takes 0 to 3600000 (milliseconds), or a time such as 5s",
            ),
            (
                Setting::Delay,
                "1e3",
                "'1e3': not a time: give milliseconds (500) or a unit (500ms, 1s, 1m); delay takes 0 to 3600000 (milliseconds), or a time such as 5s",
            ),
            (
                Setting::Period,
                "2h",
                "'2h': not in 1ms to 3600s; period takes 1 to 3600000 (milliseconds), or a time such as 5s",
            ),
            (Setting::Enabled, "5s", "'5s' is not a whole number; enabled takes 0 or 1"),
            (Setting::Sync, "1\0", "'1\\x00' is not a whole number; sync takes 0 or 1"),
        ] {
            assert_eq!(setting.parse(written.as_bytes()).unwrap_err().to_string(), error, "{written:?}");
        }
        let long = [b'0'; LONGEST + 1];
        assert_eq!(Setting::Sync.parse(&long).unwrap_err().to_string(), "33 bytes are no value; sync takes 0 or 1");
        assert!(Setting::Sync.parse(b"\xff\xfe").is_err());
    }

    #[test]
    fn ranges_end_where_the_design_says() {
        for setting in [Setting::Enabled, Setting::Period, Setting::Delay, Setting::Sync] {
            let (least, most) = (*setting.range().start(), *setting.range().end());
            for value in [least, most] {
                assert_eq!(setting.parse(value.to_string().as_bytes()), Ok(value));
            }
            assert!(setting.parse((most + 1).to_string().as_bytes()).is_err());
        }
    }
}
