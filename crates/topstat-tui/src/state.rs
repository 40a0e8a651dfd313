// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of the view.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::SystemTime;

use ratatui::layout::Rect;
use topstat_model::filter::Filter;
use topstat_model::{Snapshot, SortBy, TableType, rfc3339};

use crate::feed::{Cost, Origin, Setting, TableMeta, quoted};
use crate::host::{Host, Hosts};
use crate::now::{Line, Panel};
use crate::past::Past;
use crate::rows::{Ended, ObjectId};
use crate::signal::{Process, Signal};

mod goto;
mod groups;
mod input;
mod names;
mod prompt;
mod readings;
mod settings;
mod travel;

pub use goto::Found;
pub use groups::Group;
pub use names::{Names, OfPaths, host_text};
pub use prompt::{Asked, Prompt};
pub use settings::Known;
pub use travel::{Cell, Outline};

/// An action outside the state of the view.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Ends the view.
    Quit,
    /// Sets a setting of a table.
    Set(usize, Setting, u32),
    /// Saves a snapshot.
    Save(Arc<Snapshot>),
    /// Sends a signal to a process.
    Signal(Process, Signal),
}

/// The content of the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Screen {
    /// The host, and who is at the top of it.
    Now,
    /// The tops of all tables, or of a group of them.
    Overview,
    /// One table.
    Table,
    /// One object of the table.
    Object(ObjectId),
    /// The settings of all tables.
    Settings,
    /// The meaning of what the table shows.
    About,
    /// The cost of topstat, and whether its figures are complete.
    Own,
    /// The keys.
    Help,
}

/// The instant that is shown.
#[derive(Clone, Debug, Default)]
pub enum When {
    /// The present.
    #[default]
    Live,
    /// The instant of a freeze.
    Frozen(SystemTime),
    /// An instant in the past.
    Past(SystemTime),
}

/// A table, and its readings.
#[derive(Clone, Debug)]
pub struct Data {
    /// The description of the table.
    pub meta: TableMeta,
    /// The readings of the last ten minutes.
    pub past: Past,
    /// Why the table could not be read.
    pub wrong: Option<String>,
    /// When the table began to count, if that is known.
    pub since: Option<SystemTime>,
    /// The settings of the table.
    pub known: Known,
    /// The screen of the table was opened.
    pub opened: bool,
    /// Rows that have ended.
    pub ended: Ended,
    /// The ended rows at the time of the freeze.
    pub frozen: Ended,
    /// The snapshot of the instant that is shown, where memory does not reach; or why it can't be shown.
    pub recalled: Option<(SystemTime, Result<Arc<Snapshot>, String>)>,
    /// The peaks of all records.
    pub outline: Outline,
}

/// A reading in layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layers {
    /// When it was taken.
    pub time: SystemTime,
    /// The values of the objects that have a layer.
    pub of: Vec<u64>,
    /// The part of the total that is in no layer.
    pub rest: u64,
}

/// The values of an object, reading by reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// The values of the rows.
    pub value: Vec<u64>,
    /// The values of each part.
    pub parts: Vec<Vec<u64>>,
}

/// A target of a click.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// A row, by its place among the rows that are shown.
    Row(usize),
    /// A table of the overview.
    Table(usize),
    /// The title of a panel.
    Panel(Panel),
    /// A line of a panel.
    Line(Panel, usize),
    /// The title of a column.
    Column(SortBy),
    /// The chart. Its last cell is the last reading.
    Chart,
    /// The bar of all records, from its first cell to its last.
    Bar,
}

