// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules: while a table meets a condition, a command is run, or a web hook called.

mod action;
mod condition;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use topstat_model::{Snapshot, document, json as written, rfc3339};

use crate::source::{Fault, Source, Table};
use crate::{Error, api};
pub use action::Action;
use action::Actions;
use condition::{Condition, Quantity, Seen};

/// How long the list of tables is used.
const LIST: Duration = Duration::from_secs(60);
/// How often a wait checks whether the program was asked to end.
const LOOK: Duration = Duration::from_millis(100);

/// How to watch.
#[derive(Clone, Debug)]
pub struct Options {
    /// From one reading to the next.
    pub interval: Duration,
    /// At most one action of a rule in this time.
    pub every: Duration,
    /// Act also when a condition is met no longer.
    pub resolved: bool,
    /// What to do.
    pub actions: Vec<Action>,
}

/// A condition, and whether it was met.
#[derive(Clone, Debug)]
pub struct Rule {
    condition: Condition,
    /// The paths of its tables.
    tables: Vec<String>,
    /// Since when it is met.
    since: Option<Instant>,
    /// Its action was taken, and it is met since then.
    fired: bool,
    /// The label and the columns of the object that the action was about; null where the condition is not about a row.
    subject: (Value, Value),
    acted: Option<Instant>,
    /// Actions that were left out because they would have come too soon.
    held_back: u64,
    /// The last error that was logged.
    wrong: Option<String>,
}

impl std::str::FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let condition: Condition = text.parse()?;
        let tables = vec![condition.table.clone()];
        Ok(Self {
            condition,
            tables,
            since: None,
            fired: false,
            subject: Default::default(),
            acted: None,
            held_back: 0,
            wrong: None,
        })
    }
}

/// Why an action is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Met,
    Resolved,
}

impl Rule {
    /// Watches the tables that the name in the condition means: `tcp/conns_pps` means two. They are looked at as one table.
    #[must_use]
    pub fn over(mut self, tables: impl FnOnce(&str) -> Vec<String>) -> Self {
        self.tables = tables(&self.condition.table);
        self
    }

    /// Takes what a reading has shown, and decides on an action.
    fn step(&mut self, met: bool, now: Instant, every: Duration) -> Option<Event> {
        if !met {
            self.since = None;
            return std::mem::take(&mut self.fired).then_some(Event::Resolved);
        }
        let since = *self.since.get_or_insert(now);
        if self.fired || now.duration_since(since) < self.condition.lasts {
            return None;
        }
        if self.acted.is_some_and(|acted| now.duration_since(acted) < every) {
            self.held_back += 1;
            return None;
        }
        (self.fired, self.acted) = (true, Some(now));
        Some(Event::Met)
    }

    /// Logs a problem once.
    fn say(&mut self, wrong: Option<String>) {
        match &wrong {
            Some(why) if self.wrong != wrong => log::warn!("{}: {why}", self.condition.text),
            None if self.wrong.is_some() => log::info!("{}: it is watched again", self.condition.text),
            _ => {}
        }
        self.wrong = wrong;
    }
}

/// Watches until SIGTERM or SIGINT comes; then `stop` is set.
///
/// # Errors
///
/// When signals can't be caught, or a web hook's address is wrong.
pub fn run(rules: Vec<Rule>, options: &Options, source: &dyn Source, stop: &Arc<AtomicBool>) -> Result<(), Error> {
    for signal in [SIGTERM, SIGINT] {
        let caught = signal_hook::flag::register(signal, Arc::clone(stop));
        caught.map_err(|source| Error::System { what: "catch signals", source })?;
    }
    watch(rules, options, source, stop)
}

/// Watches until `stop` is set.
///
/// # Errors
///
/// A web hook's address is wrong.
pub fn watch(
    mut rules: Vec<Rule>,
    options: &Options,
    source: &dyn Source,
    stop: &Arc<AtomicBool>,
) -> Result<(), Error> {
    let mut actions = Vec::new();
    for action in &options.actions {
        actions.push(Actions::new(action.clone(), Arc::clone(stop))?);
    }
    let mut paths: Vec<_> = rules.iter().flat_map(|rule| rule.tables.clone()).collect();
    paths.sort();
    paths.dedup();
    let (mut tables, mut listed): (Vec<Table>, Option<Instant>) = (Vec::new(), None);
    let mut next = Instant::now();
    while !stop.load(Ordering::SeqCst) {
        if Instant::now() < next {
            std::thread::sleep(LOOK.min(next.saturating_duration_since(Instant::now())));
            continue;
        }
        next = (next + options.interval).max(Instant::now());
        if listed.is_none_or(|listed| listed.elapsed() >= LIST) || tables.is_empty() {
            match source.tables() {
                Ok(found) => (tables, listed) = (found, Some(Instant::now())),
                Err(fault) => {
                    rules.iter_mut().for_each(|rule| rule.say(Some(fault.to_string())));
                    continue;
                }
            }
        }
        let known = |path: &&String| tables.iter().any(|table| table.path() == **path);
        let there: Vec<_> = paths.iter().filter(known).cloned().collect();
        let mut snapshots: Vec<Option<Result<Snapshot, Fault>>> = there.iter().map(|_| None).collect();
        let read = source.documents(&there, &mut |number, document| {
            let table = tables.iter().find(|table| table.path() == there[number]);
            snapshots[number] = Some(document.and_then(|document| parsed(table, document)));
        });
        if read.is_err() {
            listed = None;
        }
        for rule in &mut rules {
            match of_rule(rule, &there, &snapshots, &read) {
                Ok(found) => match rule.condition.look(found[0], &found[1..]) {
                    Ok(seen) => act(rule, &seen, options, &actions),
                    // A condition that does not fit its table never will.
                    Err(why) => return Err(Error::Wrong(format!("{}: {why}", rule.condition.text))),
                },
                Err(why) => rule.say(Some(why)),
            }
        }
    }
    for actions in actions {
        actions.end();
    }
    Ok(())
}

