// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Draws the pictures of the README: `pictures FOLDER PROGRAM`, or `make pictures`.
//!
//! The live view runs on a terminal, beside a daemon and under a load; the program writes the contents of that terminal as
//! SVG. Nothing is made up. So the overview also shows other processes of this host that exceed the load in a table: look at
//! the pictures before you commit them.

use std::ffi::CStr;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use topstat_live::cgroup::Group;
use topstat_live::daemon::Place;
use topstat_live::role::{say, told};
use topstat_live::{Daemon, Role, Scratch, role};
use topstat_load::{Config, Dist, Family, Limits, Load, Plan, Proto};
use vt100::{Cell, Color, Screen};

#[allow(dead_code)] // the tests of the command line use all of it
#[path = "../../../crates/topstat/tests/cli/emulated.rs"]
mod emulated;
use emulated::Terminal;

/// The size of the terminal: wide enough for two tables side by side.
const SIZE: (u16, u16) = (36, 126);
/// The time until a chart shows a curve.
const WATCHED: Duration = Duration::from_secs(40);
/// The time between two readings, in seconds.
const INTERVAL_S: &str = "0.5";

/// The samples that the daemon loads: the samples with the load at the top.
const SAMPLES: [&str; 3] = ["tcp_v4", "tcp_v6", "udp_v4"];

/// The loads, each in a control group: name, protocol and family, connections, transactions a second, and bytes of each
/// transaction.
type Carried = (&'static str, &'static str, usize, f64, usize);
const LOADS: [Carried; 6] = [
    ("shop", "tcp4", 60, 500.0, 6_000),
    ("search", "tcp6", 40, 300.0, 9_000),
    ("backup", "tcp4", 4, 100.0, 60_000),
    ("names", "udp4", 20, 300.0, 400),
    ("media", "tcp4", 12, 80.0, 30_000),
    ("metrics", "tcp6", 30, 200.0, 2_000),
];

fn main() -> ExitCode {
    if let Some((role, arguments)) = role::own() {
        return match &role[..] {
            "topstat" => {
                name(c"topstat");
                let line = std::iter::once("topstat").chain(arguments.iter().map(String::as_str)).map(Into::into);
                topstat::run(line, &mut topstat::Kernel, &mut topstat::SystemConsole::default()).into()
            }
            "load" => load(&arguments),
            _ => panic!("there is no role {role}"),
        };
    }
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [folder, program] = &arguments[..] else {
        eprintln!("pictures: name the folder in which to draw, and the topstat whose view to draw");
        return ExitCode::from(2);
    };
    draw_all(Path::new(folder), Path::new(program));
    ExitCode::SUCCESS
}

/// topstat shows the name of a process: the process takes the name of the program that it stands for.
fn name(name: &CStr) {
    rustix::thread::set_name(name).expect("a name");
}

/// Opens connections, and carries traffic until its input ends.
fn load(arguments: &[String]) -> ExitCode {
    let number = |place: usize| arguments[place].parse::<f64>().expect("a number");
    name(c"topstat-load");
    say("there");
    told();
    let (connections, request_size) = (number(1) as usize, number(3) as usize);
    let proto = if arguments[0].starts_with("udp") { Proto::Udp } else { Proto::Tcp };
    let family = if arguments[0].ends_with('6') { Family::V6 } else { Family::V4 };
    let config = Config { proto, family, connections, request_size, ..Config::default() };
    let mut load = Load::open(config).expect("connections");
    let plan = Plan::from_dist(&Dist::Zipf { exponent: 0.7, max: 100 }, connections).expect("a plan").repeat(true);
    let limits = Limits { rate: Some(number(2)), time: Duration::from_secs(3600), ..Limits::default() };
    std::thread::spawn(move || load.run(&plan, &limits));
    say("carrying");
    told();
    ExitCode::SUCCESS
}

/// A load in a separate control group, until it is dropped.
struct Running {
    _role: Role,
    _group: Group,
}

fn start(all: &Group, (name, over, connections, rate, bytes): Carried) -> Running {
    let group = all.child(name).expect("a control group");
    let mut role = Role::start("load", &[over, &connections.to_string(), &rate.to_string(), &bytes.to_string()]);
    role.expect("there");
    group.take(role.pid());
    role.tell("carry");
    role.expect("carrying");
    Running { _role: role, _group: group }
}

