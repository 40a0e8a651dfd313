// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads each table of the tree when its record is due, and hands the documents to the history.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant, SystemTime};

use topstat_history::entry::time_of;
use topstat_history::{File, Place, Root, Table, layout};
use topstat_model::document;

use super::tree::Tree;
use super::{LOOK_EVERY, Plan};
use crate::resolve;

/// How long after a failure to seal a log the next log is sealed.
const SEAL_AGAIN: Duration = Duration::from_secs(600);
/// The offset between the times at which one table and the next one wait for the disk.
const APART: Duration = Duration::from_secs(2);
/// The first part of a span. In it, records of the span before may still come, from a snapshot that was begun at the end of that
/// span.
const SETTLED: Duration = Duration::from_secs(5);

pub struct Recorder<'a> {
    plan: &'a Plan,
    tree: Tree,
    root: Root,
    host: String,
    tables: BTreeMap<String, Recorded>,
    /// The logs of past spans that are not sealed, each with the path of its table.
    to_seal: VecDeque<(String, File)>,
    ticks: u64,
    looked: Option<Instant>,
    /// No log is sealed before this time.
    seal_after: Option<Instant>,
    /// The span in which the logs to seal were last listed.
    span: Option<SystemTime>,
    /// Fine records take more room than the limit allows.
    fine_full: bool,
    /// The last problem that was logged of each topic: the records, the tree and the files.
    said: BTreeMap<&'static str, String>,
}

struct Recorded {
    table: Table,
    /// The table is on. A table that is off is not read.
    on: bool,
}

impl<'a> Recorder<'a> {
    pub fn new(plan: &'a Plan, tree: Tree, root: &Root, host: &str) -> Self {
        Self {
            plan,
            tree,
            root: root.clone(),
            host: host.to_owned(),
            tables: BTreeMap::new(),
            to_seal: VecDeque::new(),
            ticks: 0,
            looked: None,
            seal_after: None,
            span: None,
            fine_full: false,
            said: BTreeMap::new(),
        }
    }

