// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frames that are drawn, and the effects of keys. `INSTA_UPDATE=always cargo test -p topstat-tui` writes the frames anew.

use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use insta::assert_snapshot;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use topstat_model::{Column, ColumnKind, CpuSection, Field, Lost, Row, Settings, Snapshot, TableType, Unit};
use topstat_tui::feed::{Cost, Origin, Peak, Recorded, Setting, TableSettings};
use topstat_tui::host::Host;
use topstat_tui::state::{Effect, Screen, When};
use topstat_tui::{App, Colors, Look, Names, TableMeta, draw};

const PLAIN: Look = Look { colors: Colors::None, utf8: true };

fn at(second: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_248_000 + second)
}

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

fn frame(app: &mut App, (width, height): (u16, u16), look: Look) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(app, frame, look)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect::<Vec<_>>().join("\n")
}

fn press(app: &mut App, keys: &str) -> Option<Effect> {
    let mut last = None;
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            '↓' => KeyCode::Down,
            c => KeyCode::Char(c),
        };
        last = app.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
    last
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
fn what_is_frozen_does_not_change_and_is_not_drawn() {
    let mut app = app();
    press(&mut app, "\n ");
    assert!(matches!(app.when, When::Frozen(_)));
    assert!(app.wanted().is_empty(), "nothing is read meanwhile");
    let before = frame(&mut app, (80, 24), PLAIN);
    assert!(before.starts_with(" FROZEN"), "{before}");
    app.dirty = false;
    app.read(0, Ok(connections(5, &[60_000])));
    assert!(!app.dirty);
    assert_eq!(frame(&mut app, (80, 24), PLAIN), before);
    press(&mut app, " ");
    assert_eq!(app.wanted(), [0]);
    let after = frame(&mut app, (80, 24), PLAIN);
    assert!(after.contains("60000") && after.contains("lost now: contended 3"), "{after}");
}

