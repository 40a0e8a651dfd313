// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat fleet hosts`.

use std::fmt::Write as _;
use std::fs;

use serde_json::json;
use topstat_fleet::files;
use topstat_fleet::hosts::{Hosts, inventory};
use topstat_fleet::scan::Table;
use topstat_model::rfc3339;
use topstat_model::typeset::escape;

use super::{directory, open, report, window};
use crate::args::ListFormat;
use crate::args::fleet::FleetHostsArgs;
use crate::console::Console;
use crate::error::{Error, Exit};

pub fn run(args: &FleetHostsArgs, console: &mut dyn Console) -> Result<Exit, Error> {
    let only = args.table.as_deref().map(directory).transpose()?;
    let read = |path: &std::path::PathBuf| {
        let text = fs::read_to_string(path);
        text.map_err(|error| Error::Daemon(format!("cannot read the inventory {}: {error}", path.display())))
    };
    let expected = args.inventory.as_ref().map(read).transpose()?.map(|text| inventory(&text));
    let roots = open(&args.dirs)?;
    let mut tables = Vec::new();
    for root in &roots {
        tables.extend(files::tables(root)?);
    }
    tables.retain(|table| only.as_ref().is_none_or(|only| only == table));
    let last = |table: &String| Table::find(&roots, table, None).ok()?.last();
    let window = window(&args.when, || tables.iter().filter_map(last).max())?;
    let hosts = Hosts::find(&roots, only.as_deref(), window)?;
    let expected = expected.unwrap_or_default();
    let (missing, unknown) = (hosts.missing(&expected), hosts.unknown(&expected));
    let mut text = String::new();
    for (name, reported) in &hosts.reported {
        let (last, tables) = (rfc3339(reported.last), reported.tables.len());
        let is_unknown = args.inventory.is_some() && unknown.contains(&name.as_str());
        match args.output {
            ListFormat::Json => {
                let state = if is_unknown { "unknown" } else { "reported" };
                let _ = writeln!(text, "{}", json!({"host": name, "state": state, "last": last, "tables": tables}));
            }
            ListFormat::Text => {
                let note = if is_unknown { "  not in the inventory" } else { "" };
                let _ = writeln!(text, "{}  {last}  {tables} tables{note}", escape(name));
            }
        }
    }
    for name in &missing {
        let _ = match args.output {
            ListFormat::Json => writeln!(text, "{}", json!({"host": name, "state": "missing"})),
            ListFormat::Text => writeln!(text, "{}  missing", escape(name)),
        };
    }
    if args.output == ListFormat::Text {
        let _ = write!(text, "{} hosts reported", hosts.reported.len());
        let _ = match args.inventory {
            Some(_) => writeln!(text, ", {} missing, {} not in the inventory", missing.len(), unknown.len()),
            None => writeln!(text),
        };
    }
    console.write(text.as_bytes()).map_err(Error::Output)?;
    let exit = report(&hosts.faults, console);
    Ok(if missing.is_empty() { exit } else { Exit::Failed })
}
