// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows of a document, read without a map for each row: a program that reads a table each second spends most of its time on
//! rows.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// No table has this many columns. Without a limit, a document of many short names would take a hundred times its length in
/// memory.
pub const MOST_COLUMNS: usize = 256;
/// Tables keep 1,024 rows.
const MOST_ROWS: usize = 1 << 14;

/// All rows of a document.
pub struct Rows<'a>(pub Vec<RowRead<'a>>);

/// A row as it is written.
pub struct RowRead<'a> {
    pub rank: Scalar<'a>,
    pub value: Scalar<'a>,
    /// The description of the object.
    pub object: Pairs<'a>,
    /// All other keys: the parts of the value.
    pub parts: Pairs<'a>,
    pub cpus: Vec<u32>,
}

/// The value of a key.
#[derive(Default)]
pub enum Scalar<'a> {
    /// `null`, or a missing key.
    #[default]
    Null,
    Number(u64),
    Text(Cow<'a, str>),
    /// A value that no key of this version has: a fraction, a list.
    Other(Value),
}

impl Scalar<'_> {
    /// The value as in a document.
    pub fn to_json(&self) -> String {
        match self {
            Self::Null => String::new(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => Value::from(text.as_ref()).to_string(),
            Self::Other(other) => other.to_string(),
        }
    }
}

/// Keys and their values, in the order of the document.
#[derive(Default)]
pub struct Pairs<'a> {
    pairs: Vec<(Cow<'a, str>, Scalar<'a>)>,
    /// The index after the pair that was taken last.
    next: usize,
}

impl<'a> Pairs<'a> {
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Scalar<'a>)> {
        self.pairs.iter().map(|(name, value)| (name.as_ref(), value))
    }

    pub fn get(&self, name: &str) -> Option<&Scalar<'a>> {
        self.pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Takes the value of a key. Keys that are taken in the order of the document are found at once.
    pub fn take(&mut self, name: &str) -> Scalar<'a> {
        let is = |pair: &(Cow<'a, str>, Scalar<'a>)| pair.0 == name;
        let place = match self.pairs.get(self.next) {
            Some(pair) if is(pair) => self.next,
            _ => match self.pairs.iter().position(is) {
                Some(place) => place,
                None => return Scalar::Null,
            },
        };
        self.next = place + 1;
        std::mem::take(&mut self.pairs[place].1)
    }
}

/// A text that is borrowed from the document, if no character of it is escaped.
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Scalar::deserialize(from)? {
            Scalar::Text(text) => Ok(Self(text)),
            _ => Err(D::Error::custom("a key is no text")),
        }
    }
}

struct ScalarVisitor;

impl<'a> Visitor<'a> for ScalarVisitor {
    type Value = Scalar<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Scalar<'a>, E> {
        Ok(Scalar::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Scalar<'a>, E> {
        Ok(Scalar::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Scalar<'a>, E> {
        Ok(Scalar::Number(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Scalar<'a>, E> {
        Ok(u64::try_from(number).map_or_else(|_| Scalar::Other(number.into()), Scalar::Number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Scalar<'a>, E> {
        Ok(Scalar::Other(number.into()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Scalar<'a>, E> {
        Ok(Scalar::Other(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Scalar<'a>, E> {
        Ok(Scalar::Null)
    }

    fn visit_seq<A: SeqAccess<'a>>(self, list: A) -> Result<Scalar<'a>, A::Error> {
        Value::deserialize(SeqAccessDeserializer::new(list)).map(Scalar::Other)
    }

    fn visit_map<A: MapAccess<'a>>(self, map: A) -> Result<Scalar<'a>, A::Error> {
        Value::deserialize(MapAccessDeserializer::new(map)).map(Scalar::Other)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Scalar<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ScalarVisitor)
    }
}

struct PairsVisitor;

impl<'a> Visitor<'a> for PairsVisitor {
    type Value = Pairs<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Pairs<'a>, A::Error> {
        let mut pairs = Vec::with_capacity(USUAL);
        while let Some((Text(name), value)) = map.next_entry()? {
            if pairs.len() == MOST_COLUMNS {
                return Err(A::Error::custom(format!("an object has more than {MOST_COLUMNS} columns")));
            }
            pairs.push((name, value));
        }
        Ok(Pairs { pairs, next: 0 })
    }
}

/// Most objects have at most this many columns: a connection with its process, container and host.
const USUAL: usize = 12;

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(PairsVisitor)
    }
}

struct RowVisitor;

impl<'a> Visitor<'a> for RowVisitor {
    type Value = RowRead<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<RowRead<'a>, A::Error> {
        let (mut rank, mut value, mut parts) = (Scalar::Null, Scalar::Null, Pairs::default());
        let (mut object, mut cpus) = (None, Vec::new());
        while let Some(Text(key)) = map.next_key()? {
            match key.as_ref() {
                "rank" => rank = map.next_value()?,
                "value" => value = map.next_value()?,
                "object" => object = Some(map.next_value()?),
                "cpus" => cpus = map.next_value()?,
                _ if parts.pairs.len() == MOST_COLUMNS => {
                    return Err(A::Error::custom(format!("a row has more than {MOST_COLUMNS} parts")));
                }
                _ => parts.pairs.push((key, map.next_value()?)),
            }
        }
        let object = object.ok_or_else(|| A::Error::missing_field("object"))?;
        Ok(RowRead { rank, value, object, parts, cpus })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RowRead<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(RowVisitor)
    }
}

struct RowsVisitor;

impl<'a> Visitor<'a> for RowsVisitor {
    type Value = Rows<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of rows")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut list: A) -> Result<Rows<'a>, A::Error> {
        let mut rows = Vec::new();
        while let Some(row) = list.next_element()? {
            if rows.len() == MOST_ROWS {
                return Err(A::Error::custom(format!("there are more than {MOST_ROWS} rows")));
            }
            rows.push(row);
        }
        Ok(Rows(rows))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Rows<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(RowsVisitor)
    }
}
