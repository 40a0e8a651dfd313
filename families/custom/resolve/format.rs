// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The record of a classic tracepoint, as `events/GROUP/NAME/format` of tracefs describes it:
//!
//! ```text
//! field:__data_loc char[] filename; offset:8; size:4; signed:0;
//! ```

use super::abi;
use super::meaning::{self, Address, Number};
use super::print::Print;
use super::{Field, Format, Listed, Part, for_people};

/// Bytes in front of the fields that the kernel does not give to programs.
const COMMON: u32 = 8;

/// The record of an event.
pub struct Record {
    members: Vec<Member>,
    print: Print,
    /// The record has arguments of a system call: texts are in the process, and each value fills 8 bytes, whatever its
    /// type.
    is_syscall: bool,
}

/// One field of a record.
struct Member {
    name: String,
    /// The type of the field, or of an element.
    kind: String,
    shape: Shape,
    at: u32,
    size: u32,
    is_signed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    One,
    Array { elements: Option<u32> },
    DataLoc,
    RelLoc,
}

/// Bytes of a type of C, and whether it is signed. Names that are not known here have the size that the format says.
fn known_type(kind: &str) -> Option<(u32, bool)> {
    Some(match kind.strip_prefix("const ").unwrap_or(kind) {
        "char" | "s8" | "__s8" | "int8_t" | "signed char" => (1, true),
        "u8" | "__u8" | "uint8_t" | "unsigned char" | "bool" => (1, false),
        "short" | "s16" | "__s16" | "int16_t" => (2, true),
        "u16" | "__u16" | "uint16_t" | "unsigned short" | "umode_t" | "__be16" => (2, false),
        "int" | "s32" | "__s32" | "int32_t" | "pid_t" | "clockid_t" | "key_serial_t" => (4, true),
        "unsigned int" | "unsigned" | "uint" | "u32" | "__u32" | "uint32_t" | "uid_t" | "gid_t" | "__be32" => {
            (4, false)
        }
        "long" | "long long" | "s64" | "__s64" | "int64_t" | "loff_t" | "off_t" | "ssize_t" => (8, true),
        "unsigned long" | "unsigned long long" | "u64" | "__u64" | "uint64_t" | "size_t" | "__be64" => (8, false),
        _ => return None,
    })
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

impl Member {
    /// A line of a format; none if the line describes no field.
    fn parse(line: &str) -> Option<Self> {
        let (declaration, rest) = line.trim().strip_prefix("field:")?.split_once(';')?;
        let (mut at, mut size, mut is_signed) = (None, None, false);
        for (key, value) in rest.split(';').filter_map(|pair| pair.trim().split_once(':')) {
            match key {
                "offset" => at = value.parse().ok(),
                "size" => size = value.parse().ok(),
                "signed" => is_signed = value != "0",
                _ => {}
            }
        }
        let declaration = declaration.trim();
        let (declaration, located) = if let Some(rest) = declaration.strip_prefix("__data_loc ") {
            (rest, Some(Shape::DataLoc))
        } else if let Some(rest) = declaration.strip_prefix("__rel_loc ") {
            (rest, Some(Shape::RelLoc))
        } else {
            (declaration, None)
        };
        let (declaration, behind_name) = elements(declaration);
        let begin = declaration.bytes().rposition(|byte| !is_name(byte)).map_or(0, |before| before + 1);
        let (kind, name) = (declaration.get(..begin)?, declaration.get(begin..)?);
        let (kind, behind_type) = elements(kind.trim());
        let array = behind_name.or(behind_type).map(|elements| Shape::Array { elements });
        let shape = located.or(array).unwrap_or(Shape::One);
        let kind = kind.trim().to_owned();
        (!name.is_empty() && !kind.is_empty()).then_some(Self {
            name: name.to_owned(),
            kind,
            shape,
            at: at?,
            size: size?,
            is_signed,
        })
    }

    /// The declaration for people.
    fn declared(&self) -> String {
        match self.shape {
            Shape::One => self.kind.clone(),
            Shape::Array { elements: Some(elements) } => format!("{}[{elements}]", self.kind),
            Shape::Array { elements: None } | Shape::DataLoc | Shape::RelLoc => format!("{}[]", self.kind),
        }
    }

    fn is_pointer(&self) -> bool {
        self.kind.ends_with('*')
    }

    fn is_chars(&self) -> bool {
        matches!(self.kind.as_str(), "char" | "const char")
    }

    fn is_bytes(&self) -> bool {
        known_type(&self.kind) == Some((1, false)) && self.kind != "bool"
    }

    /// Bytes of an element, and the number of elements.
    fn elements(&self) -> Option<(u32, u32)> {
        let Shape::Array { elements } = self.shape else { return None };
        let known = if self.is_pointer() { Some(8) } else { known_type(&self.kind).map(|(size, _)| size) };
        let size = known.or_else(|| self.size.checked_div(elements?))?;
        let elements = self.size.checked_div(size)?;
        (elements > 0).then_some((size, elements))
    }
}

/// A declaration without `[N]` at its end, and the N: `Some(None)` if it is no number.
fn elements(declaration: &str) -> (&str, Option<Option<u32>>) {
    let declaration = declaration.trim();
    let Some(open) = declaration.rfind('[').filter(|_| declaration.ends_with(']')) else { return (declaration, None) };
    let elements = declaration[open + 1..declaration.len() - 1].trim().parse().ok();
    (declaration[..open].trim_end(), Some(elements))
}

impl Record {
    /// Reads a format. Lines that are not understood are left out.
    pub fn parse(group: &str, text: &str) -> Self {
        let members = text.lines().filter_map(Member::parse).collect();
        let print = text.split_once("print fmt:").map_or_else(Print::default, |(_, print)| Print::parse(print));
        Self { members, print, is_syscall: matches!(group, "syscalls" | "raw_syscalls") }
    }

    /// A field of the record; none if the record has no field of this name.
    pub fn field(&self, first: &str, rest: &[Part], is_text: bool) -> Option<Result<Field, String>> {
        let member = self.members.iter().find(|member| member.name == first)?;
        Some(match rest {
            [] => self.resolve(member, None, is_text),
            [Part::Index(index)] => self.resolve(member, Some(*index), is_text),
            _ => Err("is not possible: records have no members of members; events with btf: have".to_owned()),
        })
    }

    /// All fields that programs can read.
    pub fn fields(&self) -> Vec<Listed> {
        let list = |member: &Member| Listed::new(&member.name, &member.declared(), self.meaning(member).as_deref());
        self.members.iter().filter(|member| member.at >= COMMON).map(list).collect()
    }

    /// The meaning of a field, where its declaration does not say it.
    fn meaning(&self, member: &Member) -> Option<String> {
        let name = &member.name;
        match self.resolve(member, None, false) {
            Ok(_) if member.is_pointer() && member.kind.contains("char") => Some(format!("text: str.{name}")),
            Ok(field) => for_people(field.format).map(str::to_owned),
            Err(_) if member.elements().is_some_and(|_| self.resolve(member, Some(0), false).is_ok()) => {
                Some(format!("numbers, {name}[0] and following"))
            }
            Err(why) => Some(why),
        }
    }

    fn resolve(&self, member: &Member, index: Option<u32>, is_text: bool) -> Result<Field, String> {
        if member.at < COMMON {
            return Err("is not given to programs: use pid, tid, cpu or comm".to_owned());
        }
        let at = u16::try_from(member.at).map_err(|_| "is too far behind the beginning of the record".to_owned())?;
        match (member.shape, index) {
            (Shape::One, Some(_)) => Err(format!("is not possible: '{}' is no array", member.name)),
            (Shape::One, None) => self.number(member, 0, member.size, is_text),
            (Shape::DataLoc | Shape::RelLoc, None) if member.is_chars() => {
                aligned(member.at, member.size)?;
                let rel = member.shape == Shape::RelLoc;
                Ok(Field::text(if rel { abi::CUSTOM_REL_LOC } else { abi::CUSTOM_DATA_LOC }).at(at))
            }
            (Shape::DataLoc | Shape::RelLoc, _) => {
                Err(format!("can't be read: the length of {} varies", member.declared()))
            }
            (Shape::Array { .. }, None) => self.array(member, at, is_text),
            (Shape::Array { .. }, Some(index)) => {
                let (size, elements) = member.elements().ok_or_else(|| unknown_length(member))?;
                if index >= elements {
                    let (name, last) = (&member.name, elements - 1);
                    return Err(format!("is behind the end of the array: the last element is {name}[{last}]"));
                }
                self.number(member, index * size, size, is_text)
            }
        }
    }

    fn array(&self, member: &Member, at: u16, is_text: bool) -> Result<Field, String> {
        let (_, elements) = member.elements().ok_or_else(|| unknown_length(member))?;
        let name = &member.name;
        if member.is_chars() {
            return Ok(Field::new(abi::CUSTOM_CHARS, member.size, Format::Text).at(at));
        }
        if !member.is_bytes() || member.size > super::KEPT {
            return Err(format!("is an array of {elements} numbers: use {name}[0] to {name}[{}]", elements - 1));
        }
        if is_text {
            return Err("is not possible: the field is not an address".to_owned());
        }
        let format = match (self.print.conversion(name), member.size) {
            (Some("pI4"), 4) => Format::Ipv4,
            (Some(conversion), _) if conversion.starts_with("pU") => Format::Bytes,
            _ => meaning::of_bytes(name, member.size),
        };
        Ok(Field::new(abi::CUSTOM_BYTES, member.size, format).at(at))
    }

    /// A number that is `offset` bytes behind the beginning of a field, or the text at this address.
    fn number(&self, member: &Member, offset: u32, size: u32, is_text: bool) -> Result<Field, String> {
        let at = member.at.saturating_add(offset);
        aligned(at, size)?;
        let place = u16::try_from(at).map_err(|_| "is too far behind the beginning of the record".to_owned())?;
        if is_text {
            if size != 8 {
                return Err("is not possible: the field is not an address".to_owned());
            }
            let source = if self.is_syscall { abi::CUSTOM_USER_TEXT } else { abi::CUSTOM_KERNEL_TEXT };
            return Ok(Field::text(source).at(place));
        }
        let (mut size, mut is_signed) = (size, member.is_signed);
        if let Some((narrow, signed)) = known_type(&member.kind).filter(|_| self.is_syscall)
            && narrow <= size
            && cfg!(target_endian = "little")
        {
            (size, is_signed) = (narrow, signed);
        }
        let kind = member.kind.strip_prefix("const ").unwrap_or(&member.kind);
        let conversion = self.print.conversion(&member.name);
        let address = match conversion {
            Some(conversion) if size == 8 && (conversion.starts_with("pS") || conversion.starts_with("ps")) => {
                Address::OfCode
            }
            _ if member.is_pointer() => Address::OfData,
            _ => Address::No,
        };
        let number = Number { name: &member.name, types: &[kind], size, is_signed, address };
        let mut field = number.field(abi::CUSTOM_NUMBER).at(place);
        if let Some(names) = self.print.names(&member.name).filter(|_| member.shape == Shape::One) {
            field.format = if names.are_flags { Format::Flags } else { Format::Named };
            let as_in_key = |(value, name): &(u64, String)| (meaning::as_in_key(*value, size, is_signed), name.clone());
            field.names = names.names.iter().map(as_in_key).collect();
        } else if field.format == Format::Unsigned && !self.is_syscall {
            // System calls print all their arguments in hexadecimal.
            field.format = match conversion {
                Some(conversion) if conversion.ends_with(['x', 'X']) => Format::Hex,
                Some("pI4") if size == 4 => Format::Ipv4,
                _ => Format::Unsigned,
            };
        }
        Ok(field)
    }
}

fn unknown_length(member: &Member) -> String {
    format!("can't be read: the length of {} is not known", member.declared())
}

/// Checks that the program can read a number in one go.
fn aligned(at: u32, size: u32) -> Result<(), String> {
    if !matches!(size, 1 | 2 | 4 | 8) {
        return Err(format!("can't be read: it has {size} bytes, and numbers have 1, 2, 4 or 8"));
    }
    if !at.is_multiple_of(size) {
        return Err(format!("can't be read: its {size} bytes are at {at}, which is no multiple of {size}"));
    }
    Ok(())
}