/// The state of the view.
pub struct App {
    /// The tables.
    pub data: Vec<Data>,
    /// The source of the readings.
    pub origin: Origin,
    /// The open screens. The last one is shown.
    pub screens: Vec<Screen>,
    /// The chosen table.
    pub table: usize,
    /// The instant that is shown.
    pub when: When,
    /// The selected object, wherever its row is.
    pub selected: Option<ObjectId>,
    /// The last place of the selected object. Once the object is gone, the row at this place is selected.
    pub cursor: usize,
    /// The first row that is shown.
    pub offset: usize,
    /// The order of rows.
    pub sort: SortBy,
    /// The order is reversed.
    pub reverse: bool,
    /// The filter of rows.
    pub filter: Filter,
    /// The input that is being typed.
    pub prompt: Option<Prompt>,
    /// The message that is shown until the next key.
    pub message: Option<String>,
    /// Exact numbers are shown.
    pub exact: bool,
    /// The activity of the host.
    pub host: Host,
    /// The activity of the host in the last ten minutes.
    pub hosts: Hosts,
    /// The panel and the line of the "now" screen that are chosen.
    pub focus: (Panel, usize),
    /// The lines of each panel in the last frame.
    pub places: Vec<(Panel, Vec<Line>)>,
    /// The tables that the overview shows; `None`: all.
    pub group: Option<Group>,
    /// The two ends of a local connection are one row.
    pub fold: bool,
    /// Hosts are shown by their names, as far as these are known.
    pub resolve: bool,
    /// Signals may be sent to processes.
    pub may_signal: bool,
    /// The place among what a typed name finds.
    pub choice: usize,
    /// The cost of the daemon, if the daemon reports it.
    pub cost: Option<Cost>,
    /// The lines above the first one that a text shows, such as the help.
    pub scrolled: usize,
    /// The number of rows that the last frame had room for.
    pub page: usize,
    /// The targets of clicks in the last frame.
    pub hits: Vec<(Rect, Hit)>,
    /// The state has changed since the last frame.
    pub dirty: bool,
    /// Names control groups and hosts.
    names: RefCell<Box<dyn Names>>,
    /// Names of hosts were being asked for at the last call of [`App::awaits_names`].
    awaited_names: bool,
    /// Parses a typed time.
    instant: fn(&str, SystemTime) -> Result<SystemTime, String>,
    /// The time of the last reading of any table.
    now: SystemTime,
    /// A lookup among the records is under way.
    looking: bool,
}

const LOADING: &str = "loading …";
const WAITING: &str = "waiting for the first reading";
const LOOKING: &str = "looking it up";
const NOT_LOADED: &str = "not loaded: Enter loads it";
/// Why a table has nothing to show yet.
pub const PASSING: [&str; 4] = [LOADING, WAITING, LOOKING, NOT_LOADED];

impl App {
    /// A state without readings.
    pub fn new(
        tables: Vec<TableMeta>,
        origin: Origin,
        instant: fn(&str, SystemTime) -> Result<SystemTime, String>,
    ) -> Self {
        let data = |meta| Data {
            meta,
            past: Past::default(),
            wrong: None,
            since: None,
            known: Known::default(),
            opened: false,
            ended: Ended::default(),
            frozen: Ended::default(),
            recalled: None,
            outline: Outline::default(),
        };
        Self {
            data: tables.into_iter().map(data).collect(),
            origin,
            screens: vec![Screen::Now],
            table: 0,
            when: When::Live,
            selected: None,
            cursor: 0,
            offset: 0,
            sort: SortBy::Rank,
            reverse: false,
            filter: Filter::default(),
            prompt: None,
            message: None,
            exact: false,
            host: Host::default(),
            hosts: Hosts::default(),
            focus: (Panel::Cpu, 0),
            places: vec![],
            group: None,
            fold: false,
            resolve: false,
            may_signal: false,
            choice: 0,
            cost: None,
            scrolled: 0,
            page: 10,
            hits: vec![],
            dirty: true,
            names: RefCell::new(Box::new(OfPaths)),
            awaited_names: false,
            instant,
            now: SystemTime::now(),
            looking: false,
        }
    }

    /// The screen that is shown.
    pub fn screen(&self) -> &Screen {
        self.screens.last().unwrap_or(&Screen::Now)
    }

