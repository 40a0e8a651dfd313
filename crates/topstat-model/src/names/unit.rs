// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of systemd's units.

use std::borrow::Cow;

/// A unit's type, and its name without the suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit<'a> {
    /// A service, socket or swap.
    Service(&'a str),
    /// A mount.
    Mount(&'a str),
    /// A scope.
    Scope(&'a str),
    /// A slice.
    Slice(&'a str),
}

impl<'a> Unit<'a> {
    /// The unit of a cgroup's name.
    pub fn of(name: &'a str) -> Option<Self> {
        let (short, suffix) = name.rsplit_once('.').filter(|(short, _)| !short.is_empty())?;
        match suffix {
            "service" | "socket" | "swap" => Some(Self::Service(short)),
            "mount" => Some(Self::Mount(short)),
            "scope" => Some(Self::Scope(short)),
            "slice" => Some(Self::Slice(short)),
            _ => None,
        }
    }
}

/// Removes the `_` that systemd puts before the name of a unit that could be taken for a file of the kernel, or that begins
/// with `_` or a point.
pub fn unmask(name: &str) -> &str {
    name.strip_prefix('_').filter(|rest| rest.contains('.')).unwrap_or(name)
}

/// Decodes `\xNN`. A name remains as it is if an escape is not one, or stands for a control character, a slash, or a part of
/// invalid UTF-8.
pub fn decode(name: &str) -> Cow<'_, str> {
    if !name.contains('\\') {
        return name.into();
    }
    decode_bytes(name)
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .filter(|text| !text.chars().any(|c| c.is_control() || c == '/'))
        .map_or_else(|| name.into(), Cow::Owned)
}

fn decode_bytes(name: &str) -> Option<Vec<u8>> {
    let mut parts = name.split('\\');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let digits = part.strip_prefix('x')?.get(..2)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(part.get(3..)?.as_bytes());
    }
    Some(bytes)
}

/// The path of a mount's unit: `-` stands for a slash.
pub fn mount_path(name: &str) -> String {
    match name {
        "-" => "/".to_owned(),
        _ => name.split('-').map(|part| format!("/{}", decode(part))).collect(),
    }
}

/// The application in the name of a desktop's unit: `app[-LAUNCHER]-APPLICATION[@RANDOM]` for services,
/// `app[-LAUNCHER]-APPLICATION-RANDOM` for scopes. `-` in an application's name is escaped.
pub fn application(unit: Unit<'_>) -> Option<Cow<'_, str>> {
    let parts = match unit {
        Unit::Service(name) => name.split_once('@').map_or(name, |(name, _)| name).strip_prefix("app-")?,
        Unit::Scope(name) => name.strip_prefix("app-")?.rsplit_once('-')?.0,
        Unit::Mount(_) | Unit::Slice(_) => return None,
    };
    let application = parts.rsplit_once('-').map_or(parts, |(_, application)| application);
    (!application.is_empty()).then(|| decode(application))
}