    /// Runs at each fine interval. Returns early when the recorder was asked to end and the tree does not answer.
    pub fn tick(&mut self) {
        if self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY) || self.tables.is_empty() {
            self.look();
        }
        let coarse = self.ticks.is_multiple_of(self.plan.coarse_every);
        self.ticks += 1;
        let fine = self.plan.fine && !self.fine_full;
        if (coarse || fine) && !self.record((coarse, fine)) {
            return;
        }
        self.seal();
    }

    /// Records all tables once. Returns false if the recorder was asked to end.
    fn record(&mut self, coarse_and_fine: (bool, bool)) -> bool {
        let mut on: Vec<_> = self.tables.iter_mut().filter(|(_, recorded)| recorded.on).collect();
        let paths: Vec<_> = on.iter().map(|(path, _)| path.as_str()).collect();
        let (mut wrong, mut done) = (None, vec![false; on.len()]);
        let mut failed = |path: &str, recorded: &mut Recorded, why: String| {
            recorded.table.missed(&why);
            wrong = Some(format!("{path}: {why}"));
        };
        let read = self.tree.read(&paths, |number, document| {
            let (path, recorded) = &mut on[number];
            done[number] = true;
            let document = document.map_err(|error| format!("cannot read the table: {error}"));
            if let Err(why) = document.and_then(|document| record(document, recorded, coarse_and_fine)) {
                failed(path, recorded, why);
            }
        });
        if let Err(error) = read {
            if self.tree.is_to_end() {
                return false;
            }
            for ((path, recorded), _) in on.iter_mut().zip(&done).filter(|(_, done)| !**done) {
                failed(path, recorded, format!("cannot read the table: {error}"));
            }
        }
        self.say("records", wrong, "all tables are recorded again");
        true
    }

    /// Syncs all tables, which ends their open frames.
    pub fn end(&mut self) {
        for recorded in self.tables.values_mut() {
            if let Err(error) = recorded.table.sync() {
                log::error!("{}", chain(&error));
            }
        }
    }

    /// Lists the tables of the tree, and removes files that are too old or exceed the size limit.
    fn look(&mut self) {
        self.looked = Some(Instant::now());
        let found = match self.tree.close().and_then(|()| self.tree.tables()) {
            Ok(tables) => tables,
            Err(_) if self.tree.is_to_end() => return,
            Err(error) => {
                self.say("tree", Some(format!("there is no tree of a daemon: {error}; waiting for one")), "");
                return;
            }
        };
        self.say("tree", None, "the tree is there again");
        let wanted = |path: &&String| self.plan.tables.is_empty() || self.plan.tables.contains(path);
        let found: Vec<_> = found.iter().filter(wanted).cloned().collect();
        let mut wrong = None;
        for (path, recorded) in &mut self.tables {
            recorded.on = found.contains(path);
            if !recorded.on {
                recorded.table.missed("the table was off");
                wrong = recorded.table.pause().err().or(wrong);
            }
        }
        if let Some(error) = wrong {
            self.say("files", Some(chain(&error)), "");
        }
        for path in found {
            if !self.tables.contains_key(&path) {
                self.begin(path);
            }
        }
        self.remove();
    }

    fn begin(&mut self, path: String) {
        let Some((sample, table)) = path.split_once('/') else { return };
        let place = Place { host: self.host.clone(), sample: sample.to_owned(), table: table.to_owned() };
        let offset = APART * u32::try_from(self.tables.len()).unwrap_or(0);
        match Table::open(&self.root, place, self.plan.options, offset) {
            Ok(table) => {
                self.tables.insert(path, Recorded { table, on: true });
                // The table may have logs of past spans.
                self.span = None;
            }
            Err(error) => self.say("files", Some(chain(&error)), ""),
        }
    }

    fn remove(&mut self) {
        let full = self.fine_full;
        match self.plan.keep.apply(&self.root, SystemTime::now()) {
            Ok(kept) => {
                self.fine_full = kept.fine_bytes > self.plan.keep.bytes / 2 || kept.bytes > self.plan.keep.bytes;
                for file in kept.removed {
                    log::debug!("removed {}", file.display());
                }
                self.say("files", None, "the files are fine again");
            }
            Err(error) => self.say("files", Some(chain(&error)), ""),
        }
        match (full, self.fine_full) {
            (false, true) => log::warn!("no fine records until there is room for them again (--size)"),
            (true, false) => log::info!("there is room for fine records again"),
            _ => {}
        }
    }

    /// Seals a few logs, so that the next records are not late: of hours one, so that 100 tables take 100 fine intervals; of
    /// shorter spans as many as have all tables sealed in half of the span. The logs are read until then.
    fn seal(&mut self) {
        let every = self.plan.options.seal_every;
        let settled = SystemTime::now() - SETTLED - offset(&self.host, every);
        let span = layout::begin(settled, every);
        if self.span != Some(span) {
            self.span = Some(span);
            self.to_seal.clear();
            for (path, recorded) in &mut self.tables {
                let files = recorded.table.to_seal(settled).unwrap_or_default();
                self.to_seal.extend(files.into_iter().map(|file| (path.clone(), file)));
            }
        }
        let ticks = (every / 2).as_nanos() / self.plan.options.fine_interval.as_nanos().max(1);
        let at_once = (self.tables.len() as u128).div_ceil(ticks.max(1));
        for _ in 0..at_once {
            if self.seal_after.is_some_and(|after| Instant::now() < after) {
                return;
            }
            self.seal_one();
        }
    }

    fn seal_one(&mut self) {
        let Some((path, file)) = self.to_seal.pop_front() else { return };
        let Some(recorded) = self.tables.get(&path) else { return };
        match recorded.table.seal(&file, &resolve::stored_shape, &self.plan.privacy) {
            Ok(None) => {}
            Ok(Some(kept)) => {
                log::warn!("{} could not be read whole: it is kept as {}", file.path.display(), kept.display());
            }
            Err(error) => {
                // The log stays unsealed, and is as good as a sealed one.
                log::error!("{}; trying again in {} s", chain(&error), SEAL_AGAIN.as_secs());
                self.seal_after = Some(Instant::now() + SEAL_AGAIN);
                self.to_seal.push_back((path, file));
            }
        }
    }

    /// Logs a problem once, and its end once.
    fn say(&mut self, about: &'static str, wrong: Option<String>, good: &str) {
        match wrong {
            Some(wrong) if self.said.get(about) != Some(&wrong) => {
                log::warn!("{wrong}");
                self.said.insert(about, wrong);
            }
            Some(_) => {}
            None if self.said.remove(about).is_some() => log::info!("{good}"),
            None => {}
        }
    }
}

/// How much later than others this host seals, so that the hosts of a fleet do not ship at once: up to a tenth of a span below an
/// hour. An hour is sealed at its end: its files are shipped at a random time (topstat-ship.timer).
fn offset(host: &str, every: Duration) -> Duration {
    let share = host.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % 100;
    if every < layout::HOUR { every * share / 1000 } else { Duration::ZERO }
}

/// Records one document of a table.
fn record(document: &[u8], recorded: &mut Recorded, (coarse, fine): (bool, bool)) -> Result<(), String> {
    let time = time_of(document).ok_or("the tree has no document of this version's")?;
    if fine {
        recorded.table.fine(time, document).map_err(|error| chain(&error))?;
    }
    if coarse {
        let snapshot = document::read(document, resolve::shape).map_err(|error| error.to_string())?;
        recorded.table.coarse(snapshot).map_err(|error| chain(&error))?;
    }
    Ok(())
}

fn chain(error: &topstat_history::Error) -> String {
    format!("{error}: {}", error.source)
}