#[test]
fn an_object_is_selected_and_no_line() {
    let mut app = app();
    press(&mut app, "\n↓↓");
    let object = app.selected.clone().unwrap();
    assert_eq!(object[3], Field::U64(50_002));
    app.read(0, Ok(connections(5, &[50_009, 50_002, 50_000])));
    let rows = app.rows();
    assert_eq!(app.selection(&rows), Some(1));
    assert_eq!(rows.get(1).unwrap().row.object, object);
    // Two rows have ended, and are shown for ten seconds.
    assert_eq!(rows.iter().filter(|row| row.ended.is_some()).count(), 2);
    app.read(0, Ok(connections(14, &[50_009, 50_002])));
    assert_eq!(app.rows().iter().filter(|row| row.ended.is_some()).count(), 3);
    // A frozen view shows the ended rows for as long as it is frozen.
    press(&mut app, " ");
    let frozen: Vec<_> = app.rows().iter().map(|shown| shown.row.clone()).collect();
    app.read(0, Ok(connections(15, &[50_009])));
    assert_eq!(app.rows().iter().map(|shown| shown.row.clone()).collect::<Vec<_>>(), frozen);
    assert_eq!(frozen.len(), 5);
    press(&mut app, " ");
    app.read(0, Ok(connections(15, &[50_009, 50_002])));
    app.read(0, Ok(connections(16, &[50_009, 50_002])));
    assert_eq!(app.rows().iter().filter(|row| row.ended.is_some()).count(), 0);
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
fn what_counts_for_less_than_a_period_says_so() {
    let mut app = app();
    press(&mut app, "\n");
    app.counting_since(0, Some(at(5) - Duration::from_millis(300)));
    app.read(0, Ok(connections(5, &[50_000])));
    assert!(frame(&mut app, (80, 24), PLAIN).contains("counts for 300ms only"));
    app.read(0, Ok(connections(6, &[50_000])));
    assert!(!frame(&mut app, (80, 24), PLAIN).contains("counts for"));
}

#[test]
fn an_object_that_comes_back_is_known_and_has_not_ended() {
    let mut app = app();
    press(&mut app, "\n");
    let ended = |app: &App| app.rows().iter().filter(|row| row.ended.is_some()).count();
    for (second, port, gone) in [(5, 50_000, 3), (6, 50_001, 3), (7, 50_000, 3)] {
        app.read(0, Ok(connections(second, &[port])));
        assert_eq!(ended(&app), gone, "{second}");
    }
    let object = app.rows().get(0).unwrap().row.object.clone();
    let values = app.values(&object).value;
    assert_eq!(values.iter().map(|value| *value > 0).collect::<Vec<_>>()[5..], [true, false, true]);
}

#[test]
fn a_connection_that_closes_is_grey_and_the_same() {
    let reading = |second, closed: bool| {
        let mut snapshot = connections(second, &[50_000, 50_001]);
        snapshot.columns.push(Column::optional("closed", ColumnKind::Mark));
        for (place, row) in snapshot.rows.iter_mut().enumerate() {
            row.object.push(if closed && place == 0 { Field::True } else { Field::None });
        }
        snapshot
    };
    let tables = vec![meta("tcp_v4", "conns_bps", Unit::Bits)];
    let mut app = App::new(tables, Origin { name: "daemon", ..Origin::default() }, instant);
    app.read(0, Ok(reading(1, false)));
    press(&mut app, "0\n\n\u{1b}");
    app.read(0, Ok(reading(2, true)));
    app.read(0, Ok(reading(3, true)));
    let rows = app.rows();
    assert!(rows.len() == 2 && rows.iter().all(|row| row.ended.is_none()), "nothing has left the table");
    assert_eq!(app.selection(&rows), Some(0));
    let selected = app.selected.clone().unwrap();
    assert!(app.values(&selected).value.iter().all(|value| *value > 0), "its past is that of when it was there");
    // A past reading has the mark that it had then.
    press(&mut app, "[");
    assert_eq!(app.rows().get(0).unwrap().row.object[7], Field::True);
    press(&mut app, "[");
    assert_eq!(app.rows().get(0).unwrap().row.object[7], Field::None);
    press(&mut app, "l");
    let mut terminal = Terminal::new(TestBackend::new(120, 24)).unwrap();
    terminal.draw(|frame| draw(&mut app, frame, PLAIN)).unwrap();
    let buffer = terminal.backend().buffer();
    let is_dim = |port: &str| {
        let at = |(x, y): (u16, u16)| (x..120).take(port.len()).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        let place = (0..24).flat_map(|y| (0..120).map(move |x| (x, y))).find(|place| at(*place) == port).expect(port);
        buffer[place].modifier.contains(ratatui::style::Modifier::DIM)
    };
    assert!(is_dim("50000") && !is_dim("50001"));
    assert!(frame(&mut app, (120, 24), PLAIN).contains("1 closed"));
}

#[test]
fn sorting_is_by_any_column_and_stable() {
    let mut app = app();
    let ports = |app: &App| -> Vec<Field> { app.rows().iter().map(|row| row.row.object[3].clone()).collect() };
    let of = |ports: [u64; 4]| ports.map(Field::U64).to_vec();
    press(&mut app, "\n");
    assert_eq!(ports(&app), of([50_000, 50_001, 50_002, 50_003]));
    // The order is by comm: 50000 and 50003 have one comm, and keep their order.
    press(&mut app, &">".repeat(8));
    assert_eq!(ports(&app), of([50_002, 50_001, 50_000, 50_003]));
    press(&mut app, "r");
    assert_eq!(ports(&app), of([50_000, 50_003, 50_001, 50_002]));
    press(&mut app, &"<".repeat(8));
    assert_eq!(ports(&app), of([50_003, 50_002, 50_001, 50_000]));
}

/// Each press shows another column as the one that the rows are sorted by, however narrow the terminal is. A column that no row
/// has is skipped.
#[test]
fn the_column_that_rows_are_sorted_by_is_visible() {
    let mut app = App::new(vec![meta("tcp_v4", "conns_bps", Unit::Bits)], Origin::default(), instant);
    let mut snapshot = connections(5, &[50_000, 50_001]);
    snapshot.columns.insert(4, Column::optional("tid", ColumnKind::Pid));
    snapshot.columns.push(Column::optional("closed", ColumnKind::Mark));
    for row in &mut snapshot.rows {
        row.object.insert(4, Field::None);
        row.object.push(Field::None);
    }
    app.read(0, Ok(snapshot));
    press(&mut app, "0\n");
    let sorted_by = |app: &mut App| {
        let mut terminal = Terminal::new(TestBackend::new(60, 24)).unwrap();
        terminal.draw(|frame| draw(app, frame, PLAIN)).unwrap();
        let buffer = terminal.backend().buffer();
        let is_title = |y: &u16| (0..60).map(|x| buffer[(x, *y)].symbol()).collect::<String>().starts_with('#');
        let y = (0..24).find(is_title).unwrap();
        let is_marked = |x: &u16| buffer[(*x, y)].modifier.contains(ratatui::style::Modifier::REVERSED);
        (0..60).filter(is_marked).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim().to_owned()
    };
    let all = ["rx", "tx", "sip", "sport", "dip", "dport", "pid", "comm", "cgroup", "bit/s"];
    for name in all {
        press(&mut app, ">");
        assert_eq!(sorted_by(&mut app), name);
    }
    for name in all.iter().rev().skip(1) {
        press(&mut app, "<");
        assert_eq!(sorted_by(&mut app), *name);
    }
    // Where no table is open, nothing is sorted in secret.
    press(&mut app, "o>");
    assert!(app.message.as_deref().unwrap().starts_with("choose a table first"));
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

/// Names of two hosts. The second host is known from the fifth question on.
#[derive(Default)]
struct TwoHosts {
    asked: u32,
}

impl Names for TwoHosts {
    fn group(&mut self, path: &str) -> String {
        path.to_owned()
    }

    fn host(&mut self, address: IpAddr) -> Option<String> {
        self.asked += 1;
        match address.to_string().as_str() {
            "10.0.0.1" => Some("web-1\x1b[31m.example".to_owned()),
            "192.0.2.7" if self.asked > 4 => Some(format!("client{}.example", "-of-a-long-name".repeat(3))),
            _ => None,
        }
    }

    fn is_asking(&self) -> bool {
        self.asked <= 4
    }
}

#[test]
fn hosts_have_names_once_they_are_wanted_and_known() {
    let mut app = app();
    app.name_by(Box::new(TwoHosts::default()));
    press(&mut app, "\n");
    assert!(!app.awaits_names());
    assert!(!frame(&mut app, (160, 24), PLAIN).contains("example"));
    press(&mut app, "R");
    assert!(app.awaits_names());
    // A name from DNS can't reach the terminal as it is, nor make a row as wide as it likes.
    let drawn = frame(&mut app, (160, 24), PLAIN);
    assert!(drawn.contains("web-1\\x1b[31m.example") && !drawn.contains('\u{1b}'), "{drawn}");
    assert!(app.awaits_names(), "the last name may have come after the last frame");
    let drawn = frame(&mut app, (160, 24), PLAIN);
    assert!(drawn.contains(" client-of-a-long-name-of-a-long…"), "{drawn}");
    assert!(!app.awaits_names());
    // The whole name stands behind the address of the object.
    press(&mut app, "\n");
    let drawn = frame(&mut app, (160, 40), PLAIN);
    assert!(drawn.contains("10.0.0.1  web-1\\x1b[31m.example"), "{drawn}");
    assert!(drawn.contains("-of-a-long-name-of-a-long-name-of-a-long-name.example"), "{drawn}");
    // Filters are of addresses.
    press(&mut app, "\u{1b}/dip:192.0.2.7\n");
    assert_eq!(app.rows().len(), 4);
    press(&mut app, "\u{1b}R");
    assert!(!frame(&mut app, (160, 24), PLAIN).contains("example"));
}

#[test]
fn a_signal_is_sent_only_where_it_is_allowed_and_confirmed() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = child.id();
    let mut app = app();
    let mut with_child = connections(5, &[50_000, 50_001]);
    with_child.rows[0].object[4] = Field::U64(pid.into());
    app.read(0, Ok(with_child));
    press(&mut app, "\nK");
    assert_eq!(app.message.as_deref(), Some("signals are sent by topstat view --allow-kill alone"));
    app.may_signal = true;
    if topstat_tui::signal::same_pids().is_ok() {
        press(&mut app, "K");
        let drawn = frame(&mut app, (80, 24), PLAIN);
        assert!(drawn.contains(&format!("TERM to sleep ({pid})? Type {pid}, or another signal and {pid}:")), "{drawn}");
        // Keys are the answer and no commands; a wrong answer sends nothing.
        assert_eq!(press(&mut app, "q\n"), None);
        assert!(app.prompt.as_ref().unwrap().wrong.is_some());
        assert_eq!(press(&mut app, "\u{1b}"), None);
        let Some(Effect::Signal(process, signal)) = press(&mut app, &format!("KKILL {pid}\n")) else {
            panic!("no signal: {:?}", app.prompt)
        };
        assert_eq!((process.pid, signal.name), (pid, "KILL"));
        assert!(process.send(signal).starts_with("KILL was sent to process"));
        assert!(!child.wait().unwrap().success());
        press(&mut app, "K");
        assert_eq!(app.message, Some(format!("process {pid} has ended, or is not visible here")));
    } else {
        child.kill().and_then(|()| child.wait()).unwrap();
    }
    // The past has no processes, and neither have groups.
    press(&mut app, " K");
    assert_eq!(app.message.as_deref(), Some("signals go to processes of the present: l shows it"));
}

#[test]
fn a_filter_takes_effect_as_it_is_typed() {
    let mut app = app();
    press(&mut app, "\n/dport:50001");
    assert_eq!(app.rows().len(), 1);
    let drawn = frame(&mut app, (80, 24), PLAIN);
    assert!(drawn.contains("1 of the 4 rows kept"), "{drawn}");
    // A single word is looked for in all texts. Text that is not yet a filter leaves the previous filter in place.
    press(&mut app, " value");
    assert_eq!(app.rows().len(), 0);
    press(&mut app, ">");
    assert_eq!(app.rows().len(), 0);
    assert!(frame(&mut app, (80, 24), PLAIN).contains("at character 19: a value is missing here"));
    press(&mut app, "1k");
    assert_eq!(app.rows().len(), 1);
    press(&mut app, "\u{1b}");
    assert_eq!(app.rows().len(), 4);
    // A filter that no row can match is reported and not applied.
    press(&mut app, "/comm:nginx prot:1\n");
    assert!(app.prompt.is_some());
    assert!(frame(&mut app, (120, 24), PLAIN).contains("there is no column \"prot\"; there are: bps, cgroup, comm"));
    press(&mut app, "\u{1b}/comm:'nginx\ny");
    assert_eq!(app.message.as_deref(), Some("topstat top tcp_v4/conns_bps --filter 'comm:'\\''nginx'"));
}

#[test]
fn the_past_is_in_memory_and_then_in_the_history() {
    let mut app = app();
    press(&mut app, "\n[[");
    assert!(matches!(app.when, When::Past(time) if time == at(2)));
    assert_eq!(app.shown(0).unwrap().time, at(2));
    assert!(frame(&mut app, (80, 24), PLAIN).starts_with(" PAST  2026-11-21T08:00:02.000Z"));
    assert_eq!(app.lookup(), None, "memory has it");
    press(&mut app, "{");
    let time = at(2) - Duration::from_secs(60);
    assert_eq!(app.lookup(), Some((0, time)));
    assert_eq!(app.lookup(), None, "it is being looked up");
    assert_eq!(app.shown(0), Err("looking it up".to_owned()));
    app.recalled(0, time, Ok(Recorded::Nothing("the recorder did not run".into())));
    assert!(frame(&mut app, (80, 24), PLAIN).contains("the recorder did not run"));
    app.recalled(0, time, Ok(Recorded::Snapshot(Box::new(connections(900, &[4711])))));
    assert_eq!(app.lookup(), None);
    let drawn = frame(&mut app, (80, 24), PLAIN);
    assert!(drawn.contains("4711"), "{drawn}");
    assert_eq!(press(&mut app, "y"), None);
    assert!(app.message.as_deref().unwrap().ends_with("--at 2026-11-21T07:59:02.000Z"));
    press(&mut app, "j1\n");
    assert_eq!(app.shown(0).unwrap().time, at(1));
    press(&mut app, "tx\n");
    assert!(frame(&mut app, (80, 24), PLAIN).contains("not a time: give a number"));
    press(&mut app, "\u{1b}l");
    assert!(matches!(app.when, When::Live));
}

#[test]
fn what_is_clicked_on_is_what_is_drawn_there() {
    let mut app = app();
    let click = |app: &mut App, text: &str, right: u16| {
        let drawn = frame(app, (80, 24), PLAIN);
        let (y, line) = drawn.lines().enumerate().find(|(_, line)| line.contains(text)).unwrap();
        let x = line.chars().count() - line.split_once(text).unwrap().1.chars().count() - 1;
        let (column, row) = (x as u16 + right, y as u16);
        let kind = MouseEventKind::Down(MouseButton::Left);
        app.mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE })
    };
    click(&mut app, "tasks/cpu", 0);
    assert_eq!(app.table, 1);
    click(&mut app, "tcp_v4/conns_bps", 0);
    click(&mut app, "tcp_v4/conns_bps", 0);
    assert_eq!(*app.screen(), Screen::Table);
    click(&mut app, "50002", 0);
    assert_eq!(app.selected.as_ref().unwrap()[3], Field::U64(50_002));
    click(&mut app, "50002", 0);
    assert!(matches!(app.screen(), Screen::Object(_)));
}

