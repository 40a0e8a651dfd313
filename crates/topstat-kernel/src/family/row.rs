// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns the bytes of a row into the fields that describe its object.

use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use topstat_engine::abi::ts_row;
use topstat_model::names::container;
use topstat_model::{Column, ColumnKind, Field};

use crate::cgroup::Paths;
use crate::process::{self, abi::process_who};

/// A column, the place of its value in a row, and the option by which rows can be chosen.
#[derive(Clone, Debug)]
pub struct RowColumn {
    /// The column, as it is shown.
    pub column: Column,
    /// The place of its value.
    pub from: FieldAt,
    /// The option by which users choose rows. Columns may share one: a row is chosen if any of them has the value.
    pub filter: Option<Filter>,
}

/// The place of a field, by offsets in the row.
#[derive(Clone, Debug)]
pub enum FieldAt {
    /// `u16`.
    U16(usize),
    /// `u32`.
    U32(usize),
    /// `u64`.
    U64(usize),
    /// `u32`; 0 stands for an unknown value.
    KnownU32(usize),
    /// `u64`; 0 stands for an unknown value.
    KnownU64(usize),
    /// `u64` pages of memory, shown as bytes.
    Pages(usize),
    /// `u32`, an index into these names. An empty name is no value, and a number without a name is shown as it is.
    Named(usize, &'static [&'static str]),
    /// `u32`: the number of a kernel error, shown in the words of the C library; 0 is no value.
    Error(usize),
    /// An address of 16 bytes, of IPv4 the first four; and an `u32` with its address family.
    Address {
        /// The offset of the bytes.
        at: usize,
        /// The offset of the address family.
        family: usize,
    },
    /// A name as the kernel keeps it, up to the first zero: its offset, and its most bytes. An empty name is no value.
    Name(usize, usize),
    /// `u8`, an index into these words.
    Word(usize, &'static [&'static str]),
    /// `u8`: whether the mark is set.
    Mark(usize),
    /// The path of the control group of a `struct process_who`.
    Cgroup(usize),
    /// The container in the path that an earlier column of the row has.
    Container,
    /// In no row: the reader of counters gives the value itself.
    Told,
    /// A field of an event, in the words of a key that begin at this offset.
    Event(usize, Arc<EventField>),
    /// The mean amount of an event: the row's value, divided by the `u64` at this offset.
    Mean(usize),
    /// The most that the row's true value can be: its value and the `u64` at this offset. 0 there is no value.
    AtMost(usize),
}

impl FieldAt {
    /// Whether each value of a column of this kind is a number.
    pub fn is_number(&self, kind: ColumnKind) -> bool {
        match self {
            Self::U16(_) | Self::U32(_) | Self::U64(_) | Self::KnownU32(_) | Self::KnownU64(_) => true,
            Self::Pages(_) | Self::Mean(_) | Self::AtMost(_) => true,
            Self::Told => matches!(kind, ColumnKind::Port | ColumnKind::Pid | ColumnKind::Id),
            // A recorder does not know the fields of a table that a user defines: all of them are texts.
            Self::Event(..) => false,
            Self::Named(..) | Self::Error(_) | Self::Address { .. } | Self::Name(..) | Self::Word(..) => false,
            Self::Mark(_) | Self::Cgroup(_) | Self::Container => false,
        }
    }
}

/// A field of an event: how its words are shown.
#[derive(Clone, Debug)]
pub struct EventField {
    /// Its bytes; of a text, the most bytes with the zero at the end.
    pub size: usize,
    /// How it is shown.
    pub format: EventFormat,
    /// The names of its values, or of its bits.
    pub names: Arc<[(u64, String)]>,
    /// Whether a text that fills all its bytes may have been longer.
    pub may_be_cut: bool,
}

