// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The help: all keys, from the key map.

use ratatui::layout::Rect;

use super::pen::{BOLD, PLAIN, Pen};
use super::scrolled;
use crate::keys::KEYS;
use crate::state::App;

/// The width of a column of keys, in cells.
const COLUMN: u16 = 38;

pub fn draw(app: &mut App, pen: &mut Pen<'_>, area: Rect) {
    let mut groups: Vec<&str> = Vec::new();
    for binding in KEYS {
        if !groups.contains(&binding.group) {
            groups.push(binding.group);
        }
    }
    let mut lines = Vec::new();
    for group in groups {
        lines.push((group.to_owned(), BOLD));
        for binding in KEYS.iter().filter(|binding| binding.group == group) {
            lines.push((format!("  {:<10} {}", binding.names(), binding.about), PLAIN));
        }
    }
    let notes = [
        "Filter",
        "  port:443 comm:nginx value>1M",
        "  cgroup:/system.slice !netns:1",
        "Mouse",
        "  click rows, titles, charts; wheel",
    ];
    lines.extend(notes.iter().map(|note| ((*note).to_owned(), if note.starts_with(' ') { PLAIN } else { BOLD })));
    scrolled(app, pen, area, &lines, COLUMN);
}
