// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The "now" screen: what it shows of readings, and the effects of keys on it. `INSTA_UPDATE=always cargo test -p topstat-tui` writes
//! the frames anew.

#[path = "../drawn/mod.rs"]
mod drawn;
mod keys;
mod trust;

use std::time::Duration;

use insta::assert_snapshot;
use topstat_model::{Column, ColumnKind, CpuSection, Field, Lost, Row, Settings, Snapshot, TableType, Unit};
use topstat_tui::feed::{Cost, Origin};
use topstat_tui::host::{Cpu, Disk, Host, Memory, Pressure};
use topstat_tui::now::{self, Others, Panel};
use topstat_tui::state::When;
use topstat_tui::{App, Colors, Look, TableMeta};

use drawn::{PLAIN, at, frame, press};

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

fn place(app: &App, path: &str) -> usize {
    app.data.iter().position(|data| data.meta.path() == path).unwrap()
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
