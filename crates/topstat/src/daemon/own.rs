// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The content of `<root>/self`: one report, [`Own`], as JSON and as text.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use topstat_kernel::{MOST_PATH_BYTES, Remembered, State, TableInfo};
use topstat_model::rfc3339;
use topstat_model::typeset::escape;

use super::budget::Level;
use super::cost::{Change, Report, Shown};
use super::measure::{Measurement, Program};
use super::tree::shares::{Pool, Shares};
use super::workers::Workers;

/// The daemon's own process.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Process {
    pid: u32,
    cpu_ns: u64,
    rss_bytes: u64,
    fds: usize,
}

impl Process {
    /// This process, as /proc has it. A figure that /proc lacks is 0.
    pub fn own() -> Self {
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let cpu_ns = u64::try_from(cpu.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(cpu.tv_nsec).unwrap_or(0);
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
        let rss_bytes = pages * u64::try_from(rustix::param::page_size()).unwrap_or(0);
        // The directory itself is open while it is read.
        let fds = std::fs::read_dir("/proc/self/fd").map_or(0, |fds| fds.count().saturating_sub(1));
        Self { pid: std::process::id(), cpu_ns, rss_bytes, fds }
    }

    #[allow(clippy::cast_precision_loss)] // a figure for people
    fn cpu_ms(self) -> f64 {
        self.cpu_ns as f64 / 1e6
    }
}

/// The use of the tree, in all and by user.
#[derive(Clone, Debug, Serialize)]
pub struct Tree {
    handles: Used,
    text_bytes: Used,
    self_bytes: Used,
    waiting: usize,
    working: usize,
    /// The users with the most use.
    users: Vec<User>,
}

/// The used amounts of a pool with two parts: root's part, and the part of all other users.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Used {
    root: usize,
    root_most: usize,
    users: usize,
    users_most: usize,
}

