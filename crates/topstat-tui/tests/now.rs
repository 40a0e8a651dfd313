// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The "now" screen: what it shows of readings, and the effects of keys on it. `INSTA_UPDATE=always cargo test -p topstat-tui` writes
//! the frames anew.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use insta::assert_snapshot;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use topstat_model::{Column, ColumnKind, CpuSection, Field, Lost, Row, Settings, Snapshot, TableType, Unit};
use topstat_tui::feed::{Cost, Origin, Setting};
use topstat_tui::host::{Cpu, Disk, Host, Memory, Pressure};
use topstat_tui::now::{self, Others, Panel};
use topstat_tui::state::{Effect, Group, Screen, When};
use topstat_tui::{App, Colors, Look, TableMeta, draw};

const PLAIN: Look = Look { colors: Colors::None, utf8: true };

fn at(second: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_248_000 + second)
}

/// A table: its path, its unit, and the names of its columns.
fn meta((path, unit, columns): &(&str, Unit, &[&str])) -> TableMeta {
    let (sample, table) = path.split_once('/').unwrap();
    TableMeta {
        sample: sample.to_owned(),
        table: table.to_owned(),
        about: format!("what {path} ranks by"),
        kind: TableType::Dynamic,
        unit: *unit,
        columns: columns.iter().map(|name| (*name).to_owned()).collect(),
    }
}

/// A reading with these rows: the value and the fields of each. `other` is in no row.
fn reading(meta: &TableMeta, rows: &[(u64, &[Field])], other: u64) -> Snapshot {
    let row = |(place, (value, object)): (usize, &(u64, &[Field]))| Row {
        id: Row::NO_ID,
        rank: place as u32 + 1,
        value: *value,
        object: object.to_vec(),
        parts: vec![],
        cpus: vec![0],
    };
    let total = rows.iter().map(|(value, _)| value).sum::<u64>() + other;
    Snapshot {
        time: at(9),
        sample: meta.sample.clone(),
        table: meta.table.clone(),
        kind: meta.kind,
        unit: meta.unit,
        value_name: meta.table.clone(),
        period_ms: 1000,
        delay_ms: 0,
        elapsed: None,
        top: 128,
        objects: 200,
        total,
        shared: 0,
        other,
        proven: rows.len() as u32,
        filter: None,
        lost: Lost::default(),
        lost_now: Lost::default(),
        settings: Settings { enabled: true, owner: meta.sample.clone(), owner_enabled: true, topstat_enabled: true },
        columns: meta.columns.iter().map(|name| Column::new(name.clone(), ColumnKind::Text)).collect(),
        parts: vec![],
        rows: rows.iter().enumerate().map(row).collect(),
        cpus: vec![CpuSection { cpu: 0, total, stale: false, rows: vec![] }],
    }
}

fn n(number: u64) -> Field {
    Field::U64(number)
}

fn t(text: &str) -> Field {
    Field::from(text)
}

fn ip(text: &str) -> Field {
    Field::Ip(text.parse().unwrap())
}

const PROCESS: &[&str] = &["pid", "comm", "cgroup"];
const CONNECTION: &[&str] = &["sip", "sport", "dip", "dport", "pid"];
const TABLES: &[(&str, Unit, &[&str])] = &[
    ("tasks/cpu", Unit::Nanoseconds, PROCESS),
    ("tasks/waits", Unit::Nanoseconds, PROCESS),
    ("net_procs/bps", Unit::Bits, PROCESS),
    ("tcp_v4/conns_bps", Unit::Bits, CONNECTION),
    ("disk_procs/bytes", Unit::Bytes, &["pid", "comm", "cgroup", "device", "closed"]),
    ("delays/blkio", Unit::Nanoseconds, PROCESS),
    ("snmp_tcpext/rate", Unit::Count, &["counter"]),
    ("ended/cpu", Unit::Nanoseconds, &["comm", "cgroup", "events"]),
    ("delays/swapin", Unit::Nanoseconds, PROCESS),
    ("delays/reclaim", Unit::Nanoseconds, PROCESS),
    ("delays/thrashing", Unit::Nanoseconds, PROCESS),
    ("cgroup_limits/throttled", Unit::Nanoseconds, GROUP),
    ("cgroup_limits/oom_kill", Unit::Count, GROUP),
    ("cgroup_limits/max", Unit::Count, GROUP),
    ("cgroup_limits/high", Unit::Count, GROUP),
    ("net_devs/drops", Unit::Count, &["dev"]),
    ("net_devs/errors", Unit::Count, &["dev"]),
];

