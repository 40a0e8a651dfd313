// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frames that are drawn, and the effects of keys. `INSTA_UPDATE=always cargo test -p topstat-tui` writes the frames anew.

#[path = "../drawn/mod.rs"]
mod drawn;
mod names;
mod past;
mod rows;

use std::time::{Duration, SystemTime};

use insta::assert_snapshot;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use topstat_model::{Column, ColumnKind, CpuSection, Field, Lost, Row, Settings, Snapshot, TableType, Unit};
use topstat_tui::feed::{Cost, Origin, Peak, Recorded, Setting, TableSettings};
use topstat_tui::host::Host;
use topstat_tui::state::{Effect, Screen, When};
use topstat_tui::{App, Colors, Look, TableMeta, draw};

use drawn::{PLAIN, at, frame, press};

fn meta(sample: &str, table: &str, unit: Unit) -> TableMeta {
    let (sample, table) = (sample.to_owned(), table.to_owned());
    let columns = vec!["pid".to_owned(), "cgroup".to_owned()];
    TableMeta { sample, table, about: String::new(), kind: TableType::Dynamic, unit, columns }
}

/// The connections of a server to these ports. The value of the first one varies. No kernel has pids like theirs.
fn connections(second: u64, ports: &[u64]) -> Snapshot {
    let row = |(place, port): (usize, &u64)| {
        let value = 1_000_000 / (place as u64 + 1) + if place == 0 { second * 10_000 } else { 0 };
        Row {
            id: [*port, 0],
            rank: place as u32 + 1,
            value,
            object: vec![
                Field::Ip("10.0.0.1".parse().unwrap()),
                Field::U64(443),
                Field::Ip("192.0.2.7".parse().unwrap()),
                Field::U64(*port),
                Field::U64(5_000_070 + port % 3),
                Field::from(["nginx", "envoy", "postgres"][*port as usize % 3]),
                Field::from(format!("/system.slice/service-{}.service", port % 3)),
            ],
            parts: vec![value / 4, value - value / 4],
            cpus: vec![0, 1],
        }
    };
    let rows: Vec<_> = ports.iter().enumerate().map(row).collect();
    let other = 50_000;
    let total = rows.iter().map(|row| row.value).sum::<u64>() + other;
    let column = |(name, kind): (&'static str, ColumnKind)| Column::new(name, kind);
    let columns = [
        ("sip", ColumnKind::Address),
        ("sport", ColumnKind::Port),
        ("dip", ColumnKind::Address),
        ("dport", ColumnKind::Port),
        ("pid", ColumnKind::Pid),
        ("comm", ColumnKind::Text),
        ("cgroup", ColumnKind::Path),
    ];
    Snapshot {
        time: at(second),
        sample: "tcp_v4".into(),
        table: "conns_bps".into(),
        kind: TableType::Dynamic,
        unit: Unit::Bits,
        value_name: "bps".into(),
        period_ms: 1000,
        delay_ms: 0,
        elapsed: None,
        top: 128,
        objects: 5000,
        total,
        shared: 0,
        other,
        proven: rows.len() as u32,
        filter: None,
        lost: Lost::default(),
        lost_now: Lost { contended: if second == 5 { 3 } else { 0 }, ..Lost::default() },
        settings: Settings { enabled: true, owner: "tcp_v4".into(), owner_enabled: true, topstat_enabled: true },
        columns: columns.map(column).to_vec(),
        parts: vec!["rx".into(), "tx".into()],
        rows,
        cpus: vec![
            CpuSection { cpu: 0, total: total / 4, stale: false, rows: vec![] },
            CpuSection { cpu: 1, total: total - total / 4, stale: false, rows: vec![] },
        ],
    }
}

fn tasks(second: u64) -> Snapshot {
    let mut snapshot = connections(second, &[1, 2]);
    (snapshot.sample, snapshot.table) = ("tasks".into(), "cpu".into());
    (snapshot.unit, snapshot.value_name) = (Unit::Nanoseconds, "cpu".into());
    snapshot.parts.clear();
    snapshot.columns.drain(..4);
    for row in &mut snapshot.rows {
        row.object.drain(..4);
        row.parts.clear();
    }
    snapshot
}

fn instant(text: &str, _: SystemTime) -> Result<SystemTime, String> {
    text.parse().map(at).map_err(|_| "not a time: give a number".to_owned())
}

/// Five seconds of two tables. The first table has connections.
fn app() -> App {
    let tables = vec![
        meta("tcp_v4", "conns_bps", Unit::Bits),
        meta("tasks", "cpu", Unit::Nanoseconds),
        meta("udp_v4", "conns_pps", Unit::Packets),
    ];
    let mut app = App::new(tables, Origin { name: "daemon", ..Origin::default() }, instant);
    for second in 0..5 {
        app.read(0, Ok(connections(second, &[50_000, 50_001, 50_002, 50_003])));
        app.read(1, Ok(tasks(second)));
    }
    let empty = Snapshot { rows: vec![], total: 0, other: 0, objects: 0, ..connections(4, &[]) };
    app.read(2, Ok(empty));
    app.screens.push(Screen::Overview);
    app
}

#[test]
fn each_screen_at_each_size() {
    for (width, height) in [(80, 24), (120, 40), (300, 100), (40, 10)] {
        let mut app = app();
        let size = format!("{width}x{height}");
        assert_snapshot!(format!("overview-{size}"), frame(&mut app, (width, height), PLAIN));
        press(&mut app, "\n");
        assert_snapshot!(format!("table-{size}"), frame(&mut app, (width, height), PLAIN));
        press(&mut app, "\n");
        assert_snapshot!(format!("object-{size}"), frame(&mut app, (width, height), PLAIN));
        press(&mut app, "?");
        assert_snapshot!(format!("help-{size}"), frame(&mut app, (width, height), PLAIN));
    }
}

#[test]
fn a_terminal_of_any_size_is_drawn_to() {
    let mut app = app();
    for (width, height) in (1..40).flat_map(|width| [(width, 3), (width, 7), (width * 9, 21)]) {
        for keys in ["", "\n", "\n", "?", "\u{1b}\u{1b}\u{1b}"] {
            press(&mut app, keys);
            frame(&mut app, (width, height), PLAIN);
        }
    }
}

#[test]
fn without_utf8_there_is_only_ascii_and_without_colour_no_colour() {
    let mut app = app();
    press(&mut app, "\n");
    let mut terminal = Terminal::new(TestBackend::new(100, 30)).unwrap();
    terminal.draw(|frame| draw(&mut app, frame, Look { colors: Colors::None, utf8: false })).unwrap();
    for cell in terminal.backend().buffer().content() {
        assert!(cell.symbol().is_ascii(), "{:?}", cell.symbol());
        assert_eq!((cell.fg, cell.bg), (ratatui::style::Color::Reset, ratatui::style::Color::Reset));
    }
}

/// A frame, and below it the style of each run of cells with a style.
fn styled(app: &mut App, (width, height): (u16, u16), colors: Colors) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(app, frame, Look { colors, utf8: true })).unwrap();
    let buffer = terminal.backend().buffer();
    let mut drawn = frame(app, (width, height), Look { colors, utf8: true });
    for y in 0..height {
        let mut runs: Vec<(u16, u16, String)> = Vec::new();
        for x in 0..width {
            let cell = &buffer[(x, y)];
            let style = format!("{:?} on {:?} {:?}", cell.fg, cell.bg, cell.modifier);
            match runs.last_mut() {
                Some((_, end, of)) if *end == x && *of == style => *end += 1,
                _ => runs.push((x, x + 1, style)),
            }
        }
        for (from, end, style) in runs.iter().filter(|(_, _, style)| style != "Reset on Reset NONE") {
            drawn += &format!("\n{y}: {from}..{end} {style}");
        }
    }
    drawn
}