#[test]
fn settings_are_asked_for_and_checked() {
    let mut app = app();
    assert_eq!(press(&mut app, "\np5s\n"), Some(Effect::Set(0, Setting::Period, 5000)));
    assert_eq!(press(&mut app, "d0\n"), Some(Effect::Set(0, Setting::Delay, 0)));
    assert_eq!(press(&mut app, "eoff\n"), Some(Effect::Set(0, Setting::Enabled, 0)));
    assert_eq!(press(&mut app, "p0\n"), None);
    assert!(app.prompt.as_ref().unwrap().wrong.is_some());
    assert_eq!(press(&mut app, "\u{1b}q"), Some(Effect::Quit));
}

#[test]
fn each_table_in_sight_is_looked_up_one_at_a_time() {
    let mut app = app();
    press(&mut app, "↓(");
    let time = at(4) - Duration::from_secs(3600);
    for table in [1, 0, 2] {
        assert_eq!(app.lookup(), Some((table, time)), "the one that is looked at first");
        assert_eq!(app.lookup(), None);
        app.recalled(table, time, Err("no records".into()));
    }
    assert_eq!(app.lookup(), None);
    // The record of an instant that is no longer shown is ignored. The instant that is shown is looked up next.
    press(&mut app, "{");
    let (_, first) = app.lookup().unwrap();
    press(&mut app, "}}");
    app.recalled(1, first, Ok(Recorded::Snapshot(Box::new(tasks(0)))));
    assert_eq!(app.shown(1), Err("looking it up".to_owned()));
    assert_eq!(app.lookup(), Some((1, first + Duration::from_secs(120))));
}

