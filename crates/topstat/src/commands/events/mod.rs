// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat events`: what happens, one by one.

mod choice;
mod plan;

use std::time::{Duration, Instant};

use topstat_model::events::{Account, Event, json, text};

use crate::args::ListFormat;
use crate::args::events::EventsArgs;
use crate::backend::{Backend, Stream};
use crate::console::{Console, Wake};
use crate::error::{Error, Exit};
use choice::Choice;
use plan::Plan;

/// How often JSON has accounts, and text those that have changed for the worse.
const ACCOUNT_EVERY: Duration = Duration::from_secs(10);
/// While nothing happens it looks so often whether it is time for something.
const IDLE: Duration = Duration::from_secs(1);

pub fn run(args: &EventsArgs, backend: &mut dyn Backend, console: &mut dyn Console) -> Result<Exit, Error> {
    let plan = Plan::new(args)?;
    // Before anything is loaded, for a Ctrl-C must find somebody who detaches it.
    console.catch_signals(false).map_err(|source| Error::System { what: "catch signals", source })?;
    let mut stream = backend.events(&plan.sources, &plan.options)?;
    if console.facts().notes {
        let names: Vec<_> = plan.sources.iter().map(|source| source.source.as_str()).collect();
        console.note(&format!("topstat: events of {} are shown as they come; Ctrl-C ends it", names.join(" and ")));
    }
    let now = console.now();
    let mut shown = Shown {
        format: plan.format,
        choice: plan.choice,
        left: plan.count,
        counts: vec![0; plan.sources.len()],
        names: plan.sources.iter().map(|source| source.source.clone()).collect(),
        told: Vec::new(),
        written: Vec::new(),
    };
    let until = plan.time.map(|time| now + time);
    let result = shown.until_enough(&mut *stream, until, now + ACCOUNT_EVERY, console);
    if !result? {
        return Ok(Exit::Done);
    }
    stream.finish(&mut |event| shown.put(&event))?;
    shown.accounts(stream.accounts()?, true);
    shown.flush(console)?;
    Ok(Exit::Done)
}

/// What is written.
struct Shown {
    format: ListFormat,
    choice: Choice,
    /// Events that are still to be shown; none: without end.
    left: Option<u64>,
    /// How many of each source were shown, or would be if there was no limit to it.
    counts: Vec<u64>,
    names: Vec<String>,
    /// The accounts that were written last.
    told: Vec<Account>,
    written: Vec<u8>,
}

impl Shown {
    /// Until there are enough, or the user has enough. Whether there is somebody who reads what is left.
    fn until_enough(
        &mut self,
        stream: &mut dyn Stream,
        until: Option<Instant>,
        mut next_account: Instant,
        console: &mut dyn Console,
    ) -> Result<bool, Error> {
        loop {
            stream.take(&mut |event| self.put(&event))?;
            let now = console.now();
            if now >= next_account {
                self.accounts(stream.accounts()?, false);
                next_account = now + ACCOUNT_EVERY;
            }
            self.flush(console)?;
            if self.left == Some(0) || until.is_some_and(|until| now >= until) {
                return Ok(true);
            }
            let (ready, wait) = stream.waits();
            let deadline = (now + wait.unwrap_or(IDLE)).min(next_account);
            let deadline = until.map_or(deadline, |until| deadline.min(until));
            let wake = console.wait_for(ready, deadline);
            match wake.map_err(|source| Error::System { what: "wait for events", source })? {
                Wake::Stop => return Ok(true),
                Wake::Closed => return Ok(false),
                Wake::Deadline | Wake::Ready | Wake::Resized | Wake::Suspend => {}
            }
        }
    }

    /// An event has come.
    fn put(&mut self, event: &Event) {
        if !self.choice.matches(event) {
            return;
        }
        // What is more than was wanted has come, too, and is in no account of what was shown.
        if self.left == Some(0) {
            return;
        }
        self.left = self.left.map(|left| left - 1);
        if let Some(number) = self.names.iter().position(|name| *name == event.kind.source) {
            self.counts[number] += 1;
        }
        match self.format {
            ListFormat::Text => text::event(event, &mut self.written),
            ListFormat::Json => json::event(event, &mut self.written).expect("its keys are texts"),
        }
    }

    /// What became of all events so far. In text, which is for eyes, only in the end, and where something was lost since it
    /// was told last.
    fn accounts(&mut self, mut accounts: Vec<Account>, end: bool) {
        for account in &mut accounts {
            let number = self.names.iter().position(|name| *name == account.source);
            account.shown = number.map_or(0, |number| self.counts[number]);
            let before = self.told.iter().find(|told| told.source == account.source);
            let lost = |account: &Account| [account.cut, account.dropped, account.skipped, account.late];
            let worse = lost(account) != before.map_or([0; 4], lost);
            match self.format {
                ListFormat::Json => json::account(account, &mut self.written).expect("its keys are texts"),
                ListFormat::Text if end || worse => text::account(account, &mut self.written),
                ListFormat::Text => {}
            }
        }
        self.told = accounts;
    }

    fn flush(&mut self, console: &mut dyn Console) -> Result<(), Error> {
        let written = std::mem::take(&mut self.written);
        if written.is_empty() {
            return Ok(());
        }
        console.write(&written).map_err(Error::Output)
    }
}