/// An application whose host has more CPUs than the line of the host has cells.
fn busy_app() -> App {
    let mut app = app();
    let cpus = (0..20).map(|cpu| f64::from(cpu) / 20.0).collect();
    app.host(at(4), Host { cpus, net: Some((1_500_000, 20_000)), own: Some(0.0042), ..Host::default() });
    app
}

#[test]
fn what_the_daemon_costs_is_shown_beside_what_the_view_costs() {
    let mut app = busy_app();
    app.dirty = false;
    app.cost(Some(Cost { daemon: Some(0.013), programs: None }));
    assert!(app.dirty);
    let shown = frame(&mut app, (160, 24), PLAIN);
    assert!(shown.contains("own 0.4%  daemon 1.3%") && !shown.contains("programs"), "{shown}");
    app.cost(Some(Cost { daemon: Some(0.0), programs: Some(0.0021) }));
    let shown = frame(&mut app, (160, 24), PLAIN);
    assert!(shown.contains("own 0.4%  daemon 0.0%  programs 0.2%"), "{shown}");
    app.dirty = false;
    app.cost(Some(Cost { daemon: Some(0.0), programs: Some(0.0021) }));
    assert!(!app.dirty, "nothing has changed");
}

#[test]
fn colours_are_those_that_the_terminal_has() {
    for (name, colors) in [("plain", Colors::None), ("16", Colors::Sixteen), ("true", Colors::True)] {
        let mut app = busy_app();
        assert_snapshot!(format!("colours-overview-{name}"), styled(&mut app, (80, 24), colors));
        press(&mut app, "\n↓");
        app.read(0, Ok(connections(5, &[50_000, 50_001])));
        assert_snapshot!(format!("colours-table-{name}"), styled(&mut app, (80, 24), colors));
        press(&mut app, " ");
        assert_snapshot!(format!("colours-frozen-{name}"), styled(&mut app, (80, 8), colors));
    }
    let mut app = busy_app();
    press(&mut app, "\n\n");
    let [none, sixteen, all] =
        [Colors::None, Colors::Sixteen, Colors::True].map(|colors| styled(&mut app, (80, 24), colors));
    assert!(all.contains("Rgb(") && !sixteen.contains("Rgb(") && sixteen.contains("Cyan"));
    assert!(none.lines().skip(24).all(|line| line.contains("Reset on Reset")), "{none}");
}

