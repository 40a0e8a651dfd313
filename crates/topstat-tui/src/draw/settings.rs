// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The settings of tables.

use ratatui::layout::Rect;
use topstat_model::{TableType, human_ms};

use super::pen::{BOLD, DIM, Ink, PLAIN, Pen, SELECTED, WRONG, fit};
use super::split;
use crate::state::{App, Data, Hit};

/// The width of a table's path, in cells.
const PATHS: usize = 28;
/// The width of a switch, a period and a delay, in cells.
const VALUES: usize = 9;

pub fn draw(app: &mut App, pen: &mut Pen<'_>, area: Rect) {
    let (title, rest) = split(area, 1);
    let (note, rest) = split(rest, 1);
    app.page = rest.height.max(1).into();
    let text =
        format!("{:<PATHS$} {:>VALUES$} {:>VALUES$} {:>VALUES$}  ranks by", "table", "enabled", "period", "delay");
    pen.put(title.x, title.y, title.width, &text, BOLD);
    pen.put(
        note.x,
        note.y,
        note.width,
        "p period  d delay  e on or off: of the selected table, for all who look at it",
        DIM,
    );
    for (y, table) in (rest.y..rest.bottom()).zip(app.in_page()) {
        let data = &app.data[table];
        let (text, ink) = line(data);
        let at = Rect { y, height: 1, ..rest };
        pen.put(at.x, y, at.width, &fit(&text, at.width.into(), false), ink);
        if table == app.table {
            pen.mark(at.x, y, at.width, SELECTED);
        }
        app.hits.push((at, Hit::Table(table)));
    }
}

fn line(data: &Data) -> (String, Ink) {
    let path = format!("{:<PATHS$} ", data.meta.path());
    match &data.known.settings {
        None => (path + "being read", DIM),
        Some(Err(why)) => (path + why, WRONG),
        Some(Ok(settings)) => {
            let (on, ink) = match (settings.enabled, settings.above) {
                (true, true) => ("on", PLAIN),
                // A switch above the table is off.
                (true, false) => ("(on)", DIM),
                (false, _) => ("off", DIM),
            };
            let period = match data.meta.kind {
                TableType::Dynamic => human_ms(settings.period_ms),
                TableType::Static => "-".to_owned(),
            };
            let delay = human_ms(settings.delay_ms);
            let above = if settings.above { "" } else { "turned off above · " };
            let about = &data.meta.about;
            (format!("{path}{on:>VALUES$} {period:>VALUES$} {delay:>VALUES$}  {above}{about}"), ink)
        }
    }
}
