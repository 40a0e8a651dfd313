// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The "now" screen: the host in four lines, and below them panels side by side.

use super::bars;
use super::pen::{BOLD, DIM, HEAT, PLAIN, Pen, SELECTED, WRONG, cells, fit, fit_address, of_scale, wrapped};
use super::split;
use crate::now::{Content, Line, Others, Panel, measures};
use crate::state::{App, Hit};
use ratatui::layout::Rect;

/// From this width on, in cells, three panels stand side by side.
const WIDE: u16 = 150;
/// Below this width, in cells, panels stand one below the other.
const NARROW: u16 = 64;
/// The most lines that say why the screen is not complete.
const DOUBT: usize = 2;
/// The least lines of a panel, without its title.
const LEAST: u16 = 2;

/// Draws the screen.
pub fn draw(app: &mut App, pen: &mut Pen<'_>, area: Rect, doubts: &[String]) {
    let (head, rest) = split(area, 4);
    host(app, pen, head);
    let width = usize::from(area.width);
    let trust = doubts.first().map_or(vec![], |first| {
        let more = if doubts.len() > 1 { format!("  ({} more: 7 lists all)", doubts.len() - 1) } else { String::new() };
        let room = (DOUBT * width).saturating_sub(cells(&more));
        wrapped(&(fit(&format!("not complete: {first}"), room, false) + &more), width)
    });
    let (body, foot) = split(rest, rest.height.saturating_sub(trust.len() as u16));
    for (y, line) in (foot.y..foot.bottom()).zip(&trust) {
        pen.put(foot.x, y, foot.width, line, WRONG);
    }
    let columns: u16 = match area.width {
        WIDE.. => 3,
        NARROW.. => 2,
        _ => 1,
    };
    let grid = grid(body, columns);
    app.places.clear();
    for (panel, at) in Panel::ALL.into_iter().zip(grid) {
        one(app, pen, at, panel);
    }
}

/// The area of each panel, in the order of [`Panel::ALL`]. Panels for which there is no room are left out.
fn grid(body: Rect, columns: u16) -> Vec<Rect> {
    let panels = Panel::ALL.len() as u16;
    let rows = panels.div_ceil(columns).min(body.height / (LEAST + 1)).max(1);
    // The first rows of panels get the lines that can't be shared evenly.
    let (each, left) = (body.height / rows, body.height % rows);
    let mut areas = Vec::new();
    let mut y = body.y;
    for row in 0..rows {
        let height = each + u16::from(row < left);
        for column in 0..columns {
            // A column is a cell apart from the next.
            let from = body.x + body.width * column / columns + u16::from(column > 0);
            let to = body.x + body.width * (column + 1) / columns;
            areas.push(Rect { x: from, y, width: to.saturating_sub(from), height });
        }
        y += height;
    }
    areas
}

fn one(app: &mut App, pen: &mut Pen<'_>, area: Rect, panel: Panel) {
    let line = if pen.look().utf8 { "─" } else { "-" };
    let title = format!("{line}{line} {} ", app.title(panel));
    let chosen = app.focus.0 == panel;
    let x = pen.put(area.x, area.y, area.width, &title, if chosen { BOLD } else { PLAIN });
    for x in x..area.right() {
        pen.put(x, area.y, 1, line, DIM);
    }
    app.hits.push((Rect { height: 1, ..area }, Hit::Panel(panel)));
    let (_, rest) = split(area, 1);
    let content = app.panel(panel, rest.height.into());
    lines(app, pen, rest, panel, &content);
    app.places.push((panel, content.lines));
}

fn lines(app: &mut App, pen: &mut Pen<'_>, area: Rect, panel: Panel, content: &Content) {
    let widths = Widths::of(&content.lines, area.width, panel);
    for ((place, line), y) in content.lines.iter().enumerate().zip(area.y..area.bottom()) {
        let at = Rect { y, height: 1, ..area };
        widths.draw(pen, at, line);
        if app.focus == (panel, place) {
            pen.mark(at.x, at.y, at.width, SELECTED);
        }
        app.hits.push((at, Hit::Line(panel, place)));
    }
    let mut y = area.y + content.lines.len() as u16;
    if let (Some(Others { figure, count, .. }), true) = (&content.others, y < area.bottom()) {
        let count = count.filter(|count| *count > 0).map_or(String::new(), |count| format!("{count} "));
        let x = pen.put(area.x, y, area.width, &format!("{figure:>FIGURE$} "), DIM);
        let x = x + widths.bar + u16::from(widths.bar > 0);
        pen.put(x, y, area.right().saturating_sub(x), &format!("{count}{}", panel.others()), DIM);
        y += 1;
    }
    if let Some(said) = &content.said {
        let width = area.width.saturating_sub(1);
        let mut said = wrapped(said, width.into());
        let room = usize::from(area.bottom().saturating_sub(y));
        if said.len() > room {
            said.truncate(room);
            said.iter_mut().last().into_iter().for_each(|last| *last = fit(&format!("{last}…"), width.into(), false));
        }
        for (y, line) in (y..area.bottom()).zip(&said) {
            pen.put(area.x + 1, y, width, line, DIM);
        }
    }
}

