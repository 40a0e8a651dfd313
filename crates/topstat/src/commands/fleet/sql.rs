// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat fleet sql`.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use topstat_fleet::scan::{CONTAINER, Table};
use topstat_fleet::sql::{Engine, Question, statements};
use topstat_history::Place;
use topstat_history::sealed::{About, Sealed};
use topstat_model::Reach;

use super::{check_by, check_mean, directory, of_mean, open, window};
use crate::args::fleet::{EngineName, FleetSqlArgs};
use crate::console::Console;
use crate::error::{Error, Exit};
use crate::resolve;

impl From<EngineName> for Engine {
    fn from(name: EngineName) -> Self {
        match name {
            EngineName::Duckdb => Self::DuckDb,
            EngineName::Spark => Self::Spark,
            EngineName::Clickhouse => Self::ClickHouse,
        }
    }
}

pub fn run(args: &FleetSqlArgs, console: &mut dyn Console) -> Result<Exit, Error> {
    let name = directory(&args.table)?;
    let (sample, of_sample) = args.table.split_once('/').unwrap_or_default();
    let shape = resolve::stored_shape(sample, of_sample);
    let known = shape.as_ref().and_then(|shape| shape.stored.as_ref()).and_then(|stored| stored.key.clone());
    // A directory on this host has the columns, and says whether it is compacted. Of any other place the definition is known.
    let local = Path::new(&args.dir).is_dir().then(|| open(&[PathBuf::from(&args.dir)])).transpose()?;
    let table = match &local {
        Some(roots) => Table::find(roots, &name, known)?,
        None => Table::find(&[], &name, known)?,
    };
    let place = Place { host: String::new(), sample: sample.to_owned(), table: of_sample.to_owned() };
    let about = match newest(&table) {
        Some(about) => about,
        None if shape.is_some() => About::new(&place, shape),
        None => {
            let why = "this version does not know the table: name a directory with its records";
            return Err(Error::Usage(format!("{}: {why}", args.table)));
        }
    };
    if !table.is_empty() {
        check_by(&args.by, table.columns())?;
        check_mean(&table, &args.table, args.over)?;
    }
    let mut key = table.key(&args.by);
    let stored = |name: &String| {
        let column = about.columns.iter().find(|column| column.name == *name);
        let unknown = || Error::Usage(format!("--by {name}: the table has no such column"));
        column.map(|column| column.stored.clone()).ok_or_else(unknown)
    };
    let stored = key.columns.iter().map(stored).collect::<Result<Vec<_>, Error>>()?;
    let window = window(&args.when, || table.last().or_else(|| Some(SystemTime::now())))?;
    let of_mean = of_mean(window, args.over);
    let window = of_mean.unwrap_or(window);
    if table.hides_columns(window) {
        key.reach = Reach::Part;
    }
    let question = Question {
        table: &name,
        key: &key,
        stored: &stored,
        has_container: about.columns.iter().any(|column| column.name == CONTAINER),
        lost: &about.lost,
        fleet: &args.dir,
        compacted: args.compacted || (!table.is_empty() && !table.has_host_directories()),
        window,
        mean: of_mean.is_some(),
        rows: args.rows as usize,
    };
    console.write(statements(args.engine.into(), &question).as_bytes()).map_err(Error::Output)?;
    Ok(Exit::Done)
}

/// The metadata of a readable file.
fn newest(table: &Table<'_>) -> Option<About> {
    let files: Vec<_> = table.files().collect();
    files.iter().rev().find_map(|(root, file)| Some(root.read(&file.path).and_then(Sealed::open).ok()?.about().clone()))
}
