// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values as bars.

use ratatui::layout::Rect;

use super::pen::{CHART, Look, OTHER, Pen};

const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII: [char; 9] = [' ', '.', '.', ':', ':', '+', '+', '#', '#'];

/// Figures for eyes need no more than 53 bits.
#[allow(clippy::cast_precision_loss)]
pub fn to_f64(value: u64) -> f64 {
    value as f64
}

/// A level from 0 to `most`.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it is clamped
fn level(value: f64, largest: f64, most: usize) -> usize {
    if largest <= 0.0 || value <= 0.0 {
        return 0;
    }
    // What is there at all can be seen.
    ((value / largest * to_f64(most as u64)).round() as usize).clamp(1, most)
}

fn block(level: usize, look: Look) -> char {
    if look.utf8 { BLOCKS[level.min(8)] } else { ASCII[level.min(8)] }
}

/// Shares from 0 to 1, a character each; the first `most` of them.
pub fn levels(shares: &[f64], most: usize, look: Look) -> String {
    shares.iter().take(most).map(|one| share(*one, look)).collect()
}

/// A share from 0 to 1.
pub fn share(share: f64, look: Look) -> char {
    block(level(share, 1.0, 8), look)
}

/// The last values, one for each cell of a line.
pub fn sparkline(values: &[u64], cells: usize, look: Look) -> String {
    sparkline_of(values, largest(values, cells), cells, look)
}

/// The largest of the last values.
pub fn largest(values: &[u64], cells: usize) -> u64 {
    values[values.len().saturating_sub(cells)..].iter().copied().max().unwrap_or(0)
}

/// The last values, as levels of a largest one that others have, too.
pub fn sparkline_of(values: &[u64], largest: u64, cells: usize, look: Look) -> String {
    let last = &values[values.len().saturating_sub(cells)..];
    let largest = to_f64(largest);
    let missing = std::iter::repeat_n(' ', cells - last.len());
    missing.chain(last.iter().map(|value| block(level(to_f64(*value), largest, 8), look))).collect()
}

/// The last values of two sums, one upon the other: what rows have, and what is not in a row.
pub fn stacked(pen: &mut Pen<'_>, area: Rect, values: &[(u64, u64)]) {
    let width = usize::from(area.width);
    let last = &values[values.len().saturating_sub(width)..];
    let largest = to_f64(last.iter().map(|(rows, other)| rows.saturating_add(*other)).max().unwrap_or(0));
    let steps = usize::from(area.height) * 8;
    let begin = area.right() - u16::try_from(last.len()).unwrap_or(area.width);
    for (x, (rows, other)) in (begin..).zip(last) {
        let lower = level(to_f64(*rows), largest, steps);
        let upper = level(to_f64(rows.saturating_add(*other)), largest, steps);
        for line in 0..area.height {
            let floor = usize::from(line) * 8;
            let y = area.bottom() - 1 - line;
            let (in_rows, in_all) = (lower.saturating_sub(floor).min(8), upper.saturating_sub(floor).min(8));
            // A cell has one colour: that of what fills more of it.
            let (filled, ink) = if in_rows * 2 >= in_all { (in_all, CHART) } else { (in_all, OTHER) };
            let look = pen.look();
            let plain_other = !look.color && in_rows * 2 < in_all;
            let c = if plain_other { if look.utf8 { '░' } else { '-' } } else { block(filled, look) };
            if filled > 0 {
                pen.put_char(x, y, c, ink);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UTF8: Look = Look { color: false, utf8: true };
    const PLAIN: Look = Look { color: false, utf8: false };

    #[test]
    fn values_are_levels_of_the_largest() {
        assert_eq!(sparkline(&[0, 1, 50, 100], 6, UTF8), "   ▁▄█");
        assert_eq!(sparkline(&[0, 1, 50, 100], 3, PLAIN), ".:#");
        assert_eq!(sparkline(&[], 2, UTF8), "  ");
        assert_eq!(sparkline_of(&[9, 0, 50], 100, 2, UTF8), " ▄");
        assert_eq!(largest(&[9, 0, 5], 2), 5);
        assert_eq!(sparkline(&[0, 0], 2, UTF8), "  ");
        assert_eq!(levels(&[0.0, 0.5, 1.0, 1.0], 3, UTF8), " ▄█");
    }
}
