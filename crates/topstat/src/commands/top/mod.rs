// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat top`: the top of a table, again and again.

mod filter;
mod plan;
mod view;

use std::fs::File;
use std::sync::Arc;

use topstat_kernel::{Source, State, TableInfo, TableSettings};
use topstat_model::human_ms;

use crate::args::{ColorWhen, TopArgs};
use crate::backend::Backend;
use crate::console::{Console, Schedule, Wake};
use crate::error::{Error, Exit};
use plan::Plan;
use view::View;

pub fn run(
    args: &TopArgs,
    color: ColorWhen,
    backend: &mut dyn Backend,
    console: &mut dyn Console,
) -> Result<Exit, Error> {
    let facts = console.facts();
    let mut plan = Plan::new(args, color, facts)?;
    let system = |source| Error::System { what: "catch signals", source };
    // Before anything is loaded: a Ctrl-C must find somebody who detaches it.
    console.catch_signals(plan.style.output.in_place).map_err(system)?;
    let mut source = match shared(args, &plan, backend)? {
        Some(state) => {
            plan.share(args, state.as_ref())?;
            for table in &plan.tables {
                if let Some(off) = off(state.settings(table)?, table) {
                    console.note(&format!("topstat: {off}"));
                }
            }
            state.reader()?
        }
        None => backend.load(&plan.tables, &plan.options)?,
    };
    if facts.notes && !plan.first_after.is_zero() {
        let wait = u32::try_from(plan.first_after.as_millis()).unwrap_or(u32::MAX);
        console.note(&format!("topstat: counting; the first rows come in {}", human_ms(wait)));
    }
    let mut view = View::new(plan.style);
    let shown = show(&plan, source.as_mut(), &mut view, console);
    // Also after an error: the terminal is not ours.
    let left = view.leave(console).map_err(Error::Output);
    drop(source);
    shown.and(left)?;
    Ok(Exit::Done)
}

/// The daemon's state of these tables, where there is one.
fn shared(args: &TopArgs, plan: &Plan, backend: &mut dyn Backend) -> Result<Option<Arc<dyn State>>, Error> {
    // All tables of a plan are of one family, as loading them asks for, too.
    let Some(table) = plan.tables.first().filter(|_| !args.private) else { return Ok(None) };
    let Some(family) = topstat_kernel::family_of(&table.sample) else { return Ok(None) };
    backend.open(&args.pins.dir(), &family).map_err(|error| {
        // Who may not open what is pinned may be of the group that reads the tree.
        let json = args.mount.dir().join(table.path()).join("json");
        match File::open(&json) {
            Ok(_) => Error::Daemon(format!("{error}. You may read {}, and stat beside it", json.display())),
            Err(_) => error.into(),
        }
    })
}

/// Says that pushes don't count, and how they would.
fn off(settings: TableSettings, table: &TableInfo) -> Option<String> {
    let TableInfo { sample, name, .. } = table;
    let path = match settings {
        TableSettings { root_enabled: false, .. } => "enabled".to_owned(),
        TableSettings { sample_enabled: false, .. } => format!("{sample}/enabled"),
        TableSettings { enabled: false, .. } => format!("{sample}/{name}/enabled"),
        _ => return None,
    };
    Some(format!("{sample}/{name} is off, and counts nothing (topstat set {path} 1)"))
}

/// Shows snapshots until there are enough, or the user has enough.
fn show(plan: &Plan, source: &mut dyn Source, view: &mut View, console: &mut dyn Console) -> Result<(), Error> {
    let mut schedule = Schedule::new(console.now() + plan.first_after, plan.style.output.interval);
    let mut left = plan.style.output.count;
    while left != Some(0) {
        let wake = console
            .wait_until(schedule.next())
            .map_err(|source| Error::System { what: "wait for the next snapshot", source })?;
        match wake {
            Wake::Stop | Wake::Closed => return Ok(()),
            Wake::Resized => view.redraw(console).map_err(Error::Output)?,
            Wake::Suspend => {
                view.leave(console).map_err(Error::Output)?;
                console.suspend().map_err(|source| Error::System { what: "suspend", source })?;
                view.redraw(console).map_err(Error::Output)?;
            }
            Wake::Deadline => {
                let mut snapshots = Vec::with_capacity(plan.tables.len());
                for table in &plan.tables {
                    let mut snapshot = source.snapshot(table)?;
                    plan.filters.apply(&mut snapshot)?;
                    snapshots.push(snapshot);
                }
                view.show(snapshots, console).map_err(Error::Output)?;
                left = left.map(|left| left - 1);
                schedule.advance(console.now());
            }
        }
    }
    Ok(())
}
