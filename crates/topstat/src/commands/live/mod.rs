// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat` and `topstat view`: the live view, and the feed that it reads.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use topstat_kernel::{Family, Options, Source};
use topstat_model::{Snapshot, TableType, document};
use topstat_tui::feed::{Cost, Origin, Peak, Recorded, Setting, TableSettings};
use topstat_tui::{Feed, TableMeta};

use crate::args::view::ViewArgs;
use crate::args::{ColorWhen, Mount, Pins};
use crate::aside::Documents;
use crate::backend::Backend;
use crate::console::{Console, Wake};
use crate::daemon::client::{Client, catalogue};
use crate::daemon::tree::value::Setting as TreeSetting;
use crate::daemon::tree::{Entry as TreeEntry, File, Tree};
use crate::error::{Error, Exit};
use crate::style::colors;
use crate::{custom, instant, names, resolve};

mod look;
mod records;
mod tables;
use records::{RecordedFeed, Records};
use tables::{meta, save, sort, switched_off};

pub fn run(
    args: &ViewArgs,
    color: ColorWhen,
    backend: &mut dyn Backend,
    console: &mut dyn Console,
) -> Result<Exit, Error> {
    let facts = console.facts();
    if facts.terminal && facts.dumb {
        let why = "the view needs a terminal that can move its cursor, and TERM is dumb or not set: set TERM, or print a table \
                   with topstat top SAMPLE/TABLE, or all with topstat top";
        return Err(Error::Usage(why.to_owned()));
    }
    if !console.is_interactive() {
        return Err(Error::Usage(
            "the view wants a terminal for its input and its output: use topstat top for pipes".to_owned(),
        ));
    }
    let asked = args.table.as_deref().map(first_of).transpose()?;
    let (mut feed, loaded) = find(args, asked.as_deref(), backend)?;
    if let Some(path) = asked.as_ref().filter(|path| feed.tables().iter().all(|table| table.path() != **path)) {
        return Err(Error::Usage(format!("there is no {path} in what is shown ({})", feed.origin().name)));
    }
    let table = asked.or(loaded);
    let look = look::of_terminal(colors(color, facts));
    let interval = args.interval.unwrap_or(INTERVAL);
    let (resolve, may_signal) = (args.resolve, args.allow_kill);
    let options = topstat_tui::Options { table, interval, look, instant: instant::parse, resolve, may_signal };
    topstat_tui::run(&mut *feed, options, names::of_host())
        .map_err(|source| Error::System { what: "use the terminal", source })?;
    Ok(Exit::Done)
}

/// The path of the first table that a name matches: `tcp/conns_pps` is `tcp_v4/conns_pps`.
fn first_of(name: &str) -> Result<String, Error> {
    let tables = resolve::tables(&topstat_families::catalogue().samples(), name, None)?;
    Ok(tables.first().map_or_else(|| name.to_owned(), |table| format!("{}/{}", table.sample, table.name)))
}

/// The feed, and the table to begin with where only that table is loaded. With `--recorded-on` the view reads records alone. With
/// `--history` it does so only where no daemon runs.
fn find<'a>(
    args: &ViewArgs,
    table: Option<&str>,
    backend: &'a mut dyn Backend,
) -> Result<(Box<dyn Feed + 'a>, Option<String>), Error> {
    let records = Records::new(args.history(), args.recorded_on.as_deref());
    if args.recorded_on.is_some() {
        return Ok((Box::new(RecordedFeed::open(records)?), None));
    }
    let client = Client::reach(&args.mount.dir(), &args.pins.dir(), backend);
    if let (Err(no_daemon), Some(_)) = (&client, &args.history) {
        let feed = RecordedFeed::open(records);
        let feed = feed.map_err(|why| Error::Daemon(format!("{why}; and {no_daemon}")))?;
        return Ok((Box::new(feed), None));
    }
    let mut feed = LiveFeed::new(of_tree(client, &args.mount)?, records, backend);
    feed.options = args.mount.option() + &args.pins.option();
    let table = table.map_or(Ok(None), |table| feed.begin(table))?;
    Ok((Box::new(feed), table))
}

