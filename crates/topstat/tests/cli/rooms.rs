// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rooms of the program are the modules of `lib.rs`. No two rooms depend on each other, directly or through others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// All source files below a directory.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// The rooms that a text names as `crate::ROOM` or in `crate::{ROOM, ROOM::NAME}`.
fn named(text: &str) -> Vec<String> {
    let first =
        |path: &str| path.trim_start().split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned);
    let of = |rest: &str| -> Vec<String> {
        let Some(list) = rest.strip_prefix('{') else { return first(rest).into_iter().collect() };
        // Inner lists have names of the rooms' items.
        let mut depth = 0;
        let ends = move |c: char| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            c == ',' && depth == 0
        };
        let list = &list[..list.find("};").unwrap_or(list.len())];
        list.split(ends).filter_map(first).collect()
    };
    text.split("crate::").skip(1).flat_map(of).collect()
}

/// The rooms that the files of each room name.
fn uses() -> BTreeMap<String, BTreeSet<String>> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in sources(&src) {
        let below = file.strip_prefix(&src).unwrap();
        let room = below.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned();
        let text = fs::read_to_string(&file).unwrap();
        uses.entry(room.clone()).or_default().extend(named(&text).into_iter().filter(|name| *name != room));
    }
    // These files export the rooms, and are no rooms.
    uses.remove("lib");
    uses.remove("main");
    let rooms: BTreeSet<String> = uses.keys().cloned().collect();
    uses.values_mut().for_each(|used| used.retain(|name| rooms.contains(name)));
    uses
}

#[test]
fn no_room_depends_on_one_that_depends_on_it() {
    let mut left = uses();
    assert!(left["commands"].contains("daemon") && left["args"].contains("config"), "it finds who uses whom: {left:?}");
    // Rooms that use none of the remaining rooms are removed, again and again. Only cycles and their users remain.
    while let Some(free) = left.iter().find(|(_, used)| used.is_empty()).map(|(room, _)| room.clone()) {
        left.remove(&free);
        left.values_mut().for_each(|used| {
            used.remove(&free);
        });
    }
    assert!(left.is_empty(), "these rooms depend on each other, or on such: {left:?}");
}