/// How a field of an event is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventFormat {
    /// A number.
    Unsigned,
    /// A number that may be below 0.
    Signed,
    /// A number of base 16: an address in memory.
    Hex,
    /// A text.
    Text,
    /// An address of IPv4, 4 bytes.
    Ipv4,
    /// An address of IPv6, 16 bytes.
    Ipv6,
    /// An address of a network device, 6 bytes.
    Mac,
    /// Any bytes, in base 16.
    Bytes,
    /// The kernel's number of a device (`MKDEV`): `259:0`.
    Device,
    /// The address of a function of the kernel, with the offset in it.
    Symbol,
    /// The id of a control group.
    Cgroup,
    /// The id of a control group, shown as the container that it belongs to.
    Container,
    /// A value with a name.
    Named,
    /// Bits with names.
    Flags,
    /// `true` or `false`.
    Bool,
}

/// An option by which rows are chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Its name: `port`.
    pub option: String,
    /// The placeholder of its value in help: `PORT`.
    pub value: String,
    /// Its effect, for people.
    pub about: String,
    /// The kind of its value.
    pub by: FilterBy,
}

/// The kind of value that an option looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterBy {
    /// A number, up to this one.
    Number(u64),
    /// An exact name, as far as the kernel keeps names of processes.
    Comm,
    /// A path and all below it, or a text in the path.
    Path,
    /// An exact text.
    Text,
    /// An address of IPv4 or IPv6.
    Address,
    /// Whether the mark is set: `yes` or `no`.
    Mark,
}

impl RowColumn {
    /// A column that every object has.
    pub fn new(name: &'static str, kind: ColumnKind, from: FieldAt) -> Self {
        Self { column: Column::new(name, kind), from, filter: None }
    }

    /// A column that only some objects have.
    pub fn optional(name: &'static str, kind: ColumnKind, from: FieldAt) -> Self {
        Self { column: Column::optional(name, kind), from, filter: None }
    }

    /// This column, with an option by which rows can be chosen.
    #[must_use]
    pub fn by(self, option: &str, value: &str, about: &str, by: FilterBy) -> Self {
        let [option, value, about] = [option, value, about].map(str::to_owned);
        Self { filter: Some(Filter { option, value, about, by }), ..self }
    }
}

/// The fields of a row. A value that the row does not have is unknown.
pub fn describe(columns: &[RowColumn], row: &[u8], paths: &mut Paths) -> Vec<Field> {
    let mut path = None;
    columns.iter().map(|column| field(&column.from, row, paths, &mut path).unwrap_or(Field::None)).collect()
}

fn field(from: &FieldAt, row: &[u8], paths: &mut Paths, path: &mut Option<String>) -> Option<Field> {
    Some(match *from {
        FieldAt::U16(at) => Field::U64(u16::from_ne_bytes(chunk(row, at)?).into()),
        FieldAt::U32(at) => Field::U64(u32::from_ne_bytes(chunk(row, at)?).into()),
        FieldAt::U64(at) => Field::U64(u64::from_ne_bytes(chunk(row, at)?)),
        FieldAt::KnownU32(at) => Field::U64(Some(u32::from_ne_bytes(chunk(row, at)?)).filter(|n| *n != 0)?.into()),
        FieldAt::KnownU64(at) => Field::U64(Some(u64::from_ne_bytes(chunk(row, at)?)).filter(|n| *n != 0)?),
        FieldAt::Pages(at) => Field::U64(u64::from_ne_bytes(chunk(row, at)?) * rustix::param::page_size() as u64),
        FieldAt::Named(at, names) => {
            let number = u32::from_ne_bytes(chunk(row, at)?);
            match names.get(number as usize) {
                Some(name) => Some(*name).filter(|name| !name.is_empty())?.into(),
                None => Field::U64(number.into()),
            }
        }
        FieldAt::Error(at) => {
            let number = Some(u32::from_ne_bytes(chunk(row, at)?)).filter(|number| *number != 0)?;
            error_text(number).into()
        }
        FieldAt::Address { at, family } => Field::Ip(address(u32::from_ne_bytes(chunk(row, family)?), chunk(row, at)?)),
        FieldAt::Name(at, size) => process::text(row.get(at..)?.get(..size)?).into(),
        FieldAt::Word(at, words) => (*words.get(usize::from(*row.get(at)?))?).into(),
        FieldAt::Mark(at) => Some(Field::True).filter(|_| row.get(at).is_some_and(|mark| *mark != 0))?,
        FieldAt::Cgroup(at) => {
            *path = paths.of(u64::from_ne_bytes(chunk(row, at + offset_of!(process_who, cgroup))?));
            path.clone().into()
        }
        FieldAt::Told => return None,
        FieldAt::Event(at, ref of) => of.shown(row.get(at..)?, paths)?,
        FieldAt::Mean(at) => Field::U64(value(row)?.checked_div(u64::from_ne_bytes(chunk(row, at)?))?),
        FieldAt::AtMost(at) => {
            let missing = Some(u64::from_ne_bytes(chunk(row, at)?)).filter(|missing| *missing != 0)?;
            Field::U64(value(row)?.saturating_add(missing))
        }
        FieldAt::Container => path.as_deref().and_then(container).map(str::to_owned).into(),
    })
}

