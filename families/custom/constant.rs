// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The constants of conditions, as the program compares them with fields.

use std::net::{Ipv4Addr, Ipv6Addr};

use topstat_model::definition::{Constant, Op};

use super::abi;
use super::resolve::Field;
use topstat_kernel::cgroup;
use topstat_kernel::family::EventFormat;

/// The words of a constant.
pub type Words = [u64; abi::CUSTOM_TEXT_WORDS as usize];

/// Bits of a device's minor number (`MINORBITS`).
const MINOR_BITS: u32 = 20;

/// The operator, as the program has it.
pub fn op(op: Op) -> u32 {
    match op {
        Op::Is => abi::CUSTOM_EQ,
        Op::IsNot => abi::CUSTOM_NE,
        Op::Less => abi::CUSTOM_LT,
        Op::AtMost => abi::CUSTOM_LE,
        Op::More => abi::CUSTOM_GT,
        Op::AtLeast => abi::CUSTOM_GE,
        Op::AnyBit => abi::CUSTOM_AND,
    }
}

/// Whether the program compares the field by words, for equality alone.
pub fn is_text(field: &Field) -> bool {
    matches!(
        u32::from(field.field.source),
        abi::CUSTOM_CHARS
            | abi::CUSTOM_DATA_LOC
            | abi::CUSTOM_REL_LOC
            | abi::CUSTOM_BYTES
            | abi::CUSTOM_USER_TEXT
            | abi::CUSTOM_KERNEL_TEXT
            | abi::CUSTOM_PATH_CHARS
            | abi::CUSTOM_PATH_BYTES
            | abi::CUSTOM_PATH_TEXT
            | abi::CUSTOM_COMM
    )
}

/// The words of a constant that a field is compared with.
///
/// # Errors
/// The field can never have this value, or has no such name: in the words for the user.
pub fn words(field: &Field, constant: &Constant) -> Result<Words, String> {
    if is_text(field) {
        return text(field, constant);
    }
    let mut words = Words::default();
    words[0] = number(field, constant)?;
    Ok(words)
}

fn text(field: &Field, constant: &Constant) -> Result<Words, String> {
    let size = usize::from(field.field.size);
    let written = match constant {
        Constant::Text(text) | Constant::Name(text) => text.clone(),
        Constant::Number(number) => number.to_string(),
    };
    let bytes = match field.format {
        EventFormat::Ipv4 => written.parse::<Ipv4Addr>().map(|ip| ip.octets().to_vec()).map_err(|e| e.to_string()),
        EventFormat::Ipv6 => written.parse::<Ipv6Addr>().map(|ip| ip.octets().to_vec()).map_err(|e| e.to_string()),
        EventFormat::Mac | EventFormat::Bytes => hex(&written, size),
        // One byte is the zero at the end.
        _ if written.len() < size => Ok(written.clone().into_bytes()),
        _ => Err(format!("it is longer than the {} bytes that are kept", size - 1)),
    };
    let bytes = bytes.map_err(|why| format!("{written:?} is no value of the field: {why}"))?;
    let mut words = Words::default();
    for (word, bytes) in words.iter_mut().zip(bytes.chunks(size_of::<u64>())) {
        let mut all = [0; size_of::<u64>()];
        all[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(all);
    }
    Ok(words)
}

/// Bytes in base 16, with or without colons between them.
fn hex(text: &str, size: usize) -> Result<Vec<u8>, String> {
    let digits: String = text.chars().filter(|c| *c != ':').collect();
    let is_hex = digits.len() == 2 * size && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let byte = |i: usize| digits.get(2 * i..2 * i + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    let bytes = is_hex.then(|| (0..size).map(byte).collect::<Option<Vec<u8>>>()).flatten();
    bytes.ok_or_else(|| format!("it has {size} bytes, each of two digits of base 16"))
}

fn number(field: &Field, constant: &Constant) -> Result<u64, String> {
    match constant {
        Constant::Number(number) => in_range(field, *number),
        Constant::Text(text) | Constant::Name(text) => named(field, text),
    }
}

/// The field's word for a number.
fn in_range(field: &Field, number: i128) -> Result<u64, String> {
    let bits = u64::BITS - u32::from(field.field.right);
    let is_signed = u32::from(field.field.flags) & abi::CUSTOM_SIGNED != 0;
    let (least, most) = match is_signed {
        true => (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1),
        false => (0, (1_i128 << bits) - 1),
    };
    if !(least..=most).contains(&number) {
        return Err(format!("the field is from {least} to {most}, so the condition always has one result"));
    }
    // Negative numbers are extended to the word, as the program does it.
    Ok(u64::try_from(number).unwrap_or_else(|_| i64::try_from(number).unwrap_or(0).cast_unsigned()))
}

/// The field's word for a text.
fn named(field: &Field, text: &str) -> Result<u64, String> {
    if let Some((value, _)) = field.names.iter().find(|(_, name)| name == text) {
        return Ok(*value);
    }
    let found = match field.format {
        EventFormat::Ipv4 => text.parse::<Ipv4Addr>().ok().map(|ip| u32::from_ne_bytes(ip.octets()).into()),
        EventFormat::Device => text.split_once(':').and_then(|(major, minor)| {
            let (major, minor): (u64, u64) = (major.parse().ok()?, minor.parse().ok()?);
            Some(major << MINOR_BITS | minor)
        }),
        EventFormat::Bool => text.parse::<bool>().ok().map(u64::from),
        EventFormat::Cgroup => {
            let number = cgroup::number(text).map_err(|error| format!("there is no control group {text}: {error}"))?;
            Some(number)
        }
        _ => None,
    };
    found.ok_or_else(|| {
        let names: Vec<_> = field.names.iter().map(|(_, name)| name.as_str()).collect();
        let wanted = match field.format {
            EventFormat::Ipv4 => "an address such as 10.0.0.1".to_owned(),
            EventFormat::Device => "a number, or MAJOR:MINOR in quotes".to_owned(),
            _ if names.is_empty() => "a number".to_owned(),
            _ => format!("a number or one of {}", names.join(", ")),
        };
        format!("{text:?} is no value of the field: allowed is {wanted}")
    })
}
