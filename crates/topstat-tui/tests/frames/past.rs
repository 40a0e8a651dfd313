// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instants of the past, and a frozen view.

use std::time::Duration;

use topstat_model::{Snapshot, Unit};
use topstat_tui::App;
use topstat_tui::feed::{Origin, Peak, Recorded};
use topstat_tui::state::When;

use super::{PLAIN, app, at, connections, frame, instant, meta, press, tasks};

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
