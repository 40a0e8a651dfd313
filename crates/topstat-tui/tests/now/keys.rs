// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keys of the first screen.

use topstat_tui::App;
use topstat_tui::feed::{Origin, Setting};
use topstat_tui::now::Panel;
use topstat_tui::state::{Effect, Group, Screen};

use super::{PLAIN, app, frame, n, place, press, reading, t};

/// On the first screen keys about a table are about the table of the chosen line, which the user sees.
#[test]
fn keys_about_a_table_are_about_the_chosen_line() {
    let mut app = app();
    frame(&mut app, (80, 24), PLAIN);
    press(&mut app, "\t");
    let net = place(&app, "net_procs/bps");
    assert_eq!(press(&mut app, "p2s\n"), Some(Effect::Set(net, Setting::Period, 2000)));
    press(&mut app, "\t\t↓y");
    assert_eq!(app.message.as_deref(), Some("topstat top delays/blkio"));
    let Some(Effect::Save(saved)) = press(&mut app, "s") else { panic!() };
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
