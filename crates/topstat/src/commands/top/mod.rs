// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat top`: the top of a table, again and again.

mod filter;
mod plan;

use std::fs::File;
use std::sync::Arc;

use topstat_kernel::{Source, State, TableInfo, TableSettings};
use topstat_model::{Reading, Snapshot, human_ms};

use crate::args::{ColorWhen, TopArgs};
use crate::backend::Backend;
use crate::console::Console;
use crate::error::{Error, Exit};
use crate::view::{View, Watched, catch_signals};
use plan::Plan;

pub fn run(
    args: &TopArgs,
    color: ColorWhen,
    backend: &mut dyn Backend,
    console: &mut dyn Console,
) -> Result<Exit, Error> {
    let facts = console.facts();
    let mut plan = Plan::new(args, color, facts)?;
    catch_signals(&plan.output, console)?;
    let source = match shared(args, &plan, backend)? {
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
    let mut tables = Tables { plan: &plan, source, last: vec![] };
    let first = ("wait for the next snapshot", plan.first_after);
    View::new(plan.output, plan.rows.is_some()).watch(&mut tables, first, console)?;
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

/// The tables, and what was read of them last.
struct Tables<'a> {
    plan: &'a Plan,
    source: Box<dyn Source>,
    last: Vec<Snapshot>,
}

impl Tables<'_> {
    /// A table as it is to be shown.
    fn shown(&self, mut snapshot: Snapshot) -> Result<Snapshot, Error> {
        self.plan.filters.apply(&mut snapshot)?;
        if let Some(rows) = self.plan.rows {
            snapshot.truncate(rows as usize);
        }
        Ok(snapshot)
    }
}

impl Watched for Tables<'_> {
    fn read(&mut self) -> Result<(), Error> {
        let snapshots = self.source.snapshots(&self.plan.tables)?;
        self.last = snapshots.into_iter().map(|snapshot| self.shown(snapshot)).collect::<Result<_, _>>()?;
        Ok(())
    }

    fn draw(&mut self, view: &mut View, console: &mut dyn Console) -> Result<(), Error> {
        let readings: Vec<_> = self.last.iter().map(|snapshot| snapshot as &dyn Reading).collect();
        if readings.is_empty() { Ok(()) } else { view.show(&readings, console) }
    }
}
