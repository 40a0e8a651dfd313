// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The "now" screen as text, for a pipe.

use std::fmt::Write as _;

use topstat_model::rfc3339;
use unicode_width::UnicodeWidthStr as _;

use super::{Line, Others, Panel, measures};
use crate::state::App;

/// The most lines of a panel.
pub(super) const MOST: usize = 10;

/// A text in at least this many cells.
fn padded(text: &str, cells: usize) -> String {
    format!("{text}{}", " ".repeat(cells.saturating_sub(text.width())))
}

/// The screen as text: the host, the panels one after the other, and whether that is complete.
pub fn write(app: &App) -> String {
    let mut out = String::new();
    let load = app.host.load.map_or(String::new(), |load| format!("  load {load:.2}"));
    // Writing into a String can't fail.
    let _ = writeln!(out, "{}{load}", rfc3339(app.shown_at()));
    let hosts: Vec<_> = app.hosts.until(None, 1).collect();
    for measure in hosts.last().iter().flat_map(|now| measures(now, &hosts)) {
        let line = format!("{:<10} {:>6}  {:<40} {}", measure.name, measure.figure, measure.details, measure.last);
        let _ = writeln!(out, "{}", line.trim_end());
    }
    for panel in Panel::ALL {
        let content = app.panel(panel, MOST);
        let _ = writeln!(out, "\n{}", app.title(panel));
        let widest = |of: fn(&Line) -> &str| content.lines.iter().map(|line| of(line).width()).max().unwrap_or(0);
        let (name, place) = (widest(|line| &line.name), widest(|line| &line.place));
        for line in &content.lines {
            let sign = if line.ended { "†" } else { " " };
            let text = format!(
                "{:>9} {sign} {}  {}  {}",
                line.figure,
                padded(&line.name, name),
                padded(&line.place, place),
                line.more
            );
            let _ = writeln!(out, "{}", text.trim_end());
        }
        if let Some(Others { figure, count, .. }) = &content.others {
            let count = count.filter(|count| *count > 0).map_or(String::new(), |count| format!("{count} "));
            let _ = writeln!(out, "{figure:>9}   {count}{}", panel.others());
        }
        if let Some(said) = &content.said {
            let _ = writeln!(out, "  {said}");
        }
    }
    let doubts = app.trust().doubts;
    let _ = match doubts.is_empty() {
        true => writeln!(out, "\ncomplete: all rows are proven, nothing was lost"),
        false => writeln!(out, "\nnot complete:\n  {}", doubts.join("\n  ")),
    };
    out
}