#[test]
fn what_the_host_does_has_a_line_of_its_own_where_the_title_has_no_room() {
    let host = "cpu 47% ▁▁▂▃▄▄▅▆▇█  rx 1.50Mbit tx 20.0kbit  own 0.4%";
    let mut app = busy_app();
    let lines = |app: &mut App, width| {
        let drawn = frame(app, (width, 24), PLAIN);
        drawn.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>()
    };
    assert!(lines(&mut app, 120)[0].ends_with(host), "{:?}", lines(&mut app, 120)[0]);
    assert_eq!(lines(&mut app, 80)[1], host);
    press(&mut app, "\n");
    assert!(lines(&mut app, 80)[2].ends_with("· own 0.4%"));
}

#[test]
fn what_there_is_to_say_is_told_in_full() {
    let mut app = app();
    press(&mut app, "\n/comm:a-name-of-a-command-that-is-long cgroup:/system.slice/a-path-that-is-long\n[y");
    let drawn = frame(&mut app, (80, 24), PLAIN);
    let told: Vec<_> = drawn.lines().skip(22).collect();
    assert_eq!(told.concat(), app.message.clone().unwrap(), "{drawn}");
    app.say("word ".repeat(200));
    assert_eq!(frame(&mut app, (80, 24), PLAIN).lines().filter(|line| line.starts_with("word")).count(), 4);
}

#[test]
fn a_table_without_rows_says_why() {
    let mut app = app();
    press(&mut app, "↓↓\n");
    let none = || Snapshot { rows: vec![], ..connections(5, &[]) };
    let mut off = Snapshot { objects: 0, total: 0, other: 0, ..none() };
    off.settings.enabled = false;
    let (mut sample_off, mut all_off) = (off.clone(), off.clone());
    (sample_off.settings.enabled, sample_off.settings.owner_enabled) = (true, false);
    (all_off.settings.enabled, all_off.settings.topstat_enabled) = (true, false);
    for (snapshot, why) in [
        (off, "it is off, and counts nothing: e turns it on"),
        (sample_off, "tcp_v4 is off, and counts nothing: topstat set tcp_v4/enabled 1 turns it on"),
        (all_off, "all of topstat is off, and counts nothing: topstat set enabled 1 turns it on"),
        (Snapshot { objects: 0, total: 0, other: 0, ..none() }, "there are no objects yet"),
        (Snapshot { objects: 7, total: 0, other: 0, ..none() }, "none of 7 objects was pushed in this period"),
        (none(), "what was counted is of objects that have ended"),
    ] {
        app.read(2, Ok(snapshot));
        let drawn = frame(&mut app, (80, 24), PLAIN);
        assert!(drawn.contains(why), "{drawn}");
    }
    app.read(2, Err("cannot load: CAP_BPF is missing".to_owned()));
    assert!(frame(&mut app, (80, 24), PLAIN).contains("CAP_BPF is missing"));
}