const GROUP: &[&str] = &["cgroup", "container"];

const WEB: &str = "/system.slice/web.service";
const DB: &str = "/system.slice/db.service";

/// A host with four CPUs, on which a web server and a database are at work.
fn app() -> App {
    let tables: Vec<_> = TABLES.iter().map(meta).collect();
    let mut app = App::new(tables.clone(), Origin { name: "daemon", ..Origin::default() }, |_, _| Err(String::new()));
    let mut read = |path: &str, rows: &[(u64, &[Field])], other: u64| {
        let table = tables.iter().position(|meta| meta.path() == path).unwrap();
        app.read(table, Ok(reading(&tables[table], rows, other)));
    };
    for (path, ..) in &TABLES[8..] {
        read(path, &[], 0);
    }
    let process = |pid: u64, comm: &str, cgroup: &str| [n(pid), t(comm), t(cgroup)];
    let (idle, nginx, postgres) = (process(0, "idle", ""), process(10, "nginx", WEB), process(20, "postgres", DB));
    let curl = process(30, "curl", WEB);
    read(
        "tasks/cpu",
        &[(2_000_000_000, &idle), (1_200_000_000, &nginx), (600_000_000, &postgres), (100_000_000, &curl)],
        100_000_000,
    );
    read("tasks/waits", &[(310_000_000, &nginx), (500_000, &curl)], 0);
    read("net_procs/bps", &[(900_000_000, &nginx), (100_000_000, &curl), (99_000_000, &postgres)], 1_000_000);
    let connection =
        |sip: &str, sport: u64, dip: &str, dport: u64, pid: u64| [ip(sip), n(sport), ip(dip), n(dport), n(pid)];
    let served = connection("10.0.0.1", 443, "192.0.2.7", 50_001, 10);
    let client = connection("127.0.0.1", 40_000, "127.0.0.1", 5432, 30);
    let server = connection("127.0.0.1", 5432, "127.0.0.1", 40_000, 20);
    read("tcp_v4/conns_bps", &[(800_000_000, &served), (98_000_000, &client), (98_000_000, &server)], 0);
    let on_disk = [n(20), t("postgres"), t(DB), t("vda"), Field::True];
    read("disk_procs/bytes", &[(71 << 20, &on_disk)], 0);
    read("delays/blkio", &[(88_000_000, &postgres)], 0);
    read("snmp_tcpext/rate", &[(500, &[t("TCPHPHits")]), (12, &[t("ListenOverflows")])], 0);
    read("ended/cpu", &[(1_800_000_000, &[t("cc1"), t("/build.scope"), n(41)])], 0);
    for second in 0..10 {
        app.host(at(second), host(second));
    }
    app.cost(Some(Cost { daemon: Some(0.004), programs: Some(0.0021) }));
    app
}

fn host(second: u64) -> Host {
    let part = second as f64 / 20.0;
    Host {
        cpus: vec![0.5; 4],
        cpu: Some(Cpu { user: part, system: 0.1, irq: 0.02, steal: 0.0 }),
        memory: Some(Memory { total: 24 << 30, available: 10 << 30, swap_total: 0, swap_used: 0 }),
        net: Some((212_000_000 * second, 1_900_000_000)),
        retrans: Some(14.0),
        disk: Some(Disk { read: 88 << 20, written: 12 << 20, busiest: Some(("vda".to_owned(), 0.41)) }),
        pressure: Pressure { cpu: Some(0.12), memory: Some(0.0), io: None },
        load: Some(3.1),
        own: Some(0.005),
    }
}

fn frame(app: &mut App, (width, height): (u16, u16), look: Look) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(app, frame, look)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect::<Vec<_>>().join("\n")
}

