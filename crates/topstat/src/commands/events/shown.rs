// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes events to the output and to a recording.

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use topstat_model::events::{Account, Event, json, text};

use super::choice::Choice;
use crate::args::ListFormat;
use crate::console::Console;
use crate::error::Error;
use crate::recording::Recorder;

/// The events that were taken, and their way to the output and to a recording.
pub struct Shown {
    format: ListFormat,
    choice: Choice,
    /// The number of events still to be shown; `None`: no limit.
    left: Option<u64>,
    /// Events are recorded only, not written.
    quiet: bool,
    /// The number of events shown, by source.
    counts: Vec<(String, u64)>,
    /// The last account of each source.
    told: Vec<Account>,
    written: Vec<u8>,
    recording: Option<Recording>,
    /// The recording has failed and has ended.
    cut_short: bool,
}

struct Recording {
    path: PathBuf,
    recorder: Recorder,
    now: Instant,
    failed: Option<io::Error>,
}

impl Shown {
    pub fn new(format: ListFormat, choice: Choice, left: Option<u64>) -> Self {
        Self {
            format,
            choice,
            left,
            quiet: false,
            counts: Vec::new(),
            told: Vec::new(),
            written: Vec::new(),
            recording: None,
            cut_short: false,
        }
    }

    /// Also records the events that are shown. If `quiet`, they are recorded only.
    pub fn record(&mut self, path: PathBuf, recorder: Recorder, quiet: bool, now: Instant) {
        self.recording = Some(Recording { path, recorder, now, failed: None });
        self.quiet = quiet;
    }

    /// Whether the requested number of events was shown.
    pub fn is_enough(&self) -> bool {
        self.left == Some(0)
    }

    /// Whether the recording has failed, so that it lacks later events.
    pub fn is_cut_short(&self) -> bool {
        self.cut_short
    }

    /// Shows and records an event if the choice matches it.
    pub fn put(&mut self, event: &Event) {
        if self.is_enough() || !self.choice.matches(event) {
            return;
        }
        self.left = self.left.map(|left| left - 1);
        let source = &event.kind.source;
        match self.counts.iter_mut().find(|(name, _)| name == source) {
            Some((_, count)) => *count += 1,
            None => self.counts.push((source.clone(), 1)),
        }
        self.recorded(|line| json::event(event, line));
        match self.format {
            _ if self.quiet => {}
            ListFormat::Text => text::event(event, &mut self.written),
            ListFormat::Json => json::event(event, &mut self.written).expect("its keys are texts"),
        }
    }

    /// Writes the accounts of all sources, with the number of events shown. Text output has an account only at the end, and when
    /// its losses have changed since the last account.
    pub fn accounts(&mut self, mut accounts: Vec<Account>, end: bool) {
        for account in &mut accounts {
            let count = self.counts.iter().find(|(name, _)| *name == account.source);
            account.shown = count.map_or(0, |(_, count)| *count);
            self.account(account, end);
        }
    }

    /// Writes the account of one source.
    pub fn account(&mut self, account: &Account, end: bool) {
        let lost = |account: &Account| [account.cut, account.dropped, account.skipped, account.late];
        let before = self.told.iter().position(|told| told.source == account.source);
        let worse = lost(account) != before.map_or([0; 4], |before| lost(&self.told[before]));
        self.recorded(|line| json::account(account, line));
        match self.format {
            _ if self.quiet => {}
            ListFormat::Json => json::account(account, &mut self.written).expect("its keys are texts"),
            ListFormat::Text if end || worse => text::account(account, &mut self.written),
            ListFormat::Text => {}
        }
        match before {
            Some(before) => self.told[before] = account.clone(),
            None => self.told.push(account.clone()),
        }
    }

    fn recorded(&mut self, line: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) {
        let Some(recording) = self.recording.as_mut().filter(|recording| recording.failed.is_none()) else { return };
        let mut written = Vec::new();
        let done = line(&mut written).and_then(|()| recording.recorder.put(&written, recording.now));
        recording.failed = done.err();
    }

    /// Writes the gathered output. At the end it also writes the data that the recorder still holds.
    pub fn flush(&mut self, end: bool, console: &mut dyn Console) -> Result<(), Error> {
        if let Some(recording) = &mut self.recording {
            recording.now = console.now();
            let done = match (recording.failed.take(), end) {
                (Some(error), _) => Err(error),
                (None, true) => recording.recorder.finish(),
                (None, false) => recording.recorder.tick(recording.now),
            };
            if let Err(error) = done {
                let path = recording.path.display();
                console.note(&format!(
                    "topstat: cannot record to {path}: {error}; recording ends here, and events are shown all the same"
                ));
                self.recording = None;
                // Events that are no longer recorded are shown.
                self.quiet = false;
                self.cut_short = true;
            }
        }
        let written = std::mem::take(&mut self.written);
        if written.is_empty() {
            return Ok(());
        }
        console.write(&written).map_err(Error::Output)
    }
}
