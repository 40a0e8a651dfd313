// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat record`: writes the tops of tables to files. It reads nothing but the daemon's tree.

mod check;
mod recorder;
pub mod tree;

use std::fs;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use topstat_history::{Keep, Root, TableOptions, keep, layout};

use crate::args::record::{RecordArgs, RecordCommand};
use crate::config::Level;
use crate::console::{Console, Schedule};
use crate::daemon::events::{Event, Events};
use crate::daemon::logging;
use crate::error::{Error, Exit};
use crate::resolve;
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
            tables.extend(resolve::tables(&topstat_kernel::samples(), name, None)?.iter().map(|table| table.path()));
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
        })
    }
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
