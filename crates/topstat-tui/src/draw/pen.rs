// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes text onto the screen: cut to its width, with or without colours.

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};
use topstat_model::typeset::is_plain;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The colours that a terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colors {
    /// The terminal has no colours, or the user wants none.
    None,
    /// The sixteen colours of each terminal, as its user has chosen them.
    Sixteen,
    /// All colours, of 24 bits.
    True,
}

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Colours.
    pub colors: Colors,
    /// Characters beyond ASCII.
    pub utf8: bool,
}

/// A style: with all colours, with sixteen, and without colours.
#[derive(Clone, Copy, Debug)]
pub struct Ink {
    full: Style,
    sixteen: Style,
    plain: Style,
}

impl Ink {
    fn style(self, look: Look) -> Style {
        match look.colors {
            Colors::None => self.plain,
            Colors::Sixteen => self.sixteen,
            Colors::True => self.full,
        }
    }

    /// This colour, on the colour of another ink as its ground.
    pub fn on(self, ground: Self) -> Self {
        let over = |own: Style, ground: Style| ground.fg.map_or(own, |color| own.bg(color));
        Self { full: over(self.full, ground.full), sixteen: over(self.sixteen, ground.sixteen), plain: self.plain }
    }
}

const fn ink(full: Style, sixteen: Style, plain: Style) -> Ink {
    Ink { full, sixteen, plain }
}

/// A style that does not depend on the colours.
const fn same(style: Style) -> Ink {
    ink(style, style, style)
}

const fn fg(color: Color) -> Style {
    Style::new().fg(color)
}

const fn modified(modifier: Modifier) -> Style {
    Style::new().add_modifier(modifier)
}

// The view does not know the ground of the terminal. So each colour of text and bars has a contrast of 3 or more on black and on white
// (WCAG 2.2, 1.4.11).

/// Text.
pub const PLAIN: Ink = same(Style::new());
/// Titles.
pub const BOLD: Ink = same(modified(Modifier::BOLD));
/// Less important text, and objects that have ended.
pub const DIM: Ink = ink(fg(Color::Rgb(128, 134, 139)), fg(Color::DarkGray), modified(Modifier::DIM));
/// The selection: one colour for the whole line, since the reverse of each colour hides bars and grey text.
pub const SELECTED: Ink = same(fg(Color::Reset).bg(Color::Reset).add_modifier(Modifier::REVERSED));
/// The present.
pub const LIVE: Ink = ink(
    fg(Color::Rgb(12, 32, 18)).bg(Color::Rgb(78, 201, 120)),
    fg(Color::Black).bg(Color::Green),
    modified(Modifier::BOLD),
);
/// The past.
pub const PAST: Ink = ink(
    fg(Color::Rgb(40, 30, 0)).bg(Color::Rgb(255, 191, 0)),
    fg(Color::Black).bg(Color::Yellow),
    modified(Modifier::REVERSED),
);
/// What is as it should be.
pub const GOOD: Ink = ink(fg(Color::Rgb(22, 155, 80)), fg(Color::Green), Style::new());
/// Errors, and warnings that concern the trust in the rows.
pub const WRONG: Ink = ink(fg(Color::Rgb(224, 76, 76)), fg(Color::Red), modified(Modifier::BOLD));
/// The part of a chart that is in rows.
pub const CHART: Ink = ink(fg(Color::Rgb(0, 150, 170)), fg(Color::Cyan), Style::new());
/// The part of a chart that is in no row.
pub const OTHER: Ink = ink(fg(Color::Rgb(88, 110, 190)), fg(Color::Blue), modified(Modifier::DIM));