fn press(app: &mut App, keys: &str) {
    pressed(app, keys);
}

fn pressed(app: &mut App, keys: &str) -> Option<Effect> {
    let mut last = None;
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\u{1b}' => KeyCode::Esc,
            '↓' => KeyCode::Down,
            '↑' => KeyCode::Up,
            c => KeyCode::Char(c),
        };
        last = app.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
    last
}

#[test]
fn the_first_screen_at_each_size() {
    for (width, height) in [(80, 24), (120, 40), (200, 60), (50, 20)] {
        assert_snapshot!(format!("now-{width}x{height}"), frame(&mut app(), (width, height), PLAIN));
    }
    assert_snapshot!("now-text", now::write(&app()));
    assert_snapshot!("now-json", String::from_utf8(now::document(&app()).unwrap()).unwrap());
}

#[test]
fn a_terminal_of_any_size_is_drawn_to() {
    for (width, height) in (1..60).flat_map(|width| [(width, 3), (width, 9), (width * 7, 25)]) {
        for look in [PLAIN, Look { colors: Colors::True, utf8: false }] {
            frame(&mut app(), (width, height), look);
        }
    }
}

/// Shares of all CPUs: the idle time is no row, and the rest of the time is in `others`.
#[test]
fn cpu_time_is_a_share_of_all_cpus() {
    let content = app().panel(Panel::Cpu, 2);
    let lines: Vec<_> =
        content.lines.iter().map(|line| (line.figure.as_str(), line.name.as_str(), line.share)).collect();
    assert_eq!(lines, [("30.0", "nginx", 0.3)]);
    let others = Others { figure: "20.0".to_owned(), value: 0.2, count: Some(2) };
    assert_eq!(content.others, Some(others), "100% less 50% idle less 30%");
}

/// The largest connection of a process says which port or which host. The two ends of a local one are one line, and count once.
#[test]
fn a_local_connection_is_one_line() {
    let content = app().panel(Panel::Network, 10);
    let lines: Vec<_> =
        content.lines.iter().map(|line| (line.figure.as_str(), line.name.as_str(), line.more.as_str())).collect();
    assert_eq!(lines, [("900M", "nginx", ":443"), ("100M", "curl ↔ postgres", "lo:5432")]);
    assert_eq!(content.others, Some(Others { figure: "1.00M".to_owned(), value: 1e6, count: Some(0) }));
    let shares: f64 = content.lines.iter().map(|line| line.share).sum();
    assert!((0.99..1.0).contains(&shares), "{shares}: the second end is in no total");
}

/// A UDP socket that is not connected has no peer: the panel names its own port.
#[test]
fn a_socket_without_a_peer_shows_its_port() {
    let mut app = app();
    let table = place(&app, "tcp_v4/conns_bps");
    let row = [ip("10.0.0.1"), n(5353), ip("0.0.0.0"), n(0), n(10)];
    let snapshot = reading(&app.data[table].meta.clone(), &[(800_000_000, &row)], 0);
    app.read(table, Ok(snapshot));
    assert_eq!(app.panel(Panel::Network, 10).lines[0].more, ":5353");
}

#[test]
fn waits_are_one_ranking_with_their_causes() {
    let content = app().panel(Panel::Waits, 10);
    let lines: Vec<_> =
        content.lines.iter().map(|line| (line.figure.as_str(), line.name.as_str(), line.more.as_str())).collect();
    assert_eq!(lines, [("310ms", "nginx", "run queue"), ("88.0ms", "postgres", "disk")], "0.5 ms is no wait");
}

#[test]
fn only_counters_of_trouble_rise() {
    let names: Vec<_> = app().panel(Panel::Rising, 10).lines.into_iter().map(|line| line.name).collect();
    assert_eq!(names, ["ListenOverflows"]);
}

