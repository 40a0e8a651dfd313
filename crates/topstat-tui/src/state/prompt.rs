// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Typed input: a filter, a time, a name, a setting or a confirmation.

use ratatui::crossterm::event::KeyCode;
use topstat_model::Field;
use topstat_model::filter::Filter;

use super::{App, Effect, Screen};
use crate::feed::Setting;
use crate::rows::ObjectId;
use crate::signal::Process;

/// The input that is being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The purpose of the input.
    pub what: Asked,
    /// The text so far.
    pub text: String,
    /// What is wrong with the text.
    pub wrong: Option<String>,
}

/// The purpose of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A filter, which applies while it is typed.
    Filter,
    /// A time.
    Time,
    /// A part of a name.
    Goto,
    /// A setting of the table.
    Setting(Setting),
    /// Whether to signal this process.
    Signal(Process),
}

impl App {
    pub(super) fn ask(&mut self, what: Asked, text: String) {
        self.choice = 0;
        self.prompt = Some(Prompt { what, text, wrong: None });
    }

    /// Asks whether to signal the process of the chosen row, or says why it can't be signalled.
    pub(super) fn ask_signal(&mut self) {
        match self.process_of_row() {
            Ok(process) => self.ask(Asked::Signal(process), String::new()),
            Err(why) => self.say(why),
        }
    }

    /// The process of the chosen row.
    fn process_of_row(&self) -> Result<Process, String> {
        if !self.may_signal {
            return Err("signals are sent by topstat view --allow-kill alone".to_owned());
        }
        if !self.is_live() || self.origin.recorded {
            return Err("signals go to processes of the present: l shows it".to_owned());
        }
        let (table, object) = self.chosen_row().ok_or("choose the row of a process first")?;
        let snapshot = self.shown(table)?;
        match snapshot.column("pid").and_then(|place| object.get(place)) {
            Some(Field::U64(pid)) => Process::now(*pid),
            _ => Err("this row has no pid".to_owned()),
        }
    }

    /// The table and the object of the chosen row or line.
    fn chosen_row(&self) -> Option<(usize, ObjectId)> {
        match self.below() {
            Screen::Now => self.line(),
            Screen::Table => {
                let rows = self.rows();
                let place = self.selection(&rows)?;
                Some((self.table, rows.get(place)?.row.object.clone()))
            }
            Screen::Object(object) => Some((self.table, object.clone())),
            _ => None,
        }
    }

    pub(super) fn typed(&mut self, code: KeyCode) -> Option<Effect> {
        let prompt = self.prompt.as_mut()?;
        match code {
            KeyCode::Esc => {
                let what = self.prompt.take()?.what;
                if what == Asked::Filter {
                    self.filter = Filter::default();
                }
                return None;
            }
            KeyCode::Enter => return self.entered(),
            KeyCode::Backspace => {
                prompt.text.pop();
            }
            KeyCode::Up if prompt.what == Asked::Goto => self.choice = self.choice.saturating_sub(1),
            KeyCode::Down | KeyCode::Tab if prompt.what == Asked::Goto => {
                let last = self.found(&self.prompt.as_ref()?.text).len().saturating_sub(1);
                self.choice = (self.choice + 1).min(last);
                return None;
            }
            KeyCode::Char(c) => prompt.text.push(c),
            _ => return None,
        }
        let prompt = self.prompt.as_ref()?;
        if matches!(code, KeyCode::Char(_) | KeyCode::Backspace) {
            self.choice = 0;
        }
        if prompt.what == Asked::Filter {
            let text = prompt.text.clone();
            self.take_filter(&text);
        }
        None
    }

    /// Applies a filter if this table can have it. Otherwise the filter before stays, for example while a term is being typed.
    fn take_filter(&mut self, text: &str) {
        let of_one = !matches!(self.screen(), Screen::Now | Screen::Overview);
        let read = text.parse::<Filter>().and_then(|filter| match self.shown(self.table) {
            Ok(snapshot) if of_one => filter.check(&snapshot.keys()).map(|()| filter),
            // The screen has several tables: the filter applies to those that have its columns.
            _ => Ok(filter),
        });
        let wrong = match read {
            Ok(filter) => {
                self.filter = filter;
                None
            }
            Err(fault) => Some(fault.to_string()),
        };
        if let Some(prompt) = &mut self.prompt {
            prompt.wrong = wrong;
        }
    }

    fn entered(&mut self) -> Option<Effect> {
        let prompt = self.prompt.take()?;
        let wrong = match &prompt.what {
            Asked::Filter => prompt.wrong.clone()?,
            Asked::Time => match (self.instant)(&prompt.text, self.now) {
                Ok(time) => {
                    self.to(time);
                    return None;
                }
                Err(wrong) => wrong,
            },
            Asked::Goto => match self.go(&prompt.text) {
                Ok(()) => return None,
                Err(wrong) => wrong,
            },
            Asked::Setting(setting) => match value(*setting, &prompt.text) {
                Ok(value) => return Some(Effect::Set(self.table, *setting, value)),
                Err(wrong) => wrong,
            },
            Asked::Signal(process) => match process.answer(&prompt.text) {
                Ok(signal) => return Some(Effect::Signal(process.clone(), signal)),
                Err(wrong) => wrong,
            },
        };
        self.prompt = Some(Prompt { wrong: Some(wrong), ..prompt });
        None
    }
}

/// Parses the value of a setting.
fn value(setting: Setting, text: &str) -> Result<u32, String> {
    match setting {
        Setting::Enabled => match text.trim() {
            "0" | "off" => Ok(0),
            "1" | "on" => Ok(1),
            _ => Err("0 or 1".to_owned()),
        },
        Setting::Period | Setting::Delay => {
            let ms = text.trim().parse().ok();
            let with_unit = || u32::try_from(humantime::parse_duration(text).ok()?.as_millis()).ok();
            let least = u32::from(setting == Setting::Period);
            let ms = ms.or_else(with_unit).filter(|ms| (least..=3_600_000).contains(ms));
            ms.ok_or_else(|| format!("milliseconds, or a time with a unit (500ms, 2s): {least} to 3600000 ms"))
        }
    }
}
