// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The help: all keys, from the key map.

use ratatui::layout::Rect;

use super::pen::{BOLD, PLAIN, Pen};
use crate::keys::KEYS;

/// The width of a column of keys, in cells.
const COLUMN: u16 = 38;

pub fn draw(pen: &mut Pen<'_>, area: Rect) {
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
    let height = usize::from(area.height).max(1);
    // The keys come first: where there is no room for a further column, the manual has the notes.
    let room = usize::from((area.width + 2) / COLUMN).max(1) * height;
    let wanted = if lines.len() + notes.len() <= room { &notes[..] } else { &[] };
    lines.extend(wanted.iter().map(|note| ((*note).to_owned(), if note.starts_with(' ') { PLAIN } else { BOLD })));
    for (place, (line, ink)) in lines.iter().enumerate() {
        let column = u16::try_from(place / height).unwrap_or(0);
        let row = u16::try_from(place % height).unwrap_or(0);
        let x = area.x + column * COLUMN;
        if x < area.right() {
            pen.put(x, area.y + row, COLUMN.min(area.right() - x), line, *ink);
        }
    }
}
