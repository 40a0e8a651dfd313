// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a part of the live view panics, the view gives its terminal back and prints the reason. No input is known that makes the
//! view panic, so the feed or the parser of times that it is given panics. The test runs this program once more as its child, on
//! a terminal.

use std::process::Command;
use std::time::{Duration, SystemTime};

use topstat_model::{Snapshot, TableType, Unit};
use topstat_tui::feed::{Feed, Origin, Peak, Recorded, Setting, TableSettings};
use topstat_tui::{Colors, Look, OfPaths, Options, TableMeta};

use crate::emulated::Terminal;

/// The variable in the child's environment that names the part that panics.
const CHILD: &str = "TOPSTAT_TEST_PANICS";
const SIZE: (u16, u16) = (24, 80);

/// A feed that panics when a setting is written, and on request when a table is read.
struct Trap {
    panics_when_read: bool,
}

impl Feed for Trap {
    fn tables(&self) -> Vec<TableMeta> {
        vec![TableMeta {
            sample: "trap".to_owned(),
            table: "door".to_owned(),
            about: String::new(),
            kind: TableType::Dynamic,
            unit: Unit::Count,
            columns: vec![],
        }]
    }

    fn origin(&self) -> Origin {
        Origin { name: "trap", ..Origin::default() }
    }

    fn read(&mut self, _: &TableMeta) -> Result<Snapshot, String> {
        assert!(!self.panics_when_read, "the feed fell into the trap");
        Err("nothing is read from a trap".to_owned())
    }

    fn at(&mut self, _: &TableMeta, _: SystemTime) -> Result<Recorded, String> {
        Err("a trap remembers nothing".to_owned())
    }

    fn outline(&mut self, _: &TableMeta) -> Result<Vec<Peak>, String> {
        Ok(vec![])
    }

    fn settings(&mut self, tables: &[&TableMeta]) -> Vec<Result<TableSettings, String>> {
        tables.iter().map(|_| Err("a trap has no settings".to_owned())).collect()
    }

    fn set(&mut self, _: &TableMeta, _: Setting, _: u32) -> Result<(), String> {
        panic!("the setting fell into the trap")
    }

    fn save(&mut self, _: &Snapshot) -> Result<String, String> {
        unreachable!("there is nothing to save")
    }
}

/// The child: shows a view that panics, and does not return.
fn show(panics: &str) {
    let instant = |_: &str, _| panic!("the clock fell into the trap");
    let look = Look { colors: Colors::None, utf8: true };
    let (table, interval) = (Some("trap/door".to_owned()), Duration::from_secs(1));
    let options = Options { table, interval, look, instant, resolve: false, may_signal: false };
    let ended = topstat_tui::run(&mut Trap { panics_when_read: panics == "read" }, options, Box::new(OfPaths));
    panic!("the view has ended without a panic: {ended:?}");
}

/// Whether this process is the child of the test. If it is, the child's part of the test is done here.
fn is_child() -> bool {
    let panics = std::env::var(CHILD);
    panics.as_deref().map(show).is_ok()
}

/// Starts this program once more, to run one of its tests as the child.
fn child(test: &str, panics: &str) -> Terminal {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&format!("panicking::{test}"), "--exact", "--nocapture"]).env(CHILD, panics);
    // A backtrace would scroll the message away.
    command.env("RUST_BACKTRACE", "0");
    Terminal::start(command, SIZE)
}

/// Checks that the message is on the first screen, and that nothing was drawn over it.
fn assert_told(mut terminal: Terminal, text: &str) {
    assert_eq!(terminal.end(), Some(101));
    terminal.wait_for(text);
    terminal.assert_given_back();
    assert!(!terminal.text().contains("trap/door"), "{}", terminal.text());
}

#[test]
fn the_terminal_is_given_back_when_what_reads_panics() {
    if !is_child() {
        assert_told(child("the_terminal_is_given_back_when_what_reads_panics", "read"), "the feed fell into the trap");
    }
}

#[test]
fn the_terminal_is_given_back_when_what_reads_panics_while_the_view_waits_for_a_key() {
    let test = "the_terminal_is_given_back_when_what_reads_panics_while_the_view_waits_for_a_key";
    if !is_child() {
        let mut terminal = child(test, "set");
        terminal.wait_for("trap/door");
        // A frozen view waits for keys only.
        terminal.press(" ");
        terminal.wait_for("FROZEN");
        terminal.press("e0\r");
        assert_told(terminal, "the setting fell into the trap");
    }
}

#[test]
fn the_terminal_is_given_back_when_what_draws_panics() {
    if !is_child() {
        let mut terminal = child("the_terminal_is_given_back_when_what_draws_panics", "clock");
        terminal.wait_for("trap/door");
        terminal.press("j12:00\r");
        assert_told(terminal, "the clock fell into the trap");
    }
}