#[test]
fn a_loss_is_said_in_words_and_complete_is_not() {
    let mut app = app();
    assert!(frame(&mut app, (120, 30), PLAIN).contains("  complete"));
    let mut snapshot = reading(&app.data[0].meta.clone(), &[(5, &[n(1), t("x"), t("")])], 0);
    snapshot.lost_now.no_memory = 7;
    snapshot.proven = 0;
    app.read(0, Ok(snapshot));
    assert_eq!(
        app.trust().doubts,
        [
            "tasks/cpu: 7 events found no memory in the kernel",
            "tasks/cpu: rows after the first 0 may be in another order"
        ]
    );
    let drawn = frame(&mut app, (120, 30), PLAIN);
    assert!(
        drawn.contains("not complete: tasks/cpu: 7 events found no memory in the kernel  (1 more: 7 lists all)"),
        "{drawn}"
    );
    press(&mut app, "7");
    let drawn = frame(&mut app, (120, 30), PLAIN);
    assert!(drawn.contains("rows after the first 0") && drawn.contains("0.21% of each CPU"), "{drawn}");
}

fn place(app: &App, path: &str) -> usize {
    app.data.iter().position(|data| data.meta.path() == path).unwrap()
}

/// A panel without any of its tables is missing from the answer.
#[test]
fn a_panel_that_cannot_be_read_is_not_complete() {
    let mut app = app();
    app.read(place(&app, "tasks/cpu"), Err("no permission".to_owned()));
    assert_eq!(app.trust().doubts, ["tasks/cpu: no permission"]);
    assert!(frame(&mut app, (120, 30), PLAIN).contains("not complete: tasks/cpu: no permission"));
}

/// Without permission on the daemon's tree no panel says that nothing waits or rises: each says why it is empty.
#[test]
fn without_permission_each_panel_says_so() {
    let why = "permission denied: cannot read /run/topstat: run as root, or join the group of the daemon";
    let mut app = app();
    for table in 0..app.data.len() {
        app.read(table, Err(why.to_owned()));
    }
    for panel in Panel::ALL {
        assert_eq!(app.panel(panel, 9).said.as_deref(), Some(why), "{panel:?}");
    }
    let drawn = frame(&mut app, (80, 24), PLAIN);
    assert_eq!(drawn.matches("permission denied: cannot read").count(), 7, "six panels, and the reason: {drawn}");
    assert!(drawn.contains("or join the group"), "it is not cut: {drawn}");
    assert!(drawn.contains("not complete: tasks/cpu: permission denied") && drawn.contains("5 more"), "{drawn}");
    assert!(now::write(&app).contains("not complete:"));
    press(&mut app, "7");
    assert!(!frame(&mut app, (80, 24), PLAIN).contains("proven"));
}

/// A daemon that has not loaded a sample has no tables of it.
#[test]
fn tables_that_are_not_there_are_missed() {
    let origin = Origin { name: "daemon", ..Origin::default() };
    let mut app = App::new(vec![meta(&TABLES[0])], origin, |_, _| Err(String::new()));
    app.read(0, Ok(reading(&app.data[0].meta.clone(), &[(5, &[n(1), t("x"), t("")])], 0)));
    let drawn = frame(&mut app, (120, 30), PLAIN);
    assert!(drawn.contains("tasks/waits is not loaded") && drawn.contains("not complete"), "{drawn}");
    assert!(!drawn.contains("no process waits") && !drawn.contains("none rises"), "{drawn}");
}

/// Without delay accounting the time on the run queue is still right. The panel names the waits that are not counted, and the advice.
#[test]
fn waits_that_the_kernel_does_not_count_are_named() {
    let why = "the kernel's delay accounting is off; switch it on with 'sysctl -w kernel.task_delayacct=1'";
    let mut app = app();
    for path in ["delays/blkio", "delays/swapin", "delays/reclaim", "delays/thrashing"] {
        app.read(place(&app, path), Err(why.to_owned()));
    }
    let content = app.panel(Panel::Waits, 9);
    assert_eq!(content.lines[0].more, "run queue");
    assert_eq!(content.said, Some(format!("not counted: disk, swap, memory, page cache: {why}")));
    assert_eq!(app.trust().doubts, [format!("waits without disk, swap, memory, page cache: {why}")]);
    let drawn = frame(&mut app, (80, 24), PLAIN);
    assert!(drawn.contains("run queue") && drawn.contains("not counted: disk, swap, memory, page"), "{drawn}");
    assert!(drawn.replace('\n', "").contains("sysctl -w kernel.task_delayacct=1"), "{drawn}");
    assert!(drawn.contains("not complete") && !drawn.contains("  complete"), "{drawn}");
    // Where nothing waits for a CPU either, both are said.
    let waits = place(&app, "tasks/waits");
    app.read(waits, Ok(reading(&app.data[waits].meta.clone(), &[], 0)));
    let said = app.panel(Panel::Waits, 9).said.unwrap();
    assert!(said.starts_with("no process waits; not counted: disk"), "{said}");
}