/// The feed of the present: the daemon's tables, or tables that are loaded when they are read.
///
/// # Errors
///
/// When no daemon can be reached at the mount point that the user has named.
pub fn present<'a>(
    mount: &Mount,
    pins: &Pins,
    history: &Path,
    backend: &'a mut dyn Backend,
) -> Result<impl Feed + 'a, Error> {
    let client = Client::reach(&mount.dir(), &pins.dir(), backend);
    Ok(LiveFeed::new(of_tree(client, mount)?, Records::new(history, None), backend))
}

/// Without a daemon, tables are loaded. But a user that names a mount point wants the tables of a daemon.
fn of_tree(client: Result<Client, Error>, mount: &Mount) -> Result<Result<Client, Error>, Error> {
    match client {
        Err(why) if mount.is_given() => {
            Err(Error::Daemon(format!("{why}, or leave --mount out, and the tables are loaded for this command alone")))
        }
        client => Ok(client),
    }
}

/// The time that figures are about: a period of tables that a command has loaded, and the time between two looks at the host.
const COUNTED: Duration = Duration::from_secs(1);

/// Waits until tables that were loaded a moment ago have counted for a period. Returns false where the user has ended the program
/// before.
///
/// # Errors
///
/// When the system can't wait.
pub fn count_for_a_period(console: &mut dyn Console) -> Result<bool, Error> {
    let until = console.now() + COUNTED;
    let wait = |source| Error::System { what: "wait for the next reading", source };
    loop {
        match console.wait_until(until).map_err(wait)? {
            Wake::Deadline => return Ok(true),
            Wake::Stop | Wake::Closed => return Ok(false),
            Wake::Resized | Wake::Ready => {}
            Wake::Suspend => console.suspend().map_err(|source| Error::System { what: "suspend", source })?,
        }
    }
}

/// The feed of the records alone.
///
/// # Errors
///
/// When there are no records, or they can't be read.
pub fn recorded(history: &Path, host: Option<&str>) -> Result<impl Feed, Error> {
    RecordedFeed::open(Records::new(history, host))
}

/// The default time between two readings.
const INTERVAL: Duration = Duration::from_secs(1);

/// Reads the daemon's tables. Without a daemon it reads tables that are loaded for as long as the view runs.
struct LiveFeed<'a> {
    backend: &'a mut dyn Backend,
    /// The client of the daemon, or the error of reaching the daemon.
    client: Result<Client, Error>,
    catalogue: Tree,
    documents: Documents,
    /// The families that this view has loaded, and the errors of those that could not be loaded.
    loaded: HashMap<String, Result<Loaded, String>>,
    records: Records,
    /// See [`Origin::options`].
    options: String,
    /// The table of ended processes is this view's own, and not the daemon's.
    own_ended: bool,
    /// The daemon's CPU time and uptime at the last query, in seconds.
    daemon_used: Option<(f64, f64)>,
}

/// The share of a CPU that a daemon has used between two queries, each given as CPU time and uptime in seconds. `None` for a
/// daemon that was restarted: its times begin at 0, and its start takes more CPU time than its service.
fn share(before: (f64, f64), now: (f64, f64)) -> Option<f64> {
    let (used, ran) = (now.0 - before.0, now.1 - before.1);
    (used >= 0.0 && ran > 0.0).then(|| used / ran)
}

/// The error of settings where no daemon runs.
const NOT_SET: &str = "what is loaded for this view alone is not set: start topstat daemon";

/// A family that was loaded for this view alone.
struct Loaded {
    source: Box<dyn Source>,
    since: SystemTime,
}

/// The least time that a family counts before its first reading, which is shown as a reading of less than a period. It is a slide
/// of the window: a tenth of the usual period. Loading takes ten times as long.
const FIRST_AFTER: Duration = Duration::from_millis(100);

impl<'a> LiveFeed<'a> {
    fn new(client: Result<Client, Error>, records: Records, backend: &'a mut dyn Backend) -> Self {
        let own_ended = custom::add_ended(backend);
        Self {
            backend,
            client,
            catalogue: catalogue(),
            documents: Documents::default(),
            loaded: HashMap::new(),
            records,
            options: String::new(),
            own_ended,
            daemon_used: None,
        }
    }

