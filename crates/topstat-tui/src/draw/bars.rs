// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values as bars.

use ratatui::layout::Rect;

use super::pen::{CHART, Colors, Look, OTHER, Pen, Scale, TINT, of_scale};

const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII: [char; 9] = [' ', '.', '.', ':', ':', '+', '+', '#', '#'];

/// Figures for display need no more than 53 bits.
#[allow(clippy::cast_precision_loss)]
pub fn to_f64(value: u64) -> f64 {
    value as f64
}

/// The level of a value, from 0 to `most`.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it is clamped
pub fn level(value: f64, largest: f64, most: usize) -> usize {
    if largest <= 0.0 || value <= 0.0 {
        return 0;
    }
    // A value above 0 is visible: its level is at least 1.
    ((value / largest * to_f64(most as u64)).round() as usize).clamp(1, most)
}

/// A cell that is filled up to a level of 8.
pub fn block(level: usize, look: Look) -> char {
    if look.utf8 { BLOCKS[level.min(8)] } else { ASCII[level.min(8)] }
}

/// Draws shares from 0 to 1 in at most `cells` cells. If there are more shares than cells, a cell shows the largest of several
/// shares. Returns the column after the last cell.
pub fn strip(pen: &mut Pen<'_>, x: u16, y: u16, cells: u16, shares: &[f64], scale: Scale) -> u16 {
    let end = x + strip_width(shares.len(), cells);
    for (x, several) in (x..end).zip(shares.chunks(in_a_cell(shares.len(), cells))) {
        cell(pen, x, y, several.iter().copied().fold(0.0, f64::max), scale);
    }
    end
}

/// The number of cells that [`strip`] uses.
pub fn strip_width(shares: usize, cells: u16) -> u16 {
    let taken = shares.div_ceil(in_a_cell(shares, cells));
    u16::try_from(taken).unwrap_or(cells).min(cells)
}

/// The number of shares in each cell of a [`strip`].
fn in_a_cell(shares: usize, cells: u16) -> usize {
    shares.div_ceil(cells.max(1).into()).max(1)
}

/// Draws a share from 0 to 1 in one cell.
pub fn cell(pen: &mut Pen<'_>, x: u16, y: u16, share: f64, scale: Scale) {
    let level = level(share, 1.0, 8);
    pen.put_char(x, y, block(level, pen.look()), of_scale(scale, to_f64(level as u64) / 8.0));
}

/// Draws the last values, one in each cell, as levels of `largest`, which several charts may share.
pub fn sparkline(pen: &mut Pen<'_>, area: Rect, values: &[u64], largest: u64) {
    let last = &values[values.len().saturating_sub(area.width.into())..];
    let begin = area.right() - u16::try_from(last.len()).unwrap_or(area.width);
    for (x, value) in (begin..).zip(last) {
        cell(pen, x, area.y, to_f64(*value) / to_f64(largest.max(1)), TINT);
    }
}

/// Draws the last shares from 0 to 1, one in each cell.
pub fn shares(pen: &mut Pen<'_>, area: Rect, shares: &[f64]) {
    let last = &shares[shares.len().saturating_sub(area.width.into())..];
    let begin = area.right() - u16::try_from(last.len()).unwrap_or(area.width);
    for (x, share) in (begin..).zip(last) {
        cell(pen, x, area.y, *share, TINT);
    }
}

/// The eighths of a cell, from its left edge on.
const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// A share from 0 to 1 as a bar to the right, `cells` cells for 1. A share above 0 is visible.
pub fn share_text(share: f64, cells: u16, look: Look) -> String {
    let steps = level(share, 1.0, usize::from(cells) * 8);
    if !look.utf8 {
        return "#".repeat(steps.div_ceil(8));
    }
    let mut text = "█".repeat(steps / 8);
    if !steps.is_multiple_of(8) {
        text.push(EIGHTHS[steps % 8]);
    }
    text
}