/// The value of a row.
fn value(row: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(chunk(row, offset_of!(ts_row, value))?))
}

/// The text of a kernel error, by its number.
fn error_text(number: u32) -> String {
    let text = std::io::Error::from_raw_os_error(i32::try_from(number).unwrap_or(0)).to_string();
    // The number at the end of the text adds nothing.
    text.rsplit_once(" (os error").map_or_else(|| text.clone(), |(words, _)| words.to_owned())
}

fn chunk<const N: usize>(row: &[u8], at: usize) -> Option<[u8; N]> {
    row.get(at..)?.first_chunk().copied()
}

/// An address. An IPv4 address that is mapped into IPv6 is shown as IPv4.
fn address(family: u32, bytes: [u8; 16]) -> IpAddr {
    const AF_INET6: u32 = libc::AF_INET6 as u32;
    let [a, b, c, d, ..] = bytes;
    if family == AF_INET6 {
        let v6 = Ipv6Addr::from(bytes);
        v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
    } else {
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_where_columns_say() {
        let mut row = vec![0_u8; 64];
        row[0..2].copy_from_slice(&443_u16.to_ne_bytes());
        row[4..8].copy_from_slice(&7_u32.to_ne_bytes());
        row[16..22].copy_from_slice(b"nginx\0");
        row[32..36].copy_from_slice(&[10, 0, 0, 1]);
        let column = |from| RowColumn::new("x", ColumnKind::Id, from);
        let columns = [
            column(FieldAt::U16(0)),
            column(FieldAt::KnownU32(4)),
            column(FieldAt::KnownU32(8)),
            column(FieldAt::Name(16, 16)),
            column(FieldAt::Name(48, 16)),
            column(FieldAt::Address { at: 32, family: 12 }),
            column(FieldAt::U64(60)), // the row has only a part of it
        ];
        let fields = describe(&columns, &row, &mut Paths::new(None));
        let ip = Field::Ip(Ipv4Addr::new(10, 0, 0, 1).into());
        let found = [Field::U64(443), Field::U64(7), Field::None, "nginx".into(), Field::None, ip, Field::None];
        assert_eq!(fields, found);
    }

    #[test]
    fn a_mapped_address_is_an_ipv4_one() {
        let mut bytes = [0; 16];
        bytes[10..].copy_from_slice(&[0xff, 0xff, 10, 1, 2, 3]);
        assert_eq!(address(libc::AF_INET6 as u32, bytes), IpAddr::from([10, 1, 2, 3]));
        assert_eq!(address(libc::AF_INET as u32, [10; 16]), IpAddr::from([10; 4]));
    }
}
