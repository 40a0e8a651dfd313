// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers and times of definitions.

use std::ops::RangeInclusive;

use super::{MAX_PERIOD_MS, MIN_PERIOD_MS};
use crate::unit::human_ms;

/// The units of numbers. Times are in nanoseconds.
const UNITS: [(&str, u64); 10] = [
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];

/// More digits after a point are below the smallest unit's precision.
const MAX_DECIMALS: usize = 18;

/// Parses a number from -2^63 to 2^64 - 1.
pub fn number(text: &str) -> Result<i128, String> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let size = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => hexadecimal(text, hex)?,
        None => decimal(text, digits)?,
    };
    let number = i128::try_from(size).ok().map(|size| if negative { -size } else { size });
    let fits = |number: &i128| (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(number);
    number.filter(fits).ok_or_else(|| out_of_range(text))
}

fn out_of_range(text: &str) -> String {
    format!("{text} is not in -2^63 to 2^64 - 1")
}

fn hexadecimal(text: &str, digits: &str) -> Result<u128, String> {
    if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_hexdigit()) {
        return Err(format!("{text:?} is no hexadecimal number, such as 0x1f; units stand after decimal numbers only"));
    }
    u64::from_str_radix(digits, 16).map(u128::from).map_err(|_| out_of_range(text))
}

fn decimal(text: &str, digits: &str) -> Result<u128, String> {
    let end = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
    let (digits, unit) = digits.split_at(end);
    let times = match UNITS.iter().find(|(name, _)| *name == unit) {
        Some((_, times)) => *times,
        None if unit.is_empty() => 1,
        None => {
            return Err(format!("{text:?} is no number; a unit is one of k M G Ki Mi Gi, or ns us ms s for a time"));
        }
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() || part.contains('.') || digits.ends_with('.') || part.len() > MAX_DECIMALS {
        return Err(format!("{text:?} is no number, such as 4096, 0x1f, 4Ki or 1.5ms"));
    }
    if whole.len() > 1 && whole.starts_with('0') {
        return Err(format!("{text} begins with 0: there are no octal numbers; write it in decimal or as 0x…"));
    }
    let whole: u64 = whole.parse().map_err(|_| out_of_range(text))?;
    let scale = 10_u128.pow(part.len() as u32);
    let part = if part.is_empty() { 0 } else { part.parse::<u64>().map_err(|_| out_of_range(text))? };
    // Below 2^64 * 10^18, and so below 2^124. A product that does not fit is far out of range.
    let scaled = (u128::from(whole) * scale + u128::from(part)).checked_mul(times.into());
    let scaled = scaled.ok_or_else(|| out_of_range(text))?;
    if scaled % scale == 0 { Ok(scaled / scale) } else { Err(format!("{text} is no whole number")) }
}

/// Parses a number in a range.
pub fn within(text: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    let number = number(text)?;
    u64::try_from(number).ok().filter(|number| range.contains(number)).ok_or_else(|| match range.end() {
        &u64::MAX => format!("{text} is not in {} to 2^64 - 1", range.start()),
        most => format!("{text} is not in {} to {most}", range.start()),
    })
}

/// Parses a period into milliseconds.
pub fn period_ms(text: &str) -> Result<u32, String> {
    if !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit()) {
        return Err(format!("{text} has no unit: write {text}ms or {text}s"));
    }
    let time =
        humantime::parse_duration(text).map_err(|_| format!("{text:?} is no time, such as 500ms, 1s, 1m or 1h"))?;
    if time.subsec_nanos() % 1_000_000 != 0 {
        return Err(format!("{text} is not a whole number of milliseconds"));
    }
    let ms = u32::try_from(time.as_millis()).ok().filter(|ms| (MIN_PERIOD_MS..=MAX_PERIOD_MS).contains(ms));
    ms.ok_or_else(|| format!("{text} is not in {} to {}", human_ms(MIN_PERIOD_MS), human_ms(MAX_PERIOD_MS)))
}
