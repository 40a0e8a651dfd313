// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The description of an object: columns, and the fields in them.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use crate::typeset::escape;

/// The kind of a column's values. It decides how the column is aligned and whether it may be shortened for a narrow terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnKind {
    /// An IP address. Never shortened.
    Address,
    /// A port, or the number of a protocol.
    Port,
    /// A process or thread id.
    Pid,
    /// Any other number that names something: a network namespace, an inode, a CPU. Never rounded to human units.
    Id,
    /// A name: shortened at its end (`postgre…`).
    Text,
    /// A path. Its end is most significant, so it is shortened at its beginning (`…e/nginx.service`).
    Path,
    /// A mark: [`Field::True`], or nothing.
    Mark,
}

/// The side on which a column's cells line up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Align {
    /// Texts and addresses.
    Left,
    /// Numbers.
    Right,
}

impl ColumnKind {
    /// Numbers stand to the right, everything else to the left.
    pub fn align(self) -> Align {
        match self {
            Self::Port | Self::Pid | Self::Id => Align::Right,
            Self::Address | Self::Text | Self::Path | Self::Mark => Align::Left,
        }
    }

    /// Whether cells may be shortened to fit a width. Addresses and numbers may not: a shortened one would be wrong.
    pub fn may_shrink(self) -> bool {
        matches!(self, Self::Text | Self::Path)
    }
}

/// One column of an object's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The name in every output, and in filters: `sip`, `pid`, `cgroup`.
    pub name: Cow<'static, str>,
    /// The kind of its values.
    pub kind: ColumnKind,
    /// Left out of JSON where it is [`Field::None`], and out of text where it is [`Field::None`] in all rows.
    pub optional: bool,
}

impl Column {
    /// A column that every object has, even if its value is [`Field::None`].
    pub fn new(name: impl Into<Cow<'static, str>>, kind: ColumnKind) -> Self {
        Self { name: name.into(), kind, optional: false }
    }

    /// A column that only some objects have, such as a container.
    pub fn optional(name: impl Into<Cow<'static, str>>, kind: ColumnKind) -> Self {
        Self { optional: true, ..Self::new(name, kind) }
    }
}

/// The value of one column of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Field {
    /// An address. IPv6 is written by the rules of RFC 5952.
    Ip(IpAddr),
    /// A number, written in full in every output.
    U64(u64),
    /// A number below 0, written in full in every output.
    Negative(i64),
    /// A text from the kernel or a user: may contain any characters, including control characters. Writers make it safe.
    Text(String),
    /// The mark is set: `true` in JSON and CSV, `yes` in text and `stat`.
    True,
    /// Not known or missing: `null` in JSON, `-` in text and `stat`, empty in CSV.
    #[default]
    None,
}

impl Field {
    /// Whether there is no value.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

/// The field as one line that is safe for a terminal: see [`escape`]. [`Field::None`] is `-`.
impl Field {
    /// Whether these fields describe one object. Marks are ignored, because they may change.
    pub fn same_object(a: &[Self], b: &[Self]) -> bool {
        let same = |a, b| a == b || matches!((a, b), (&Self::True, &Self::None) | (&Self::None, &Self::True));
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::U64(number) => number.fmt(f),
            Self::Negative(number) => number.fmt(f),
            Self::Text(text) => f.pad(&escape(text)),
            Self::True => f.pad("yes"),
            Self::None => f.pad("-"),
        }
    }
}

impl From<IpAddr> for Field {
    fn from(ip: IpAddr) -> Self {
        Self::Ip(ip)
    }
}

impl From<u64> for Field {
    fn from(number: u64) -> Self {
        Self::U64(number)
    }
}

impl From<i64> for Field {
    fn from(number: i64) -> Self {
        u64::try_from(number).map_or(Self::Negative(number), Self::U64)
    }
}

impl From<u32> for Field {
    fn from(number: u32) -> Self {
        Self::U64(number.into())
    }
}

impl From<u16> for Field {
    fn from(number: u16) -> Self {
        Self::U64(number.into())
    }
}

impl From<&str> for Field {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Field {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl<T: Into<Field>> From<Option<T>> for Field {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_is_written_as_rfc_5952_asks_for() {
        for (given, written) in [
            ("2001:0DB8:0:0:0:0:0:1", "2001:db8::1"),
            ("2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"),
            ("2001:0:0:1:0:0:0:1", "2001:0:0:1::1"),
            ("0:0:0:0:0:ffff:192.0.2.1", "::ffff:192.0.2.1"),
        ] {
            assert_eq!(Field::Ip(given.parse().unwrap()).to_string(), written);
        }
    }

    #[test]
    fn fields_come_from_what_samples_have() {
        assert_eq!(Field::from(80_u16), Field::U64(80));
        assert_eq!((Field::from(7_i64), Field::from(-7_i64)), (Field::U64(7), Field::Negative(-7)));
        assert_eq!(Field::from(None::<u32>), Field::None);
        assert_eq!(Field::from(Some("a\tb")).to_string(), "a\\x09b");
    }
}
