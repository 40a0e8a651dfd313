// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The overview: the tops of all tables.

use ratatui::layout::Rect;

use super::pen::{BOLD, DIM, PLAIN, Pen, SELECTED, WRONG, fit};
use super::{Host, bars, brief, split, value};
use crate::rows::chosen_by;
use crate::state::{App, Hit};

/// The number of rows of each table.
const ROWS: usize = 5;
/// The lines of each table: its title, its rows, and an empty one.
const LINES: u16 = 7;
/// From this width on, in cells, two tables stand side by side.
const WIDE: u16 = 120;

/// Draws the overview. The activity of the host comes first if it had no room in the title line.
pub fn draw(app: &mut App, pen: &mut Pen<'_>, area: Rect, with_host: bool) {
    let columns = if area.width >= WIDE { 2 } else { 1 };
    let width = area.width / columns;
    let (line, area) = split(area, u16::from(with_host));
    if with_host {
        Host::of(app).draw(pen, line);
    }
    let lines = (area.height / LINES).max(1);
    let fitting = usize::from(lines * columns);
    app.page = fitting;
    let mut hits = Vec::new();
    if app.data.is_empty() {
        pen.put(area.x, area.y, area.width, "there are no tables", WRONG);
    }
    for (place, table) in app.in_page().into_iter().enumerate() {
        let place = u16::try_from(place).unwrap_or(0);
        let (column, line) = (place / lines, place % lines);
        let at = Rect {
            x: area.x + column * width,
            y: area.y + line * LINES,
            width: width - u16::from(columns > 1),
            height: LINES.min(area.height - line * LINES),
        };
        one(app, pen, at, table);
        hits.push((at, Hit::Table(table)));
    }
    app.hits = hits;
}

fn one(app: &App, pen: &mut Pen<'_>, area: Rect, table: usize) {
    let meta = &app.data[table].meta;
    let ink = if table == app.table { SELECTED } else { BOLD };
    let x = pen.put(area.x, area.y, area.width, &format!("{:<24}", meta.path()), ink);
    let shown = match app.shown(table) {
        Ok(shown) => shown,
        Err(why) => {
            pen.put(x + 1, area.y, area.right().saturating_sub(x + 1), &why, DIM);
            return;
        }
    };
    let total = format!(" {:>9} {:>7} objects", value(app, &shown, shown.total), shown.objects);
    let x = pen.put(x, area.y, area.right() - x, &total, PLAIN);
    let lost: u64 = shown.lost_now.nonzero().map(|(_, count)| count).sum();
    let x = if lost > 0 { pen.put(x, area.y, area.right() - x, &format!(" lost {lost}"), WRONG) } else { x };
    let cells = area.right().saturating_sub(x + 1);
    let totals = app.sums(table, cells.into());
    let totals: Vec<_> = totals.iter().map(|sums| sums.rows.saturating_add(sums.other)).collect();
    let chart = Rect { x: x + 1, width: cells, height: 1, ..area };
    bars::sparkline(pen, chart, &totals, bars::largest(&totals, cells));
    if shown.rows.is_empty() && area.height > 1 {
        pen.put(area.x + 2, area.y + 1, area.width - 2, &super::table::nothing(&shown), DIM);
    }
    let chosen = chosen_by(&app.filter, &shown);
    let rows = shown.rows.iter().filter(|row| chosen(row));
    for (line, row) in (1..area.height.min(1 + ROWS as u16)).zip(rows) {
        let y = area.y + line;
        let text = format!("{:>10}  ", value(app, &shown, row.value));
        let x = pen.put(area.x, y, area.width, &text, PLAIN);
        let cells = area.right().saturating_sub(x);
        pen.put(x, y, cells, &fit(&brief(app, &shown, &row.object), cells.into(), false), PLAIN);
    }
}
