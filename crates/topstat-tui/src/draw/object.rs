// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One object: all that describes it, its values over time, and what else is of the same process or control group.

use std::fs;

use ratatui::layout::Rect;
use topstat_model::{Field, Snapshot};

use super::pen::{BOLD, CHART, DIM, PLAIN, Pen, fit};
use super::{bars, brief, value};
use crate::state::{App, When};

/// The most rows of each other table.
const RELATED: usize = 5;
/// From how many lines on there is a line for each part over time.
const TALL: u16 = 30;
/// The cells of names.
const NAMES: usize = 12;

pub fn draw(app: &mut App, pen: &mut Pen<'_>, area: Rect, object: &[Field]) {
    let Some(data) = app.current() else { return };
    let mut lines = Lines { pen, area, y: area.y };
    let Ok(snapshot) = app.shown(app.table) else { return };
    lines.put(&format!("{}  {}", data.meta.path(), brief(&snapshot, object)), BOLD);
    let row = snapshot.rows.iter().find(|row| row.object == object);
    let values = app.values(object);
    match row {
        Some(row) => {
            let parts = snapshot.parts.iter().zip(&row.parts);
            let parts = parts.map(|(name, part)| format!("{name} {}", value(app, &snapshot, *part)));
            let cpus: Vec<_> = row.cpus.iter().map(ToString::to_string).collect();
            lines.pair(&snapshot.value_name, &format!("{}  rank {}", value(app, &snapshot, row.value), row.rank));
            lines.pair("parts", &parts.collect::<Vec<_>>().join("  "));
            lines.pair("cpus", &cpus.join(","));
        }
        None => lines.pair(&snapshot.value_name, "not at the top now"),
    }
    let cells = usize::from(area.width).saturating_sub(NAMES + 2);
    let most = values.value.iter().copied().max().unwrap_or(0);
    let line = bars::sparkline(&values.value, cells, lines.pen.look());
    lines.named("over time", &line, CHART);
    if area.height >= TALL {
        // In the same measure: what they add up to is the line above.
        let largest = bars::largest(&values.value, cells);
        for (name, part) in snapshot.parts.iter().zip(&values.parts) {
            let line = bars::sparkline_of(part, largest, cells, lines.pen.look());
            lines.named(name, &line, CHART);
        }
    }
    lines.pair("", &format!("most {}, in {} readings", value(app, &snapshot, most), values.value.len()));
    for (column, field) in snapshot.columns.iter().zip(object).filter(|(_, field)| !field.is_none()) {
        lines.pair(&column.name, &field.to_string());
    }
    let number = |name: &str| match object.get(snapshot.column(name)?)? {
        Field::U64(number) => Some(*number),
        _ => None,
    };
    let pid = number("pid");
    // What lives now says nothing of the past: the pid may be another's.
    if let (Some(pid), When::Live) = (pid, &app.when) {
        process(&mut lines, pid);
    }
    related(app, &mut lines, &snapshot, object);
}

/// What /proc knows of the process.
fn process(lines: &mut Lines<'_, '_>, pid: u64) {
    let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else {
        return lines.pair("process", "has ended, or is not visible here");
    };
    let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let text = words.join(" ");
    lines.pair("command", &topstat_model::typeset::escape(text.trim()));
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let wanted = ["State", "PPid", "Uid", "Threads", "VmRSS"];
    let found = status.lines().filter_map(|line| line.split_once(':')).filter(|(name, _)| wanted.contains(name));
    let found: Vec<_> = found
        .map(|(name, value)| format!("{name} {}", value.split_whitespace().take(2).collect::<Vec<_>>().join(" ")))
        .collect();
    lines.pair("process", &found.join("  "));
}

/// Rows of other tables with the same process; or where the object is none, with the same control group.
fn related(app: &App, lines: &mut Lines<'_, '_>, snapshot: &Snapshot, object: &[Field]) {
    let field = |name: &str| object.get(snapshot.column(name)?).filter(|field| !field.is_none());
    let Some((name, wanted)) = ["pid", "cgroup"].into_iter().find_map(|name| Some((name, field(name)?))) else {
        return;
    };
    for table in (0..app.data.len()).filter(|table| *table != app.table) {
        let Ok(other) = app.shown(table) else { continue };
        let Some(place) = other.column(name) else { continue };
        let rows: Vec<_> = other.rows.iter().filter(|row| row.object.get(place) == Some(wanted)).collect();
        if rows.is_empty() {
            continue;
        }
        lines.put(&format!("{}  of the same {name}", app.data[table].meta.path()), BOLD);
        for row in rows.iter().take(RELATED) {
            lines.put(&format!("{:>12}  {}", value(app, &other, row.value), brief(&other, &row.object)), PLAIN);
        }
        if rows.len() > RELATED {
            lines.put(&format!("{:>12}  and {} more", "", rows.len() - RELATED), DIM);
        }
    }
}

/// Lines one below the other, as many as fit.
struct Lines<'a, 'b> {
    pen: &'a mut Pen<'b>,
    area: Rect,
    y: u16,
}

impl Lines<'_, '_> {
    fn put(&mut self, text: &str, ink: super::pen::Ink) {
        if self.y < self.area.bottom() {
            let text = fit(text, self.area.width.into(), false);
            self.pen.put(self.area.x, self.y, self.area.width, &text, ink);
            self.y += 1;
        }
    }

    fn pair(&mut self, name: &str, text: &str) {
        self.named(name, text, PLAIN);
    }

    fn named(&mut self, name: &str, text: &str, ink: super::pen::Ink) {
        if self.y < self.area.bottom() {
            let x = self.pen.put(self.area.x, self.y, self.area.width, &format!("{name:>NAMES$}  "), DIM);
            let cells = self.area.right().saturating_sub(x);
            self.pen.put(x, self.y, cells, &fit(text, cells.into(), false), ink);
            self.y += 1;
        }
    }
}