#[test]
fn what_is_frozen_stays_for_longer_than_memory_reaches() {
    let mut app = app();
    press(&mut app, "\n ");
    let before = app.shown(0).unwrap();
    let live = frame(&mut app, (80, 24), PLAIN);
    for second in [400, 800, 1200] {
        app.read(0, Ok(connections(second, &[60_000])));
    }
    assert_eq!(app.shown(0).unwrap(), before);
    assert_eq!(app.lookup(), None);
    let rows = |drawn: &str| drawn.lines().skip(4).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(rows(&frame(&mut app, (80, 24), PLAIN)), rows(&live));
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

/// The bar of a record in each of these minutes, drawn `later` minutes after the last one.
fn bar_of(minutes: impl Iterator<Item = u64>, later: u64) -> String {
    let mut app = app();
    press(&mut app, "\n");
    let peak = |minute| Peak { time: at(0) + Duration::from_secs(minute * 60 + 7), total: 1_000_000 };
    let peaks: Vec<_> = minutes.map(peak).collect();
    let end = peaks.last().unwrap().time + Duration::from_secs(later * 60);
    app.outlined(0, Ok(peaks));
    app.read(0, Ok(Snapshot { time: end, ..connections(0, &[50_000]) }));
    let drawn = frame(&mut app, (120, 40), PLAIN);
    let line = drawn.lines().find(|line| line.starts_with("kept since ")).expect("a bar");
    line.chars().skip(line.rfind(|c: char| c == 'Z' || c.is_ascii_digit()).unwrap() + 1).collect()
}

#[test]
fn a_bar_has_no_gaps_where_records_are() {
    // Ten minutes have far fewer peaks than the bar has cells.
    let bar = bar_of(0..10, 0);
    assert!(!bar.contains('·'), "{bar:?}");
    // Records are looked through each minute: later records are unknown, and no gap.
    let bar = bar_of(0..10, 1);
    assert!(!bar.contains('·'), "{bar:?}");
    // A recorder that records every five minutes.
    let bar = bar_of((0..60).step_by(5), 4);
    assert!(!bar.contains('·'), "{bar:?}");
    // A recorder that did not run for a third of the time, and one that has ended.
    let bar = bar_of((0..30).filter(|minute| !(10..20).contains(minute)), 0);
    assert!((25..40).contains(&bar.matches('·').count()), "{bar:?}");
    let bar = bar_of(0..10, 10);
    assert!((30..60).contains(&bar.matches('·').count()), "{bar:?}");
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
fn a_history_alone_is_read_once_and_is_not_live() {
    let tables = vec![meta("tcp_v4", "conns_bps", Unit::Bits), meta("tasks", "cpu", Unit::Nanoseconds)];
    let origin = Origin { name: "history", recorded: true, history: " --history /h".into(), ..Origin::default() };
    let mut app = App::new(tables, origin, instant);
    press(&mut app, "0");
    assert_eq!(app.wanted(), [0, 1]);
    app.read(0, Ok(connections(4, &[50_000])));
    app.read(1, Err("there are no records".into()));
    assert!(app.wanted().is_empty());
    press(&mut app, "\n");
    let drawn = frame(&mut app, (80, 24), PLAIN);
    assert!(drawn.starts_with(" LAST  2026-11-21T08:00:04.000Z"), "{drawn}");
    press(&mut app, "y");
    let command = "topstat top tcp_v4/conns_bps --at 2026-11-21T08:00:04.000Z --history /h";
    assert_eq!(app.message.as_deref(), Some(command));
    press(&mut app, "[");
    assert_eq!(app.lookup(), Some((0, at(3))));
    app.recalled(0, at(3), Ok(Recorded::Snapshot(Box::new(Snapshot { time: at(0), ..connections(0, &[4711]) }))));
    let drawn = frame(&mut app, (120, 24), PLAIN);
    assert!(drawn.contains("recorded at 2026-11-21T08:00:00.000Z"), "{drawn}");
    // A recorder may have added records.
    press(&mut app, "l");
    assert_eq!(app.wanted(), [0]);
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
