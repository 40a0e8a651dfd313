// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shows the fields of events, from the words of a key.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use topstat_model::names::container;
use topstat_model::{ColumnKind, Field};

use super::row::{EventField, EventFormat};
use crate::cgroup::Paths;
use crate::{process, symbols};

/// Marks a text that was cut.
const CUT: char = '…';
/// The bits of a device's minor number, as the kernel keeps it (`MINORBITS`).
const MINOR_BITS: u32 = 20;

impl EventField {
    /// The kind of its column.
    pub fn kind(&self) -> ColumnKind {
        match self.format {
            EventFormat::Unsigned | EventFormat::Signed => ColumnKind::Id,
            EventFormat::Ipv4 | EventFormat::Ipv6 => ColumnKind::Address,
            EventFormat::Cgroup => ColumnKind::Path,
            _ => ColumnKind::Text,
        }
    }

    /// The field in these bytes, which begin with its words. `None`: it has no value.
    pub fn shown(&self, words: &[u8], paths: &mut Paths) -> Option<Field> {
        let number = u64::from_ne_bytes(words.first_chunk().copied()?);
        Some(match self.format {
            EventFormat::Unsigned => Field::U64(number),
            EventFormat::Signed => Field::from(number.cast_signed()),
            EventFormat::Hex => format!("{number:#x}").into(),
            EventFormat::Text => self.text(words)?.into(),
            EventFormat::Ipv4 => Field::Ip(Ipv4Addr::from(*words.first_chunk::<4>()?).into()),
            EventFormat::Ipv6 => {
                let address = Ipv6Addr::from(*words.first_chunk::<16>()?);
                Field::Ip(address.to_ipv4_mapped().map_or(address.into(), Into::into))
            }
            EventFormat::Mac => bytes(words.get(..self.size)?, ":").into(),
            EventFormat::Bytes => bytes(words.get(..self.size)?, "").into(),
            EventFormat::Device => format!("{}:{}", number >> MINOR_BITS, number & ((1 << MINOR_BITS) - 1)).into(),
            EventFormat::Symbol => symbols::name(number).unwrap_or_else(|| format!("{number:#x}")).into(),
            EventFormat::Cgroup => paths.of(number)?.into(),
            EventFormat::Container => paths.of(number).as_deref().and_then(container)?.to_owned().into(),
            EventFormat::Named => match self.names.iter().find(|(value, _)| *value == number) {
                Some((_, name)) => name.clone().into(),
                None => number.to_string().into(),
            },
            EventFormat::Flags => self.flags(number).into(),
            EventFormat::Bool => (if number == 0 { "false" } else { "true" }).into(),
        })
    }

    fn text(&self, words: &[u8]) -> Option<String> {
        let kept = words.get(..self.size)?;
        let text = process::text(kept)?;
        let is_full = kept.iter().rposition(|byte| *byte != 0).is_some_and(|last| last + 2 >= kept.len());
        Some(if self.may_be_cut && is_full { format!("{text}{CUT}") } else { text })
    }

    /// The names of the bits that are set; bits without a name as a number.
    fn flags(&self, number: u64) -> String {
        let (mut left, mut names) = (number, Vec::new());
        for (bits, name) in self.names.iter().filter(|(bits, _)| *bits != 0) {
            if left & bits == *bits {
                left &= !bits;
                names.push(name.clone());
            }
        }
        if left != 0 || names.is_empty() {
            names.push(format!("{left:#x}"));
        }
        names.join("|")
    }
}

fn bytes(bytes: &[u8], between: &str) -> String {
    let mut text = String::new();
    for (i, byte) in bytes.iter().enumerate() {
        let _ = write!(text, "{}{byte:02x}", if i == 0 { "" } else { between });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(size: usize, format: EventFormat, names: &[(u64, &str)]) -> EventField {
        let names = names.iter().map(|(value, name)| (*value, (*name).to_owned())).collect();
        EventField { size, format, names, may_be_cut: true }
    }

    fn shown(of: &EventField, words: &[u8]) -> String {
        let mut words = words.to_vec();
        words.resize(64, 0);
        of.shown(&words, &mut Paths::new(None)).map_or_else(String::new, |field| field.to_string())
    }

    #[test]
    fn each_format_is_shown_as_people_write_it() {
        let number = |format, number: u64| shown(&field(8, format, &[]), &number.to_ne_bytes());
        assert_eq!(number(EventFormat::Unsigned, u64::MAX), "18446744073709551615");
        assert_eq!(number(EventFormat::Signed, u64::MAX), "-1");
        assert_eq!(number(EventFormat::Hex, 255), "0xff");
        assert_eq!(number(EventFormat::Device, 259 << 20 | 3), "259:3");
        assert_eq!(number(EventFormat::Bool, 1), "true");
        assert_eq!(shown(&field(4, EventFormat::Ipv4, &[]), &[10, 0, 0, 1]), "10.0.0.1");
        let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 2];
        assert_eq!(shown(&field(16, EventFormat::Ipv6, &[]), &mapped), "10.0.0.2");
        assert_eq!(shown(&field(6, EventFormat::Mac, &[]), &[2, 0, 0, 0xab, 0, 1]), "02:00:00:ab:00:01");
        assert_eq!(shown(&field(3, EventFormat::Bytes, &[]), &[1, 2, 0xff]), "0102ff");
    }

    #[test]
    fn names_stand_for_values_and_for_bits() {
        let names = [(1, "NEW"), (2, "DEAD"), (6, "BOTH")];
        let named = |number: u64| shown(&field(8, EventFormat::Named, &names), &number.to_ne_bytes());
        assert_eq!((named(2), named(9)), ("DEAD".into(), "9".into()));
        let flags = |number: u64| shown(&field(8, EventFormat::Flags, &names), &number.to_ne_bytes());
        assert_eq!((flags(3), flags(0), flags(9)), ("NEW|DEAD".into(), "0x0".into(), "NEW|0x8".into()));
    }

    #[test]
    fn a_text_that_was_cut_is_marked() {
        let of = field(8, EventFormat::Text, &[]);
        assert_eq!(shown(&of, b"abcdef\0\0"), "abcdef");
        assert_eq!(shown(&of, b"abcdefg\0"), "abcdefg…");
        assert_eq!(shown(&EventField { may_be_cut: false, ..of }, b"abcdefg\0"), "abcdefg");
    }
}
