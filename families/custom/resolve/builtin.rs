// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fields that every event has: they describe the task, the CPU and the network namespace at the time of the event.

use super::abi;
use super::{Field, Format, Part};

/// Name, source, bytes, format.
const BUILTINS: [(&str, u32, u32, Format); 9] = [
    ("pid", abi::CUSTOM_PID, 4, Format::Unsigned),
    ("tid", abi::CUSTOM_TID, 4, Format::Unsigned),
    ("ppid", abi::CUSTOM_PPID, 4, Format::Unsigned),
    ("uid", abi::CUSTOM_UID, 4, Format::Unsigned),
    ("cpu", abi::CUSTOM_CPU, 4, Format::Unsigned),
    ("cgroup", abi::CUSTOM_CGROUP, 8, Format::Cgroup),
    ("container", abi::CUSTOM_CGROUP, 8, Format::Container),
    ("netns", abi::CUSTOM_NETNS, 4, Format::Unsigned),
    ("comm", abi::CUSTOM_COMM, 16, Format::Text),
];

pub fn names() -> impl Iterator<Item = &'static str> {
    BUILTINS.iter().map(|(name, ..)| *name)
}

/// A built-in field, if there is one of this name.
pub fn field(first: &str, rest: &[Part], is_text: bool) -> Option<Result<Field, String>> {
    let (_, source, size, format) = BUILTINS.iter().find(|(name, ..)| *name == first)?;
    Some(if is_text {
        Err("is not possible: the field is not an address".to_owned())
    } else if rest.is_empty() {
        Ok(Field::new(*source, *size, *format))
    } else {
        Err("is not possible: the field has no parts".to_owned())
    })
}
