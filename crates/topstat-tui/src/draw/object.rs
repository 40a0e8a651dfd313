// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One object: its description, its values over time, and rows of other tables with the same process or control group.

use ratatui::layout::Rect;
use topstat_model::typeset::escape;
use topstat_model::{Field, Snapshot};

use super::pen::{BOLD, DIM, PLAIN, Pen, TINT, fit};
use super::table::cpu_shares;
use super::{bars, brief, title, value};
use crate::details;
use crate::state::{App, When};

/// The most rows of each related table.
const RELATED: usize = 5;
/// From this height on, in lines, each part has a chart.
const TALL: u16 = 30;
/// The width of names, in cells.
const NAMES: usize = 12;

pub fn draw(app: &mut App, pen: &mut Pen<'_>, area: Rect, object: &[Field]) {
    let Some(data) = app.current() else { return };
    let mut lines = Lines { pen, area, y: area.y };
    let Ok(snapshot) = app.shown(app.table) else { return };
    lines.put(&format!("{}  {}", data.meta.path(), brief(app, &snapshot, object)), BOLD);
    let row = snapshot.rows.iter().find(|row| Field::same_object(&row.object, object));
    let unit = title(app, &snapshot);
    let values = app.values(object);
    match row {
        Some(row) => {
            let parts = snapshot.parts.iter().zip(&row.parts);
            let parts = parts.map(|(name, part)| format!("{name} {}", value(app, &snapshot, *part)));
            lines.pair(&unit, &format!("{}  rank {}", value(app, &snapshot, row.value), row.rank));
            lines.pair("parts", &parts.collect::<Vec<_>>().join("  "));
            cpus(&mut lines, &snapshot, &row.cpus);
        }
        None => lines.pair(&unit, "not at the top now"),
    }
    let most = values.value.iter().copied().max().unwrap_or(0);
    let largest = bars::largest(&values.value, area.width.saturating_sub(NAMES as u16 + 2));
    lines.chart("over time", &values.value, largest);
    if area.height >= TALL {
        // The charts of the parts have the scale of the chart above, which shows their sum.
        for (name, part) in snapshot.parts.iter().zip(&values.parts) {
            lines.chart(name, part, largest);
        }
    }
    lines.pair("", &format!("most {}, in {} readings", value(app, &snapshot, most), values.value.len()));
    for (column, field) in
        snapshot.columns.iter().zip(row.map_or(object, |row| &row.object)).filter(|(_, field)| !field.is_none())
    {
        let name = if let Field::Ip(address) = field { app.host_name(*address) } else { None };
        let name = name.map_or_else(String::new, |name| format!("  {}", escape(&name)));
        lines.pair(&column.name, &format!("{field}{name}"));
    }
    let number = |name: &str| match object.get(snapshot.column(name)?)? {
        Field::U64(number) => Some(*number),
        _ => None,
    };
    let pid = number("pid");
    // /proc describes the present only: in the past, the pid may have been another process's.
    if let (Some(pid), When::Live) = (pid, &app.when) {
        details::process(pid).into_iter().for_each(|(name, text)| lines.pair(name, &text));
    }
    let group = snapshot.column("cgroup").and_then(|place| object.get(place));
    if let (Some(Field::Text(path)), When::Live) = (group, &app.when) {
        details::group(path).into_iter().for_each(|(name, text)| lines.pair(name, &text));
    }
    related(app, &mut lines, &snapshot, object);
}

/// The most cells of CPUs. If there are more CPUs, a cell shows the largest of several.
const CPU_CELLS: u16 = 64;

/// Draws the CPUs that have counted the object, and the table's total on each of them.
fn cpus(lines: &mut Lines<'_, '_>, snapshot: &Snapshot, own: &[u32]) {
    let names: Vec<_> = own.iter().map(ToString::to_string).collect();
    let all = cpu_shares(snapshot).into_iter().zip(&snapshot.cpus);
    // A CPU that has counted the object is visible, however small its total is.
    let shares = all.map(|(share, cpu)| if own.contains(&cpu.cpu) { share.max(f64::MIN_POSITIVE) } else { 0.0 });
    let shares: Vec<_> = shares.collect();
    lines.line("cpus", |pen, at| {
        let x = bars::strip(pen, at.x, at.y, CPU_CELLS.min(at.width), &shares, TINT);
        let text = format!("  {} of {}", names.join(","), shares.len());
        let cells = at.right().saturating_sub(x);
        pen.put(x, at.y, cells, &fit(&text, cells.into(), false), PLAIN);
    });
}

/// Rows of other tables with the same process. For an object without a process: with the same control group.
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
        let (path, unit) = (app.data[table].meta.path(), title(app, &other));
        lines.put(&format!("{path}  {unit}  of the same {name}"), BOLD);
        for row in rows.iter().take(RELATED) {
            lines.put(&format!("{:>12}  {}", value(app, &other, row.value), brief(app, &other, &row.object)), PLAIN);
        }
        if rows.len() > RELATED {
            lines.put(&format!("{:>12}  and {} more", "", rows.len() - RELATED), DIM);
        }
    }
}

/// Writes lines one below the other, as many as fit.
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
        self.line(name, |pen, at| {
            pen.put(at.x, at.y, at.width, &fit(text, at.width.into(), false), PLAIN);
        });
    }

    fn chart(&mut self, name: &str, values: &[u64], largest: u64) {
        self.line(name, |pen, at| bars::sparkline(pen, at, values, largest));
    }

    /// Writes a name, and draws behind it.
    fn line(&mut self, name: &str, draw: impl FnOnce(&mut Pen<'_>, Rect)) {
        if self.y < self.area.bottom() {
            let x = self.pen.put(self.area.x, self.y, self.area.width, &format!("{name:>NAMES$}  "), DIM);
            draw(self.pen, Rect { x, y: self.y, width: self.area.right().saturating_sub(x), height: 1 });
            self.y += 1;
        }
    }
}