    /// Without a daemon, loads the first table. If that fails, there is nothing to show.
    fn begin(&mut self, table: &str) -> Result<Option<String>, Error> {
        let Err(no_daemon) = &self.client else { return Ok(None) };
        let no_daemon = no_daemon.to_string();
        let family = resolve::tables(&topstat_families::catalogue().samples(), table, None)?;
        let family = family.first().and_then(|table| topstat_families::catalogue().family_of(&table.sample));
        let Some(family) = family else { return Ok(None) };
        match self.load(&family) {
            Ok(_) => Ok(Some(table.to_owned())),
            Err(why) => Err(Error::Daemon(format!("{why}; and {no_daemon}"))),
        }
    }

    fn load(&mut self, family: &Family) -> Result<&mut Loaded, String> {
        let backend = &mut *self.backend;
        let loaded = self.loaded.entry(family.name.clone()).or_insert_with(|| {
            let source = backend.load(&family.tables(), &Options::default()).map_err(|error| error.to_string())?;
            Ok(Loaded { source, since: SystemTime::now() })
        });
        loaded.as_mut().map_err(|why| why.clone())
    }

    /// Whether this view has loaded the table, or has to.
    fn is_own(&self, table: &TableMeta) -> bool {
        self.client.is_err() || (self.own_ended && table.sample == custom::ENDED.0)
    }

    fn own_cost(&mut self) -> Option<Cost> {
        let client = self.client.as_ref().ok()?;
        let text = client.read(&self.file_at("self.json").ok()?).ok()?;
        let own: serde_json::Value = serde_json::from_slice(&text).ok()?;
        let number = |value: &serde_json::Value| value.as_f64();
        let used = (number(&own["cpu_ns"])? / 1e9, number(&own["uptime_s"])?);
        let daemon = self.daemon_used.replace(used).and_then(|before| share(before, used));
        Some(Cost { daemon, programs: number(&own["measured"]["share"]) })
    }

    fn file(&self, table: &TableMeta, name: &str) -> Result<File, String> {
        self.file_at(&format!("{}/{name}", table.path()))
    }

    fn file_at(&self, path: &str) -> Result<File, String> {
        match self.catalogue.find(path).map(|node| &node.entry) {
            Ok(TreeEntry::File(file)) => Ok(file.clone()),
            Ok(TreeEntry::Directory(_)) | Err(_) => Err(format!("there is no file {path}")),
        }
    }

    fn own(&mut self, table: &TableMeta) -> Result<Snapshot, String> {
        let info = topstat_families::catalogue().find(&table.sample, &table.table).ok_or("there is no such table")?;
        let family = topstat_families::catalogue().family_of(&table.sample).ok_or("there is no such table")?;
        let loaded = self.load(&family)?;
        if table.kind == TableType::Dynamic {
            // If the clock was set back, the elapsed time is unknown, and nothing is waited for.
            let counted = loaded.since.elapsed().unwrap_or(FIRST_AFTER);
            std::thread::sleep(FIRST_AFTER.saturating_sub(counted));
        }
        loaded.source.snapshot(&info).map_err(|error| error.to_string())
    }
}