fn draw_all(folder: &Path, program: &Path) {
    std::fs::create_dir_all(folder).expect("a folder for pictures");
    let scratch = Scratch::new("pictures");
    let config = scratch.path().join("topstat.toml");
    let off = topstat_kernel::samples().into_iter().filter(|sample| !SAMPLES.contains(&&*sample.name));
    let text: Vec<_> = off.map(|sample| format!("[samples.{}]\nenabled = false\n", sample.name)).collect();
    std::fs::write(&config, text.concat()).expect("a configuration");
    let daemon = Daemon::start_at(Arc::new(Place::new()), &["--config", config.to_str().expect("a path in UTF-8")]);
    let groups = Group::below_root("demo").expect("a control group");
    let _loads = LOADS.map(|load| start(&groups, load));
    let begin = |table: &str| {
        let mut view = Command::new(program);
        view.args(["view", INTERVAL_S, "--mount"]).arg(&daemon.place.mount).arg("--pins").arg(&daemon.place.pins);
        view.args(["--table", table]).env("COLORTERM", "truecolor");
        Terminal::start(view, SIZE)
    };
    let mut terminal = begin("tcp_v4/conns_bps");
    terminal.wait_for("rows proven");
    let save = |name: &str, terminal: &Terminal| {
        let path = folder.join(name).with_extension("svg");
        std::fs::write(&path, svg(terminal.screen())).expect("a picture");
        println!("{}", path.display());
    };
    // Hides other processes of this host, which are private.
    terminal.press("/comm:topstat-load\r");
    // A spike in the middle of the chart.
    watch(&mut terminal, WATCHED / 2);
    let spike = start(&groups, ("import", "tcp4", 8, 120.0, 60_000));
    watch(&mut terminal, WATCHED / 6);
    drop(spike);
    watch(&mut terminal, WATCHED / 2);
    save("table", &terminal);
    terminal.press("o");
    terminal.wait_for("objects");
    watch(&mut terminal, WATCHED);
    save("overview", &terminal);
    terminal.press("q");
    assert_eq!(terminal.end(), Some(0), "the view ends by q");
}

/// Reads the terminal for that long.
fn watch(terminal: &mut Terminal, time: Duration) {
    let begun = Instant::now();
    terminal.wait_until("the time", |_| begun.elapsed() >= time);
}

/// The width and height of a cell, and of the margin around all of them.
const CELL: (f64, f64) = (8.4, 18.0);
const MARGIN: f64 = 10.0;
/// The default colours of the terminal.
const GROUND: &str = "#14181f";
const TEXT: &str = "#d5dae2";
/// The sixteen colours.
const SIXTEEN: [&str; 16] = [
    "#000000", "#cd3131", "#0dbc79", "#e5e510", "#2472c8", "#bc3fbc", "#11a8cd", "#e5e5e5", "#666666", "#f14c4c",
    "#23d18b", "#f5f543", "#3b8eea", "#d670d6", "#29b8db", "#ffffff",
];

/// A screen as a picture. Text is text; blocks are rectangles, since fonts leave gaps between them.
fn svg(screen: &Screen) -> String {
    let (rows, columns) = (SIZE.0, SIZE.1);
    let width = f64::from(columns) * CELL.0 + 2.0 * MARGIN;
    let height = f64::from(rows) * CELL.1 + 2.0 * MARGIN;
    let mut svg = format!(
        "<!-- SPDX-License-Identifier: Apache-2.0 OR MIT -->\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.1} {height:.1}\" font-size=\"14\" \
         font-family=\"ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace\" xml:space=\"preserve\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{GROUND}\"/>\n"
    );
    for y in 0..rows {
        let cells: Vec<_> = (0..columns).filter_map(|x| screen.cell(y, x)).collect();
        let mut x = 0;
        while x < cells.len() {
            let end = x + cells[x..].iter().take_while(|cell| alike(cell, cells[x])).count();
            run(&mut svg, (x, usize::from(y)), &cells[x..end]);
            x = end;
        }
    }
    svg + "</svg>\n"
}

/// Whether two cells are drawn as one: the same style, and both text or the same block.
fn alike(a: &Cell, b: &Cell) -> bool {
    let style = |cell: &Cell| (cell.fgcolor(), cell.bgcolor(), cell.bold(), cell.dim(), cell.inverse());
    let (block_a, block_b) = (block(a), block(b));
    style(a) == style(b) && (block_a == block_b)
}

/// For a block character, the number of eighths of the cell that are filled from its bottom.
fn block(cell: &Cell) -> Option<u32> {
    let c = cell.contents().chars().next()?;
    ('▁'..='█').contains(&c).then(|| u32::from(c) - u32::from('▁') + 1)
}

/// Draws a run of alike cells.
fn run(svg: &mut String, (x, y): (usize, usize), cells: &[&Cell]) {
    let at = |place: usize, size: f64| MARGIN + place as f64 * size;
    let (x, y, width) = (at(x, CELL.0), at(y, CELL.1), cells.len() as f64 * CELL.0);
    let first = cells[0];
    let (mut ink, mut ground) = (color(first.fgcolor(), TEXT), color(first.bgcolor(), GROUND));
    if first.inverse() {
        std::mem::swap(&mut ink, &mut ground);
    }
    // Writing to a String can't fail.
    let mut rect = |y: f64, height: f64, fill: &str| {
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.2}\" width=\"{width:.1}\" height=\"{height:.2}\" fill=\"{fill}\"/>"
        );
    };
    if ground != GROUND {
        rect(y, CELL.1, &ground);
    }
    if let Some(eighths) = block(first) {
        let height = CELL.1 * f64::from(eighths) / 8.0;
        return rect(y + CELL.1 - height, height, &ink);
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

fn color(color: Color, default: &str) -> String {
    match color {
        Color::Default => default.to_owned(),
        Color::Idx(place @ 0..16) => SIXTEEN[usize::from(place)].to_owned(),
        // The colour cube and the greys: the view uses neither.
        Color::Idx(_) => default.to_owned(),
        Color::Rgb(red, green, blue) => format!("#{red:02x}{green:02x}{blue:02x}"),
    }
}
