// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A terminal's screen as SVG.

use std::fmt::Write as _;

use vt100::{Cell, Color, Screen};

/// The width and height of a cell, and of the margin around all of them.
const CELL: (f64, f64) = (8.4, 18.0);
const MARGIN: f64 = 10.0;

/// The colours of a terminal.
pub struct Ground {
    /// The part of a picture's name that stands for it.
    pub name: &'static str,
    ground: &'static str,
    text: &'static str,
    sixteen: [&'static str; 16],
}

/// The terminals that are drawn.
pub const GROUNDS: [Ground; 2] = [
    Ground {
        name: "dark",
        ground: "#14181f",
        text: "#d5dae2",
        sixteen: [
            "#000000", "#cd3131", "#0dbc79", "#e5e510", "#2472c8", "#bc3fbc", "#11a8cd", "#e5e5e5", "#666666",
            "#f14c4c", "#23d18b", "#f5f543", "#3b8eea", "#d670d6", "#29b8db", "#ffffff",
        ],
    },
    Ground {
        name: "light",
        ground: "#ffffff",
        text: "#24292f",
        sixteen: [
            "#000000", "#b31d28", "#116329", "#7a5c00", "#0550ae", "#8250df", "#1b7c83", "#6e7781", "#57606a",
            "#cf222e", "#1a7f37", "#9a6700", "#0969da", "#a475f9", "#3192aa", "#24292f",
        ],
    },
];

/// A screen as a picture. Text is text; blocks are rectangles, since fonts leave gaps between them.
pub fn draw(screen: &Screen, of: &Ground) -> String {
    let (rows, columns) = (screen.size().0.get(), screen.size().1.get());
    let width = f64::from(columns) * CELL.0 + 2.0 * MARGIN;
    let height = f64::from(rows) * CELL.1 + 2.0 * MARGIN;
    let mut svg = format!(
        "<!-- SPDX-License-Identifier: Apache-2.0 OR MIT -->\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.1} {height:.1}\" font-size=\"14\" \
         font-family=\"ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace\" xml:space=\"preserve\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{}\"/>\n",
        of.ground
    );
    for y in 0..rows {
        let cells: Vec<_> = (0..columns).filter_map(|x| screen.cell(y, x)).collect();
        let mut x = 0;
        while x < cells.len() {
            let end = x + cells[x..].iter().take_while(|cell| alike(cell, cells[x])).count();
            run(&mut svg, of, (x, usize::from(y)), &cells[x..end]);
            x = end;
        }
    }
    svg + "</svg>\n"
}

/// Whether two cells are drawn as one: the same style, and both text or the same block.
fn alike(a: &Cell, b: &Cell) -> bool {
    let style = |cell: &Cell| (cell.fgcolor(), cell.bgcolor(), cell.bold(), cell.dim(), cell.inverse());
    style(a) == style(b) && block(a) == block(b)
}

/// For a block character, the parts of the cell's width and height that are filled, from its lower left corner.
fn block(cell: &Cell) -> Option<(u32, u32)> {
    /// A block character fills a number of eighths.
    const FULL: u32 = 8;
    let c = cell.contents().chars().next()?;
    match c {
        '▁'..='█' => Some((FULL, u32::from(c) - u32::from('▁') + 1)),
        '▉'..='▏' => Some((FULL - (u32::from(c) - u32::from('█')), FULL)),
        _ => None,
    }
}

/// Draws a run of alike cells.
fn run(svg: &mut String, of: &Ground, (x, y): (usize, usize), cells: &[&Cell]) {
    let at = |place: usize, size: f64| MARGIN + place as f64 * size;
    let (x, y, width) = (at(x, CELL.0), at(y, CELL.1), cells.len() as f64 * CELL.0);
    let first = cells[0];
    let (mut ink, mut ground) = (color(first.fgcolor(), of, of.text), color(first.bgcolor(), of, of.ground));
    if first.inverse() {
        std::mem::swap(&mut ink, &mut ground);
    }
    // Writing to a String can't fail.
    let mut rect = |x: f64, y: f64, width: f64, height: f64, fill: &str| {
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.2}\" width=\"{width:.1}\" height=\"{height:.2}\" fill=\"{fill}\"/>"
        );
    };
    if ground != of.ground {
        rect(x, y, width, CELL.1, &ground);
    }
    if let Some((wide, high)) = block(first) {
        let height = CELL.1 * f64::from(high) / 8.0;
        let top = y + CELL.1 - height;
        match wide {
            8 => rect(x, top, width, height, &ink),
            _ => (0..cells.len())
                .for_each(|i| rect(x + i as f64 * CELL.0, top, CELL.0 * f64::from(wide) / 8.0, height, &ink)),
        }
        return;
    }
    let text: String = cells.iter().map(|cell| if cell.has_contents() { cell.contents() } else { " " }).collect();
    // Each word is at the position of its cells, whatever the font.
    let mut place = 0;
    for word in text.split_inclusive("  ") {
        let shown = word.trim();
        if !shown.is_empty() {
            let before = word.chars().take_while(|c| *c == ' ').count();
            let at = x + (place + before) as f64 * CELL.0;
            let length = shown.chars().count() as f64 * CELL.0;
            let weight = if first.bold() { " font-weight=\"bold\"" } else { "" };
            let opacity = if first.dim() { " opacity=\"0.6\"" } else { "" };
            let escaped = shown.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let _ = writeln!(
                svg,
                "<text x=\"{at:.1}\" y=\"{:.1}\" textLength=\"{length:.1}\" fill=\"{ink}\"{weight}{opacity}>{escaped}</text>",
                y + CELL.1 * 0.75
            );
        }
        place += word.chars().count();
    }
}

fn color(color: Color, of: &Ground, default: &str) -> String {
    match color {
        Color::Default => default.to_owned(),
        Color::Idx(place @ 0..16) => of.sixteen[usize::from(place)].to_owned(),
        // The colour cube and the greys: the view uses neither.
        Color::Idx(_) => default.to_owned(),
        Color::Rgb(red, green, blue) => format!("#{red:02x}{green:02x}{blue:02x}"),
    }
}
