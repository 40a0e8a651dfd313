// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Draws the state as a frame.

mod about;
mod bars;
mod help;
mod layers;
mod now;
mod object;
mod overview;
mod own;
mod pen;
mod settings;
mod table;
mod timebar;

use std::borrow::Cow;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use topstat_model::typeset::escape;
use topstat_model::{Field, Snapshot, TableType, Unit, per_second, rfc3339};

use crate::feed::Cost;
use crate::now::Trust;
use crate::signal::Process;
use crate::state::{App, Asked, Screen, When};
pub(crate) use bars::to_f64;
use pen::Pen;
pub(crate) use pen::fit;
pub use pen::{Colors, Look};

/// Draws the screen, and stores the areas that can be clicked on.
pub fn draw(app: &mut App, frame: &mut Frame<'_>, look: Look) {
    let area = frame.area();
    app.hits.clear();
    if area.width < 20 || area.height < 6 {
        Pen::new(frame.buffer_mut(), look).put(area.x, area.y, area.width, "too small", pen::PLAIN);
        return;
    }
    let mut pen = Pen::new(frame.buffer_mut(), look);
    let (title, rest) = split(area, 1);
    let (body, foot) = split(rest, rest.height - 1);
    // All tables of the first screen are looked through for it, so each frame asks once.
    let trust = matches!(app.screen(), Screen::Now | Screen::Own).then(|| app.trust()).unwrap_or_default();
    let with_host = bar(app, &mut pen, title, &trust);
    if matches!(&app.prompt, Some(prompt) if prompt.what == Asked::Goto) {
        found(app, &mut pen, body);
        return self::foot(app, &mut pen, foot);
    }
    screen(app, &mut pen, body, with_host, &trust);
    self::foot(app, &mut pen, foot);
}

/// The content of the screen as text, without its first and last line, in at most this many cells and lines.
pub fn text_of(app: &mut App, width: u16, lines: u16) -> String {
    let area = Rect { x: 0, y: 0, width, height: lines };
    let mut buffer = Buffer::empty(area);
    let (pen, trust) = (&mut Pen::new(&mut buffer, Look { colors: Colors::None, utf8: true }), app.trust());
    screen(app, pen, area, false, &trust);
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    let text = (0..lines).map(line).collect::<Vec<_>>().join("\n");
    text.trim_end().to_owned() + "\n"
}

/// Draws what is between the first and the last line.
fn screen(app: &mut App, pen: &mut Pen<'_>, body: Rect, with_host: bool, trust: &Trust) {
    let is_of_many = matches!(app.screen(), Screen::Now | Screen::Overview);
    let (filter, body) = split(body, u16::from(is_of_many && !app.filter.is_empty()));
    if filter.height > 0 {
        let text = format!("/{}: only rows like that; Esc shows all ", app.filter.text());
        pen.put(filter.x, filter.y, filter.width, &text, pen::SELECTED);
    }
    match app.screen().clone() {
        Screen::Now => now::draw(app, pen, body, &trust.doubts),
        Screen::Overview => overview::draw(app, pen, body, !with_host),
        Screen::Table => table::draw(app, pen, body),
        Screen::Object(object) => object::draw(app, pen, body, &object),
        Screen::Settings => settings::draw(app, pen, body),
        Screen::About => about::draw(app, pen, body),
        Screen::Own => own::draw(app, pen, body, trust),
        Screen::Help => help::draw(app, pen, body),
    }
}

/// Splits the first lines off an area.
fn split(area: Rect, lines: u16) -> (Rect, Rect) {
    let lines = lines.min(area.height);
    let first = Rect { height: lines, ..area };
    (first, Rect { y: area.y + lines, height: area.height - lines, ..area })
}

