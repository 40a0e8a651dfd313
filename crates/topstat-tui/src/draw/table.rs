// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One table.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use ratatui::layout::Rect;
use topstat_model::typeset::escape;
use topstat_model::{Align, ColumnKind, Field, Snapshot, SortBy, TableType, human_ms, rfc3339};

use super::pen::{BOLD, DIM, Ink, Look, PLAIN, Pen, SELECTED, TINT, WRONG, cells, fit};
use super::{bars, layers, split, timebar, title, value};
use crate::rows::{Rows, Shown};
use crate::state::{App, Hit, When};

/// The least width of a column that may be shortened, in cells.
const LEAST: usize = 8;
/// The cells that show how many columns are left out.
const LEFT_OUT: usize = 4;
/// Longer than the time between two readings that are taken each second.
const A_WHILE: Duration = Duration::from_secs(2);
/// From this height on, in lines, the chart has the first rows one on the other.
const TALL: u16 = 30;

pub fn draw(app: &mut App, pen: &mut Pen<'_>, area: Rect) {
    let Some(data) = app.current() else { return };
    let path = data.meta.path();
    let (head, rest) = split(area, 2);
    let x = pen.put(head.x, head.y, head.width, &path, BOLD);
    let lines = if area.height >= TALL { layers::LINES } else { 1 };
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
    let x = pen.put(x, head.y, head.right() - x, &sums(app, &snapshot), PLAIN);
    cpus(pen, Rect { x, width: head.right() - x, ..head }, &snapshot);
    let (text, ink) = trust(app, &snapshot);
    let rows = app.rows();
    let x = pen.put(head.x, head.y + 1, head.width, &filtered(app, &snapshot, &rows), SELECTED);
    pen.put(x, head.y + 1, head.right() - x, &text, ink);
    let plot = if area.height >= TALL {
        layers::draw(app, pen, chart, &snapshot, &rows)
    } else {
        let sums = app.sums(app.table, chart.width.into());
        bars::stacked(pen, chart, &sums.iter().map(|sums| (sums.rows, sums.other)).collect::<Vec<_>>());
        chart
    };
    app.hits.push((plot, Hit::Chart));
    let (titles_at, rest) = split(rest, 1);
    app.page = rest.height.into();
    let selected = app.selection(&rows);
    scroll(app, selected, rows.len());
    let (columns, left_out) = columns(app, &snapshot, &rows, titles_at.width.into(), pen.look());
    titles(app, pen, titles_at, &columns);
    if left_out > 0 {
        // The number stands where a wider terminal would show these columns.
        let text = format!(" +{left_out}");
        let width = pen.width(&text);
        pen.put(titles_at.right().saturating_sub(width), titles_at.y, width, &text, DIM);
    }
    if rows.is_empty() {
        let why = match app.filter.check(&snapshot.keys()) {
            _ if snapshot.rows.is_empty() => nothing(&snapshot),
            Ok(()) => "no row is like that: Esc shows all".to_owned(),
            Err(fault) => format!("no row is like that: {}", fault.why),
        };
        pen.put(rest.x + 1, rest.y, rest.width - 1, &why, DIM);
    }
    let mut text = String::new();
    for (line, (place, shown)) in (0..rest.height).zip(rows.iter().enumerate().skip(app.offset)) {
        let at = Rect { y: rest.y + line, height: 1, ..rest };
        let ink = if shown.ended.is_some() || snapshot.is_closed(&shown.row.object) { DIM } else { PLAIN };
        let mut x = at.x;
        for column in &columns {
            column.of.write(app, &snapshot, shown, &mut text);
            if column.keep_end && cells(&text) > column.width {
                // The short name of a control group says more than a part of its path.
                text = app.place(&text);
            }
            x = column.put(pen, Rect { x, width: at.right().saturating_sub(x), ..at }, &text, ink);
        }
        if selected == Some(place) {
            pen.mark(at.x, at.y, at.width, SELECTED);
        }
        app.hits.push((at, Hit::Row(place)));
    }
}

/// Keeps the selection in sight.
fn scroll(app: &mut App, selected: Option<usize>, rows: usize) {
    let page = app.page.max(1);
    app.offset = app.offset.min(rows.saturating_sub(page));
    if let Some(place) = selected {
        app.cursor = place;
        app.offset = app.offset.clamp((place + 1).saturating_sub(page), place);
    }
}

