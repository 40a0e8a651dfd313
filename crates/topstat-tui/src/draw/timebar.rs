// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All records of a table in one line: when they begin, the largest total of each cell, and the instant that is shown.

use ratatui::layout::Rect;
use topstat_model::to_the_minute;

use super::bars;
use super::pen::{DIM, Pen, SELECTED, TINT, WRONG};
use crate::state::{App, Cell, Hit};

/// From this width on, in cells, the line says when the records begin.
const LABELLED: u16 = 60;

/// The number of lines that the bar takes.
pub fn lines(app: &App) -> u16 {
    match app.current().map(|data| &data.outline.peaks) {
        None => 0,
        Some(Ok(peaks)) => u16::from(!peaks.is_empty()),
        Some(Err(_)) => 1,
    }
}

pub fn draw(app: &mut App, pen: &mut Pen<'_>, area: Rect) {
    if let Some(Err(why)) = app.current().map(|data| &data.outline.peaks) {
        pen.put(area.x, area.y, area.width, why, WRONG);
        return;
    }
    let Some((from, _)) = app.bar_span() else { return };
    let mut x = area.x;
    if area.width >= LABELLED {
        let label = format!("kept since {} ", to_the_minute(from));
        x = pen.put(x, area.y, area.width, &label, DIM);
    }
    let bar = Rect { x, width: area.right() - x, ..area };
    let cells = app.bar(bar.width.into());
    let total = |cell: &Cell| if let Cell::Peak(peak) = cell { peak.total } else { 0 };
    let largest = bars::to_f64(cells.iter().map(total).max().unwrap_or(0).max(1));
    for (x, cell) in (bar.x..bar.right()).zip(&cells) {
        match cell {
            Cell::Peak(peak) => {
                bars::cell(pen, x, bar.y, bars::to_f64(peak.total) / largest, TINT);
            }
            Cell::Unknown(_) => {}
            Cell::Empty(_) => pen.put_char(x, bar.y, if pen.look().utf8 { '·' } else { '-' }, DIM),
        }
    }
    let mark = app.bar_mark(bar.width.into()).and_then(|mark| u16::try_from(mark).ok());
    if let Some(mark) = mark {
        pen.mark(bar.x + mark, bar.y, 1, SELECTED);
    }
    app.hits.push((bar, Hit::Bar));
}
