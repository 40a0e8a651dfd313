// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat netstack`: where the kernel spends its CPU time, interval by interval.

mod classify;
mod files;
mod plan;

use std::time::Duration;

use topstat_lab::side::Profiling;
use topstat_model::histograms::Histograms;
use topstat_model::stacks::{Picture, Profile};

use crate::args::ColorWhen;
use crate::args::netstack::{NetstackArgs, NetstackCommand};
use crate::backend::{Backend, Reads};
use crate::console::Console;
use crate::error::{Error, Exit};
use crate::view::{View, Watched, catch_signals};
use files::Files;
use plan::Plan;

/// How often samples are read from the kernel within an interval: the kernel has room for the samples of two seconds.
const POLL: Duration = Duration::from_secs(1);

pub fn run(
    args: &NetstackArgs,
    color: ColorWhen,
    backend: &mut dyn Backend,
    console: &mut dyn Console,
) -> Result<Exit, Error> {
    if let Some(NetstackCommand::Classify(classify)) = &args.command {
        let classifier = backend.classifier(plan::rules(args.rules.as_deref()).as_deref())?;
        return classify::run(&classify.symbols, &classifier, console);
    }
    let facts = console.facts();
    let plan = Plan::new(args, color, facts)?;
    catch_signals(&plan.output, console)?;
    if let Some((subject, chosen)) = &plan.histogram {
        let mut counting = Counted { counting: backend.histograms(*subject, chosen)?, last: None };
        let first = ("wait for the end of the interval", plan.output.interval);
        View::new(plan.output, plan.choice.rows.is_some()).watch(&mut counting, first, console)?;
        return Ok(Exit::Done);
    }
    let files = Files::begin(args.flame.as_deref(), args.folded.as_deref())?;
    let stacks = backend.stacks(&plan.options)?;
    for (line, pattern) in stacks.unmatched_rules() {
        console.note(&format!("topstat: rule '{pattern}' in line {line} matches no function of this kernel"));
    }
    if facts.notes {
        let wait = humantime::format_duration(plan.output.interval);
        console.note(&format!("topstat: sampling; the first rows come in {wait}"));
    }
    let mut watching = Watching { plan: &plan, stacks, last: None, files };
    let first = ("wait for the end of the interval", plan.output.interval);
    View::new(plan.output, plan.choice.rows.is_some()).watch(&mut watching, first, console)?;
    watching.files.end()?;
    Ok(Exit::Done)
}

/// Histograms, and their last reading.
struct Counted {
    counting: Reads<Histograms>,
    last: Option<Histograms>,
}

impl Watched for Counted {
    fn read(&mut self) -> Result<(), Error> {
        self.last = Some((self.counting)()?);
        Ok(())
    }

    fn draw(&mut self, view: &mut View, console: &mut dyn Console) -> Result<(), Error> {
        let Some(histograms) = &self.last else { return Ok(()) };
        view.show(&[histograms], console)
    }
}

/// Stacks, and the last profile of them.
struct Watching<'a> {
    plan: &'a Plan,
    stacks: Box<dyn Profiling>,
    last: Option<Profile>,
    files: Files,
}

impl Watched for Watching<'_> {
    fn read(&mut self) -> Result<(), Error> {
        let profile = self.stacks.read()?;
        self.files.add(&profile, &self.plan.choice);
        self.last = Some(profile);
        Ok(())
    }

    fn draw(&mut self, view: &mut View, console: &mut dyn Console) -> Result<(), Error> {
        let Some(profile) = &self.last else { return Ok(()) };
        view.show(&[&Picture::new(profile, &self.plan.choice)], console)
    }

    fn poll_every(&self) -> Option<Duration> {
        Some(POLL)
    }

    fn poll(&mut self) {
        // The error is ignored: the kernel reports it again at the end of the interval.
        let _ = self.stacks.poll();
    }
}
