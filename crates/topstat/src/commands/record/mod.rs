// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat record`: writes the tops of tables to files. It reads nothing but the daemon's tree.

mod check;
mod recorder;
pub mod tree;

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use topstat_history::private::{Hide, Which};
use topstat_history::{Keep, Privacy, Root, TableOptions, keep, layout};
use topstat_lab::key::Key;
use topstat_model::typeset::escape;

use crate::args::record::{RecordArgs, RecordCommand};
use crate::config::{Config, Level};
use crate::console::{Console, Schedule};
use crate::daemon::events::{Event, Events};
use crate::daemon::logging;
use crate::error::{Error, Exit};
use crate::resolve;
use crate::suggest::did_you_mean;
use recorder::Recorder;
use tree::Tree;

/// The validated arguments.
pub struct Plan {
    /// The paths of the tables; empty: all tables that are on.
    tables: Vec<String>,
    options: TableOptions,
    /// The number of fine intervals between two coarse records.
    coarse_every: u64,
    /// Fine records are made.
    fine: bool,
    keep: Keep,
    privacy: Privacy,
}

impl Plan {
    fn new(args: &RecordArgs) -> Result<Self, Error> {
        let fine = !args.fine_age.is_zero();
        if fine && args.fine_interval > args.interval {
            return Err(Error::Usage(
                "--fine-interval is longer than --interval: fine records are the more frequent ones".to_owned(),
            ));
        }
        let mut tables = Vec::new();
        for name in &args.tables {
            tables.extend(
                resolve::tables(&topstat_families::catalogue().samples(), name, None)?.iter().map(|table| table.path()),
            );
        }
        let fine_interval = if fine { args.fine_interval } else { args.interval };
        let every = args.interval.as_nanos().div_ceil(fine_interval.as_nanos().max(1));
        Ok(Self {
            tables,
            options: TableOptions {
                interval: args.interval,
                rows: args.rows as usize,
                fine_interval,
                seal_every: args.seal_every,
            },
            coarse_every: u64::try_from(every).unwrap_or(u64::MAX),
            fine,
            keep: Keep { age: args.age, fine_age: args.fine_age, bytes: args.size },
            privacy: privacy(args)?,
        })
    }
}

/// The names of all columns of objects, in the samples and in the tables that the configuration of this host defines. A defined
/// table's column has the last name of its field, or the whole field.
fn columns() -> BTreeSet<String> {
    let mut names: BTreeSet<String> = topstat_families::catalogue()
        .samples()
        .iter()
        .flat_map(|sample| sample.columns())
        .map(|column| column.name.into())
        .collect();
    // What is wrong with the configuration is for the daemon to say.
    let config = Config::find(None).map(|(config, _)| config).unwrap_or_default();
    for field in config.defined().iter().flat_map(|(_, definition)| &definition.keys) {
        names.extend(field.text.rsplit('.').next().map(str::to_owned));
        names.insert(field.text.clone());
    }
    names
}

/// The rules for sealed files. A misspelled column is an error, since its values would leave the host.
fn privacy(args: &RecordArgs) -> Result<Privacy, Error> {
    let columns = if args.private.is_empty() { BTreeSet::new() } else { columns() };
    for (which, _) in &args.private {
        let Which::Named(name) = which else { continue };
        if !columns.contains(name.as_str()) {
            let known: Vec<_> = columns.iter().map(String::as_str).collect();
            let meant = did_you_mean(name, known.iter().copied());
            let meant = if meant.is_empty() { format!(": there are {}", known.join(", ")) } else { meant };
            return Err(Error::Usage(format!("--private: no table has a column {}{meant}", escape(name))));
        }
    }
    let has_hash = args.private.iter().any(|(_, hide)| *hide == Hide::Hash);
    if has_hash && args.private_key.is_none() {
        return Err(Error::Usage(
            "--private: a hash without a key can be undone by trying all values: give --private-key FILE, with one key for all hosts \
             ('topstat lab key FILE' makes one)"
                .to_owned(),
        ));
    }
    let key = args.private_key.as_deref().map(Key::read).transpose();
    let key = key.map_err(|why| Error::Usage(format!("--private-key: {why}")))?;
    Ok(Privacy::new(args.private.clone(), key.as_ref().map_or(&[], AsRef::as_ref)))
}

pub fn run(args: &RecordArgs, console: &mut dyn Console) -> Result<Exit, Error> {
    if let Some(RecordCommand::Check(args)) = &args.command {
        return check::run(args, console);
    }
    let plan = Plan::new(args)?;
    logging::begin(Level::default());
    let events = Events::catch().map_err(|source| Error::System { what: "catch signals", source })?;
    let root = Root::make(args.history.dir())?;
    let _lock = lock(&root)?;
    keep::remove_unfinished(&root)?;
    let tree = Tree::new(&args.mount.dir(), events.stop_flag());
    log::info!("recording {} to {}", args.mount.dir().display(), root.path().display());
    let mut recorder = Recorder::new(&plan, tree, &root, &host());
    let mut schedule = Schedule::new(Instant::now(), plan.options.fine_interval);
    loop {
        let event = events.wait(Some(schedule.next()));
        match event.map_err(|source| Error::System { what: "wait for the next record", source })? {
            Event::Stop => break,
            Event::Deadline => {
                recorder.tick();
                schedule.advance(Instant::now());
            }
            Event::Reload | Event::Unmounted | Event::Mounts => {}
        }
    }
    recorder.end();
    Ok(Exit::Done)
}

/// The name of this host in records.
pub fn host() -> String {
    layout::safe_name(&rustix::system::uname().nodename().to_string_lossy())
}

/// Locks the files against a second recorder, until the returned file is dropped.
fn lock(root: &Root) -> Result<fs::File, Error> {
    let path = root.path().join("recorder.lock");
    let file = root.write(&path).map_err(topstat_history::Error::of("lock", &path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Daemon(format!(
            "a recorder writes to {} already; stop it first, or name another directory with --history",
            root.path().display()
        ))),
        Err(errno) => Err(topstat_history::Error::of("lock", &path)(errno.into()).into()),
    }
}

/// The time between two looks at the list of tables and at the files that have to be removed.
const LOOK_EVERY: Duration = Duration::from_secs(60);
