// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The chart of a table: the first rows over time, one on the other, and all others above them.

use ratatui::layout::Rect;
use topstat_model::{Field, Snapshot, to_the_second};

use super::bars::{self, to_f64};
use super::pen::{Colors, DIM, Ink, LAYERS, OTHER, PLAIN, Pen, fit, fit_address};
use super::{brief, value};
use crate::rows::Rows;
use crate::state::{App, Layers};

/// The lines of the chart: one for each layer, the others and the times.
pub const LINES: u16 = LAYERS.len() as u16 + 2;
/// The cells of the names beside the chart, and the width of the screen from which on there are names.
const NAMES: u16 = 34;
const NAMED: u16 = 90;
/// The steps of a cell.
const STEPS: usize = 8;
/// A chart without colours has the number of a layer in its cells, from this many steps on.
const HALF: usize = STEPS / 2;

/// Draws the chart, and returns the area of its readings, one in each column, the last at the right.
pub fn draw(app: &App, pen: &mut Pen<'_>, area: Rect, snapshot: &Snapshot, rows: &Rows) -> Rect {
    let first: Vec<_> = rows.iter().filter(|shown| shown.ended.is_none()).take(LAYERS.len()).collect();
    let objects: Vec<&[Field]> = first.iter().map(|shown| shown.row.object.as_slice()).collect();
    let names = if area.width >= NAMED { NAMES } else { 0 };
    // The largest value is known after the readings, and the readings that fit after its width: it has as many cells as the total
    // now, or one more.
    let gutter = pen.width(&value(app, snapshot, snapshot.total)).saturating_add(2).min(area.width / 4);
    let plot = Rect {
        x: area.x + gutter,
        width: area.width.saturating_sub(gutter + names),
        height: area.height.saturating_sub(1),
        ..area
    };
    let layers = app.layers(&objects, plot.width.into());
    let largest = layers.iter().map(Layers::total).max().unwrap_or(0);
    axes(app, pen, plot, (area.x, gutter), snapshot, largest, &layers);
    let steps = usize::from(plot.height) * STEPS;
    let begin = plot.right() - u16::try_from(layers.len()).unwrap_or(plot.width);
    for (x, layers) in (begin..).zip(&layers) {
        column(pen, x, plot, &layers.tops(largest, steps));
    }
    if names > 0 {
        legend(app, pen, Rect { x: plot.right() + 1, width: names - 1, ..plot }, snapshot, &objects, layers.last());
    }
    plot
}

impl Layers {
    fn total(&self) -> u64 {
        self.of.iter().fold(self.rest, |sum, value| sum.saturating_add(*value))
    }

    /// The steps up to which each layer reaches, the rest last.
    fn tops(&self, largest: u64, steps: usize) -> Vec<usize> {
        let mut sum = 0_u64;
        let values = self.of.iter().chain([&self.rest]);
        values
            .map(|value| {
                sum = sum.saturating_add(*value);
                bars::level(to_f64(sum), to_f64(largest), steps)
            })
            .collect()
    }
}

/// The ink of a layer; the one after the last is the rest.
fn ink(layer: usize) -> Ink {
    LAYERS.get(layer).copied().unwrap_or(OTHER)
}

/// The maximum and 0 at the left, and the times of the first and the last reading below.
fn axes(
    app: &App,
    pen: &mut Pen<'_>,
    plot: Rect,
    (left, gutter): (u16, u16),
    snapshot: &Snapshot,
    largest: u64,
    layers: &[Layers],
) {
    let width = gutter.saturating_sub(1);
    let mut label = |y: u16, text: &str| {
        let text = fit(text, width.into(), false);
        let x = left + width.saturating_sub(pen.width(&text));
        pen.put(x, y, width, &text, DIM);
    };
    label(plot.y, &value(app, snapshot, largest));
    label(plot.bottom().saturating_sub(1), "0");
    let (Some(first), Some(last)) = (layers.first(), layers.last()) else { return };
    let (from, to) = (to_the_second(first.time), to_the_second(last.time));
    let (from_width, to_width) = (pen.width(&from), pen.width(&to));
    let begin = plot.right() - u16::try_from(layers.len()).unwrap_or(plot.width);
    let at = plot.right().saturating_sub(to_width);
    pen.put(at, plot.bottom(), to_width, &to, DIM);
    if begin + from_width < at {
        pen.put(begin, plot.bottom(), from_width, &from, DIM);
    }
}