#[test]
fn settings_are_read_when_they_are_seen_and_again_once_something_was_set() {
    let mut app = app();
    assert!(app.settings_wanted().is_empty());
    press(&mut app, "S");
    assert_eq!(app.settings_wanted(), [0, 1, 2]);
    assert!(app.settings_wanted().is_empty() && app.wanted().is_empty());
    let on = TableSettings { enabled: true, above: true, period_ms: 1000, delay_ms: 10 };
    app.settings(0, Ok(on));
    app.settings(1, Ok(TableSettings { above: false, ..on }));
    app.settings(2, Err("cannot read udp_v4/conns_pps/enabled: denied".to_owned()));
    press(&mut app, "↓");
    assert_snapshot!("settings-80x24", frame(&mut app, (80, 24), PLAIN));
    // A typed setting is for the selected table. A refusal is shown.
    assert_eq!(press(&mut app, "p2s\n"), Some(Effect::Set(1, Setting::Period, 2000)));
    app.setting(1);
    app.say("cannot set tasks/cpu/period: only root may set anything".to_owned());
    assert_eq!(app.settings_wanted(), [1]);
    assert!(frame(&mut app, (80, 24), PLAIN).contains("only root may set anything"));
    press(&mut app, "\u{1b}");
    assert_eq!(*app.screen(), Screen::Overview);
    press(&mut app, "S\n");
    assert_eq!((app.screen().clone(), app.table), (Screen::Table, 1));
}

#[test]
fn pressure_is_no_share_of_a_cpu() {
    let mut snapshot = Snapshot { sample: "cgroup_pressure".into(), table: "cpu_some".into(), ..tasks(4) };
    snapshot.rows[0].value = 310_000_000;
    let tables = vec![meta("cgroup_pressure", "cpu_some", Unit::Nanoseconds)];
    let mut app = App::new(tables, Origin { name: "daemon", ..Origin::default() }, instant);
    app.read(0, Ok(snapshot));
    press(&mut app, "0\n");
    let drawn = frame(&mut app, (120, 24), PLAIN);
    assert!(drawn.contains("stalled/s") && drawn.contains("310ms") && !drawn.contains("cpu%"), "{drawn}");
}

/// All keys can be read on a small terminal.
#[test]
fn the_help_scrolls_where_it_is_cut() {
    let mut app = app();
    press(&mut app, "?");
    let mut seen = frame(&mut app, (80, 24), PLAIN);
    assert!(seen.contains("more lines: Down, PgDn") && !seen.contains("settings of all tables"), "{seen}");
    press(&mut app, &"↓".repeat(99));
    seen += &frame(&mut app, (80, 24), PLAIN);
    for binding in topstat_tui::keys::KEYS {
        assert!(seen.contains(binding.about), "{}: {seen}", binding.about);
    }
    assert!(seen.contains("click rows, titles, charts; wheel") && seen.contains("lines above"), "{seen}");
    // The last line is the end, however often the key was pressed.
    press(&mut app, "?");
    assert!(!frame(&mut app, (80, 24), PLAIN).contains("lines above"));
    assert!(!frame(&mut app, (120, 40), PLAIN).contains("more lines"));
}