/// The layers of a chart, from the bottom: colours that also stand apart for people who see few of them (Okabe and Ito, "Color
/// Universal Design", 2008), the brighter ones darkened for light grounds.
pub const LAYERS: [Ink; 5] = [
    ink(fg(Color::Rgb(60, 148, 205)), fg(Color::Cyan), Style::new()),
    ink(fg(Color::Rgb(196, 132, 0)), fg(Color::Yellow), Style::new()),
    ink(fg(Color::Rgb(0, 158, 115)), fg(Color::Green), Style::new()),
    ink(fg(Color::Rgb(196, 112, 160)), fg(Color::Magenta), Style::new()),
    ink(fg(Color::Rgb(213, 94, 0)), fg(Color::Red), Style::new()),
];

/// A scale of colours from 0 to 1, for terminals with all colours: red, green and blue of each step.
pub type Scale = &'static [[u8; 3]];

/// For values relative to the largest of their kind: more of a colour is neither better nor worse.
pub const TINT: Scale = &[[50, 112, 132], [0, 160, 180]];
/// For shares of a fixed total, such as the busy time of a CPU.
pub const HEAT: Scale = &[[0, 150, 170], [60, 155, 60], [180, 138, 0], [222, 80, 60]];

/// The ink of a share from 0 to 1.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it is clamped
pub fn of_scale(scale: Scale, share: f64) -> Ink {
    let place = share.clamp(0.0, 1.0) * (scale.len() - 1) as f64;
    let below = (place as usize).min(scale.len() - 2);
    let mix = |color: usize| {
        let (from, to) = (f64::from(scale[below][color]), f64::from(scale[below + 1][color]));
        (from + (to - from) * (place - below as f64)).round() as u8
    };
    Ink { full: fg(Color::Rgb(mix(0), mix(1), mix(2))), ..CHART }
}

/// Writes into a frame.
pub struct Pen<'a> {
    buffer: &'a mut Buffer,
    look: Look,
}

impl<'a> Pen<'a> {
    pub fn new(buffer: &'a mut Buffer, look: Look) -> Self {
        Self { buffer, look }
    }

    pub fn look(&self) -> Look {
        self.look
    }

    /// Writes a text, cut to `width` cells. Returns the column after its end.
    pub fn put(&mut self, x: u16, y: u16, width: u16, text: &str, ink: Ink) -> u16 {
        let style = ink.style(self.look);
        if width == 0 || !self.buffer.area.contains((x, y).into()) {
            return x;
        }
        let text = if self.look.utf8 { text.into() } else { ascii(text) };
        if text.chars().all(has_a_cell) {
            return self.put_cells(x, y, width, &text, style);
        }
        self.buffer.set_stringn(x, y, text, width.into(), style).0
    }

    /// Writes one character into one cell.
    pub fn put_char(&mut self, x: u16, y: u16, c: char, ink: Ink) {
        let style = ink.style(self.look);
        if let Some(cell) = self.buffer.cell_mut((x, y)) {
            cell.set_char(c).set_style(style);
        }
    }

    /// As [`Pen::put`], for a text whose characters take a cell each. Nearly all texts are of this kind, and need no cut into
    /// graphemes.
    fn put_cells(&mut self, x: u16, y: u16, width: u16, text: &str, style: Style) -> u16 {
        let cells = usize::from(width.min(self.buffer.area.right() - x));
        let first = self.buffer.index_of(x, y);
        let mut end = x;
        for (cell, c) in self.buffer.content[first..first + cells].iter_mut().zip(text.chars()) {
            cell.set_char(c).set_style(style);
            end += 1;
        }
        end
    }

    /// Writes `width` blanks. Returns the column after the last blank.
    pub fn blank(&mut self, x: u16, y: u16, width: u16, ink: Ink) -> u16 {
        let end = x.saturating_add(width).min(self.buffer.area.right());
        (x..end).for_each(|x| self.put_char(x, y, ' ', ink));
        end
    }

    /// The number of cells that a text takes.
    pub fn width(&self, text: &str) -> u16 {
        u16::try_from(cells(text)).unwrap_or(u16::MAX)
    }

    /// Changes the style of a line.
    pub fn mark(&mut self, x: u16, y: u16, width: u16, ink: Ink) {
        let style = ink.style(self.look);
        self.buffer.set_style(ratatui::layout::Rect { x, y, width, height: 1 }, style);
    }
}