/// Draws a reading in one column. `tops` has the steps up to which each layer reaches.
fn column(pen: &mut Pen<'_>, x: u16, plot: Rect, tops: &[usize]) {
    let end = tops.last().copied().unwrap_or(0);
    for line in 0..plot.height {
        let floor = usize::from(line) * STEPS;
        let filled = end.saturating_sub(floor).min(STEPS);
        if filled == 0 {
            break;
        }
        let y = plot.bottom() - 1 - line;
        // The layers in this cell, each with its steps.
        let mut below = floor;
        let inside = tops.iter().enumerate().filter_map(|(layer, top)| {
            let steps = (*top).min(floor + STEPS).saturating_sub(below);
            below += steps;
            // Also where there are fewer rows than layers, the rest is the rest.
            let layer = if layer + 1 == tops.len() { LAYERS.len() } else { layer };
            (steps > 0).then_some((layer, steps))
        });
        let inside: Vec<_> = inside.collect();
        let Some((most, _)) = inside.iter().copied().max_by_key(|(layer, steps)| (*steps, usize::MAX - layer)) else {
            continue;
        };
        if pen.look().colors == Colors::None {
            if filled >= HALF {
                pen.put_char(x, y, sign(most, pen.look().utf8), ink(most));
            }
            continue;
        }
        match inside[..] {
            // A full cell of two layers has a colour for each.
            [(lower, steps), (upper, _)] if filled == STEPS => {
                pen.put_char(x, y, bars::block(steps, pen.look()), ink(lower).on(ink(upper)));
            }
            _ => pen.put_char(x, y, bars::block(filled, pen.look()), ink(most)),
        }
    }
}

/// A layer without colours: the number of its row.
fn sign(layer: usize, utf8: bool) -> char {
    match u32::try_from(layer + 1).ok().filter(|_| layer < LAYERS.len()).and_then(|number| char::from_digit(number, 10))
    {
        Some(digit) => digit,
        None if utf8 => '░',
        None => '-',
    }
}

/// A short name of an object: its process, and the other end of a connection.
fn name(app: &App, snapshot: &Snapshot, object: &[Field]) -> String {
    let field = |name: &str| object.get(snapshot.column(name)?).filter(|field| !field.is_none());
    match (field("comm"), field("dip"), field("dport")) {
        (Some(comm), Some(Field::Ip(ip)), Some(port)) => format!("{comm} {}:{port}", app.host_or_address(*ip)),
        (Some(comm), ..) => comm.to_string(),
        (None, ..) => brief(app, snapshot, object),
    }
}

/// The names of the layers, the first row at the bottom as in the chart, each with its value in the last reading.
fn legend(app: &App, pen: &mut Pen<'_>, at: Rect, snapshot: &Snapshot, objects: &[&[Field]], last: Option<&Layers>) {
    let Some(last) = last else { return };
    let named = objects.iter().zip(&last.of).map(|(object, value)| (name(app, snapshot, object), *value));
    let all: Vec<_> = named.chain([("all others".to_owned(), last.rest)]).collect();
    let lines = (at.y..at.bottom()).rev();
    for (y, (layer, (name, of))) in lines.zip(all.iter().enumerate()) {
        let layer = if layer + 1 == all.len() { LAYERS.len() } else { layer };
        let mark = if pen.look().colors == Colors::None {
            sign(layer, pen.look().utf8)
        } else {
            bars::block(STEPS, pen.look())
        };
        pen.put_char(at.x, y, mark, ink(layer));
        let number = value(app, snapshot, *of);
        let width = at.width.saturating_sub(pen.width(&number) + 3);
        pen.put(at.x + 2, y, width, &fit_address(name, width.into()), PLAIN);
        pen.put(at.right().saturating_sub(pen.width(&number)), y, at.width, &number, DIM);
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use ratatui::buffer::Buffer;

    use super::*;
    use crate::draw::pen::Look;

    fn layers(of: &[u64], rest: u64) -> Layers {
        Layers { time: SystemTime::UNIX_EPOCH, of: of.to_vec(), rest }
    }

    /// The cells of a column of `height` lines, from the top.
    fn drawn(layers: &Layers, largest: u64, height: u16, colors: Colors) -> String {
        let plot = Rect { x: 0, y: 0, width: 1, height };
        let mut buffer = Buffer::empty(plot);
        let look = Look { colors, utf8: true };
        column(&mut Pen::new(&mut buffer, look), 0, plot, &layers.tops(largest, usize::from(height) * STEPS));
        buffer.content().iter().map(|cell| cell.symbol()).collect()
    }

    #[test]
    fn layers_stand_on_each_other_and_fill_their_share() {
        let of = layers(&[40, 20], 20);
        assert_eq!(of.tops(80, 32), [16, 24, 32]);
        assert_eq!(drawn(&of, 80, 4, Colors::None), "░211");
        // Half of the largest.
        assert_eq!(drawn(&of, 160, 4, Colors::None), "  21");
        assert_eq!(drawn(&layers(&[], 0), 80, 2, Colors::None), "  ");
    }

    #[test]
    fn a_cell_of_two_layers_has_both_colours() {
        let of = layers(&[12], 4);
        assert_eq!(of.tops(16, 16), [12, 16]);
        assert_eq!(drawn(&of, 16, 2, Colors::Sixteen), "▄█");
        // A column that ends within a cell leaves the rest of the cell free.
        assert_eq!(drawn(&layers(&[3], 0), 16, 2, Colors::Sixteen), " ▃");
    }
}
