// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The readings of the tables of a panel, and the panels that show several tables as one ranking.

use std::sync::Arc;

use topstat_model::counters::is_trouble;
use topstat_model::{Snapshot, Unit, per_second};

use super::{Content, Line, Panel, TABLES, text};
use crate::rows::chosen_by;
use crate::state::{App, PASSING};

/// The place of a table among all tables, its reading, and the word that its panel has for it.
pub(super) type Reading = (usize, Arc<Snapshot>, &'static str);

/// The readings of the tables of a panel.
pub(super) struct Readings {
    pub(super) found: Vec<Reading>,
    /// Why some table has no reading yet; this passes by itself.
    pub(super) passing: Option<String>,
    /// The tables whose contents no other table has and that can't be shown: their words.
    without: Vec<&'static str>,
    /// Why the first of these can't be shown.
    why: String,
}

impl Readings {
    /// The note of the panel about tables that can't be shown.
    fn note(&self) -> Option<String> {
        self.missed("", "not counted: ")
    }

    /// The doubt in the screen that follows from them.
    pub(super) fn doubt(&self, panel: Panel) -> Option<String> {
        self.missed(&format!("{}: ", panel.table()), &format!("{} without ", panel.name()))
    }

    /// Why tables can't be shown: behind `all`, or behind `some` and the words of these tables, where others of the panel can.
    fn missed(&self, all: &str, some: &str) -> Option<String> {
        let none = self.found.is_empty() && self.passing.is_none();
        match &self.without[..] {
            [] => None,
            _ if none => Some(format!("{all}{}", self.why)),
            without => Some(format!("{some}{}: {}", without.join(", "), self.why)),
        }
    }
}

impl App {
    /// The reading of a table of the screen, and the place of the table among all tables.
    ///
    /// # Errors
    ///
    /// Why it can't be shown. A table that is switched off has nothing to show.
    pub(super) fn reading(&self, path: &str) -> Result<(usize, Arc<Snapshot>), String> {
        let table = self.table_at(path).ok_or_else(|| match self.origin.recorded {
            true => format!("there are no records of {path}"),
            false => format!("{path} is not loaded: the log of the daemon and topstat check say why"),
        })?;
        let snapshot = self.shown(table)?;
        match snapshot.rows.is_empty() && !snapshot.settings.counts() {
            true => Err(format!("{path} is switched off")),
            false => Ok((table, snapshot)),
        }
    }

    /// The readings of the tables of a panel.
    pub(super) fn readings(&self, panel: Panel) -> Readings {
        let (mut found, mut passing, mut without) = (Vec::new(), None, Vec::new());
        for (_, path, word) in TABLES.iter().filter(|(of, ..)| *of == panel) {
            match self.reading(path) {
                Ok((table, snapshot)) => found.push((table, snapshot, *word)),
                Err(why) if PASSING.contains(&why.as_str()) => passing = Some(why),
                Err(why) if !word.is_empty() => without.push((*word, why)),
                Err(why) if *path == panel.table() => without.push((*path, why)),
                Err(_) => {}
            }
        }
        let (without, whys): (Vec<_>, Vec<_>) = without.into_iter().unzip();
        Readings { found, passing, without, why: whys.into_iter().next().unwrap_or_default() }
    }

    /// The lines of a panel of several tables, with its note. `none` stands for an empty panel.
    fn of_tables(&self, readings: &Readings, lines: Vec<Line>, most: usize, none: &str) -> Content {
        let empty = match &readings.passing {
            _ if !lines.is_empty() || readings.found.is_empty() && readings.passing.is_none() => None,
            Some(why) => Some(why.clone()),
            None if self.filter.is_empty() => Some(none.to_owned()),
            None => Some(format!("none is like {}", self.filter.text())),
        };
        let said: Vec<_> = empty.into_iter().chain(readings.note()).collect();
        let said = (!said.is_empty()).then(|| said.join("; "));
        let room = most.saturating_sub(usize::from(said.is_some()));
        Content { lines: lines.into_iter().take(room).collect(), others: None, said }
    }

    pub(super) fn waits(&self, most: usize) -> Content {
        let mut found: Vec<(u64, Line)> = Vec::new();
        let readings = self.readings(Panel::Waits);
        for (table, snapshot, cause) in &readings.found {
            let chosen = chosen_by(&self.filter, snapshot);
            for row in snapshot.rows.iter().filter(|row| chosen(row)).take(most) {
                let per_second = per_second(row.value, snapshot.period_ms);
                // A wait of less than a thousandth of the time is none that an operator looks for.
                if per_second >= 1e6 {
                    let figure = Unit::Nanoseconds.human_rate(per_second);
                    let line = Line {
                        figure,
                        value: per_second,
                        share: per_second / 1e9,
                        more: (*cause).to_owned(),
                        ..Line::of(self, snapshot, *table, row)
                    };
                    found.push((row.value, line));
                }
            }
        }
        found.sort_by_key(|(value, _)| std::cmp::Reverse(*value));
        let lines = found.into_iter().map(|(_, line)| line).collect();
        self.of_tables(&readings, lines, most, "no process waits")
    }

    pub(super) fn rising(&self, most: usize) -> Content {
        let mut found: Vec<(f64, Line)> = Vec::new();
        let readings = self.readings(Panel::Rising);
        for (table, snapshot, what) in &readings.found {
            let chosen = chosen_by(&self.filter, snapshot);
            for row in &snapshot.rows {
                let counter = text(snapshot, row, "counter");
                if !counter.is_empty() && !is_trouble(&counter) || !chosen(row) {
                    continue;
                }
                let rate = per_second(row.value, snapshot.period_ms);
                let mut line = Line::of(self, snapshot, *table, row);
                (line.figure, line.value) = (format!("+{}", snapshot.unit.human_rate(rate)), rate);
                let of = snapshot.sample.trim_start_matches("snmp_");
                (line.name, line.more) =
                    if counter.is_empty() { (line.name, (*what).to_owned()) } else { (counter, of.to_owned()) };
                found.push((rate, line));
            }
        }
        found.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let largest = found.first().map_or(1.0, |(rate, _)| rate.max(1e-9));
        for (rate, line) in &mut found {
            line.share = *rate / largest;
        }
        let lines = found.into_iter().map(|(_, line)| line).collect();
        self.of_tables(&readings, lines, most, "none rises")
    }
}
