// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat fleet`: the top of many hosts, from their sealed records.

mod compact;
mod hosts;
mod live;
mod sql;
mod top;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use topstat_fleet::Root;
use topstat_fleet::scan::{Table, Window};
use topstat_model::FleetKey;
use topstat_model::typeset::escape;

use crate::args::fleet::{FleetArgs, FleetCommand, OverArgs, WhenArgs};
use crate::console::Console;
use crate::error::{Error, Exit};
use crate::{instant, resolve};

pub fn run(args: &FleetArgs, console: &mut dyn Console) -> Result<Exit, Error> {
    match &args.command {
        FleetCommand::Top(args) => top::run(args, console),
        FleetCommand::Hosts(args) => hosts::run(args, console),
        FleetCommand::Sql(args) => sql::run(args, console),
        FleetCommand::Compact(args) => compact::run(args, console),
    }
}

fn open(dirs: &[PathBuf]) -> Result<Vec<Root>, Error> {
    dirs.iter().map(|dir| Ok(Root::open(dir)?)).collect()
}

/// The directory of a table below a host's: `net_cgroups.bps`.
fn directory(table: &str) -> Result<String, Error> {
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match table.split_once('/') {
        Some((sample, name)) if is_name(sample) && is_name(name) => {
            if resolve::common_names().iter().any(|common| common == sample) {
                return Err(Error::Usage(format!(
                    "{sample} means several samples, each with bounds of its own: name one ({sample}_v4/{name})"
                )));
            }
            Ok(format!("{sample}.{name}"))
        }
        _ => Err(Error::Usage(format!("{} is not SAMPLE/TABLE, such as net_cgroups/bps", escape(table)))),
    }
}

/// The key of a table by its definition.
fn known_key(table: &str) -> Option<FleetKey> {
    let (sample, table) = table.split_once('/')?;
    resolve::stored_shape(sample, table)?.stored?.key
}

/// Finds the files of a table.
fn find<'r>(roots: &'r [Root], table: &str) -> Result<Table<'r>, Error> {
    let name = directory(table)?;
    let found = Table::find(roots, &name, known_key(table))?;
    if found.is_empty() {
        return Err(Error::Daemon(format!(
            "there are no sealed records of {table} in {}: a host's are there once their hour is over",
            list(roots.iter().map(Root::path))
        )));
    }
    Ok(found)
}

/// The window of time. `last` finds the time of the last record.
fn window(when: &WhenArgs, last: impl FnOnce() -> Option<SystemTime>) -> Result<Window, Error> {
    let wrong = |text: &str, why| Error::Usage(format!("--at {text:?}: {why}"));
    let at = match &when.at {
        Some(text) => instant::parse(text, SystemTime::now()).map_err(|why| wrong(text, why))?,
        None => {
            last().ok_or_else(|| Error::Daemon("no file of the table can be read, or none has a record".to_owned()))?
        }
    };
    Ok(Window { from: at.checked_sub(when.within).unwrap_or(SystemTime::UNIX_EPOCH), at })
}

/// The window of a mean, if one is asked for.
fn of_mean(window: Window, over: OverArgs) -> Option<Window> {
    let from = |over| window.at.checked_sub(over).unwrap_or(SystemTime::UNIX_EPOCH);
    over.over.map(|over| Window { from: from(over), ..window })
}

/// Verifies that values have a mean.
fn check_mean(table: &Table<'_>, name: &str, over: OverArgs) -> Result<(), Error> {
    if over.over.is_some() && table.has_running_totals() {
        return Err(Error::Usage(format!(
            "--over: {name} has running totals, which have no mean: name a table of rates"
        )));
    }
    Ok(())
}

/// Verifies that `--by` names columns of the table.
fn check_by(by: &[String], columns: &[String]) -> Result<(), Error> {
    match by.iter().find(|name| !columns.contains(name)) {
        Some(name) => {
            let columns = columns.join(", ");
            Err(Error::Usage(format!("--by {}: the table has the columns {columns}", escape(name))))
        }
        None => Ok(()),
    }
}

/// Reports files that could not be read. Returns how the command ends.
fn report(faults: &[(PathBuf, String)], console: &mut dyn Console) -> Exit {
    for (path, why) in faults {
        console.note(&format!("topstat: cannot read {}: {why}", path.display()));
    }
    if faults.is_empty() { Exit::Done } else { Exit::Failed }
}

fn list<'p>(paths: impl Iterator<Item = &'p Path>) -> String {
    paths.map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
