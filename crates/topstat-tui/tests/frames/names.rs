// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of hosts, and processes that a signal is sent to.

use std::net::IpAddr;
use std::process::Command;

use ratatui::crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use topstat_model::Field;
use topstat_tui::feed::Setting;
use topstat_tui::state::{Effect, Screen};
use topstat_tui::{App, Names};

use super::{PLAIN, app, connections, frame, press};

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
