// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the first screen is complete, and why not.

use topstat_tui::App;
use topstat_tui::feed::Origin;
use topstat_tui::now::{self, Panel};

use super::{PLAIN, TABLES, app, frame, meta, n, place, press, reading, t};

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
