// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The live view on a real terminal. Only its numbers are made up.

use std::process::Command;

use rustix::process::Signal;

use crate::emulated::Terminal;
use crate::program::demo;

/// The table that the tests begin with.
const TABLE: &str = "tcp_v4/conns_pps";

fn start(rows: u16, columns: u16) -> Terminal {
    let mut view = Command::new(demo());
    view.args(["view", "0.1", "--table", TABLE, "--pins", "/nonexistent"]);
    Terminal::start(view, (rows, columns))
}

#[test]
fn keys_go_in_and_the_screen_shows_what_they_do() {
    let mut terminal = start(40, 120);
    terminal.wait_for("tcp_v4/conns_pps");
    terminal.wait_for("LIVE");
    assert!(!terminal.echoes());
    terminal.wait_for("rows proven");
    terminal.press("/dport:40003");
    terminal.wait_for("1 of the 128 rows kept");
    terminal.press("\r");
    terminal.press("y");
    terminal.wait_for("topstat top tcp_v4/conns_pps --pins '/nonexistent' --filter 'dport:40003'");
    terminal.press("\r");
    terminal.wait_for("over time");
    terminal.press("?");
    terminal.wait_for("freeze rows and order");
    terminal.press("?");
    terminal.wait_for("over time");
    terminal.press("o");
    terminal.wait_for("CPU, % of all CPUs");
    terminal.press("0");
    terminal.wait_for("not loaded: Enter loads it");
    terminal.press("\x1b[B\r");
    terminal.wait_for("rows proven");
    terminal.press(" ");
    terminal.wait_for("FROZEN");
    terminal.press("q");
    assert_eq!(terminal.end(), Some(0));
    terminal.assert_given_back();
}

#[test]
fn colours_are_those_of_the_terminal_and_none_where_none_are_wanted() {
    use vt100::Color;
    for (environment, options, live) in [
        (vec![], &[][..], Color::Idx(2)),
        (vec![("COLORTERM", "truecolor")], &[], Color::Rgb(78, 201, 120)),
        (vec![("COLORTERM", "24bit")], &[], Color::Rgb(78, 201, 120)),
        (vec![("COLORTERM", "no such")], &[], Color::Idx(2)),
        (vec![("COLORTERM", "truecolor"), ("NO_COLOR", "1")], &[], Color::Default),
        (vec![("COLORTERM", "truecolor")], &["--color", "never"], Color::Default),
    ] {
        let mut view = Command::new(demo());
        view.args(["view", "0.1", "--table", TABLE, "--pins", "/nonexistent"]).args(options).envs(environment.clone());
        let mut terminal = Terminal::start(view, (24, 80));
        terminal.wait_for("rows proven");
        let background = terminal.screen().cell(0, 1).unwrap().bgcolor();
        assert_eq!(background, live, "{environment:?} {options:?}");
        let cells = (0..24).flat_map(|y| (0..80).map(move |x| (y, x)));
        let coloured = cells
            .filter_map(|(y, x)| terminal.screen().cell(y, x))
            .any(|cell| (cell.fgcolor(), cell.bgcolor()) != (Color::Default, Color::Default));
        assert_eq!(coloured, live != Color::Default, "{environment:?} {options:?}");
        terminal.press("q");
        assert_eq!(terminal.end(), Some(0));
        terminal.assert_given_back();
    }
}