#[test]
fn a_table_that_is_switched_off_is_missed() {
    let mut app = app();
    let waits = place(&app, "tasks/waits");
    let mut off = reading(&app.data[waits].meta.clone(), &[], 0);
    off.settings.enabled = false;
    app.read(waits, Ok(off));
    assert_eq!(app.trust().doubts, ["waits without run queue: tasks/waits is switched off"]);
}

/// The header of the past has the load and the cost of that time, or none.
#[test]
fn the_past_has_no_figures_of_the_present() {
    let mut app = app();
    let first = Host { load: Some(7.25), own: Some(0.011), ..host(0) };
    app.hosts = Default::default();
    app.host(at(0), first);
    for second in 1..10 {
        app.host(at(second), host(second));
    }
    app.when = When::Past(at(0));
    let drawn = frame(&mut app, (120, 40), PLAIN);
    let bar = drawn.lines().next().unwrap();
    assert!(bar.contains("load 7.25  own 1.1%") && !bar.contains("daemon 0.4%") && !bar.contains("kernel"), "{bar}");
    press(&mut app, "0");
    let drawn = frame(&mut app, (160, 40), PLAIN);
    assert!(drawn.contains("own 1.1%") && !drawn.contains("own 0.5%") && !drawn.contains("daemon 0.4%"), "{drawn}");
    press(&mut app, "o");
    app.when = When::Past(at(0) - Duration::from_secs(3600));
    let drawn = frame(&mut app, (120, 40), PLAIN);
    let bar = drawn.lines().next().unwrap();
    assert!(bar.contains("load -  own -") && !bar.contains("3.10"), "{bar}");
}

/// Counters of protocols belong to one namespace, and devices to the namespace of this program.
#[test]
fn counters_of_one_namespace_say_so() {
    let mut app = app();
    let drawn = frame(&mut app, (80, 24), PLAIN);
    assert!(drawn.contains("── errors and drops/s, net: host netns ─"), "{drawn}");
    assert!(drawn.lines().nth(3).unwrap().contains("this netns retrans 14/s"), "{drawn}");
    app.origin.name = "alone";
    assert!(now::write(&app).contains("\nerrors and drops/s, net: this netns\n"));
}

/// On the first screen keys about a table are about the table of the chosen line, which the user sees.
#[test]
fn keys_about_a_table_are_about_the_chosen_line() {
    let mut app = app();
    frame(&mut app, (80, 24), PLAIN);
    press(&mut app, "\t");
    let net = place(&app, "net_procs/bps");
    assert_eq!(pressed(&mut app, "p2s\n"), Some(Effect::Set(net, Setting::Period, 2000)));
    press(&mut app, "\t\t↓y");
    assert_eq!(app.message.as_deref(), Some("topstat top delays/blkio"));
    let Some(Effect::Save(saved)) = pressed(&mut app, "s") else { panic!() };
    assert_eq!((saved.sample.as_str(), saved.table.as_str()), ("delays", "blkio"));
    press(&mut app, "e");
    let drawn = frame(&mut app, (80, 24), PLAIN);
    assert!(drawn.contains("delays/blkio/enabled ="), "{drawn}");
    assert_eq!(app.screen(), &Screen::Now);
    // A panel without a table.
    let mut app = App::new(vec![], Origin { name: "daemon", ..Origin::default() }, |_, _| Err(String::new()));
    frame(&mut app, (80, 24), PLAIN);
    press(&mut app, "p");
    assert!(app.prompt.is_none() && app.message.as_deref().unwrap().starts_with("choose a table first"));
}

