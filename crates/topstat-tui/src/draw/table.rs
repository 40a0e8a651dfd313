// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One table.

use std::time::Duration;

use ratatui::layout::Rect;
use topstat_model::{Align, ColumnKind, Field, Snapshot, human_ms, rfc3339};

use super::pen::{BOLD, DIM, Ink, PLAIN, Pen, SELECTED, WRONG, fit};
use super::{Look, bars, split, timebar, value};
use crate::rows::{Ended, Shown, SortBy};
use crate::state::{App, Hit, When};

/// The least cells of a column that may be shortened.
const LEAST: usize = 8;
/// The cells of the number of columns that are left out.
const LEFT_OUT: usize = 4;
/// More than lies between two readings each second.
const A_WHILE: Duration = Duration::from_secs(2);
/// From how many lines on the chart has four of them.
const TALL: u16 = 30;

pub fn draw(app: &mut App, pen: &mut Pen<'_>, area: Rect) {
    let Some(data) = app.current() else { return };
    let path = data.meta.path();
    let (head, rest) = split(area, 2);
    let x = pen.put(head.x, head.y, head.width, &path, BOLD);
    let lines = if area.height >= TALL { 4 } else { 1 };
    let (chart, rest) = split(rest, lines);
    let (bar, rest) = split(rest, timebar::lines(app));
    if bar.height > 0 {
        timebar::draw(app, pen, bar);
    }
    let snapshot = match app.shown(app.table) {
        Ok(snapshot) => snapshot,
        Err(why) => {
            pen.put(head.x, head.y + 1, head.width, &why, WRONG);
            return;
        }
    };
    pen.put(x, head.y, head.right() - x, &sums(app, &snapshot, pen.look()), PLAIN);
    let (text, ink) = trust(app, &snapshot);
    let x = pen.put(head.x, head.y + 1, head.width, &filtered(app, &snapshot), SELECTED);
    pen.put(x, head.y + 1, head.right() - x, &text, ink);
    let values: Vec<_> = app.sums(app.table).iter().map(|sums| (sums.rows, sums.other)).collect();
    bars::stacked(pen, chart, &values);
    app.hits.push((chart, Hit::Chart));
    let rows = app.rows();
    let (title, rest) = split(rest, 1);
    app.page = rest.height.into();
    let selected = app.selection(&rows);
    scroll(app, selected, rows.len());
    let (columns, left_out) = columns(app, &snapshot, &rows, title.width.into());
    titles(app, pen, title, &columns);
    if left_out > 0 {
        // Where a wider terminal would have them.
        let text = format!(" +{left_out}");
        let width = pen.width(&text);
        pen.put(title.right().saturating_sub(width), title.y, width, &text, DIM);
    }
    if rows.is_empty() {
        let why = match app.filter.check(&snapshot.keys()) {
            _ if snapshot.rows.is_empty() => nothing(&snapshot),
            Ok(()) => "no row is like that: Esc shows all".to_owned(),
            Err(fault) => format!("no row is like that: {}", fault.why),
        };
        pen.put(rest.x + 1, rest.y, rest.width - 1, &why, DIM);
    }
    for (line, (place, shown)) in (0..rest.height).zip(rows.iter().enumerate().skip(app.offset)) {
        let at = Rect { y: rest.y + line, height: 1, ..rest };
        row(pen, at, &columns, place, shown);
        if selected == Some(place) {
            pen.mark(at.x, at.y, at.width, SELECTED);
        }
        app.hits.push((at, Hit::Row(place)));
    }
}

/// Keeps what is selected in sight.
fn scroll(app: &mut App, selected: Option<usize>, rows: usize) {
    let page = app.page.max(1);
    app.offset = app.offset.min(rows.saturating_sub(page));
    if let Some(place) = selected {
        app.cursor = place;
        app.offset = app.offset.clamp((place + 1).saturating_sub(page), place);
    }
}

/// What all objects add up to.
fn sums(app: &App, snapshot: &Snapshot, look: Look) -> String {
    let text = format!(
        "  total {}  other {}  {} objects",
        value(app, snapshot, snapshot.total),
        value(app, snapshot, snapshot.other),
        snapshot.objects
    );
    let largest = snapshot.cpus.iter().map(|cpu| cpu.total).max().unwrap_or(0);
    let shares = snapshot.cpus.iter().map(|cpu| bars::to_f64(cpu.total) / bars::to_f64(largest.max(1)));
    let shares: Vec<_> = shares.collect();
    text + &format!("  cpus {}", bars::levels(&shares, 64, look))
}

/// What the filter has left over.
fn filtered(app: &App, snapshot: &Snapshot) -> String {
    if app.filter.is_empty() {
        return String::new();
    }
    let none = Ended::default();
    let chosen = crate::rows::shown(snapshot, &none, &app.filter, SortBy::Rank, false).len();
    format!("/{}: {chosen} of the {} rows kept ", app.filter.text(), snapshot.rows.len())
}

/// What to know before the rows are trusted.
fn trust(app: &App, snapshot: &Snapshot) -> (String, Ink) {
    let rows = snapshot.rows.len();
    let proven = match snapshot.proven as usize {
        proven if proven >= rows => format!("all {rows} rows proven"),
        proven => format!("the first {proven} of {rows} rows proven"),
    };
    let lost: Vec<_> = snapshot.lost_now.nonzero().map(|(name, count)| format!("{name} {count}")).collect();
    let stale: Vec<_> = snapshot.stale_cpus().map(|cpu| cpu.to_string()).collect();
    let mut text = format!("{}{proven} · ", recorded(app, snapshot));
    text += &if lost.is_empty() { "nothing lost".to_owned() } else { format!("lost now: {}", lost.join(", ")) };
    if !stale.is_empty() {
        text += &format!(" · cpus {} did not answer", stale.join(","));
    }
    text += &format!(" · period {} · delay {}", human_ms(snapshot.period_ms), human_ms(snapshot.delay_ms));
    (text, if lost.is_empty() && stale.is_empty() { DIM } else { WRONG })
}

