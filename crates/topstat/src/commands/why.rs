// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat why`: all that is known of one row.

use std::path::Path;

use topstat_model::filter::{Filter, RowFilter};
use topstat_model::{Snapshot, TableType};
use topstat_tui::state::Screen;
use topstat_tui::{App, Feed};

use super::live;
use crate::args::record::DEFAULT_HISTORY;
use crate::args::why::WhyArgs;
use crate::backend::Backend;
use crate::console::Console;
use crate::error::{Error, Exit};
use crate::{instant, names, resolve};

/// The cells of a line.
const WIDTH: u16 = 120;
/// More lines than an object of all tables has.
const LINES: u16 = 500;

pub fn run(args: &WhyArgs, backend: &mut dyn Backend, console: &mut dyn Console) -> Result<Exit, Error> {
    let tables = resolve::tables(&topstat_families::catalogue().samples(), &args.table, None)?;
    console.catch_signals(false).map_err(|source| Error::System { what: "catch signals", source })?;
    let mut feed = live::present(&args.mount, &args.pins, Path::new(DEFAULT_HISTORY), backend)?;
    let mut app = App::new(feed.tables(), feed.origin(), instant::parse);
    app.name_by(names::of_host());
    let path = tables.first().map(|table| table.path()).unwrap_or_default();
    app.begin_with(&path);
    if app.screen() != &Screen::Table {
        return Err(Error::Daemon(format!("the daemon does not count {path}: topstat check says why")));
    }
    let is_dynamic = app.data[app.table].meta.kind == TableType::Dynamic;
    read(&mut app, &mut feed);
    if app.origin.loads && is_dynamic {
        // The first reading has loaded the table, whose window is empty.
        if !live::count_for_a_period(console)? {
            return Ok(Exit::Done);
        }
        read(&mut app, &mut feed);
    }
    let snapshot = app.shown(app.table).map_err(Error::Daemon)?;
    let object = row(&snapshot, &args.row)?;
    app.selected = Some(object.clone());
    app.screens.push(Screen::Object(object));
    // Now the tables with related rows are wanted, too.
    read(&mut app, &mut feed);
    let text = topstat_tui::text_of(&mut app, WIDTH, LINES);
    console.write(text.as_bytes()).map_err(Error::Output)?;
    Ok(Exit::Done)
}

fn read(app: &mut App, feed: &mut dyn Feed) {
    for table in app.wanted() {
        let meta = app.data[table].meta.clone();
        let reading = feed.read(&meta);
        app.read(table, reading);
    }
}

/// The object of a row: of the row with this rank, or of the first row that a filter matches.
fn row(snapshot: &Snapshot, wanted: &str) -> Result<topstat_tui::rows::ObjectId, Error> {
    let found = match wanted.parse::<u32>() {
        Ok(rank) => snapshot.rows.iter().find(|row| row.rank == rank),
        Err(_) => {
            let wrong = |fault: &dyn std::fmt::Display| Error::Usage(format!("ROW {wanted:?}: {fault}"));
            let filter: Filter = wanted.parse().map_err(|fault| wrong(&fault))?;
            let filters = [filter];
            let filter = RowFilter::new(&filters, snapshot).map_err(|fault| wrong(&fault))?;
            snapshot.rows.iter().find(|row| filter.matches(row))
        }
    };
    found.map(|row| row.object.clone()).ok_or_else(|| {
        let rows = snapshot.rows.len();
        Error::Usage(format!("{}/{} has no such row now, of {rows}: {wanted:?}", snapshot.sample, snapshot.table))
    })
}
