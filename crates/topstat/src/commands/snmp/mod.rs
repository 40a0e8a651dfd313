// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat snmp`: the kernel's SNMP counters, interval by interval.

mod plan;

use std::time::Duration;

use topstat_model::counters::{Counters, Picture};

use crate::args::ColorWhen;
use crate::args::snmp::SnmpArgs;
use crate::backend::{Backend, Reads};
use crate::console::Console;
use crate::error::{Error, Exit};
use crate::view::{View, Watched, catch_signals};
use plan::Plan;

pub fn run(
    args: &SnmpArgs,
    color: ColorWhen,
    backend: &mut dyn Backend,
    console: &mut dyn Console,
) -> Result<Exit, Error> {
    let facts = console.facts();
    let plan = Plan::new(args, color, facts)?;
    catch_signals(&plan.output, console)?;
    let mut counters = backend.counters(&plan.wish)?;
    if facts.notes && !plan.choice.totals {
        let wait = humantime::format_duration(plan.output.interval);
        console.note(&format!("topstat: counting; what changes is shown in {wait}"));
    }
    let mut first_after = Duration::ZERO;
    if !plan.choice.totals {
        // The first reading is the base of the later ones.
        counters()?;
        first_after = plan.output.interval;
    }
    let mut watching = Watching { plan: &plan, counters, last: None };
    let first = ("wait for the next reading", first_after);
    View::new(plan.output, plan.choice.rows.is_some()).watch(&mut watching, first, console)?;
    Ok(Exit::Done)
}

/// Counters, and their last reading.
struct Watching<'a> {
    plan: &'a Plan,
    counters: Reads<Counters>,
    last: Option<Counters>,
}

impl Watched for Watching<'_> {
    fn read(&mut self) -> Result<(), Error> {
        self.last = Some((self.counters)()?);
        Ok(())
    }

    fn draw(&mut self, view: &mut View, console: &mut dyn Console) -> Result<(), Error> {
        let Some(counters) = &self.last else { return Ok(()) };
        let Plan { choice, cpus, .. } = self.plan;
        view.show(&[&Picture { counters, choice, cpus: *cpus }], console)
    }
}