    /// The screen below those that lie over others.
    fn below(&self) -> &Screen {
        let is_above = |screen: &&Screen| matches!(screen, Screen::Help | Screen::About | Screen::Own);
        self.screens.iter().rev().find(|screen| !is_above(screen)).unwrap_or(&Screen::Now)
    }

    /// The chosen table; `None` where there are no tables.
    pub fn current(&self) -> Option<&Data> {
        self.data.get(self.table)
    }

    /// Opens the screen of a table at the beginning.
    pub fn begin_with(&mut self, path: &str) {
        if let Some(table) = self.table_at(path) {
            self.choose(table);
            self.show_table();
        }
    }

    /// The tables to read now. A table out of sight is not read, and costs nothing.
    pub fn wanted(&self) -> Vec<usize> {
        if self.is_frozen() {
            return vec![];
        }
        let mut wanted = self.in_sight();
        if self.origin.recorded {
            // Records do not change: they are read once.
            wanted.retain(|table| self.data[*table].past.last().is_none() && self.data[*table].wrong.is_none());
        }
        wanted
    }

    /// The tables that the screen shows.
    fn in_sight(&self) -> Vec<usize> {
        let may_be_read = |table: &usize| !self.origin.loads || self.data[*table].opened;
        match self.below() {
            Screen::Settings => vec![],
            Screen::Overview => self.in_page().into_iter().filter(may_be_read).collect(),
            Screen::Now | Screen::Help | Screen::About | Screen::Own => self.now_in_sight(),
            Screen::Table => (0..self.data.len()).filter(|table| *table == self.table).collect(),
            Screen::Object(_) => {
                let wanted = |table: &usize| *table == self.table || self.may_be_related(*table);
                (0..self.data.len()).filter(wanted).filter(may_be_read).collect()
            }
        }
    }

    /// The tables of the "now" screen. Where tables have to be loaded, each refresh has one more of them, so that the tables that
    /// are loaded go on being read in between.
    fn now_in_sight(&self) -> Vec<usize> {
        let mut new = 0;
        let may_be_read = |table: &usize| {
            let data = &self.data[*table];
            let known = data.past.last().is_some() || data.wrong.is_some();
            new += usize::from(!known);
            known || new == 1 || !self.origin.loads
        };
        self.now_tables().filter(may_be_read).collect()
    }

    /// The tables that the overview or the settings have room for: the page of the chosen table.
    pub fn in_page(&self) -> Vec<usize> {
        let listed = self.listed();
        let place = listed.iter().position(|table| *table == self.table).unwrap_or(0);
        let page = self.page.max(1);
        let first = place / page * page;
        listed.into_iter().skip(first).take(page).collect()
    }

    /// The tables that the overview or the settings go over.
    fn listed(&self) -> Vec<usize> {
        let group = self.group.filter(|_| *self.screen() == Screen::Overview);
        (0..self.data.len()).filter(|table| group.is_none_or(|group| group.has(&self.data[*table].meta))).collect()
    }

    /// Whether a table may have rows with the process or control group of an object of the chosen table.
    fn may_be_related(&self, table: usize) -> bool {
        let meta = &self.data[table].meta;
        meta.kind == TableType::Dynamic && meta.columns.iter().any(|name| name == "pid" || name == "cgroup")
    }

    /// The command line that prints the screen.
    pub fn command(&self) -> String {
        let Some(data) = self.current() else { return "topstat ls".to_owned() };
        let mut line = format!("topstat top {}", data.meta.path());
        let recorded = match &self.when {
            When::Past(time) | When::Frozen(time) => Some(*time),
            When::Live if self.origin.recorded => data.past.last().map(|last| last.time),
            When::Live => None,
        };
        match recorded {
            Some(time) => line += &format!(" --at {}{}", rfc3339(time), self.origin.history),
            None => line += &self.origin.options,
        }
        if !self.filter.is_empty() {
            line += &format!(" --filter {}", quoted(self.filter.text()));
        }
        line
    }
}
