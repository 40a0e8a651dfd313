// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of the view, and the effect of keys on it.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::SystemTime;

use ratatui::crossterm::event::{KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};
use topstat_model::filter::Filter;
use topstat_model::{Field, Snapshot, TableType, names, rfc3339};

use crate::feed::{Cost, Origin, Setting, TableMeta, quoted};
use crate::host::{Host, Hosts};
use crate::keys::{self, Action};
use crate::now::{Line, Panel};
use crate::past::{Past, Sums};
use crate::rows::{Ended, ObjectId, Rows, SortBy, shown};

mod goto;
mod groups;
mod prompt;
mod settings;
mod travel;

pub use goto::Found;
pub use groups::Group;
pub use prompt::{Asked, Prompt};
pub use settings::Known;
pub use travel::{Cell, Outline};

/// The short name of a control group, from its path.
pub type Names = Box<dyn FnMut(&str) -> String + Send>;

/// An action outside the state of the view.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Ends the view.
    Quit,
    /// Sets a setting of a table.
    Set(usize, Setting, u32),
    /// Saves a snapshot.
    Save(Arc<Snapshot>),
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
    /// Names control groups by their paths.
    pub(crate) names: RefCell<Names>,
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
            choice: 0,
            cost: None,
            scrolled: 0,
            page: 10,
            hits: vec![],
            dirty: true,
            names: RefCell::new(Self::names_of_paths()),
            instant,
            now: SystemTime::now(),
            looking: false,
        }
    }

    /// Names that follow from the paths alone.
    pub fn names_of_paths() -> Names {
        Box::new(|path| names::of(path).to_string())
    }

    /// Names control groups by their paths from now on in this way. By default the path alone gives the name.
    pub fn name_by(&mut self, names: Names) {
        self.names = RefCell::new(names);
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

    /// Takes the time at which a table began to count.
    pub fn counting_since(&mut self, table: usize, since: Option<SystemTime>) {
        if let Some(data) = self.data.get_mut(table) {
            data.since = since;
        }
    }

    /// Takes a reading of a table.
    pub fn read(&mut self, table: usize, reading: Result<Snapshot, String>) {
        let frozen = matches!(self.when, When::Frozen(_) | When::Past(_));
        let Some(data) = self.data.get_mut(table) else { return };
        match reading {
            Ok(snapshot) => {
                self.now = snapshot.time;
                data.wrong = None;
                let gone = data.past.add(snapshot);
                data.ended.follow(&data.past, gone);
            }
            Err(wrong) => data.wrong = Some(wrong),
        }
        // A frozen view or a view of the past does not change, and is not drawn again.
        self.dirty |= !frozen;
    }

    /// Shows the message of an action outside.
    pub fn say(&mut self, message: String) {
        self.message = Some(message);
        self.dirty = true;
    }

    /// Whether the view is frozen: it does not change until a key is pressed.
    pub fn is_frozen(&self) -> bool {
        matches!(self.when, When::Frozen(_))
    }

    /// Whether the present is shown.
    pub fn is_live(&self) -> bool {
        matches!(self.when, When::Live)
    }

    /// The instant that is shown.
    pub fn shown_at(&self) -> SystemTime {
        match self.when {
            When::Live => self.now,
            When::Frozen(time) | When::Past(time) => time,
        }
    }

    /// The instant that is shown; `None`: the present.
    pub(crate) fn instant_shown(&self) -> Option<SystemTime> {
        match self.when {
            When::Live => None,
            When::Frozen(time) | When::Past(time) => Some(time),
        }
    }

    /// The activity of the host at the instant that is shown. It has no figures if the host was not looked at then.
    pub(crate) fn host_then(&self) -> Host {
        match self.instant_shown() {
            None => self.host.clone(),
            then => self.hosts.until(then, 1).next_back().cloned().unwrap_or_default(),
        }
    }

    /// The cost of the daemon at the instant that is shown. Past costs are not kept.
    pub(crate) fn cost_then(&self) -> Option<Cost> {
        self.cost.filter(|_| !matches!(self.when, When::Past(_)))
    }

    /// Takes the activity of the host at an instant.
    pub fn host(&mut self, time: SystemTime, host: Host) {
        self.hosts.add(time, host.clone());
        self.host = host;
        self.dirty |= self.is_live();
    }

    /// Takes the cost of the daemon.
    pub fn cost(&mut self, cost: Option<Cost>) {
        self.dirty |= self.is_live() && self.cost != cost;
        self.cost = cost;
    }

    /// The snapshot that is shown of a table, or why there is nothing to show.
    pub fn shown(&self, table: usize) -> Result<Arc<Snapshot>, String> {
        let data = self.data.get(table).ok_or("there are no tables")?;
        let (When::Past(time) | When::Frozen(time)) = &self.when else {
            return match (&data.wrong, data.past.last()) {
                (Some(wrong), _) => Err(wrong.clone()),
                (None, Some(last)) => Ok(Arc::clone(last)),
                (None, None) if self.origin.loads && *self.below() == Screen::Now => Err(LOADING.to_owned()),
                (None, None) if self.origin.loads && !data.opened => Err(NOT_LOADED.to_owned()),
                (None, None) => Err(WAITING.to_owned()),
            };
        };
        if let Some(reading) = data.past.at(*time) {
            return Ok(Arc::new(reading));
        }
        match &data.recalled {
            Some((of, found)) if of == time => found.clone(),
            _ => Err(LOOKING.to_owned()),
        }
    }

    /// The sums of the last `most` readings of a table, the oldest first. A frozen view has no readings after the freeze.
    pub fn sums(&self, table: usize, most: usize) -> Vec<Sums> {
        let Some(data) = self.data.get(table) else { return vec![] };
        let mut sums: Vec<_> = data.past.sums().rev().filter(|sums| self.is_reached(sums.time)).take(most).collect();
        sums.reverse();
        sums
    }

    /// The values of an object of the chosen table, the oldest first; 0 for a reading without a row of the object.
    pub fn values(&self, object: &[Field]) -> Values {
        let mut values = Values::default();
        let Some(data) = self.current() else { return values };
        let parts = data.past.last().map_or(0, |last| last.parts.len());
        values.parts = vec![vec![]; parts];
        for (_, of) in data.past.of(object).filter(|(time, _)| self.is_reached(*time)) {
            values.value.push(of.map_or(0, |of| of.value));
            for (place, part) in values.parts.iter_mut().enumerate() {
                part.push(of.and_then(|of| of.parts.get(place).copied()).unwrap_or(0));
            }
        }
        values
    }

    /// Whether charts show this instant.
    fn is_reached(&self, time: SystemTime) -> bool {
        !matches!(self.when, When::Frozen(until) if time > until)
    }

    /// The rows of the chosen table that are shown.
    pub fn rows(&self) -> Rows {
        let Ok(snapshot) = self.shown(self.table) else { return Rows::default() };
        let none = Ended::default();
        let ended = match (&self.when, self.current()) {
            (When::Live, Some(data)) => &data.ended,
            (When::Frozen(_), Some(data)) => &data.frozen,
            _ => &none,
        };
        let rows = shown(snapshot, ended, &self.filter, self.sort, self.reverse);
        if self.fold { rows.folded() } else { rows }
    }

    /// The place of the selection among these rows.
    pub fn selection(&self, rows: &Rows) -> Option<usize> {
        let of = |selected: &ObjectId| rows.iter().position(|shown| Field::same_object(&shown.row.object, selected));
        let place = self.selected.as_ref().and_then(of);
        place.or(if rows.is_empty() { None } else { Some(self.cursor.min(rows.len() - 1)) })
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

    /// Takes a key.
    pub fn key(&mut self, key: KeyEvent) -> Option<Effect> {
        self.dirty = true;
        self.message = None;
        if self.prompt.is_some() && !key.modifiers.contains(KeyModifiers::CONTROL) {
            return self.typed(key.code);
        }
        self.act(keys::action(key)?)
    }

    /// Takes an event of the mouse.
    pub fn mouse(&mut self, mouse: MouseEvent) -> Option<Effect> {
        match mouse.kind {
            MouseEventKind::ScrollDown => self.act(Action::Move(3)),
            MouseEventKind::ScrollUp => self.act(Action::Move(-3)),
            MouseEventKind::Down(MouseButton::Left) => {
                let position = Position { x: mouse.column, y: mouse.row };
                let (area, hit) = *self.hits.iter().find(|(area, _)| area.contains(position))?;
                self.click(area, hit, mouse.column)
            }
            _ => None,
        }
    }

    fn click(&mut self, area: Rect, hit: Hit, column: u16) -> Option<Effect> {
        self.dirty = true;
        match hit {
            Hit::Table(table) if self.table == table => return self.act(Action::Open),
            Hit::Table(table) => self.choose(table),
            Hit::Panel(panel) => self.focus = (panel, 0),
            Hit::Line(panel, place) if self.focus == (panel, place) => return self.act(Action::Open),
            Hit::Line(panel, place) => self.focus = (panel, place),
            Hit::Row(place) => {
                let rows = self.rows();
                if self.selection(&rows) == Some(place) && self.selected.is_some() {
                    return self.act(Action::Open);
                }
                self.select(place);
            }
            Hit::Column(sort) if self.sort == sort => self.reverse = !self.reverse,
            Hit::Column(sort) => (self.sort, self.reverse) = (sort, false),
            Hit::Chart => {
                let ago = usize::from(area.right().saturating_sub(column + 1));
                let time = self.sums(self.table, ago + 1).iter().rev().nth(ago)?.time;
                self.to(time);
            }
            Hit::Bar => {
                let cell = usize::from(column.saturating_sub(area.x));
                let time = self.bar(area.width.into()).get(cell)?.time();
                self.to(time);
            }
        }
        None
    }

    fn act(&mut self, action: Action) -> Option<Effect> {
        self.dirty = true;
        if matches!(action, Action::Help | Action::Own | Action::About) {
            self.scrolled = 0;
        }
        let is_of_table =
            matches!(action, Action::Period | Action::Delay | Action::Enabled | Action::Command | Action::Save);
        if is_of_table && *self.below() == Screen::Now && !self.choose_of_line() {
            self.say("choose a table first: this panel has none".to_owned());
            return None;
        }
        match action {
            Action::Quit => return Some(Effect::Quit),
            Action::Back => return self.back(),
            Action::Help if *self.screen() == Screen::Help => return self.back(),
            Action::Help => self.screens.push(Screen::Help),
            Action::Settings if *self.screen() == Screen::Settings => return self.back(),
            Action::Settings => self.open_settings(),
            Action::Move(by) => self.step(i64::from(by)),
            Action::Page(by) => self.step(i64::from(by) * i64::try_from(self.page.max(1)).unwrap_or(1)),
            Action::First => self.step(i64::from(i32::MIN)),
            Action::Last => self.step(i64::from(i32::MAX)),
            Action::Open => self.open(),
            Action::Table(by) if *self.screen() == Screen::Now => self.next_panel(by),
            Action::Table(by) => {
                let tables = i64::try_from(self.data.len().max(1)).unwrap_or(1);
                let table = (i64::try_from(self.table).unwrap_or(0) + i64::from(by)).rem_euclid(tables);
                self.choose(usize::try_from(table).unwrap_or(0));
            }
            Action::Overview => self.screens = vec![Screen::Now],
            Action::Group(group) => self.list(group),
            Action::Own => self.screens.push(Screen::Own),
            Action::About if *self.screen() == Screen::About => return self.back(),
            Action::About if *self.screen() != Screen::Now => self.screens.push(Screen::About),
            Action::About => self.screens.push(Screen::Help),
            Action::Goto => self.ask(Asked::Goto, String::new()),
            Action::Fold => self.fold = !self.fold,
            Action::Freeze if matches!(self.when, When::Live) => self.freeze(),
            Action::Freeze | Action::Live => self.live(),
            Action::Sort(_) | Action::Reverse if *self.screen() != Screen::Table => {
                self.say("choose a table first: Enter opens it, and its rows are sorted there".to_owned());
            }
            Action::Sort(by) => self.sort_next(by),
            Action::Reverse => self.reverse = !self.reverse,
            Action::Exact => self.exact = !self.exact,
            Action::Filter => self.ask(Asked::Filter, self.filter.text().to_owned()),
            Action::Jump => self.ask(Asked::Time, String::new()),
            Action::Period => self.ask(Asked::Setting(Setting::Period), String::new()),
            Action::Delay => self.ask(Asked::Setting(Setting::Delay), String::new()),
            Action::Enabled => self.ask(Asked::Setting(Setting::Enabled), String::new()),
            Action::Time(seconds) => self.travel(seconds),
            Action::Command => self.message = Some(self.command()),
            Action::Save => return self.shown(self.table).ok().map(Effect::Save),
        }
        None
    }

    fn back(&mut self) -> Option<Effect> {
        if self.screens.len() > 1 && !matches!(self.screen(), Screen::Table | Screen::Overview) {
            self.screens.pop();
        } else if !self.filter.is_empty() {
            self.filter = Filter::default();
        } else if !matches!(self.when, When::Live) {
            self.live();
        } else if self.screens.len() > 1 {
            self.screens.pop();
        }
        None
    }

    fn choose(&mut self, table: usize) {
        if table != self.table {
            self.table = table;
            self.selected = None;
            (self.cursor, self.offset) = (0, 0);
            self.sort = SortBy::Rank;
            self.reverse = false;
            self.screens.retain(|screen| !matches!(screen, Screen::Object(_)));
            if let Some(data) = self.data.get_mut(table) {
                // These rows may have ended long ago: the table was not in sight since.
                data.ended.clear();
            }
        }
        if *self.screen() == Screen::Table {
            self.opened();
        }
    }

    fn opened(&mut self) {
        if let Some(data) = self.data.get_mut(self.table) {
            data.opened = true;
        }
    }

    fn step(&mut self, by: i64) {
        if matches!(self.screen(), Screen::Help | Screen::Own) {
            let by = isize::try_from(by).unwrap_or(0);
            // The next frame knows how many lines there are.
            self.scrolled = self.scrolled.saturating_add_signed(by);
            return;
        }
        if *self.screen() == Screen::Now {
            return self.step_in_panels(by);
        }
        if matches!(self.screen(), Screen::Overview | Screen::Settings) {
            let listed = self.listed();
            let last = i64::try_from(listed.len()).unwrap_or(0) - 1;
            let place = listed.iter().position(|table| *table == self.table).unwrap_or(0);
            let to = (i64::try_from(place).unwrap_or(0) + by).clamp(0, last.max(0));
            let Some(table) = listed.get(usize::try_from(to).unwrap_or(0)) else { return };
            return self.choose(*table);
        }
        let rows = self.rows();
        let Some(place) = self.selection(&rows) else { return };
        let last = i64::try_from(rows.len()).unwrap_or(1) - 1;
        let to = (i64::try_from(place).unwrap_or(0) + by).clamp(0, last);
        self.select(usize::try_from(to).unwrap_or(0));
    }

    fn select(&mut self, place: usize) {
        self.cursor = place;
        self.selected = self.rows().get(place).map(|shown| shown.row.object.clone());
    }

    fn open(&mut self) {
        match self.screen() {
            Screen::Now => self.open_line(),
            Screen::Overview | Screen::Settings => self.show_table(),
            Screen::Table => {
                let rows = self.rows();
                if let Some(shown) = self.selection(&rows).and_then(|place| rows.get(place)) {
                    let object = shown.row.object.clone();
                    self.selected = Some(object.clone());
                    self.screens.push(Screen::Object(object));
                }
            }
            Screen::Object(_) | Screen::Help | Screen::About | Screen::Own => {}
        }
    }

    /// Shows the chosen table, above the screens that are not about a table.
    fn show_table(&mut self) {
        self.screens.retain(|screen| matches!(screen, Screen::Now | Screen::Overview));
        self.screens.push(Screen::Table);
        self.opened();
    }

    /// Sorts by the column to the right or to the left of the present one.
    fn sort_next(&mut self, by: i32) {
        let Ok(snapshot) = self.shown(self.table) else { return };
        let parts = (0..snapshot.parts.len()).map(SortBy::Part);
        let rows = self.rows();
        let columns = (0..snapshot.columns.len()).filter(|place| rows.has(&snapshot, *place)).map(SortBy::Column);
        let all: Vec<_> = std::iter::once(SortBy::Rank).chain(parts).chain(columns).collect();
        let place = all.iter().position(|sort| *sort == self.sort).unwrap_or(0);
        let step = if by < 0 { all.len() - 1 } else { 1 };
        self.sort = all[(place + step) % all.len()];
    }
}
