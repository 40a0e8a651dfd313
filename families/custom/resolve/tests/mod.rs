// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the resolver: with formats of a real kernel (`records.rs`), and with all events of the running one
//! (`live.rs`).

mod formats;
mod live;
mod probes;
mod records;

use super::{Event, Field, FieldName, Part, Place, System};

/// Reads a name as users write it.
fn parts(name: &str) -> (Vec<Part>, bool) {
    let (name, is_text) = name.strip_prefix("str.").map_or((name, false), |name| (name, true));
    let mut parts = Vec::new();
    for part in name.split('.') {
        let mut of_part = part.split('[');
        parts.extend(of_part.next().map(|name| Part::Name(name.to_owned())));
        parts.extend(of_part.map(|index| Part::Index(index.trim_end_matches(']').parse().unwrap())));
    }
    (parts, is_text)
}

fn field(event: &Event, name: &str) -> Result<Field, String> {
    let (parts, is_text) = parts(name);
    event.field(&FieldName { text: name.to_owned(), parts, is_text, at: 1 })
}

/// The source, the place and the size of a field.
fn place(field: &Field) -> (u32, u16, u8) {
    (field.field.source.into(), field.field.at, field.field.size)
}

#[test]
fn a_system_without_tracefs_says_what_to_do() {
    let system = System::at("/nowhere");
    let place = Place::Tracepoint { group: "block".into(), name: "block_rq_issue".into() };
    let why = Event::open(&place, &system).err().unwrap();
    assert!(why.contains("'mount -t tracefs tracefs /nowhere' as root"), "{why}");
    assert!(super::list(&system, "block").unwrap_err().contains("mount -t tracefs"));
}