impl Used {
    fn all(self) -> usize {
        self.root + self.users
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct User {
    uid: u32,
    handles: usize,
    text_bytes: usize,
    self_bytes: usize,
    waiting: usize,
    working: usize,
}

/// The most users that are listed.
const MOST_USERS: usize = 16;

impl Tree {
    /// The present use.
    pub fn new(shares: &Shares, workers: &Workers) -> Self {
        let mut by_uid: BTreeMap<u32, User> = BTreeMap::new();
        let mut used = |pool: &Pool, of: fn(&mut User) -> &mut usize| {
            let (taken, most) = (pool.taken(), pool.most());
            for (uid, amount) in taken.by_uid.into_iter().chain((taken.root > 0).then_some((0, taken.root))) {
                *of(by_uid.entry(uid).or_default()) = amount;
            }
            Used { root: taken.root, root_most: most.root, users: taken.users, users_most: most.users }
        };
        let handles = used(&shares.handles, |user| &mut user.handles);
        let text_bytes = used(&shares.texts, |user| &mut user.text_bytes);
        let self_bytes = used(&shares.own, |user| &mut user.self_bytes);
        let ((waiting, working), loads) = workers.load();
        for load in loads {
            let user = by_uid.entry(load.uid).or_default();
            (user.waiting, user.working) = (load.waiting, load.working);
        }
        let mut users: Vec<User> = by_uid.into_iter().map(|(uid, user)| User { uid, ..user }).collect();
        users.sort_by_key(|user| Reverse((user.waiting, user.text_bytes, user.handles)));
        users.truncate(MOST_USERS);
        Self { handles, text_bytes, self_bytes, waiting, working, users }
    }
}

/// The remembered paths of cgroups.
#[derive(Clone, Copy, Debug, Serialize)]
struct Paths {
    entries: usize,
    bytes: usize,
    most_bytes: usize,
}

/// The report.
#[derive(Debug, Serialize)]
pub struct Own {
    time: String,
    version: &'static str,
    #[serde(flatten)]
    process: Process,
    since: String,
    uptime_s: f64,
    /// The share of one CPU since the daemon began: 0 to 1 and more.
    cpu_share: f64,
    map_bytes: Option<u64>,
    object_bytes: Option<u64>,
    tree: Tree,
    paths: Paths,
    samples: Vec<Sample>,
    measured: Option<Measurement>,
    error: Option<String>,
    /// Why statistics are not pinned, if they are not.
    pub unpinned: Option<String>,
    budget: Option<Budget>,
}

#[derive(Debug, Serialize)]
struct Sample {
    sample: String,
    objects: u64,
    /// How the sample is counted, if there is a choice.
    way: Option<&'static str>,
    tables: Vec<Table>,
}

#[derive(Debug, Serialize)]
struct Table {
    table: String,
    unit: &'static str,
    pushed: Option<u64>,
    delay_ms: Option<u32>,
    raised_ms: Option<u32>,
}

#[derive(Debug, Serialize)]
struct Budget {
    share: f64,
    level: usize,
    levels: usize,
    exhausted: bool,
    changes: VecDeque<Change>,
}

impl Own {
    /// The report of this moment.
    pub fn new(report: &Report<'_>, process: Process, tree: Tree, paths: Remembered) -> Self {
        let Shown { measured, failed, budget, level, exhausted, changes } = report.shown.clone();
        let uptime_s = report.uptime.as_secs_f64();
        Self {
            time: rfc3339(SystemTime::now()),
            version: env!("CARGO_PKG_VERSION"),
            process,
            since: rfc3339(report.since),
            uptime_s,
            cpu_share: if uptime_s > 0.0 { process.cpu_ms() / 1e3 / uptime_s } else { 0.0 },
            map_bytes: measured.as_ref().map(|measured| measured.map_bytes),
            object_bytes: measured.as_ref().map(|measured| measured.object_bytes),
            tree,
            paths: Paths { entries: paths.entries, bytes: paths.bytes, most_bytes: MOST_PATH_BYTES },
            samples: report.states.iter().flat_map(|state| samples(&**state)).collect(),
            measured,
            error: failed,
            unpinned: None,
            budget: budget.map(|budget| Budget {
                share: budget.fraction(),
                level: level.number(),
                levels: Level::LAST.number(),
                exhausted,
                changes,
            }),
        }
    }

    /// The report as one line of JSON.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts serialise") + "\n"
    }

    /// The report as text, for people and for awk: lines with a name, a tab and a value; then lists, each with a line of column
    /// names.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: &dyn Display| text += &format!("{name}\t{value}\n");
        line("time", &self.time);
        line("version", &self.version);
        line("pid", &self.process.pid);
        line("since", &self.since);
        line("uptime_s", &format_args!("{:.1}", self.uptime_s));
        line("cpu_ms", &format_args!("{:.1}", self.process.cpu_ms()));
        line("cpu_percent", &percent(self.cpu_share));
        line("rss_bytes", &self.process.rss_bytes);
        line("fds", &self.process.fds);
        line("map_bytes", &optional(self.map_bytes));
        line("object_bytes", &optional(self.object_bytes));
        line("handles", &self.tree.handles.all());
        line("text_bytes", &self.tree.text_bytes.all());
        line("reads_waiting", &self.tree.waiting);
        line("reads_working", &self.tree.working);
        line("paths", &self.paths.entries);
        line("path_bytes", &self.paths.bytes);
        if let Some(error) = &self.error {
            line("error", &escape(error));
        }
        if let Some(unpinned) = &self.unpinned {
            line("unpinned", &escape(unpinned));
        }
        if let Some(measured) = &self.measured {
            line("measured", &measured.time);
            line("measured_s", &format_args!("{:.3}", measured.seconds));
            line("measured_cpus", &measured.cpus);
            line("runs", &measured.runs);
            line("run_ns", &tenths(measured.ns_per_run));
            line("share_percent", &percent(measured.share));
        } else {
            line("measured", &"not yet: a second after the daemon began");
        }
        if let Some(budget) = &self.budget {
            line("budget_percent", &(budget.share * 100.0));
            line("budget_level", &format_args!("{} of {}", budget.level, budget.levels));
            line("budget_enough", &u8::from(!budget.exhausted));
        } else {
            line("budget", &"off");
        }
        self.lists(&mut text);
        text
    }