fn parsed(table: Option<&Table>, text: &[u8]) -> Result<Snapshot, Fault> {
    document::read(text, |_, _| table.map(Table::shape)).map_err(|error| Fault::Unavailable(error.to_string()))
}

/// The snapshots of a rule's tables, at least one, or the reason for their absence. A table that is off at first may be switched
/// on at any time. Of several tables, those that are on are watched.
fn of_rule<'a>(
    rule: &Rule,
    there: &[String],
    snapshots: &'a [Option<Result<Snapshot, Fault>>],
    read: &Result<(), Fault>,
) -> Result<Vec<&'a Snapshot>, String> {
    let of_rule = there.iter().zip(snapshots).filter(|(path, _)| rule.tables.contains(path));
    let found: Result<Vec<_>, _> = of_rule
        .map(|(path, snapshot)| match snapshot {
            Some(Ok(snapshot)) => Ok(snapshot),
            Some(Err(fault)) => Err(fault.to_string()),
            None => Err(read.as_ref().err().map_or_else(|| format!("{path} was not read"), Fault::to_string)),
        })
        .collect();
    match found {
        Ok(none) if none.is_empty() => Err(format!("there is no table {}, or it is off", rule.condition.table)),
        found => found,
    }
}

fn act(rule: &mut Rule, seen: &Seen<'_>, options: &Options, actions: &[Actions]) {
    rule.say(None);
    let Some(event) = rule.step(seen.met, Instant::now(), options.every) else { return };
    if event == Event::Resolved && !options.resolved {
        return;
    }
    let state = if event == Event::Met { "met" } else { "resolved" };
    log::info!("{}: {state} at {}", rule.condition.text, seen.number);
    let document = describe(rule, seen, event, state);
    for actions in actions {
        actions.take(&rule.condition.text, document.clone());
    }
}

/// The document for an action, one line.
fn describe(rule: &mut Rule, seen: &Seen<'_>, event: Event, state: &str) -> Vec<u8> {
    let mut table = Vec::new();
    written::write(seen.table, &mut table).expect("a Vec takes all");
    let table: Value = serde_json::from_slice(&table).expect("it was just written");
    let row = seen.row.and_then(|row| table["rows"].as_array()?.iter().find(|one| one["rank"] == row.rank).cloned());
    if event == Event::Met {
        let label = seen.row.map(|row| api::label(seen.table, row));
        rule.subject = (json!(label), row.as_ref().map_or(Value::Null, |row| row["object"].clone()));
    }
    // When the condition is met no longer, another row or none may be the largest: the subject stays.
    let (label, object) = &rule.subject;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it came from a u64
    let number =
        if rule.condition.quantity == Quantity::Share { json!(seen.number) } else { json!(seen.number as u64) };
    let document = json!({
        "time": rfc3339(SystemTime::now()),
        "condition": rule.condition.text,
        "state": state,
        "for_s": rule.since.map_or(0, |since| since.elapsed().as_secs()),
        "number": number,
        "label": label,
        "object": object,
        "held_back": std::mem::take(&mut rule.held_back),
        "row": row,
        "table": table,
    });
    let mut text = Vec::new();
    written::line(&document, &mut text).expect("a Value is JSON");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_acts_once_when_it_has_been_met_for_long_enough_and_not_too_often() {
        const S: Duration = Duration::from_secs(1);
        let mut rule: Rule = "a/b > 5 for 3s".parse().unwrap();
        let (begun, every) = (Instant::now(), 20 * S);
        let mut step = |s: u32, met: bool| rule.step(met, begun + s * S, every);
        for (s, met, event) in [
            (0, true, None),
            (2, true, None),
            (3, true, Some(Event::Met)),
            (4, true, None),
            (9, true, None),
            (10, false, Some(Event::Resolved)),
            (11, false, None),
            // Interrupted, so the time begins anew; and it is too soon for another action.
            (12, true, None),
            (14, false, None),
            (15, true, None),
            (18, true, None),
            (22, true, None),
            (23, true, Some(Event::Met)),
            (24, true, None),
        ] {
            assert_eq!(step(s, met), event, "at {s} s");
        }
        assert_eq!(rule.held_back, 2);
    }
}
