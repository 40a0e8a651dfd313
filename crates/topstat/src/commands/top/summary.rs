// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat top` without a table: the first screen of the live view as text or JSON, once.

use std::time::SystemTime;

use topstat_tui::host::Looker;
use topstat_tui::state::When;
use topstat_tui::{App, Feed, now};

use crate::args::{TopArgs, TopFormat};
use crate::backend::Backend;
use crate::commands::live;
use crate::console::Console;
use crate::error::{Error, Exit};
use crate::{instant, names};

pub fn run(args: &TopArgs, backend: &mut dyn Backend, console: &mut dyn Console) -> Result<Exit, Error> {
    if !args.choice.wanted.is_empty() || args.choice.only.is_some() {
        return Err(Error::Usage("choose rows of a summary by --filter, or name a table".to_owned()));
    }
    if args.output == TopFormat::Csv {
        let why = "a summary has rows of several kinds, which are no CSV: name a table, or write it by -o json";
        return Err(Error::Usage(why.to_owned()));
    }
    let filter = args.filters.join(" ").parse().map_err(|fault| Error::Usage(format!("--filter: {fault}")))?;
    let shown = match &args.past.at {
        Some(at) => {
            let parsed = instant::parse(at, SystemTime::now());
            let time = parsed.map_err(|wrong| Error::Usage(format!("--at {at:?}: {wrong}")))?;
            let mut feed = live::recorded(args.past.dir(), args.past.recorded_on.as_deref())?;
            let mut app = App::new(feed.tables(), feed.origin(), instant::parse);
            app.name_by(names::of_host());
            recall(&mut app, &mut feed, time);
            Some(app)
        }
        None => {
            console.catch_signals(false).map_err(|source| Error::System { what: "catch signals", source })?;
            let mut feed = live::present(&args.mount, &args.pins, args.past.dir(), backend)?;
            let mut app = App::new(feed.tables(), feed.origin(), instant::parse);
            app.name_by(names::of_host());
            watch(&mut app, &mut feed, console)?.then_some(app)
        }
    };
    let Some(mut app) = shown else { return Ok(Exit::Done) };
    let read = app.now_tables().filter_map(|table| app.shown(table).err());
    if let (Some(why), true) = (read.last(), app.now_tables().all(|table| app.shown(table).is_err())) {
        return Err(Error::Daemon(why));
    }
    app.filter = filter;
    let written = match args.output {
        TopFormat::Json => now::document(&app).map_err(Error::Output)?,
        _ => now::write(&app).into_bytes(),
    };
    console.write(&written).map_err(Error::Output)?;
    Ok(Exit::Done)
}

/// Takes the records of an instant.
fn recall(app: &mut App, feed: &mut dyn Feed, time: SystemTime) {
    app.when = When::Past(time);
    for table in app.now_tables().collect::<Vec<_>>() {
        let found = feed.at(&app.data[table].meta, time);
        app.recalled(table, time, found);
    }
}

/// Reads the tables and the host. Returns false where the user has ended the program before.
fn watch(app: &mut App, feed: &mut dyn Feed, console: &mut dyn Console) -> Result<bool, Error> {
    let tables: Vec<_> = app.now_tables().collect();
    if app.origin.loads && console.facts().notes {
        console.note("topstat: no daemon runs: loading the tables for this summary, which takes some seconds");
    }
    let read = |app: &mut App, feed: &mut dyn Feed| {
        for table in &tables {
            let meta = app.data[*table].meta.clone();
            app.read(*table, feed.read(&meta));
            app.counting_since(*table, feed.counting_since(&meta));
        }
    };
    if app.origin.loads {
        // The first reading loads a table, and its window is empty.
        read(app, feed);
    }
    let mut looker = Looker::default();
    looker.look();
    if !live::count_for_a_period(console)? {
        return Ok(false);
    }
    if let Some(host) = looker.look() {
        app.host(SystemTime::now(), host);
    }
    read(app, feed);
    Ok(true)
}
