// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat top`: the top of a table, interval by interval.

mod filter;
mod past;
mod plan;
mod selection;
mod summary;

use std::sync::Arc;

use topstat_kernel::{Source, State, TableInfo};
use topstat_model::{Reading, Snapshot, human_ms};

use crate::args::{ColorWhen, TopArgs};
use crate::backend::Backend;
use crate::console::Console;
use crate::error::{Error, Exit};
use crate::files::{Described, Files};
use crate::view::{View, Watched, catch_signals};
use crate::{custom, progress, shared};
use plan::Plan;

pub fn run(
    args: &TopArgs,
    color: ColorWhen,
    backend: &mut dyn Backend,
    console: &mut dyn Console,
) -> Result<Exit, Error> {
    let Some(table) = &args.table else { return summary::run(args, backend, console) };
    if args.past.wanted() {
        return past::run(args, table, color, console);
    }
    let name = custom::table(table, backend)?;
    let facts = console.facts();
    let mut files = args.root.as_deref().map(Files::open).transpose()?;
    let all = files.as_ref().map_or_else(|| topstat_families::catalogue().samples(), |files| files.samples().to_vec());
    let mut plan = Plan::new(args, &name, &all, color, facts)?;
    catch_signals(&plan.output, console)?;
    if let Some(files) = &mut files {
        files.read_until(console.stop_flag());
    }
    let source = match &files {
        Some(files) => Shown::files(files, &mut plan, console)?,
        None => Shown::Kernel(from_kernel(args, &mut plan, backend, console)?),
    };
    if facts.notes && !plan.first_after.is_zero() {
        let wait = u32::try_from(plan.first_after.as_millis()).unwrap_or(u32::MAX);
        console.note(&format!("topstat: counting; the first rows come in {}", human_ms(wait)));
    }
    let mut tables = Tables { plan: &plan, source, last: vec![] };
    let first = ("wait for the next snapshot", plan.first_after);
    View::new(plan.output, plan.selection.rows.is_some()).watch(&mut tables, first, console)?;
    Ok(Exit::Done)
}

/// The source of snapshots.
enum Shown<'a> {
    /// Tables that are loaded by this command or pinned by the daemon.
    Kernel(Box<dyn Source>),
    /// Tables of another tree (`--root`).
    Files(&'a Files, Vec<Described>),
}

impl<'a> Shown<'a> {
    fn files(files: &'a Files, plan: &mut Plan, console: &mut dyn Console) -> Result<Self, Error> {
        let described = plan.tables.iter().map(|table| files.describe(table)).collect::<Result<Vec<_>, _>>()?;
        for (table, described) in plan.tables.clone().iter().zip(&described) {
            plan.of_files(described.top)?;
            if let Some(off) =
                shared::off(files.settings(table)?, table, &format!(" --root {}", files.root().display()))
            {
                console.note(&format!("topstat: {off}"));
            }
        }
        Ok(Self::Files(files, described))
    }

    fn snapshots(&mut self, tables: &[Arc<TableInfo>]) -> Result<Vec<Snapshot>, Error> {
        match self {
            Self::Kernel(source) => Ok(source.snapshots(tables)?),
            Self::Files(files, described) => described.iter().map(|described| files.snapshot(described)).collect(),
        }
    }
}

/// The daemon's tables. Without a daemon, or with `--private`, tables that are loaded for this command.
fn from_kernel(
    args: &TopArgs,
    plan: &mut Plan,
    backend: &mut dyn Backend,
    console: &mut dyn Console,
) -> Result<Box<dyn Source>, Error> {
    let Some(state) = shared(args, plan, backend)? else {
        return Ok(progress::told(|| backend.load(&plan.tables, &plan.options))?);
    };
    plan.share(args, state.as_ref())?;
    for table in &plan.tables {
        if let Some(off) = shared::off(state.settings(table)?, table, "") {
            console.note(&format!("topstat: {off}"));
        }
    }
    Ok(state.reader()?)
}

/// The daemon's state of these tables, if there is one.
fn shared(args: &TopArgs, plan: &Plan, backend: &mut dyn Backend) -> Result<Option<Arc<dyn State>>, Error> {
    // All tables of a plan belong to one family: loading them requires that, too.
    match plan.tables.first().filter(|_| !args.private) {
        Some(table) => shared::open(table, &args.pins, &args.mount, backend),
        None => Ok(None),
    }
}

/// The tables, and their last snapshots.
struct Tables<'a> {
    plan: &'a Plan,
    source: Shown<'a>,
    last: Vec<Snapshot>,
}

impl Tables<'_> {
    /// The rows of a snapshot that are wanted.
    fn shown(&self, mut snapshot: Snapshot) -> Result<Snapshot, Error> {
        self.plan.selection.apply(&mut snapshot)?;
        Ok(snapshot)
    }
}

/// The tables of a common name, such as `tcp/conns_bps`, as one ranking of the sample `tcp`. Tables whose settings differ stay
/// apart.
fn one_ranking(name: &str, of: Vec<Snapshot>) -> Vec<Snapshot> {
    let sample = name.split('/').next().unwrap_or(name);
    Snapshot::merged(sample, of).map_or_else(|apart| apart, |merged| vec![merged])
}

impl Watched for Tables<'_> {
    fn read(&mut self) -> Result<(), Error> {
        let snapshots = self.source.snapshots(&self.plan.tables)?;
        let snapshots = one_ranking(&self.plan.name, snapshots);
        self.last = snapshots.into_iter().map(|snapshot| self.shown(snapshot)).collect::<Result<_, _>>()?;
        Ok(())
    }

    fn draw(&mut self, view: &mut View, console: &mut dyn Console) -> Result<(), Error> {
        let readings: Vec<_> = self.last.iter().map(|snapshot| snapshot as &dyn Reading).collect();
        if readings.is_empty() { Ok(()) } else { view.show(&readings, console) }
    }
}