/// When a record was made, where that was a while before the instant that is shown.
fn recorded(app: &App, snapshot: &Snapshot) -> String {
    match app.when {
        When::Past(time) if time.duration_since(snapshot.time).is_ok_and(|before| before >= A_WHILE) => {
            format!("recorded at {} · ", rfc3339(snapshot.time))
        }
        _ => String::new(),
    }
}

/// Why a table has no rows.
pub fn nothing(snapshot: &Snapshot) -> String {
    let settings = &snapshot.settings;
    if !settings.counts() {
        return "it is off, and counts nothing: e turns it on".to_owned();
    }
    match (snapshot.objects, snapshot.total) {
        (0, _) => "there are no objects yet: nothing of the kind has happened since topstat began".to_owned(),
        (objects, 0) => format!("none of {objects} objects was pushed in this period"),
        (_, _) => "what was counted is of objects that have ended".to_owned(),
    }
}

/// A column as it is drawn.
struct Drawn {
    title: String,
    cells: Vec<String>,
    width: usize,
    align: Align,
    keep_end: bool,
    sort: Option<SortBy>,
}

/// The columns that fit, and how many don't: what is shortened first are names and paths, and then the last are left out.
fn columns(app: &App, snapshot: &Snapshot, rows: &[Shown], width: usize) -> (Vec<Drawn>, usize) {
    let drawn = |title: &str, align, sort, cells: Vec<String>| {
        let width = cells.iter().map(|cell| unicode_width::UnicodeWidthStr::width(cell.as_str())).max().unwrap_or(0);
        Drawn { title: title.to_owned(), width: width.max(title.len()), cells, align, keep_end: false, sort }
    };
    let number = |of: &dyn Fn(&Shown) -> u64| rows.iter().map(|shown| value(app, snapshot, of(shown))).collect();
    let ranks = rows.iter().map(|shown| shown.row.rank.to_string()).collect();
    let mut columns = vec![
        drawn("#", Align::Right, None, ranks),
        drawn(&snapshot.value_name, Align::Right, Some(SortBy::Rank), number(&|shown| shown.row.value)),
    ];
    for (place, part) in snapshot.parts.iter().enumerate() {
        let cells = number(&|shown| shown.row.parts.get(place).copied().unwrap_or(0));
        columns.push(drawn(part, Align::Right, Some(SortBy::Part(place)), cells));
    }
    for (place, column) in snapshot.columns.iter().enumerate() {
        let field = |shown: &Shown| shown.row.object.get(place).cloned().unwrap_or_default();
        if column.optional && rows.iter().all(|shown| field(shown) == Field::None) {
            continue;
        }
        let cells = rows.iter().map(|shown| field(shown).to_string()).collect();
        let mut drawn = drawn(&column.name, column.kind.align(), Some(SortBy::Column(place)), cells);
        drawn.keep_end = column.kind == ColumnKind::Path;
        columns.push(drawn);
    }
    let shrinks: Vec<_> = columns.iter().map(|column| column.align == Align::Left).collect();
    let all = |columns: &[Drawn]| columns.iter().map(|column| column.width + 1).sum::<usize>();
    while all(&columns) > width + 1 {
        let widest = columns.iter().enumerate().filter(|(place, column)| {
            let may = snapshot.columns.iter().any(|known| known.name == column.title && known.kind.may_shrink());
            may && shrinks[*place] && column.width > LEAST
        });
        let Some(widest) = widest.max_by_key(|(_, column)| column.width).map(|(place, _)| place) else { break };
        columns[widest].width -= 1;
    }
    let wanted = columns.len();
    // There is room to say how many are left out.
    while columns.len() > 2 && all(&columns) > width + 1 - if columns.len() < wanted { LEFT_OUT } else { 0 } {
        columns.pop();
    }
    let left_out = wanted - columns.len();
    (columns, left_out)
}

fn titles(app: &mut App, pen: &mut Pen<'_>, area: Rect, columns: &[Drawn]) {
    let mut x = area.x;
    for column in columns {
        let sorted = column.sort == Some(app.sort);
        let text = aligned(&column.title, column);
        let width = u16::try_from(column.width).unwrap_or(u16::MAX).min(area.right().saturating_sub(x));
        pen.put(x, area.y, width, &text, if sorted { SELECTED } else { BOLD });
        if let Some(sort) = column.sort {
            app.hits.push((Rect { x, y: area.y, width, height: 1 }, Hit::Column(sort)));
        }
        x = (x + width + 1).min(area.right());
    }
}

fn row(pen: &mut Pen<'_>, area: Rect, columns: &[Drawn], place: usize, shown: &Shown) {
    let ink = if shown.ended.is_some() { DIM } else { PLAIN };
    let mut x = area.x;
    for column in columns {
        let width = u16::try_from(column.width).unwrap_or(u16::MAX).min(area.right().saturating_sub(x));
        pen.put(x, area.y, width, &aligned(&column.cells[place], column), ink);
        x = (x + width + 1).min(area.right());
    }
}

fn aligned(text: &str, column: &Drawn) -> String {
    let text = fit(text, column.width, column.keep_end);
    let missing = column.width.saturating_sub(unicode_width::UnicodeWidthStr::width(text.as_str()));
    match column.align {
        Align::Left => text,
        Align::Right => format!("{}{text}", " ".repeat(missing)),
    }
}
