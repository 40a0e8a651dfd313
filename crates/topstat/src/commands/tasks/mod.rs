// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat tasks`: the CPU time of all tasks, which adds up to 100% of each CPU, interval by interval.

mod plan;
mod shot;

use std::time::Duration;

use topstat_model::interval::Choice;

use crate::args::ColorWhen;
use crate::args::tasks::TasksArgs;
use crate::backend::{Account, Backend};
use crate::console::Console;
use crate::error::{Error, Exit};
use crate::view::{View, Watched, catch_signals};
use plan::Plan;
use shot::{Shot, add_command_lines};

/// How often ended tasks are read from the kernel within an interval: the kernel keeps the tasks that end in two seconds of the
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
    catch_signals(&plan.output, console)?;
    let account = backend.account(&plan.options, &plan.exact)?;
    if facts.notes {
        let wait = humantime::format_duration(plan.output.interval);
        console.note(&format!("topstat: counting; the first rows come in {wait}"));
    }
    let mut tasks = Tasks { choice: &plan.choice, account, last: None };
    let first = ("wait for the end of the interval", plan.output.interval);
    View::new(plan.output, plan.choice.rows.is_some()).watch(&mut tasks, first, console)?;
    Ok(Exit::Done)
}

/// All tasks, and their last reading.
struct Tasks<'a> {
    choice: &'a Choice,
    account: Box<dyn Account>,
    last: Option<Shot>,
}

impl Watched for Tasks<'_> {
    fn read(&mut self) -> Result<(), Error> {
        self.last = Some(Shot::take(self.choice, self.account.as_mut())?);
        Ok(())
    }

    fn draw(&mut self, view: &mut View, console: &mut dyn Console) -> Result<(), Error> {
        let Some(shot) = &self.last else { return Ok(()) };
        let mut picture = shot.picture(self.choice);
        if self.choice.command_lines {
            let rows = view.rows(&picture, console);
            add_command_lines(&mut picture.rows[..rows], self.account.as_mut());
        }
        view.show(&[&picture], console)
    }

    fn poll_every(&self) -> Option<Duration> {
        Some(POLL)
    }

    fn poll(&mut self) {
        self.account.poll();
    }
}