/// Draws the first line: live, frozen or past at a glance, and the activity of the host. Returns whether the activity had room.
fn bar(app: &App, pen: &mut Pen<'_>, area: Rect, trust: &Trust) -> bool {
    let (badge, style) = match app.when {
        When::Live if app.origin.recorded => (" LAST ", pen::PAST),
        When::Live => (" LIVE ", pen::LIVE),
        When::Frozen(_) => (" FROZEN ", pen::PAST),
        When::Past(_) => (" PAST ", pen::PAST),
    };
    let time = match (&app.when, app.shown(app.table)) {
        (When::Past(time) | When::Frozen(time), _) => rfc3339(*time),
        (When::Live, Ok(shown)) => rfc3339(shown.time),
        (When::Live, Err(_)) => String::new(),
    };
    let mut x = pen.put(area.x, area.y, area.width, badge, style);
    x = pen.put(x, area.y, area.right() - x, &format!(" {time}  topstat · {}", app.origin.name), pen::BOLD);
    let host = Host::of(app);
    let width = host.width(pen);
    let is_now = *app.screen() == Screen::Now;
    let with_host = width == 0 || is_now || x + width + 2 < area.right();
    if is_now {
        summary(app, pen, Rect { x: x + 2, width: area.right().saturating_sub(x + 2), ..area }, trust);
    } else if with_host {
        host.draw(pen, Rect { x: area.right().saturating_sub(width + 1), width, ..area });
    }
    if !matches!(app.when, When::Live) || app.origin.recorded {
        // The whole line is marked, so that the past is not taken for the present.
        pen.mark(area.x, area.y, area.width, pen::PAST);
    }
    with_host
}

/// Draws the right end of the first line above the "now" screen: the load, the cost of topstat, and whether the screen is complete.
fn summary(app: &App, pen: &mut Pen<'_>, at: Rect, trust: &Trust) {
    let percent = |name: &str, share: Option<f64>| share.map(|share| format!("{name} {:.1}%", share * 100.0));
    let (host, cost) = (app.host_then(), app.cost_then());
    let parts = [
        host.load.map(|load| format!("load {load:.2}")),
        percent("own", host.own),
        percent("daemon", cost.and_then(|cost| cost.daemon)),
        percent("kernel", cost.and_then(|cost| cost.programs)),
    ];
    let mut text = parts.into_iter().flatten().collect::<Vec<_>>().join("  ");
    if text.is_empty() && matches!(app.when, When::Past(_)) {
        "load -  own -".clone_into(&mut text);
    }
    let (trust, ink) = match (trust.doubts.is_empty(), trust.settled) {
        (false, _) => ("not complete", pen::WRONG),
        (true, false) => ("", pen::PLAIN),
        (true, true) => ("complete", pen::GOOD),
    };
    let room = usize::from(at.width).saturating_sub(trust.len() + 2);
    while pen::cells(&text) > room {
        // The last figures are left out first.
        let end = text.rfind("  ").unwrap_or(0);
        text.truncate(end);
        if end == 0 {
            break;
        }
    }
    let width = pen.width(&text) + pen.width(trust) + 2;
    let x = pen.put(at.right().saturating_sub(width + 1).max(at.x), at.y, at.width, &text, pen::PLAIN);
    pen.put(x + 2, at.y, at.right().saturating_sub(x + 2), trust, ink);
}

/// Draws what a typed name finds.
fn found(app: &App, pen: &mut Pen<'_>, area: Rect) {
    let text = app.prompt.as_ref().map_or("", |prompt| prompt.text.as_str());
    for ((place, found), y) in app.found(text).iter().enumerate().zip(area.y..area.bottom()) {
        let ink = if place == app.choice { pen::SELECTED } else { pen::PLAIN };
        pen.put(area.x, y, area.width, &pen::fit(&found.label, area.width.into(), false), ink);
    }
}

/// The most cells of the host's CPUs. If the host has more CPUs, a cell shows the busiest of several.
const CPU_CELLS: u16 = 16;

/// The activity of the host, in one line.
struct Host {
    before: String,
    cpus: Vec<f64>,
    after: String,
}

