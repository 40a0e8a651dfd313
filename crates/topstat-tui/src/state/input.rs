// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys and clicks, and their effects.

use ratatui::crossterm::event::{KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};
use topstat_model::SortBy;
use topstat_model::filter::Filter;

use super::{App, Asked, Effect, Hit, Screen, When};
use crate::feed::Setting;
use crate::keys::{self, Action};

impl App {
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
            Action::Resolve => self.resolve = !self.resolve,
            Action::Signal => self.ask_signal(),
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

    pub(super) fn choose(&mut self, table: usize) {
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
    pub(super) fn show_table(&mut self) {
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