/// Draws the bar of a share in its colour.
pub fn share(pen: &mut Pen<'_>, x: u16, y: u16, cells: u16, share: f64, scale: Scale) {
    pen.put(x, y, cells, &share_text(share, cells, pen.look()), of_scale(scale, share));
}

/// The largest of the last `cells` values.
pub fn largest(values: &[u64], cells: u16) -> u64 {
    values[values.len().saturating_sub(cells.into())..].iter().copied().max().unwrap_or(0)
}

/// Draws the last values of two stacked sums, in one line: the sum of the rows, and the sum of all that is in no row.
pub fn stacked(pen: &mut Pen<'_>, area: Rect, values: &[(u64, u64)]) {
    let last = &values[values.len().saturating_sub(area.width.into())..];
    let sum = |(rows, other): &(u64, u64)| to_f64(rows.saturating_add(*other));
    let largest = last.iter().map(sum).fold(0.0, f64::max);
    let begin = area.right() - u16::try_from(last.len()).unwrap_or(area.width);
    let look = pen.look();
    for (x, both) in (begin..).zip(last) {
        let (filled, of_rows) = (level(sum(both), largest, 8), level(to_f64(both.0), largest, 8));
        // A cell has one colour: the colour of the sum that fills more of it.
        let is_other = of_rows * 2 < filled;
        let ink = if is_other { OTHER } else { CHART };
        let c = match (is_other && look.colors == Colors::None, look.utf8) {
            (true, true) => '░',
            (true, false) => '-',
            (false, _) => block(filled, look),
        };
        if filled > 0 {
            pen.put_char(x, area.y, c, ink);
        }
    }
}

#[cfg(test)]
mod tests {
    use ratatui::buffer::Buffer;

    use super::*;

    const UTF8: Look = Look { colors: Colors::None, utf8: true };
    const PLAIN: Look = Look { colors: Colors::None, utf8: false };

    /// The text of a line of `width` cells.
    fn line(width: u16, look: Look, draw: impl Fn(&mut Pen<'_>, Rect)) -> String {
        let area = Rect { x: 0, y: 0, width, height: 1 };
        let mut buffer = Buffer::empty(area);
        draw(&mut Pen::new(&mut buffer, look), area);
        buffer.content().iter().map(|cell| cell.symbol()).collect()
    }

    #[test]
    fn values_are_levels_of_the_largest() {
        let of =
            |values: &[u64], largest, width, look| line(width, look, |pen, area| sparkline(pen, area, values, largest));
        assert_eq!(of(&[0, 1, 50, 100], 100, 6, UTF8), "   ▁▄█");
        assert_eq!(of(&[0, 1, 50, 100], 100, 3, PLAIN), ".:#");
        assert_eq!(of(&[], 0, 2, UTF8), "  ");
        assert_eq!(of(&[9, 0, 50], 100, 2, UTF8), " ▄");
        assert_eq!(of(&[0, 0], 0, 2, UTF8), "  ");
        assert_eq!(largest(&[9, 0, 5], 2), 5);
    }

    #[test]
    fn a_strip_has_each_share_however_many_there_are() {
        let of = |shares: &[f64], cells, look| {
            assert_eq!(usize::from(strip_width(shares.len(), cells)), {
                let drawn = line(cells, look, |pen, _| {
                    strip(pen, 0, 0, cells, &vec![1.0; shares.len()], TINT);
                });
                drawn.trim_end().chars().count()
            });
            line(cells, look, |pen, _| {
                strip(pen, 0, 0, cells, shares, TINT);
            })
        };
        assert_eq!(of(&[0.0, 0.5, 1.0], 4, UTF8), " ▄█ ");
        assert_eq!(of(&[0.0, 0.5, 0.0, 0.0, 0.0, 1.0, 0.0], 4, UTF8), "▄ █ ");
        assert_eq!(of(&[0.1, 0.9], 1, PLAIN), "#");
        assert_eq!(of(&[], 2, UTF8), "  ");
        assert_eq!(of(&[1.0], 0, UTF8), "");
    }
}