    fn lists(&self, text: &mut String) {
        let mut list = |columns: &str, rows: &mut dyn Iterator<Item = String>| {
            *text += &format!("\n{columns}\n");
            rows.for_each(|row| *text += &format!("{row}\n"));
        };
        let user = |User { uid, handles, text_bytes, self_bytes, waiting, working }: &User| {
            format!("{uid}\t{handles}\t{text_bytes}\t{self_bytes}\t{waiting}\t{working}")
        };
        list("uid\thandles\ttext_bytes\tself_bytes\twaiting\tworking", &mut self.tree.users.iter().map(user));
        let table = |sample: &Sample, table: &Table| {
            let [pushed, delay, raised] =
                [table.pushed, table.delay_ms.map(u64::from), table.raised_ms.map(u64::from)].map(optional);
            format!(
                "{}/{}\t{}\t{pushed}\t{}\t{delay}\t{raised}",
                sample.sample, table.table, sample.objects, table.unit
            )
        };
        let tables = self.samples.iter().flat_map(|sample| sample.tables.iter().map(move |of| table(sample, of)));
        list("table\tobjects\tpushed\tunit\tdelay_ms\traised_ms", &mut { tables });
        let ways = self.samples.iter().filter_map(|of| Some(format!("{}\t{}", of.sample, of.way?)));
        let mut ways = ways.peekable();
        if ways.peek().is_some() {
            list("sample\tcounted_by", &mut ways);
        }
        if let Some(measured) = &self.measured {
            let program = |Program { name, id, hook, runs, ns_per_run, share }: &Program| {
                format!("{name}\t{id}\t{hook}\t{runs}\t{}\t{}", tenths(*ns_per_run), percent(*share))
            };
            list("program\tid\thook\truns\trun_ns\tshare_percent", &mut measured.programs.iter().map(program));
        }
        if let Some(budget) = self.budget.as_ref().filter(|budget| !budget.changes.is_empty()) {
            let change =
                |Change { time, from, to, share }: &Change| format!("{time}\t{from}\t{to}\t{}", percent(*share));
            list("changed\tfrom_level\tto_level\tshare_percent", &mut budget.changes.iter().map(change));
        }
    }
}

/// The entries of `self` for the samples of a state.
fn samples(state: &dyn State) -> impl Iterator<Item = Sample> {
    state.samples().iter().map(move |sample| {
        let table = |table: &Arc<TableInfo>| {
            let settings = state.settings(table).ok();
            Table {
                table: table.name.clone(),
                unit: table.unit.name(),
                pushed: state.pushed(table).ok(),
                delay_ms: settings.map(|settings| settings.delay_ms),
                raised_ms: settings.map(|settings| settings.raised_ms),
            }
        };
        let tables = sample.tables.iter().map(table).collect();
        Sample { sample: sample.name.clone(), objects: state.objects(sample), way: state.way(sample), tables }
    })
}