impl Host {
    fn of(app: &App) -> Self {
        let crate::host::Host { cpus, net, own, .. } = app.host_then();
        let (mut before, mut after) = (String::new(), String::new());
        if !cpus.is_empty() {
            let mean = cpus.iter().sum::<f64>() / bars::to_f64(cpus.len() as u64);
            before = format!("cpu {:.0}% ", mean * 100.0);
        }
        if let Some((rx, tx)) = net {
            after += &format!("  rx {} tx {}", Unit::Bits.human(rx), Unit::Bits.human(tx));
        }
        if let Some(own) = own {
            after += &format!("  own {:.1}%", own * 100.0);
        }
        if let Some(Cost { daemon, programs }) = app.cost_then() {
            if let Some(daemon) = daemon {
                after += &format!("  daemon {:.1}%", daemon * 100.0);
            }
            if let Some(programs) = programs {
                after += &format!("  programs {:.1}%", programs * 100.0);
            }
        }
        Self { before, cpus, after }
    }

    /// The width of the line, in cells.
    fn width(&self, pen: &Pen<'_>) -> u16 {
        pen.width(&self.before) + bars::strip_width(self.cpus.len(), CPU_CELLS) + pen.width(&self.after)
    }

    fn draw(&self, pen: &mut Pen<'_>, at: Rect) {
        let x = pen.put(at.x, at.y, at.width, &self.before, pen::PLAIN);
        let x = bars::strip(pen, x, at.y, CPU_CELLS.min(at.right() - x), &self.cpus, pen::HEAT);
        pen.put(x, at.y, at.right().saturating_sub(x), &self.after, pen::PLAIN);
    }
}

/// Draws the last line: the input, the message or the keys.
fn foot(app: &App, pen: &mut Pen<'_>, area: Rect) {
    if let Some(prompt) = &app.prompt {
        let before = match &prompt.what {
            Asked::Filter => "/".to_owned(),
            Asked::Time => "time: ".to_owned(),
            Asked::Goto => "go to: ".to_owned(),
            Asked::Setting(setting) => {
                let path = app.current().map(|data| data.meta.path()).unwrap_or_default();
                format!("{path}/{} = ", setting.name())
            }
            Asked::Signal(Process { pid, comm, .. }) => {
                format!("TERM to {} ({pid})? Type {pid}, or another signal and {pid}: ", escape(comm))
            }
        };
        let x = pen.put(area.x, area.y, area.width, &format!("{before}{}", prompt.text), pen::BOLD);
        let x = pen.put(x, area.y, area.right() - x, " ", pen::SELECTED);
        if let Some(wrong) = &prompt.wrong {
            pen.put(x + 1, area.y, area.right().saturating_sub(x + 1), wrong, pen::WRONG);
        }
    } else if let Some(message) = &app.message {
        told(pen, area, message);
    } else {
        let keys = match app.screen() {
            Screen::Now => {
                "? help  : go to  / filter  1 net 2 cpu 3 disk 4 mem 5 containers 6 kernel 7 own 0 all  Space freeze  [ ] time  q quit"
            }
            _ => {
                "? keys  i meaning  Esc back  Enter open  : go to  / filter  > sort  f fold  Space freeze  [ ] time  j at  l live  q quit"
            }
        };
        pen.put(area.x, area.y, area.width, keys, pen::DIM);
    }
}

/// Draws texts in columns of this many cells, the columns side by side. More texts than fit can be scrolled, and the last line says
/// so.
fn scrolled(app: &mut App, pen: &mut Pen<'_>, area: Rect, lines: &[(String, pen::Ink)], column: u16) {
    let columns = usize::from(((area.width + 2) / column).max(1));
    let fits = lines.len() <= columns * usize::from(area.height);
    let height = usize::from(area.height).saturating_sub(usize::from(!fits)).max(1);
    app.scrolled = app.scrolled.min(lines.len().saturating_sub(columns * height));
    let shown = lines.iter().skip(app.scrolled).take(columns * height);
    for (place, (line, ink)) in shown.enumerate() {
        let (x, y) = (area.x + (place / height) as u16 * column, area.y + (place % height) as u16);
        let width = column.min(area.right().saturating_sub(x));
        pen.put(x, y, width, &pen::fit(line, width.into(), false), *ink);
    }
    if !fits {
        let below = lines.len() - app.scrolled - (columns * height).min(lines.len() - app.scrolled);
        let text = match below {
            0 => format!("↑ {} lines above", app.scrolled),
            below => format!("↓ {below} more lines: Down, PgDn"),
        };
        pen.put(area.x, area.bottom() - 1, area.width, &text, pen::SELECTED);
    }
}