/// The cells of a figure: `1.90G`, `+1.20k`.
const FIGURE: usize = 7;

/// The least cells of a place that is cut.
const LEAST_PLACE: usize = 4;

/// The cells that each part of a line takes.
struct Widths {
    bar: u16,
    name: usize,
    place: usize,
    more: usize,
}

impl Widths {
    fn of(lines: &[Line], width: u16, panel: Panel) -> Self {
        // Counters have no common total.
        let bar = match (panel, width) {
            (Panel::Rising | Panel::Ended, _) | (_, ..30) => 0,
            (_, 30..48) => 6,
            (_, 48..70) => 10,
            (_, 70..) => 16,
        };
        let bars = usize::from(bar) + usize::from(bar > 0);
        let rest = usize::from(width).saturating_sub(FIGURE + 1 + bars);
        let widest = |of: &dyn Fn(&Line) -> usize| lines.iter().map(of).max().unwrap_or(0);
        let name = widest(&|line| cells(&line.name) + usize::from(line.ended));
        let (all_place, all_more) = (widest(&|line| cells(&line.place)), widest(&|line| cells(&line.more)));
        let gap = |width: usize| width + usize::from(width > 0);
        // Each part gets the cells that it needs. Where there are too few, places are cut first, then names.
        let more = all_more.min(rest / 2);
        let name = name.min(rest.saturating_sub(gap(more)).max(8).min(rest));
        let place = all_place.min(rest.saturating_sub(name + gap(more) + 1));
        // Some two characters of a place tell nothing: their cells go to what follows.
        let place = if place < all_place.min(LEAST_PLACE) { 0 } else { place };
        let more = all_more.min(rest.saturating_sub(name + 1 + gap(place)));
        Self { bar, name, place, more }
    }

    fn draw(&self, pen: &mut Pen<'_>, at: Rect, line: &Line) {
        let ink = if line.ended { DIM } else { PLAIN };
        let x = pen.put(at.x, at.y, at.width, &format!("{:>FIGURE$} ", line.figure), of_scale(HEAT, line.share));
        let mut x = x.min(at.right());
        if self.bar > 0 {
            bars::share(pen, x, at.y, self.bar, line.share, HEAT);
            x += self.bar + 1;
        }
        let sign = if line.ended { if pen.look().utf8 { "†" } else { "x" } } else { "" };
        let name = format!("{}{sign}", fit(&line.name, self.name.saturating_sub(sign.len().min(1)), false));
        for (text, width, ink) in [(&name, self.name, ink), (&line.place, self.place, DIM)] {
            if width > 0 {
                let left = at.right().saturating_sub(x);
                pen.put(x, at.y, left, &fit(text, width.min(left.into()), false), ink);
                x = (x + width as u16 + 1).min(at.right());
            }
        }
        let left = at.right().saturating_sub(x);
        pen.put(x, at.y, left, &fit_address(&line.more, self.more.min(left.into())), ink);
    }
}

/// The least cells of the details of a line of the host, with the blank behind them.
const DETAILS: usize = 28;

/// Draws the four lines of the host.
fn host(app: &App, pen: &mut Pen<'_>, area: Rect) {
    let until = app.instant_shown();
    let spark: u16 = match area.width {
        ..60 => 0,
        60..100 => 12,
        100..150 => 24,
        150.. => 48,
    };
    let hosts: Vec<_> = app.hosts.until(until, usize::from(spark).max(1)).collect();
    let Some(now) = hosts.last() else {
        let why = if until.is_some() { "the host was not looked at then" } else { "looking at the host …" };
        pen.put(area.x, area.y, area.width, why, DIM);
        return;
    };
    let measures = measures(now, &hosts);
    // Longer details take cells of the chart: the pressure behind them is not cut.
    let details = measures.iter().map(|measure| cells(&measure.details) + 1).max().unwrap_or(0).max(DETAILS);
    let spark = spark.saturating_sub((details - DETAILS) as u16);
    for (y, measure) in (area.y..area.bottom()).zip(&measures) {
        let x = pen.put(area.x, y, area.width, &format!("{:<9}", measure.name), BOLD);
        let figure = format!("{:>6} ", measure.figure);
        let x = pen.put(x, y, area.right() - x, &figure, of_scale(HEAT, measure.heat));
        let chart = Rect { x, y, width: spark.min(area.right() - x), height: 1 };
        bars::shares(pen, chart, &measure.values);
        let text = format!(" max {:<6} {:<details$}", measure.most, measure.details);
        let x = pen.put(chart.right(), y, area.right() - chart.right(), &text, PLAIN);
        pen.put(x, y, area.right() - x, &measure.last, DIM);
    }
}