#[test]
fn enter_where_there_is_no_line_says_why() {
    let mut app = app();
    let tcpext = place(&app, "snmp_tcpext/rate");
    app.read(tcpext, Ok(reading(&app.data[tcpext].meta.clone(), &[], 0)));
    frame(&mut app, (80, 24), PLAIN);
    press(&mut app, "\t\t\t\t");
    assert_eq!(app.focus.0, Panel::Rising);
    press(&mut app, "\n");
    assert_eq!((app.screen(), app.message.as_deref()), (&Screen::Now, Some("none rises")));
}

/// The port of the largest connection is what an operator looks for: the address before it is cut.
#[test]
fn a_port_is_never_cut() {
    let mut app = app();
    let tcp = place(&app, "tcp_v4/conns_bps");
    let far = [ip("10.0.0.1"), n(50_001), ip("203.0.113.200"), n(8443), n(10)];
    app.read(tcp, Ok(reading(&app.data[tcp].meta.clone(), &[(800_000_000, &far)], 0)));
    for width in [50, 64, 80, 120] {
        let drawn = frame(&mut app, (width, 40), PLAIN);
        assert!(drawn.contains(":8443"), "{width}: {drawn}");
    }
    let drawn = frame(&mut app, (80, 24), PLAIN);
    assert!(drawn.contains("nginx    > 203.0.1…:8443"), "{drawn}");
}

#[test]
fn the_cpu_time_of_ended_processes_is_named() {
    let drawn = frame(&mut app(), (80, 24), PLAIN);
    assert!(drawn.contains("2.5        others and ended"), "{drawn}");
    assert!(now::write(&app()).contains("others and ended\n\nnetwork"));
}

/// Doubts that fill more than a screen are read by scrolling.
#[test]
fn what_topstat_says_of_itself_scrolls() {
    let mut app = app();
    for table in 0..app.data.len() {
        app.read(table, Err("permission denied: run as root".to_owned()));
    }
    press(&mut app, "7");
    let drawn = frame(&mut app, (80, 24), PLAIN);
    assert!(drawn.contains("more lines: Down, PgDn") && !drawn.contains("net_devs/errors can't be shown"), "{drawn}");
    press(&mut app, &"↓".repeat(99));
    assert!(frame(&mut app, (80, 24), PLAIN).contains("net_devs/errors can't be shown"));
}

/// Where tables have to be loaded, each refresh has one more: what is there goes on being read.
#[test]
fn tables_are_loaded_one_by_one() {
    let tables: Vec<_> = TABLES.iter().map(meta).collect();
    let origin = Origin { name: "alone", loads: true, ..Origin::default() };
    let mut app = App::new(tables.clone(), origin, |_, _| Err(String::new()));
    let first = frame(&mut app, (80, 24), PLAIN);
    assert!(first.contains("loading …") && !first.contains("complete"), "{first}");
    assert_eq!(app.wanted(), [0], "what is ready first comes first");
    app.read(0, Ok(reading(&tables[0], &[], 0)));
    assert_eq!(app.wanted(), [0, 1]);
    app.read(1, Err("no permission".to_owned()));
    assert_eq!(app.wanted(), [0, 1, 2], "a table that can't be loaded holds no other up");
    assert!(frame(&mut app, (80, 24), PLAIN).contains("no permission"));
}

#[test]
fn enter_opens_the_row_in_its_table_and_escape_comes_back() {
    let mut app = app();
    frame(&mut app, (80, 24), PLAIN);
    press(&mut app, "\t↓");
    assert_eq!(app.focus, (Panel::Network, 1));
    press(&mut app, "\n");
    assert_eq!((app.current().unwrap().meta.path().as_str(), app.screen()), ("net_procs/bps", &Screen::Table));
    assert_eq!(app.selected.as_ref().unwrap()[1], t("curl"));
    press(&mut app, "\u{1b}");
    assert_eq!(app.screen(), &Screen::Now);
    press(&mut app, "↑↑");
    assert_eq!(app.focus.0, Panel::Cpu, "the panel before is reached by going up");
    press(&mut app, "↓↓↓↓↓↓↓↓↓↓↓↓↓↓↓↓↓↓↓↓↓↓↓↓\n");
    assert_eq!(app.current().unwrap().meta.path(), "ended/cpu", "the last line");
}

