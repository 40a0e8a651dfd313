// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The format of numbers and bytes, by the names of their types and their fields.

use super::abi;
use super::{Field, Format};

/// What a number points to, if it is an address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Address {
    No,
    OfData,
    OfCode,
}

/// A number, by its declaration.
pub struct Number<'a> {
    /// The name of the field or the member.
    pub name: &'a str,
    /// The names of its type: a typedef, the typedef behind it, and so on.
    pub types: &'a [&'a str],
    /// Bytes.
    pub size: u32,
    pub is_signed: bool,
    pub address: Address,
}

/// Names of fields with an address of code, where the type is `void *` or `unsigned long`.
const CODE: [&str; 8] = ["func", "fn", "function", "caller", "call_site", "callsite", "location", "ip"];

fn is_code(name: &str) -> bool {
    CODE.contains(&name) || name.ends_with("_ip") || name.ends_with("_func") || name.ends_with("_function")
}

impl Number<'_> {
    /// The number in a source of the given kind.
    pub fn field(&self, source: u32) -> Field {
        let is = |name: &str, size| self.size == size && self.types.contains(&name);
        let (format, flags) = if is("bool", 1) || is("_Bool", 1) {
            (Format::Bool, 0)
        } else if is("dev_t", 4) {
            (Format::Device, 0)
        } else if is("__be32", 4) && self.name.contains("addr") {
            (Format::Ipv4, 0)
        } else if is("__be16", 2) || is("__be32", 4) || is("__be64", 8) {
            (Format::Unsigned, abi::CUSTOM_SWAP)
        } else if self.address == Address::OfCode || self.size == 8 && !self.is_signed && is_code(self.name) {
            (Format::Symbol, 0)
        } else if self.address == Address::OfData {
            (Format::Hex, 0)
        } else if self.is_signed {
            (Format::Signed, abi::CUSTOM_SIGNED)
        } else {
            (Format::Unsigned, 0)
        };
        let mut field = Field::new(source, self.size, format);
        field.field.flags = flags as u8;
        field
    }
}

/// The format of an array of bytes.
pub fn of_bytes(name: &str, size: u32) -> Format {
    let is_id = ["uuid", "guid", "fsid"].iter().any(|id| name.contains(id));
    match size {
        4 if name.contains("addr") => Format::Ipv4,
        6 => Format::Mac,
        16 if !is_id => Format::Ipv6,
        _ => Format::Bytes,
    }
}

/// A number as the program has it in a key, from a value that may be wider than the field.
pub fn as_in_key(value: u64, size: u32, is_signed: bool) -> u64 {
    let unused = 64u32.saturating_sub(size * 8);
    if is_signed { ((value << unused) as i64 >> unused) as u64 } else { value << unused >> unused }
}
