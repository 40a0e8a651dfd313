// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's types of single values.

use libbpf_rs::btf::types::{Array, Composite, Enum, Enum64, Float, Int, IntEncoding};
use libbpf_rs::btf::{BtfKind, BtfType, HasSize};

use super::meaning::{Address, Number, as_in_key};
use super::{Field, Format};

/// Types behind each other at most: the kernel has few.
const CHAIN: usize = 32;

/// A type that is one number.
pub struct Simple {
    /// The names of the type: a typedef, the typedef behind it, and so on.
    names: Vec<String>,
    pub size: u32,
    is_signed: bool,
    /// The type is `char`, an element of text.
    pub is_char: bool,
    address: Address,
    /// Values of an enumeration.
    values: Vec<(u64, String)>,
}

impl Simple {
    /// The number in a source of the given kind. Its name may say more than its type.
    pub fn field(self, name: &str, source: u32) -> Field {
        let types: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let Self { size, is_signed, address, .. } = self;
        let mut field = Number { name, types: &types, size, is_signed, address }.field(source);
        if !self.values.is_empty() {
            field.format = Format::Named;
            field.names = self.values.into();
        }
        field
    }
}

/// The type of one number.
///
/// # Errors
/// The type is something else: the end of a sentence that begins with the name of the field.
pub fn simple(ty: &BtfType) -> Result<Simple, String> {
    let no_number = || format!("can't be read: {} is no number", describe(ty));
    let mut names = Vec::new();
    let mut last = *ty;
    for _ in 0..CHAIN {
        if last.kind() == BtfKind::Typedef {
            names.extend(last.name().map(|name| name.to_string_lossy().into_owned()));
        } else if !last.is_mod() {
            break;
        }
        last = last.next_type().ok_or_else(no_number)?;
    }
    let mut simple =
        Simple { names, size: 8, is_signed: false, is_char: false, address: Address::No, values: Vec::new() };
    if let Ok(int) = Int::try_from(last) {
        if usize::from(int.bits) != int.size() * 8 {
            return Err("can't be read: it is a bit field".to_owned());
        }
        simple.size = int.size() as u32;
        simple.is_signed = matches!(int.encoding, IntEncoding::Signed);
        simple.is_char = int.name().is_some_and(|name| name == "char") && simple.names.is_empty();
        if matches!(int.encoding, IntEncoding::Bool) {
            simple.names.push("bool".to_owned());
        }
    } else if let Ok(found) = Enum::try_from(last) {
        (simple.size, simple.is_signed) = (found.size() as u32, found.is_signed());
        let value = |i| {
            found.get(i).and_then(|member| Some((member.value as u64, member.name?.to_string_lossy().into_owned())))
        };
        simple.values = (0..found.len()).filter_map(value).collect();
    } else if let Ok(found) = Enum64::try_from(last) {
        (simple.size, simple.is_signed) = (found.size() as u32, found.is_signed());
        let value = |i| {
            found.get(i).and_then(|member| Some((member.value as u64, member.name?.to_string_lossy().into_owned())))
        };
        simple.values = (0..found.len()).filter_map(value).collect();
    } else if last.kind() == BtfKind::Ptr {
        simple.address = if is_code(&last) { Address::OfCode } else { Address::OfData };
    } else {
        return Err(no_number());
    }
    for (value, _) in &mut simple.values {
        *value = as_in_key(*value, simple.size, simple.is_signed);
    }
    matches!(simple.size, 1 | 2 | 4 | 8)
        .then_some(simple)
        .ok_or_else(|| format!("can't be read: {} has more than 8 bytes", describe(ty)))
}

/// Whether a pointer points to a function.
pub fn is_code(pointer: &BtfType) -> bool {
    pointer.next_type().is_some_and(|to| to.skip_mods_and_typedefs().kind() == BtfKind::FuncProto)
}

/// Whether text can be at an address of this type, which has no typedefs in front of it: of bytes, or of nothing in
/// particular.
pub fn is_text(ty: &BtfType) -> bool {
    ty.kind() == BtfKind::Void || Int::try_from(*ty).is_ok_and(|int| int.size() == 1)
}

/// Bytes of a type.
pub fn size_of(ty: &BtfType) -> Option<usize> {
    let mut ty = ty.skip_mods_and_typedefs();
    let mut elements = 1usize;
    for _ in 0..CHAIN {
        let Ok(array) = Array::try_from(ty) else { break };
        elements = elements.checked_mul(array.capacity())?;
        ty = array.contained_type().skip_mods_and_typedefs();
    }
    let size = match ty.kind() {
        BtfKind::Int => Int::try_from(ty).ok()?.size(),
        BtfKind::Ptr => 8,
        BtfKind::Struct | BtfKind::Union => Composite::try_from(ty).ok()?.size(),
        BtfKind::Enum => Enum::try_from(ty).ok()?.size(),
        BtfKind::Enum64 => Enum64::try_from(ty).ok()?.size(),
        BtfKind::Float => Float::try_from(ty).ok()?.size(),
        _ => return None,
    };
    elements.checked_mul(size)
}

/// A type as C has it, nearly.
pub fn describe(ty: &BtfType) -> String {
    let name = ty.name().map(|name| name.to_string_lossy().into_owned());
    let next = || ty.next_type().as_ref().map_or_else(String::new, describe);
    let named =
        |kind: &str| name.as_ref().map_or_else(|| format!("{kind} without a name"), |name| format!("{kind} {name}"));
    match ty.kind() {
        BtfKind::Void => "void".to_owned(),
        BtfKind::Ptr if is_code(ty) => "function *".to_owned(),
        BtfKind::Ptr => {
            let next = next();
            if next.ends_with('*') { format!("{next}*") } else { format!("{next} *") }
        }
        BtfKind::Const => format!("const {}", next()),
        BtfKind::Volatile | BtfKind::Restrict | BtfKind::TypeTag => next(),
        BtfKind::Array => Array::try_from(*ty).map_or_else(
            |_| String::new(),
            |array| format!("{}[{}]", describe(&array.contained_type()), array.capacity()),
        ),
        BtfKind::Struct => named("struct"),
        BtfKind::Fwd => named("struct"),
        BtfKind::Union => named("union"),
        BtfKind::Enum | BtfKind::Enum64 => named("enum"),
        _ => name.unwrap_or_else(|| "function".to_owned()),
    }
}