/// A record each minute of two hours except the second half hour. The largest one is in the third minute of the second hour.
fn peaks() -> Vec<Peak> {
    let minute = |minute: u64| Peak {
        time: at(0) - Duration::from_secs(7200 - minute * 60),
        total: if minute == 63 { 9_000_000 } else { 1_000_000 + minute * 20_000 },
    };
    (0..120).filter(|minute| !(30..60).contains(minute)).map(minute).collect()
}

#[test]
fn all_that_is_kept_is_a_bar_and_a_click_goes_to_its_spike() {
    let now = std::time::Instant::now();
    let mut app = app();
    assert_eq!(app.outline_wanted(now), None, "not on the overview");
    press(&mut app, "\n");
    let without = frame(&mut app, (80, 24), PLAIN);
    assert_eq!(app.outline_wanted(now), Some(0));
    assert_eq!(app.outline_wanted(now + Duration::from_secs(59)), None);
    assert_eq!(app.outline_wanted(now + Duration::from_secs(60)), Some(0));
    app.outlined(0, Ok(peaks()));
    for (width, height) in [(80, 24), (120, 40), (40, 10)] {
        assert_snapshot!(format!("bar-{width}x{height}"), frame(&mut app, (width, height), PLAIN));
    }
    let drawn = frame(&mut app, (80, 24), PLAIN);
    let bar = drawn.lines().position(|line| line.starts_with("kept since 2026-11-21T06:00Z ")).unwrap();
    let spike = drawn.lines().nth(bar).unwrap().chars().position(|c| c == '█').unwrap();
    let kind = MouseEventKind::Down(MouseButton::Left);
    let click = |app: &mut App, column: usize| {
        app.mouse(MouseEvent { kind, column: column as u16, row: bar as u16, modifiers: KeyModifiers::NONE });
    };
    click(&mut app, spike);
    let time = at(0) - Duration::from_secs(57 * 60);
    assert!(matches!(app.when, When::Past(when) if when == time));
    assert_eq!(app.lookup(), Some((0, time)));
    app.recalled(0, time, Ok(Recorded::Snapshot(Box::new(Snapshot { time, ..connections(0, &[4711]) }))));
    let past = frame(&mut app, (80, 24), PLAIN);
    assert!(past.starts_with(" PAST  2026-11-21T07:03:00.000Z") && past.contains("4711"), "{past}");
    // A click on a cell without records goes to its instant, too: the screen says why it is empty.
    click(&mut app, spike - 5);
    assert!(matches!(app.when, When::Past(when) if when < time));
    // A bar that could not be made says why.
    press(&mut app, "l");
    app.outlined(0, Err("cannot read /var/lib/topstat/history: Permission denied".into()));
    assert!(frame(&mut app, (80, 24), PLAIN).contains("Permission denied"));
    app.outlined(0, Ok(vec![]));
    assert_eq!(frame(&mut app, (80, 24), PLAIN), without);
}

#[test]
fn what_a_daemon_took_to_begin_is_not_shown_as_what_it_takes() {
    let mut app = app();
    app.host(at(4), Host { cpus: vec![0.5], ..Host::default() });
    app.cost(Some(Cost { daemon: None, programs: Some(0.0021) }));
    let drawn = frame(&mut app, (120, 40), PLAIN);
    assert!(!drawn.contains("  daemon ") && drawn.contains("programs 0.2%"), "{drawn}");
}

#[test]
fn an_object_is_followed_through_all_readings() {
    let mut app = app();
    press(&mut app, "\n");
    let object = app.rows().get(0).unwrap().row.object.clone();
    // The object is not at the top for two readings, and comes back at another rank.
    for (second, ports) in [(5, &[50_001][..]), (6, &[50_001]), (7, &[50_001, 50_000]), (8, &[50_001, 50_000])] {
        app.read(0, Ok(connections(second, ports)));
    }
    let values = app.values(&object);
    let first = |second: u64| 1_000_000 + second * 10_000;
    let expected = [first(0), first(1), first(2), first(3), first(4), 0, 0, 500_000, 500_000];
    assert_eq!(values.value, expected);
    assert_eq!(values.parts, [expected.map(|value| value / 4), expected.map(|value| value - value / 4)]);
    press(&mut app, "G\n");
    assert_snapshot!("object-parts", frame(&mut app, (100, 32), PLAIN));
}