/// The sums of all objects.
fn sums(app: &App, snapshot: &Snapshot) -> String {
    let mut sums = format!(
        "  total {}  other {}  {} objects",
        value(app, snapshot, snapshot.total),
        value(app, snapshot, snapshot.other),
        snapshot.objects
    );
    let closed = snapshot.closed();
    if closed > 0 {
        let _ = write!(sums, "  {closed} closed");
    }
    sums
}

/// The most cells of CPUs. If there are more CPUs, a cell shows the largest of several.
const CPU_CELLS: u16 = 64;

/// Draws how the CPUs share the total.
fn cpus(pen: &mut Pen<'_>, at: Rect, snapshot: &Snapshot) {
    let x = pen.put(at.x, at.y, at.width, "  cpus ", PLAIN);
    bars::strip(pen, x, at.y, CPU_CELLS.min(at.right() - x), &cpu_shares(snapshot), TINT);
}

/// The total of each CPU, relative to the largest total of a CPU.
pub fn cpu_shares(snapshot: &Snapshot) -> Vec<f64> {
    let largest = snapshot.cpus.iter().map(|cpu| cpu.total).max().unwrap_or(0).max(1);
    snapshot.cpus.iter().map(|cpu| bars::to_f64(cpu.total) / bars::to_f64(largest)).collect()
}

/// The filter, and the number of rows that it has kept.
fn filtered(app: &App, snapshot: &Snapshot, rows: &Rows) -> String {
    if app.filter.is_empty() {
        return String::new();
    }
    format!("/{}: {} of the {} rows kept ", app.filter.text(), rows.of_reading(), snapshot.rows.len())
}

/// The information that decides whether the rows can be trusted.
fn trust(app: &App, snapshot: &Snapshot) -> (String, Ink) {
    let rows = snapshot.rows.len();
    let proven = match snapshot.proven as usize {
        proven if proven >= rows => format!("all {rows} rows proven"),
        proven => format!("the first {proven} of {rows} rows proven"),
    };
    let lost: Vec<_> = snapshot.lost_now.nonzero().map(|(name, count)| format!("{name} {count}")).collect();
    let stale: Vec<_> = snapshot.stale_cpus().map(|cpu| cpu.to_string()).collect();
    let young = young(app, snapshot);
    let mut text = format!("{young}{}{proven} · ", recorded(app, snapshot));
    text += &if lost.is_empty() { "nothing lost".to_owned() } else { format!("lost now: {}", lost.join(", ")) };
    if !stale.is_empty() {
        text += &format!(" · cpus {} did not answer", stale.join(","));
    }
    text += &format!(" · period {} · delay {}", human_ms(snapshot.period_ms), human_ms(snapshot.delay_ms));
    if let Some(own) = app.host_then().own {
        text += &format!(" · own {:.1}%", own * 100.0);
    }
    (text, if lost.is_empty() && stale.is_empty() && young.is_empty() { DIM } else { WRONG })
}

/// How long the table has counted, if that is less than its period.
fn young(app: &App, snapshot: &Snapshot) -> String {
    let counted = app.current().and_then(|data| snapshot.time.duration_since(data.since?).ok());
    let period = Duration::from_millis(snapshot.period_ms.into());
    match counted.filter(|counted| snapshot.kind == TableType::Dynamic && *counted < period) {
        Some(counted) => format!("counts for {}ms only · ", counted.as_millis()),
        None => String::new(),
    }
}

/// The time of a record that was made [`A_WHILE`] or more before the instant that is shown.
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
    if !settings.enabled {
        return "it is off, and counts nothing: e turns it on".to_owned();
    }
    if !settings.owner_enabled {
        let owner = &settings.owner;
        return format!("{owner} is off, and counts nothing: topstat set {owner}/enabled 1 turns it on");
    }
    if !settings.topstat_enabled {
        return "all of topstat is off, and counts nothing: topstat set enabled 1 turns it on".to_owned();
    }
    match (snapshot.objects, snapshot.total) {
        (0, _) => "there are no objects yet: nothing of the kind has happened since topstat began".to_owned(),
        (objects, 0) => format!("none of {objects} objects was pushed in this period"),
        (_, _) => "what was counted is of objects that have ended".to_owned(),
    }
}