#[test]
fn number_keys_show_groups_of_tables() {
    let mut app = app();
    frame(&mut app, (80, 24), PLAIN);
    press(&mut app, "1");
    assert_eq!((app.screen(), app.group), (&Screen::Overview, Some(Group::Network)));
    let drawn = frame(&mut app, (80, 24), PLAIN);
    assert!(
        drawn.contains("net_procs/bps") && drawn.contains("tcp_v4/conns_bps") && !drawn.contains("tasks/"),
        "{drawn}"
    );
    press(&mut app, "2\n");
    assert_eq!(app.current().unwrap().meta.path(), "tasks/cpu");
    press(&mut app, "\u{1b}\u{1b}");
    assert_eq!(app.screen(), &Screen::Now);
    press(&mut app, "0");
    frame(&mut app, (80, 24), PLAIN);
    assert_eq!(app.in_page(), [0, 1, 2]);
}

#[test]
fn a_part_of_a_name_goes_to_a_table_or_a_process() {
    let mut app = app();
    press(&mut app, ":disk\n");
    assert_eq!((app.current().unwrap().meta.path().as_str(), app.screen()), ("disk_procs/bytes", &Screen::Table));
    press(&mut app, ":postg");
    let drawn = frame(&mut app, (80, 24), PLAIN);
    assert!(drawn.contains("postgres (20)  in tasks/cpu") && drawn.contains("go to: postg"), "{drawn}");
    press(&mut app, "↓\n");
    assert!(matches!(app.screen(), Screen::Object(object) if object[1] == t("postgres")), "{:?}", app.screen());
    press(&mut app, ":zzz\n");
    assert!(frame(&mut app, (80, 24), PLAIN).contains("nothing has such a name"));
}

#[test]
fn a_filter_applies_to_every_panel_with_its_columns() {
    let mut app = app();
    press(&mut app, "/comm:postgres\n");
    let names = |panel| app.panel(panel, 9).lines.into_iter().map(|line| line.name).collect::<Vec<_>>();
    assert_eq!(names(Panel::Cpu), ["postgres"]);
    assert_eq!(names(Panel::Disk), ["postgres"]);
    assert_eq!(names(Panel::Ended), [""; 0]);
    let drawn = frame(&mut app, (80, 24), PLAIN);
    assert!(!drawn.contains("nginx") && drawn.contains("none is like comm:postgres"), "{drawn}");
    // It stays visible, and on the overview, too.
    assert!(drawn.contains("/comm:postgres: only rows like that; Esc shows all"), "{drawn}");
    press(&mut app, "2");
    let drawn = frame(&mut app, (80, 24), PLAIN);
    assert!(drawn.contains("/comm:postgres") && !drawn.contains("nginx"), "{drawn}");
    press(&mut app, "o\u{1b}");
    assert!(!frame(&mut app, (80, 24), PLAIN).contains("only rows like that"));
}

#[test]
fn local_connections_fold_into_one_row() {
    let mut app = app();
    press(&mut app, ":tcp_v4\n");
    assert_eq!(app.rows().len(), 3);
    press(&mut app, "f");
    let ports: Vec<_> = app.rows().iter().map(|shown| shown.row.object[1].clone()).collect();
    assert_eq!(ports, [n(443), n(40_000)]);
}

#[test]
fn the_meaning_of_a_table_is_one_key_away() {
    let mut app = app();
    press(&mut app, ":net_procs\ni");
    let drawn = frame(&mut app, (100, 30), PLAIN);
    for wanted in
        ["what net_procs/bps ranks by", "in bits, in the last 1s", "the control group of the process", "proven"]
    {
        assert!(drawn.contains(wanted), "{wanted}: {drawn}");
    }
    press(&mut app, "i");
    assert_eq!(app.screen(), &Screen::Table);
}