fn optional(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn tenths(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

fn percent(share: f64) -> String {
    format!("{:.4}", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Share;
    use crate::daemon::measure::tests::second;
    use serde_json::Value;
    use std::time::{Duration, UNIX_EPOCH};

    const PROCESS: Process = Process { pid: 42, cpu_ns: 12_500_000, rss_bytes: 7_000_000, fds: 62 };

    fn at(s: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_795_248_000 + s)
    }

    fn own(measured: bool, budget: Option<&str>) -> Own {
        let level = Level::of_delay(20, 1000);
        let change = Change { time: rfc3339(at(61)), from: 1, to: level.number(), share: 0.0123 };
        let shown = Shown {
            measured: measured.then(|| second(at(60))),
            failed: None,
            budget: budget.and_then(|text| Share::budget(text).unwrap()),
            level,
            exhausted: false,
            changes: [change].into(),
        };
        let report = Report { states: &[], since: at(0), uptime: Duration::from_secs(100), shown };
        let user = User { uid: 1000, handles: 3, text_bytes: 50_000, self_bytes: 0, waiting: 2, working: 1 };
        let tree = Tree {
            handles: Used { root: 1, root_most: 10, users: 3, users_most: 20 },
            text_bytes: Used { root: 7000, root_most: 10_000, users: 50_000, users_most: 100_000 },
            self_bytes: Used::default(),
            waiting: 2,
            working: 1,
            users: vec![user],
        };
        let paths = Remembered { entries: 12, bytes: 3456 };
        Own { time: "now".to_owned(), ..Own::new(&report, PROCESS, tree, paths) }
    }

    #[test]
    fn the_text_is_names_and_values_then_lists() {
        let expected = "\
            time\tnow\n\
            version\t0.1.0\n\
            pid\t42\n\
            since\t2026-11-21T08:00:00.000Z\n\
            uptime_s\t100.0\n\
            cpu_ms\t12.5\n\
            cpu_percent\t0.0125\n\
            rss_bytes\t7000000\n\
            fds\t62\n\
            map_bytes\t582112\n\
            object_bytes\t888\n\
            handles\t4\n\
            text_bytes\t57000\n\
            reads_waiting\t2\n\
            reads_working\t1\n\
            paths\t12\n\
            path_bytes\t3456\n\
            measured\t2026-11-21T08:01:00.000Z\n\
            measured_s\t1.000\n\
            measured_cpus\t2\n\
            runs\t300000\n\
            run_ns\t26.7\n\
            share_percent\t0.4000\n\
            budget_percent\t1\n\
            budget_level\t2 of 7\n\
            budget_enough\t1\n\
            \n\
            uid\thandles\ttext_bytes\tself_bytes\twaiting\tworking\n\
            1000\t3\t50000\t0\t2\t1\n\
            \n\
            table\tobjects\tpushed\tunit\tdelay_ms\traised_ms\n\
            \n\
            program\tid\thook\truns\trun_ns\tshare_percent\n\
            inet_ingress\t7\tcgroup ingress\t200000\t30.0\t0.3000\n\
            inet_egress\t8\tcgroup egress\t100000\t20.0\t0.1000\n\
            \n\
            changed\tfrom_level\tto_level\tshare_percent\n\
            2026-11-21T08:01:01.000Z\t1\t2\t1.2300\n";
        assert_eq!(own(true, Some("1%")).text(), expected);
        let text = own(false, None).text();
        assert!(text.contains("\nmap_bytes\t-\n") && text.contains("\nbudget\toff\n"), "{text}");
        assert!(text.contains("\nmeasured\tnot yet: a second after the daemon began\n"), "{text}");
    }

    /// That an object has exactly the keys of its schema, and so have the objects in it. Types are not compared.
    fn assert_keys(schema: &Value, value: &Value, path: &str) {
        let kinds = schema["anyOf"].as_array();
        let schema = kinds.map_or(schema, |kinds| kinds.last().expect("a kind besides null"));
        match value {
            Value::Object(fields) => {
                let described = schema["properties"].as_object().unwrap_or_else(|| panic!("{path} is no object"));
                assert_eq!(fields.keys().collect::<Vec<_>>(), described.keys().collect::<Vec<_>>(), "{path}");
                for (name, field) in fields {
                    assert_keys(&described[name], field, &format!("{path}/{name}"));
                }
            }
            Value::Array(items) => items.iter().for_each(|item| assert_keys(&schema["items"], item, path)),
            _ => {}
        }
    }

    #[test]
    fn the_document_has_the_keys_of_its_schema() {
        const SCHEMA: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/self.schema.json"));
        let schema = serde_json::from_str(SCHEMA).unwrap();
        for own in [own(true, Some("1%")), own(false, None)] {
            assert_keys(&schema, &serde_json::from_str(&own.json()).unwrap(), "");
        }
    }

    #[test]
    fn the_document_has_the_same() {
        let json: serde_json::Value = serde_json::from_str(&own(true, Some("0.5%")).json()).unwrap();
        assert_eq!((&json["pid"], &json["cpu_ns"]), (&42.into(), &12_500_000.into()));
        assert_eq!(
            (&json["measured"]["runs"], &json["measured"]["programs"][1]["ns_per_run"]),
            (&300_000.into(), &20.0.into())
        );
        assert_eq!(
            (&json["tree"]["users"][0]["uid"], &json["tree"]["handles"]["users_most"]),
            (&1000.into(), &20.into())
        );
        assert_eq!(json["paths"], serde_json::json!({"entries": 12, "bytes": 3456, "most_bytes": MOST_PATH_BYTES}));
        assert_eq!((&json["budget"]["share"], &json["budget"]["levels"]), (&0.005.into(), &7.into()));
        assert_eq!(json["budget"]["changes"][0]["to"], 2);
        let json: serde_json::Value = serde_json::from_str(&own(false, None).json()).unwrap();
        assert!(json["measured"].is_null() && json["budget"].is_null() && json["error"].is_null());
    }
}
