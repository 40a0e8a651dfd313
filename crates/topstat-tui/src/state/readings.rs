// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Readings of the tables and of the host, and what of them is shown at an instant.

use std::sync::Arc;
use std::time::SystemTime;

use topstat_model::{Field, Snapshot};

use super::{App, Data, LOADING, LOOKING, Layers, NOT_LOADED, Screen, Values, WAITING, When};
use crate::feed::Cost;
use crate::host::Host;
use crate::past::Sums;
use crate::rows::{Ended, ObjectId, Rows, shown};

impl App {
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

    /// The number of readings of a table up to the instant that charts end with.
    fn reached(&self, data: &Data) -> usize {
        let sums = data.past.sums();
        sums.len() - sums.rev().take_while(|sums| !self.is_reached(sums.time)).count()
    }

    /// The last `most` readings of the chosen table, the oldest first: of each its time, the values of these objects, and the
    /// rest of the total.
    pub(crate) fn layers(&self, objects: &[&[Field]], most: usize) -> Vec<Layers> {
        let Some(data) = self.current() else { return vec![] };
        let to = self.reached(data);
        let readings = to.saturating_sub(most)..to;
        let sums = data.past.sums().skip(readings.start).take(readings.len());
        let mut layers: Vec<_> = sums
            .map(|sums| Layers { time: sums.time, of: Vec::new(), rest: sums.rows.saturating_add(sums.other) })
            .collect();
        for object in objects {
            for (layers, (_, of)) in layers.iter_mut().zip(data.past.of(object, readings.clone())) {
                let value = of.map_or(0, |of| of.value).min(layers.rest);
                layers.rest -= value;
                layers.of.push(value);
            }
        }
        layers
    }

    /// The values of an object of the chosen table, the oldest first; 0 for a reading without a row of the object.
    pub fn values(&self, object: &[Field]) -> Values {
        let mut values = Values::default();
        let Some(data) = self.current() else { return values };
        let parts = data.past.last().map_or(0, |last| last.parts.len());
        values.parts = vec![vec![]; parts];
        for (_, of) in data.past.of(object, 0..self.reached(data)) {
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
}