/// The content of a column.
#[derive(Clone, Copy)]
enum Of {
    Rank,
    Value,
    /// The value as a share of the total, as a bar.
    Share(Look),
    /// Whether the value has grown or shrunk since the reading before.
    Change,
    Part(usize),
    Column(usize),
}

/// The cells of a bar.
const BAR: u16 = 8;

/// A change of the value by more than a tenth, as a sign.
fn change(app: &App, shown: Shown<'_>) -> &'static str {
    let Some(data) = app.current().filter(|_| app.is_live() && shown.ended.is_none()) else { return "" };
    match data.past.before(&shown.row.object) {
        None if data.past.sums().len() < 2 => "",
        None => "+",
        Some(before) if shown.row.value > before + before / 10 => "↑",
        Some(before) if shown.row.value < before - before / 10 => "↓",
        Some(_) => "",
    }
}

impl Of {
    /// Replaces `text` by the cell of a row.
    fn write(self, app: &App, snapshot: &Snapshot, shown: Shown<'_>, text: &mut String) {
        text.clear();
        // Writing into a String cannot fail.
        let _ = match self {
            Self::Rank => write!(text, "{}", shown.row.rank),
            Self::Value => text.write_str(&value(app, snapshot, shown.row.value)),
            Self::Share(look) => {
                let share = bars::to_f64(shown.row.value) / bars::to_f64(snapshot.total.max(1));
                text.write_str(&bars::share_text(share, BAR, look))
            }
            Self::Change => text.write_str(change(app, shown)),
            Self::Part(place) => text.write_str(&value(app, snapshot, part(shown, place))),
            Self::Column(place) => match shown.row.object.get(place) {
                Some(Field::Ip(address)) if app.resolve => text.write_str(&app.host_or_address(*address)),
                Some(field) => write!(text, "{field}"),
                None => text.write_str("-"),
            },
        };
    }

    /// The largest width of all rows, in cells, so that columns keep their places when rows scroll.
    fn width(self, app: &App, snapshot: &Snapshot, rows: &Rows) -> usize {
        let number = |of: &dyn Fn(Shown<'_>) -> u64| {
            // Equal numbers are adjacent and have one width, which is computed once.
            let mut last = None;
            let width = |shown| {
                let number = of(shown);
                if last.replace(number) == Some(number) { 0 } else { cells(&value(app, snapshot, number)) }
            };
            rows.iter().map(width).max()
        };
        let most = match self {
            Self::Rank => rows.iter().map(|shown| digits(shown.row.rank.into())).max(),
            Self::Value => number(&|shown| shown.row.value),
            Self::Share(_) => Some(BAR.into()),
            Self::Change => Some(1),
            Self::Part(place) => number(&|shown| part(shown, place)),
            Self::Column(place) => {
                let width = |field: &Field| match field {
                    Field::Ip(address) if app.resolve => cells(&app.host_or_address(*address)),
                    field => field_width(field),
                };
                rows.iter().map(|shown| shown.row.object.get(place).map_or(1, width)).max()
            }
        };
        most.unwrap_or(0)
    }
}

fn part(shown: Shown<'_>, place: usize) -> u64 {
    shown.row.parts.get(place).copied().unwrap_or(0)
}

/// The digits of a number.
fn digits(number: u64) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

/// The width of a field as it is displayed, in cells. It is computed for each row of each frame, and so for most fields without
/// displaying them.
fn field_width(field: &Field) -> usize {
    match field {
        Field::None => 1,
        Field::True => field.to_string().len(),
        Field::U64(number) => digits(*number),
        Field::Negative(number) => 1 + digits(number.unsigned_abs()),
        Field::Ip(std::net::IpAddr::V4(ip)) => 3 + ip.octets().map(|octet| digits(octet.into())).iter().sum::<usize>(),
        Field::Ip(ip) => ip.to_string().len(),
        Field::Text(text) => cells(&escape(text)),
    }
}

/// A column as it is drawn.
struct Drawn<'a> {
    title: Cow<'a, str>,
    of: Of,
    width: usize,
    align: Align,
    keep_end: bool,
    may_shrink: bool,
    sort: Option<SortBy>,
}

