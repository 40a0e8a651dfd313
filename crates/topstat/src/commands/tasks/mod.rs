// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat tasks`: the CPU time of all tasks, which adds up to 100% of each CPU, again and again.

mod plan;
mod shot;

use std::time::Duration;

use crate::args::ColorWhen;
use crate::args::tasks::TasksArgs;
use crate::backend::{Account, Backend};
use crate::console::{Console, Schedule, Wake};
use crate::error::{Error, Exit};
use crate::view::View;
use plan::Plan;
use shot::{Shot, add_command_lines};

/// How often to ask which tasks have ended while an interval goes on: the kernel keeps those of two seconds of the
/// worst fork storm.
const POLL: Duration = Duration::from_secs(1);

pub fn run(
    args: &TasksArgs,
    color: ColorWhen,
    backend: &mut dyn Backend,
    console: &mut dyn Console,
) -> Result<Exit, Error> {
    let facts = console.facts();
    let plan = Plan::new(args, color, facts)?;
    let system = |source| Error::System { what: "catch signals", source };
    // Before anything is loaded: a Ctrl-C must find somebody who detaches it.
    console.catch_signals(plan.output.in_place).map_err(system)?;
    let mut account = backend.account(&plan.options, &plan.exact)?;
    if facts.notes {
        let wait = humantime::format_duration(plan.output.interval);
        console.note(&format!("topstat: counting; the first rows come in {wait}"));
    }
    let mut view = View::new(plan.output, plan.choice.rows);
    let shown = show(&plan, account.as_mut(), &mut view, console);
    // Also after an error: the terminal is not ours.
    let left = view.leave(console).map_err(Error::Output);
    drop(account);
    shown.and(left)?;
    Ok(Exit::Done)
}

/// Shows intervals until there are enough, or the user has enough.
fn show(plan: &Plan, account: &mut dyn Account, view: &mut View, console: &mut dyn Console) -> Result<(), Error> {
    let mut schedule = Schedule::new(console.now() + plan.output.interval, plan.output.interval);
    let mut left = plan.output.count;
    let mut last = None;
    while left != Some(0) {
        let until = schedule.next().min(console.now() + POLL);
        let wake = console
            .wait_until(until)
            .map_err(|source| Error::System { what: "wait for the end of the interval", source })?;
        match wake {
            Wake::Stop | Wake::Closed => return Ok(()),
            Wake::Resized => redraw(last.as_ref(), plan, account, view, console)?,
            Wake::Suspend => {
                view.leave(console).map_err(Error::Output)?;
                console.suspend().map_err(|source| Error::System { what: "suspend", source })?;
                redraw(last.as_ref(), plan, account, view, console)?;
            }
            Wake::Deadline if until < schedule.next() => account.poll(),
            Wake::Deadline => {
                let shot = last.insert(Shot::take(&plan.choice, account)?);
                draw(shot, plan, account, view, console)?;
                left = left.map(|left| left - 1);
                schedule.advance(console.now());
            }
        }
    }
    Ok(())
}

fn draw(
    shot: &Shot,
    plan: &Plan,
    account: &mut dyn Account,
    view: &mut View,
    console: &mut dyn Console,
) -> Result<(), Error> {
    let mut picture = shot.picture(&plan.choice);
    if plan.choice.command_lines {
        let rows = view.rows(&picture, console);
        add_command_lines(&mut picture.rows[..rows], account);
    }
    view.show(&[&picture], console).map_err(Error::Output)
}

/// Shows again in place what was shown last, at the terminal's present size. Nothing where nothing was.
fn redraw(
    last: Option<&Shot>,
    plan: &Plan,
    account: &mut dyn Account,
    view: &mut View,
    console: &mut dyn Console,
) -> Result<(), Error> {
    match last {
        Some(shot) if view.in_place() => draw(shot, plan, account, view, console),
        _ => Ok(()),
    }
}