impl Feed for LiveFeed<'_> {
    fn tables(&self) -> Vec<TableMeta> {
        let tables = |family: &Arc<Family>| family.tables();
        let there = |table: &TableMeta| match &self.client {
            Ok(_) if self.is_own(table) => true,
            // The reason why a table can't be read is shown in its place.
            Ok(client) => {
                self.file(table, "json").map_or(true, |file| client.has(&file)) || switched_off(table).is_err()
            }
            Err(_) => true,
        };
        let mut all: Vec<_> = topstat_families::catalogue()
            .families()
            .iter()
            .flat_map(tables)
            .map(|info| meta(&info))
            .filter(there)
            .collect();
        sort(&mut all);
        // Tables that have nothing to show come last.
        all.sort_by_cached_key(|table| switched_off(table).is_err());
        all
    }

    fn origin(&self) -> Origin {
        let name = match &self.client {
            Ok(Client::Tree(_) | Client::Files(_)) => "daemon",
            Ok(Client::Pinned(_)) => "pinned",
            Err(_) => "alone",
        };
        let history = self.records.options();
        Origin { name, options: self.options.clone(), history, loads: self.client.is_err(), recorded: false }
    }

    fn read(&mut self, table: &TableMeta) -> Result<Snapshot, String> {
        switched_off(table)?;
        match &self.client {
            Ok(client) if !self.is_own(table) => {
                let file = self.file(table, "json")?;
                let document = client.document(&file, &mut self.documents).map_err(|error| error.to_string())?;
                document::read(&document, resolve::shape).map_err(|error| error.to_string())
            }
            _ => self.own(table),
        }
    }

    fn counting_since(&self, table: &TableMeta) -> Option<SystemTime> {
        let family = topstat_families::catalogue().family_of(&table.sample)?;
        Some(self.loaded.get(&family.name)?.as_ref().ok()?.since)
    }

    fn at(&mut self, table: &TableMeta, time: SystemTime) -> Result<Recorded, String> {
        self.records.at(table, time)
    }

    fn cost(&mut self) -> Option<Cost> {
        self.own_cost()
    }

    fn outline(&mut self, table: &TableMeta) -> Result<Vec<Peak>, String> {
        self.records.outline(table)
    }

    fn settings(&mut self, tables: &[&TableMeta]) -> Vec<Result<TableSettings, String>> {
        let Ok(client) = &self.client else { return vec![Err(NOT_SET.to_owned()); tables.len()] };
        let number = |path: &str| {
            let text = client.read(&self.file_at(path)?).map_err(|error| error.to_string())?;
            let text = String::from_utf8_lossy(&text);
            text.trim().parse::<u32>().map_err(|_| format!("{path} is no number: {:?}", text.trim()))
        };
        let enabled = Setting::Enabled.name();
        // Many tables share the switches of the root and of their sample: each of these switches is read once.
        let root = number(enabled);
        let mut samples = HashMap::new();
        let mut of = |table: &TableMeta| {
            let sample = samples.entry(table.sample.clone());
            let sample = sample.or_insert_with(|| number(&format!("{}/{enabled}", table.sample)));
            let of_table = |setting: Setting| number(&format!("{}/{}", table.path(), setting.name()));
            Ok(TableSettings {
                enabled: of_table(Setting::Enabled)? == 1,
                above: root.clone()? == 1 && sample.clone()? == 1,
                period_ms: of_table(Setting::Period)?,
                delay_ms: of_table(Setting::Delay)?,
            })
        };
        tables.iter().map(|table| of(table)).collect()
    }

    fn set(&mut self, table: &TableMeta, setting: Setting, value: u32) -> Result<(), String> {
        let Ok(client) = &self.client else {
            return Err(NOT_SET.to_owned());
        };
        let file = self.file(table, setting.name())?;
        let setting = match setting {
            Setting::Enabled => TreeSetting::Enabled,
            Setting::Period => TreeSetting::Period,
            Setting::Delay => TreeSetting::Delay,
        };
        client.write(&file, setting, value).map_err(|error| error.to_string())
    }

    fn save(&mut self, snapshot: &Snapshot) -> Result<String, String> {
        save(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a name, tables are loaded. A mount point that the user names must have a daemon.
    #[test]
    fn a_named_mount_point_wants_a_daemon() {
        let none = || Err(Error::Daemon("no daemon has its tree at /d".to_owned()));
        let [default, named] = [None, Some("/it's".into())].map(Mount::at);
        assert!(of_tree(none(), &default).is_ok_and(|client| client.is_err()));
        let why = of_tree(none(), &named).err().map(|error| error.to_string()).unwrap();
        assert!(why.starts_with("no daemon has its tree at /d, or leave --mount out"), "{why}");
        assert_eq!((default.option(), named.option()), (String::new(), r" --mount '/it'\''s'".to_owned()));
    }

    #[test]
    fn the_share_of_a_daemon_is_of_the_time_between_two_looks() {
        assert_eq!(share((1.5, 4.0), (1.75, 6.0)), Some(0.125));
        assert_eq!(share((1.5, 4.0), (0.5, 2.0)), None, "it was started anew");
        assert_eq!(share((0.5, 2.0), (0.5, 2.0)), None, "no time has passed");
    }
}