/// The most lines that a message takes.
const MOST_TOLD: usize = 4;

/// Draws a message in the last lines of the screen, at most [`MOST_TOLD`]. It is wrapped and not cut, since a command in it is
/// there to be copied.
fn told(pen: &mut Pen<'_>, last: Rect, message: &str) {
    let mut lines = pen::wrapped(message, last.width.into());
    lines.truncate(MOST_TOLD.min(usize::from(last.y)));
    for (y, line) in (0..=last.y).rev().zip(lines.iter().rev()) {
        pen.blank(last.x, y, last.width, pen::PLAIN);
        pen.put(last.x, y, last.width, line, pen::BOLD);
    }
}

/// Whether the values are times on a CPU per period, which are shown as per cent of a CPU.
fn is_cpu_time(snapshot: &Snapshot) -> bool {
    let is_time = snapshot.kind == TableType::Dynamic && snapshot.unit == Unit::Nanoseconds;
    is_time && snapshot.table.starts_with("cpu") && !is_pressure(snapshot)
}

/// Whether the values are times in which tasks were stalled.
fn is_pressure(snapshot: &Snapshot) -> bool {
    snapshot.sample == "cgroup_pressure"
}

/// A value for display. The value of a dynamic table is shown per second, as its [`title`] says.
fn value(app: &App, snapshot: &Snapshot, value: u64) -> String {
    if app.exact {
        return value.to_string();
    }
    if is_cpu_time(snapshot) {
        return format!("{:.1}", per_second(value, snapshot.period_ms) / 1e7);
    }
    match snapshot.kind {
        TableType::Dynamic => snapshot.unit.human_rate(per_second(value, snapshot.period_ms)),
        TableType::Static => snapshot.unit.human(value),
    }
}

/// The title of the values for people. Exact values have the name that the files and documents use.
fn title<'a>(app: &App, snapshot: &'a Snapshot) -> Cow<'a, str> {
    if app.exact || snapshot.kind == TableType::Static {
        return snapshot.value_name.as_str().into();
    }
    match snapshot.unit {
        _ if is_cpu_time(snapshot) => "cpu%".into(),
        Unit::Bits => "bit/s".into(),
        Unit::Bytes => "byte/s".into(),
        Unit::Packets => "pkt/s".into(),
        Unit::Segments => "seg/s".into(),
        Unit::Nanoseconds if is_pressure(snapshot) => "stalled/s".into(),
        Unit::Nanoseconds => "time/s".into(),
        Unit::Count => format!("{}/s", snapshot.value_name.trim_end_matches("/s")).into(),
    }
}

/// A short description of an object.
pub fn brief(app: &App, snapshot: &Snapshot, object: &[Field]) -> String {
    let field = |name: &str| {
        let field = object.get(snapshot.column(name)?)?;
        match field {
            Field::None => None,
            Field::Ip(address) => Some(app.host_or_address(*address)),
            field => Some(field.to_string()),
        }
    };
    let mut parts = Vec::new();
    if let (Some(sip), Some(sport), Some(dip), Some(dport)) =
        (field("sip"), field("sport"), field("dip"), field("dport"))
    {
        parts.push(format!("{sip}:{sport} > {dip}:{dport}"));
    }
    match (field("comm"), field("pid")) {
        (Some(comm), Some(pid)) => parts.push(format!("{comm} ({pid})")),
        (Some(comm), None) => parts.push(comm),
        _ => parts.extend(field("cgroup")),
    }
    if parts.is_empty() {
        parts = object.iter().filter(|field| !field.is_none()).map(ToString::to_string).collect();
    }
    parts.extend(field("device"));
    parts.join("  ")
}
