// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The key map: one list, which interprets keys and makes the help.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::state::Group;

/// What a key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ends the view.
    Quit,
    /// Leaves the screen, the filter or the past, one at a time.
    Back,
    /// Shows the keys.
    Help,
    /// Moves the selection by this many rows.
    Move(i32),
    /// Moves the selection by this many pages.
    Page(i32),
    /// Selects the first row.
    First,
    /// Selects the last row.
    Last,
    /// Opens the selection.
    Open,
    /// Goes to the next table, or to the previous one.
    Table(i32),
    /// Goes to the first screen.
    Overview,
    /// Shows the tables of a group; `None`: all tables.
    Group(Option<Group>),
    /// Shows the cost of topstat, and whether its figures are complete.
    Own,
    /// Explains what the table shows.
    About,
    /// Begins the input of a name to go to.
    Goto,
    /// Shows the two ends of a local connection as one row, or as two.
    Fold,
    /// Shows the names of hosts, or their addresses.
    Resolve,
    /// Begins the input of the signal to a process.
    Signal,
    /// Freezes the view.
    Freeze,
    /// Sorts by the next column, or by the previous one.
    Sort(i32),
    /// Reverses the order.
    Reverse,
    /// Begins the input of a filter.
    Filter,
    /// Moves in time by this many seconds.
    Time(i64),
    /// Begins the input of a time.
    Jump,
    /// Goes back to the present.
    Live,
    /// Shows the command that prints the screen.
    Command,
    /// Saves the snapshot as JSON.
    Save,
    /// Shows values per second, or as counted.
    Exact,
    /// Begins the input of a period.
    Period,
    /// Begins the input of a delay.
    Delay,
    /// Begins the input of the table's switch.
    Enabled,
    /// Shows the settings of all tables.
    Settings,
}

/// One line of the key map.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// The keys and their names.
    keys: &'static [(KeyCode, &'static str)],
    /// The action of the keys.
    pub action: Action,
    /// The action in words.
    pub about: &'static str,
    /// The title of the group in the help.
    pub group: &'static str,
}

const fn bind(
    keys: &'static [(KeyCode, &'static str)],
    action: Action,
    about: &'static str,
    group: &'static str,
) -> Binding {
    Binding { keys, action, about, group }
}

const MOVE: &str = "Move";
const TABLES: &str = "Tables";
const SHOW: &str = "Show";
const PAST: &str = "Past";
const SET: &str = "Set (with the daemon's rights)";
use KeyCode::{Backspace, Char, Down, End, Enter, Esc, F, Home, Left, PageDown, PageUp, Right, Tab, Up};

