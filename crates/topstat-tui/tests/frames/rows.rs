// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows of a table: their order, and those that have ended.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use topstat_model::{Column, ColumnKind, Field, Unit};
use topstat_tui::feed::Origin;
use topstat_tui::{App, draw};

use super::{PLAIN, app, at, connections, frame, instant, meta, press};

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