/// The number of cells that a text takes.
pub fn cells(text: &str) -> usize {
    if is_plain(text) { text.len() } else { text.width() }
}

/// Whether a character takes one cell, whatever its neighbours are: ASCII, lines and blocks, and the others that the screens use.
fn has_a_cell(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{2500}'..='\u{259f}' | '·' | '…' | 'µ' | '×' | '†' | '↑' | '↓' | '↔')
}

/// A text for a terminal that supports ASCII only.
fn ascii(text: &str) -> std::borrow::Cow<'_, str> {
    if text.is_ascii() {
        return text.into();
    }
    let plain = |c: char| match c {
        '·' => '-',
        '…' => '~',
        'µ' => 'u',
        '×' | '†' => 'x',
        '─' => '-',
        '↑' => '^',
        '↓' => 'v',
        '↔' => '=',
        c if c.is_ascii() => c,
        _ => '?',
    };
    text.chars().map(plain).collect::<String>().into()
}

/// A text in lines of at most this many cells, at least one line.
pub fn wrapped(text: &str, cells: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut filled = 0;
    for c in text.chars() {
        let width = c.width().unwrap_or(0);
        filled += width;
        match lines.last_mut() {
            Some(line) if filled <= cells => line.push(c),
            _ => {
                lines.push(c.to_string());
                filled = width;
            }
        }
    }
    lines
}

/// The end of an address in `cells` cells: its port is what it ends with, and stays. Other texts are cut at their end.
pub fn fit_address(text: &str, cells: usize) -> String {
    let port = text.rfind(':').map_or(text.len(), |colon| if text.len() - colon < cells { colon } else { text.len() });
    let (host, port) = text.split_at(port);
    format!("{}{port}", fit(host, cells - port.len().min(cells), false))
}

/// A text cut to `cells` cells: at its end, or with `keep_end` at its beginning.
pub fn fit(text: &str, cells: usize, keep_end: bool) -> String {
    if self::cells(text) <= cells {
        return text.to_owned();
    }
    let (mut taken, mut left) = (Vec::new(), cells.saturating_sub(1));
    let mut take = |c: char| {
        let width = c.width().unwrap_or(0);
        let fits = width <= left;
        if fits {
            left -= width;
            taken.push(c);
        }
        fits
    };
    if keep_end {
        let _ = text.chars().rev().all(&mut take);
        taken.reverse();
        std::iter::once('…').chain(taken).collect()
    } else {
        let _ = text.chars().all(&mut take);
        taken.into_iter().chain(['…']).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The relative luminance of a colour: WCAG 2.2.
    fn luminance(color: [u8; 3]) -> f64 {
        let linear = |part: u8| match f64::from(part) / 255.0 {
            low if low <= 0.04045 => low / 12.92,
            high => ((high + 0.055) / 1.055).powf(2.4),
        };
        0.2126 * linear(color[0]) + 0.7152 * linear(color[1]) + 0.0722 * linear(color[2])
    }

    #[test]
    fn colours_stand_out_on_black_and_on_white() {
        const LEAST: f64 = 3.0;
        let of = |ink: Ink| match ink.full.fg {
            Some(Color::Rgb(red, green, blue)) => [red, green, blue],
            other => panic!("no colour: {other:?}"),
        };
        let single = [DIM, GOOD, WRONG, CHART, OTHER];
        let scales = (0..=20_u8).flat_map(|i| [TINT, HEAT].map(|scale| of_scale(scale, f64::from(i) / 20.0)));
        for color in single.into_iter().chain(LAYERS).chain(scales).map(of) {
            let luminance = luminance(color);
            let (on_black, on_white) = ((luminance + 0.05) / 0.05, 1.05 / (luminance + 0.05));
            assert!(
                on_black >= LEAST && on_white >= LEAST,
                "{color:?}: {on_black:.2} on black, {on_white:.2} on white"
            );
        }
    }
}