/// All bindings, in the order of the help.
pub const KEYS: &[Binding] = &[
    bind(&[(Up, "Up")], Action::Move(-1), "one row up", MOVE),
    bind(&[(Down, "Down")], Action::Move(1), "one row down", MOVE),
    bind(&[(PageUp, "PgUp")], Action::Page(-1), "a page up", MOVE),
    bind(&[(PageDown, "PgDn")], Action::Page(1), "a page down", MOVE),
    bind(&[(Home, "Home")], Action::First, "first row", MOVE),
    bind(&[(End, "End"), (Char('G'), "G")], Action::Last, "last row", MOVE),
    bind(&[(Enter, "Enter")], Action::Open, "open the table or object", MOVE),
    bind(&[(Tab, "Tab"), (Char('n'), "n")], Action::Table(1), "next table or panel", MOVE),
    bind(&[(KeyCode::BackTab, "S-Tab"), (Char('N'), "N")], Action::Table(-1), "table or panel before", MOVE),
    bind(&[(Char('o'), "o")], Action::Overview, "the first screen", MOVE),
    bind(&[(Char(':'), ":"), (Char('g'), "g")], Action::Goto, "go to a name", MOVE),
    bind(&[(Esc, "Esc"), (Backspace, "Bksp")], Action::Back, "back, or no filter", MOVE),
    bind(&[(Char('1'), "1")], Action::Group(Some(Group::Network)), "network", TABLES),
    bind(&[(Char('2'), "2")], Action::Group(Some(Group::Cpu)), "CPU", TABLES),
    bind(&[(Char('3'), "3")], Action::Group(Some(Group::Disk)), "disk", TABLES),
    bind(&[(Char('4'), "4")], Action::Group(Some(Group::Memory)), "memory", TABLES),
    bind(&[(Char('5'), "5")], Action::Group(Some(Group::Containers)), "containers", TABLES),
    bind(&[(Char('6'), "6")], Action::Group(Some(Group::Kernel)), "kernel counters", TABLES),
    bind(&[(Char('7'), "7")], Action::Own, "topstat itself", TABLES),
    bind(&[(Char('0'), "0")], Action::Group(None), "all tables", TABLES),
    bind(&[(Char(' '), "Space")], Action::Freeze, "freeze rows and order", SHOW),
    bind(&[(Char('/'), "/"), (F(4), "F4")], Action::Filter, "filter as you type", SHOW),
    bind(&[(Char('>'), ">"), (F(6), "F6")], Action::Sort(1), "sort by next column", SHOW),
    bind(&[(Char('<'), "<")], Action::Sort(-1), "sort by column before", SHOW),
    bind(&[(Char('r'), "r"), (Char('I'), "I")], Action::Reverse, "reverse the order", SHOW),
    bind(&[(Char('f'), "f")], Action::Fold, "local connections as one", SHOW),
    bind(&[(Char('R'), "R")], Action::Resolve, "names of hosts, by DNS", SHOW),
    bind(&[(Char('i'), "i")], Action::About, "what this means", SHOW),
    bind(&[(Char('x'), "x")], Action::Exact, "exact numbers", SHOW),
    bind(&[(Char('y'), "y")], Action::Command, "command that prints this", SHOW),
    bind(&[(Char('s'), "s")], Action::Save, "save as JSON", SHOW),
    bind(&[(Char('K'), "K"), (F(9), "F9")], Action::Signal, "signal a process", SHOW),
    bind(&[(Left, "Left"), (Char('['), "[")], Action::Time(-1), "a second back", PAST),
    bind(&[(Right, "Right"), (Char(']'), "]")], Action::Time(1), "a second on", PAST),
    bind(&[(Char('{'), "{")], Action::Time(-60), "a minute back", PAST),
    bind(&[(Char('}'), "}")], Action::Time(60), "a minute on", PAST),
    bind(&[(Char('('), "(")], Action::Time(-3600), "an hour back", PAST),
    bind(&[(Char(')'), ")")], Action::Time(3600), "an hour on", PAST),
    bind(&[(Char('j'), "j"), (Char('t'), "t"), (Char('@'), "@")], Action::Jump, "to a time: 03:12, -5m", PAST),
    bind(&[(Char('l'), "l")], Action::Live, "live again", PAST),
    bind(&[(Char('p'), "p")], Action::Period, "period", SET),
    bind(&[(Char('d'), "d")], Action::Delay, "delay", SET),
    bind(&[(Char('e'), "e")], Action::Enabled, "on or off", SET),
    bind(&[(Char('S'), "S"), (F(2), "F2")], Action::Settings, "settings of all tables", SET),
    bind(&[(Char('?'), "?"), (Char('h'), "h"), (F(1), "F1")], Action::Help, "keys", SHOW),
    bind(&[(Char('q'), "q"), (F(10), "F10")], Action::Quit, "quit", SHOW),
];

impl Binding {
    /// The names of the keys, as the help shows them: `Up k`.
    pub fn names(&self) -> String {
        self.keys.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(" ")
    }
}

/// The action of a key; `None` if the key is not bound.
pub fn action(key: KeyEvent) -> Option<Action> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            Char('c') => Some(Action::Quit),
            Char('f') => Some(Action::Page(1)),
            Char('b') => Some(Action::Page(-1)),
            _ => None,
        };
    }
    KEYS.iter().find(|binding| binding.keys.iter().any(|(code, _)| *code == key.code)).map(|binding| binding.action)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_key_is_bound_twice() {
        let mut seen = HashSet::new();
        for (code, name) in KEYS.iter().flat_map(|binding| binding.keys) {
            assert!(seen.insert(code), "{name}");
        }
    }

    #[test]
    fn groups_stand_together_in_the_help() {
        let groups: HashSet<_> = KEYS.iter().map(|binding| binding.group).collect();
        assert_eq!(groups.len(), 5);
    }
}
