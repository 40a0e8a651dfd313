// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat events`: prints single events as they happen.

mod choice;
mod plan;
mod shown;
mod tops;

use std::time::{Duration, Instant};

pub use choice::Choice;
pub use plan::{parse_filters, wrong_filter};
pub use shown::Shown;

use crate::args::events::EventsArgs;
use crate::backend::{Backend, Stream};
use crate::console::{Console, Wake};
use crate::error::{Error, Exit};
use crate::recording::Recorder;
use plan::Plan;

/// The time between two accounts. JSON output has every account, text output only those whose losses have changed.
const ACCOUNT_EVERY: Duration = Duration::from_secs(10);
/// The longest wait where the stream names no deadline.
const IDLE: Duration = Duration::from_secs(1);

pub fn run(args: &EventsArgs, backend: &mut dyn Backend, console: &mut dyn Console) -> Result<Exit, Error> {
    let plan = Plan::new(args)?;
    // Signals are caught before anything is loaded, so that Ctrl-C always detaches the loaded programs.
    console.catch_signals(false).map_err(|source| Error::System { what: "catch signals", source })?;
    let now = console.now();
    let mut shown = Shown::new(plan.format, plan.choice, plan.count);
    if let Some(record) = plan.record {
        let recorder = Recorder::create(&record.path, plan.kinds, record.limits, now);
        let recorder = recorder.map_err(|why| Error::Recording(record.cannot(&why)))?;
        shown.record(record.path, recorder, record.quiet, now);
    }
    let tops = plan.tops.open(args, backend, console)?;
    let mut stream = backend.events(&plan.sources, tops, &plan.options)?;
    if console.facts().notes {
        let mut names: Vec<_> = plan.sources.iter().map(|source| source.source.clone()).collect();
        names.extend(plan.tops.tables().map(|table| table.path()));
        console.note(&format!("topstat: events of {} are shown as they come; Ctrl-C ends it", names.join(" and ")));
    }
    let now = console.now();
    let until = plan.time.map(|time| now + time);
    if until_enough(&mut shown, &mut *stream, until, now + ACCOUNT_EVERY, console)? {
        stream.finish(&mut |event| shown.put(&event))?;
        shown.accounts(stream.accounts()?, true);
    }
    shown.flush(true, console)?;
    Ok(if shown.is_cut_short() { Exit::Failed } else { Exit::Done })
}

/// Takes events until the count or the time is reached, or the user stops the command. Returns false if the output was closed.
fn until_enough(
    shown: &mut Shown,
    stream: &mut dyn Stream,
    until: Option<Instant>,
    mut next_account: Instant,
    console: &mut dyn Console,
) -> Result<bool, Error> {
    loop {
        stream.take(&mut |event| shown.put(&event))?;
        let now = console.now();
        if now >= next_account {
            shown.accounts(stream.accounts()?, false);
            next_account = now + ACCOUNT_EVERY;
        }
        shown.flush(false, console)?;
        if shown.is_enough() || until.is_some_and(|until| now >= until) {
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
