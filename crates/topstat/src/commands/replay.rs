// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat replay`: shows recorded events.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use topstat_model::events::Event;
use topstat_model::events::record::Line;
use topstat_model::filter::Filter;
use topstat_model::typeset::escape;

use super::events::{Choice, Shown, parse_filters, wrong_filter};
use crate::args::replay::ReplayArgs;
use crate::console::{Console, Wake};
use crate::error::{Error, Exit};
use crate::instant;
use crate::recording::{self, Reading};

/// The output is written at the latest after this many lines.
const LINES: usize = 256;

pub fn run(args: &ReplayArgs, console: &mut dyn Console) -> Result<Exit, Error> {
    let filters = parse_filters(&args.filters)?;
    let mut files = Vec::new();
    for path in &args.files {
        let opened = recording::open(path).map_err(|why| unreadable(path, &why.to_string()))?;
        files.push((path.as_path(), opened));
    }
    let kinds: Vec<_> = files.iter().flat_map(|(_, reading)| reading.header.kinds.iter().cloned()).collect();
    let choice = Choice::new(&filters, &kinds).map_err(|fault| wrong_filter(&texts(&filters), &fault))?;
    let begun = files.first().map_or(SystemTime::UNIX_EPOCH, |(_, reading)| reading.header.begun);
    let from = args.from.as_deref().map(|text| from(text, begun)).transpose()?;
    console.catch_signals(false).map_err(|source| Error::System { what: "catch signals", source })?;
    let mut replay =
        Replay { shown: Shown::new(args.output, choice, args.count), from, pace: args.speed.map(Pace::new) };
    let mut exit = Exit::Done;
    for (path, mut reading) in files {
        if !replay.file(path, &mut reading, &mut exit, console)? {
            break;
        }
    }
    replay.shown.flush(true, console)?;
    Ok(exit)
}

fn unreadable(path: &Path, why: &str) -> Error {
    Error::Recording(format!("cannot read {}: {why}", escape(&path.display().to_string())))
}

fn texts(filters: &[Filter]) -> String {
    filters.iter().map(Filter::text).collect::<Vec<_>>().join(" ")
}

/// A time, or a duration after the beginning of the recording.
fn from(text: &str, begun: SystemTime) -> Result<SystemTime, Error> {
    let time = match text.strip_prefix('+') {
        Some(after) => humantime::parse_duration(after).ok().and_then(|after| begun.checked_add(after)),
        None => topstat_model::parse_rfc3339(text).or_else(|| instant::parse(text, SystemTime::now()).ok()),
    };
    let why = "not a time: 2026-11-21 08:00, 2026-11-21T08:00:00Z, or after the beginning +90s, +1h";
    time.ok_or_else(|| Error::Usage(format!("--from '{}': {why}", escape(text))))
}

struct Replay {
    shown: Shown,
    from: Option<SystemTime>,
    pace: Option<Pace>,
}

impl Replay {
    /// Shows the events of a file. Returns whether the next file is wanted.
    fn file(
        &mut self,
        path: &Path,
        reading: &mut Reading<File>,
        exit: &mut Exit,
        console: &mut dyn Console,
    ) -> Result<bool, Error> {
        let mut lines = 0;
        loop {
            let line = match reading.next() {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(true),
                Err(damage) => {
                    // The lines that were read before the damage are written first.
                    self.shown.flush(false, console)?;
                    console.note(&format!("topstat: {}: {damage}", escape(&path.display().to_string())));
                    *exit = Exit::Failed;
                    return Ok(true);
                }
            };
            let time = match &line {
                Line::Event(event) => event.time,
                Line::Account(account) => account.time,
            };
            if self.from.is_some_and(|from| time < from) {
                continue;
            }
            if !self.wait_for(time, &mut lines, console)? {
                return Ok(false);
            }
            match line {
                Line::Event(event) => self.event(&event),
                Line::Account(account) => self.shown.account(&account, true),
            }
            if self.shown.is_enough() {
                return Ok(false);
            }
        }
    }

    fn event(&mut self, event: &Event) {
        self.shown.put(event);
    }

    /// Waits until a line is due. Returns false if the user stops the replay or its output is closed.
    fn wait_for(&mut self, time: SystemTime, lines: &mut usize, console: &mut dyn Console) -> Result<bool, Error> {
        *lines += 1;
        let now = console.now();
        let until = self.pace.as_mut().map_or(now, |pace| pace.when(time, now));
        if until <= now && !lines.is_multiple_of(LINES) {
            return Ok(true);
        }
        self.shown.flush(false, console)?;
        let wake =
            console.wait_until(until).map_err(|source| Error::System { what: "wait for the next event", source })?;
        Ok(!matches!(wake, Wake::Stop | Wake::Closed))
    }
}

/// Decides when each event is shown. The replay is `speed` times as fast as the recording.
struct Pace {
    speed: f64,
    /// The time of the first event, and when it was shown.
    first: Option<(SystemTime, Instant)>,
}

/// The longest time after the first event, whatever the times of events say.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

impl Pace {
    fn new(speed: f64) -> Self {
        Self { speed, first: None }
    }

    fn when(&mut self, time: SystemTime, now: Instant) -> Instant {
        let (first, shown) = *self.first.get_or_insert((time, now));
        let after = time.duration_since(first).unwrap_or_default().as_secs_f64() / self.speed;
        shown + Duration::try_from_secs_f64(after).unwrap_or(LONGEST).min(LONGEST)
    }
}
