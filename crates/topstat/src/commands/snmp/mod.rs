// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat snmp`: the kernel's SNMP counters, again and again.

mod plan;
mod view;

use crate::args::ColorWhen;
use crate::args::snmp::SnmpArgs;
use crate::backend::{Backend, Counting};
use crate::console::{Console, Schedule, Wake};
use crate::error::{Error, Exit};
use plan::Plan;
use view::View;

pub fn run(
    args: &SnmpArgs,
    color: ColorWhen,
    backend: &mut dyn Backend,
    console: &mut dyn Console,
) -> Result<Exit, Error> {
    let facts = console.facts();
    let plan = Plan::new(args, color, facts)?;
    let system = |source| Error::System { what: "catch signals", source };
    console.catch_signals(plan.output.in_place).map_err(system)?;
    let mut counters = backend.counters(&plan.wish)?;
    if facts.notes && !plan.choice.totals {
        let wait = humantime::format_duration(plan.output.interval);
        console.note(&format!("topstat: counting; what changes is shown in {wait}"));
    }
    let mut view = View::new(&plan);
    let shown = show(&plan, counters.as_mut(), &mut view, console);
    // Also after an error: the terminal is not ours.
    let left = view.leave(console).map_err(Error::Output);
    shown.and(left)?;
    Ok(Exit::Done)
}

/// Shows readings until there are enough, or the user has enough.
fn show(plan: &Plan, counters: &mut dyn Counting, view: &mut View, console: &mut dyn Console) -> Result<(), Error> {
    let interval = plan.output.interval;
    let mut schedule = Schedule::new(console.now(), interval);
    if !plan.choice.totals {
        // What later ones are compared with.
        counters.read()?;
        schedule = Schedule::new(console.now() + interval, interval);
    }
    let mut left = plan.output.count;
    while left != Some(0) {
        let wake = console
            .wait_until(schedule.next())
            .map_err(|source| Error::System { what: "wait for the next reading", source })?;
        match wake {
            Wake::Stop | Wake::Closed => return Ok(()),
            Wake::Resized => view.redraw(console).map_err(Error::Output)?,
            Wake::Suspend => {
                view.leave(console).map_err(Error::Output)?;
                console.suspend().map_err(|source| Error::System { what: "suspend", source })?;
                view.redraw(console).map_err(Error::Output)?;
            }
            Wake::Deadline => {
                view.show(counters.read()?, console).map_err(Error::Output)?;
                left = left.map(|left| left - 1);
                schedule.advance(console.now());
            }
        }
    }
    Ok(())
}