impl Drawn<'_> {
    /// Puts a text into the column. Returns where the next column begins.
    fn put(&self, pen: &mut Pen<'_>, at: Rect, text: &str, ink: Ink) -> u16 {
        let width = u16::try_from(self.width).unwrap_or(u16::MAX).min(at.width);
        let wide = cells(text);
        if wide > self.width {
            let text = fit(text, self.width, self.keep_end);
            pen.put(at.x, at.y, width, &text, ink);
        } else if self.align == Align::Right {
            let missing = u16::try_from(self.width - wide).unwrap_or(u16::MAX).min(width);
            let x = pen.blank(at.x, at.y, missing, ink);
            pen.put(x, at.y, width - missing, text, ink);
        } else {
            pen.put(at.x, at.y, width, text, ink);
        }
        (at.x + width + 1).min(at.right())
    }
}

/// The columns that fit, and the number of columns that are left out. Names and paths are shortened first; then the last columns
/// are left out.
fn columns<'a>(app: &App, snapshot: &'a Snapshot, rows: &Rows, width: usize, look: Look) -> (Vec<Drawn<'a>>, usize) {
    let of_title = |title: Cow<'a, str>, of: Of, sort| {
        let width = of.width(app, snapshot, rows).max(title.len());
        Drawn { title, of, width, align: Align::Right, keep_end: false, may_shrink: false, sort }
    };
    let number = |title: &'a str, of: Of, sort| of_title(title.into(), of, sort);
    let mut columns = vec![number("#", Of::Rank, None), of_title(title(app, snapshot), Of::Value, Some(SortBy::Rank))];
    for (place, part) in snapshot.parts.iter().enumerate() {
        columns.push(number(part, Of::Part(place), Some(SortBy::Part(place))));
    }
    for (place, column) in snapshot.columns.iter().enumerate().filter(|(place, _)| rows.has(snapshot, *place)) {
        let (align, keep_end) = (column.kind.align(), column.kind == ColumnKind::Path);
        let may_shrink = column.kind.may_shrink() && align == Align::Left;
        let drawn = number(&column.name, Of::Column(place), Some(SortBy::Column(place)));
        columns.push(Drawn { align, keep_end, may_shrink, ..drawn });
    }
    let all = |columns: &[Drawn<'_>]| columns.iter().map(|column| column.width + 1).sum::<usize>();
    let signs = [number("", Of::Change, None), number("share", Of::Share(look), None)];
    // What the kernel has told comes before what is drawn of it.
    if !app.exact && all(&columns) + all(&signs) <= width + 1 {
        let [change, share] = signs;
        columns.splice(2..2, [change, Drawn { align: Align::Left, ..share }]);
    }
    for _ in width + 1..all(&columns) {
        let may_shrink = columns.iter_mut().filter(|column| column.may_shrink && column.width > LEAST);
        let Some(widest) = may_shrink.max_by_key(|column| column.width) else { break };
        widest.width -= 1;
    }
    let wanted = columns.len();
    // Room is kept for the number of columns that are left out.
    while columns.len() > 2 && all(&columns) > width + 1 - if columns.len() < wanted { LEFT_OUT } else { 0 } {
        // The column that the rows are sorted by stays.
        let last = columns.iter().rposition(|column| column.sort != Some(app.sort)).unwrap_or(columns.len() - 1);
        columns.remove(last.max(2).min(columns.len() - 1));
    }
    let left_out = wanted - columns.len();
    (columns, left_out)
}

fn titles(app: &mut App, pen: &mut Pen<'_>, area: Rect, columns: &[Drawn<'_>]) {
    let mut x = area.x;
    for column in columns {
        let sorted = column.sort == Some(app.sort);
        let at = Rect { x, width: area.right().saturating_sub(x), ..area };
        x = column.put(pen, at, &column.title, if sorted { SELECTED } else { BOLD });
        if let Some(sort) = column.sort {
            let width = u16::try_from(column.width).unwrap_or(u16::MAX).min(at.width);
            app.hits.push((Rect { width, height: 1, ..at }, Hit::Column(sort)));
        }
    }
}