#[test]
fn what_is_shown_is_saved_as_a_document_and_written_over_nothing() {
    let folder = std::env::temp_dir().join(format!("topstat-cli-saved-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut view = Command::new(demo());
    view.args(["view", "0.1", "--table", TABLE, "--pins", "/nonexistent"]).current_dir(&folder);
    let mut terminal = Terminal::start(view, (24, 120));
    terminal.wait_for("rows proven");
    terminal.press(" ");
    terminal.wait_for("FROZEN");
    terminal.press("s");
    terminal.wait_for("saved as topstat-tcp_v4-conns_pps-");
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    let text = std::fs::read_to_string(file).unwrap();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&document["sample"], &document["table"]), (&"tcp_v4".into(), &"conns_pps".into()));
    assert_eq!(document["rows"].as_array().unwrap().len(), 128);
    // The snapshot on the screen is saved. A second save finds an existing file, and is refused.
    assert!(terminal.text().contains(document["time"].as_str().unwrap()), "{}", terminal.text());
    terminal.press("s");
    terminal.wait_for("cannot save topstat-tcp_v4-conns_pps-");
    assert_eq!(std::fs::read_to_string(file).unwrap(), text);
    terminal.press("q");
    assert_eq!(terminal.end(), Some(0));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn it_begins_with_the_table_that_is_named() {
    let view = |table| {
        let mut view = Command::new(demo());
        view.args(["view", "0.1", "--pins", "/nonexistent", "--table", table]);
        Terminal::start(view, (24, 80))
    };
    let mut terminal = view("tcp/conns_bps");
    terminal.wait_for("tcp_v4/conns_bps");
    terminal.wait_for("rows proven");
    terminal.press("q");
    assert_eq!(terminal.end(), Some(0));
    let mut terminal = view("tcp/conns_bbs");
    terminal.wait_for("did you mean conns_bps");
    assert_eq!(terminal.end(), Some(2));
}

#[test]
fn another_size_is_used_at_once() {
    let mut terminal = start(24, 80);
    terminal.wait_for("? keys");
    terminal.resize(50, 200);
    terminal.wait_until("keys in the last line", |screen| {
        screen.rows(0, 200).nth(49).is_some_and(|line| line.contains("l live"))
    });
}

#[test]
fn the_terminal_is_given_back_however_it_ends() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let mut terminal = start(24, 80);
        terminal.wait_for("LIVE");
        terminal.send(signal);
        assert_eq!(terminal.end(), Some(0), "{signal:?}");
        terminal.assert_given_back();
    }
    let mut terminal = start(24, 80);
    terminal.wait_for("LIVE");
    terminal.press("\x03");
    assert_eq!(terminal.end(), Some(0));
    terminal.assert_given_back();
}

#[test]
fn it_stops_for_a_while_and_goes_on() {
    let mut terminal = start(24, 80);
    terminal.wait_for("LIVE");
    for by_key in [true, false] {
        if by_key {
            terminal.press("\x1a");
        } else {
            terminal.send(Signal::TSTP);
        }
        terminal.wait_until("the first screen", |screen| !screen.alternate_screen());
        terminal.assert_given_back();
        terminal.wait_until_stopped();
        terminal.send(Signal::CONT);
        terminal.wait_until("the view again", |screen| screen.alternate_screen() && screen.contents().contains("LIVE"));
    }
    terminal.press("q");
    assert_eq!(terminal.end(), Some(0));
}

/// A write that does not return is not ended by a flag; neither is a read that does not return.
#[test]
fn a_signal_ends_a_view_that_is_stuck() {
    let mut terminal = start(24, 80);
    terminal.wait_for("LIVE");
    terminal.fill();
    terminal.send(Signal::TERM);
    terminal.end_unread();
    assert!(terminal.is_cooked(), "lines are not edited any more");
}

#[test]
fn a_terminal_that_is_gone_ends_it() {
    let mut terminal = start(24, 80);
    terminal.wait_for("LIVE");
    terminal.hang_up();
    terminal.end();
}

#[test]
fn without_a_terminal_it_says_what_to_do() {
    let output = Command::new(demo()).arg("view").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = "topstat: the view wants a terminal for its input and its output: use topstat top for pipes\n";
    assert_eq!((output.status.code(), said.as_str()), (Some(2), expected));
}

/// A user that names the tree of a daemon does not want programs to be loaded.
#[test]
fn a_named_mount_point_without_a_tree_is_an_error() {
    for line in [&["view"][..], &["top"], &["why", "tasks/cpu", "1"]] {
        let mut command = Command::new(demo());
        command.args(line).args(["--mount", "/nonexistent", "--pins", "/nonexistent"]);
        let mut terminal = Terminal::start(command, (24, 200));
        terminal.wait_for("no daemon has its tree at /nonexistent");
        terminal.wait_for("start one with topstat daemon, or leave --mount out");
        assert_eq!(terminal.end(), Some(1), "{line:?}");
    }
}

/// A terminal that can't move its cursor gets no screens of escape sequences.
#[test]
fn a_dumb_terminal_gets_advice() {
    for name in ["dumb", ""] {
        let mut command = Command::new("sh");
        command.args(["-c", "TERM=$1 exec $0 view"]).arg(demo()).arg(name);
        let mut terminal = Terminal::start(command, (24, 200));
        terminal.wait_for("TERM is dumb or not set: set TERM, or print a table with topstat top");
        assert_eq!(terminal.end(), Some(2), "{name:?}");
    }
}
