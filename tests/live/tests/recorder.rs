// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat record` beside a daemon: the records show the traffic that was carried, also after kills of the recorder.

use std::collections::HashSet;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use topstat_history::layout::{self, Kind, Place};
use topstat_history::{Root, log};
use topstat_live::tree::Document;
use topstat_live::watch::ENDLESS_MS;
use topstat_live::{Case, Counts, Daemon, Scratch, case, eventually, limits, note, pace, role, truth};
use topstat_load::{Config, Dist, Load, Plan};

pub fn cases() -> Vec<Case> {
    vec![case!(what_was_carried_is_what_is_recorded, Root, Fuse; Daemon)]
}

const BYTES: &str = "tcp_v4/conns_bytes";
const PPS: &str = "tcp_v4/conns_pps";
/// The time between two records.
const INTERVAL: Duration = Duration::from_millis(50);
/// How many times the recorder is killed.
const KILLS: u64 = 5;
/// The maximum time until a recorder has recorded.
const PATIENCE: Duration = Duration::from_secs(60);

/// Records of a daemon's tables.
struct Records<'a> {
    daemon: &'a Daemon,
    dir: &'a Path,
}

/// A recorder, which is killed on drop.
struct Recorder(Child);

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Records<'_> {
    fn record(&self) -> Recorder {
        let interval = format!("{}ms", INTERVAL.as_millis());
        let mut command = role::command("topstat");
        command.args(["record", BYTES, PPS, "--interval", "1s", "--fine-interval", &interval]);
        command.arg("--history").arg(self.dir).arg("--mount").arg(&self.daemon.place.mount);
        let child = command.stdin(Stdio::null()).spawn().expect("start the recorder");
        role::started(child.id());
        Recorder(child)
    }

    /// All fine records of a table so far, and the gaps between them; each is a line.
    fn read(&self, table: &str) -> (Vec<String>, Vec<String>) {
        let mut lines = Vec::new();
        let of_table = |place: &Place| format!("{}/{}", place.sample, place.table) == table;
        let root = Root::open(self.dir).expect("the records");
        for place in layout::places(&root).expect("the records").iter().filter(|place| of_table(place)) {
            for file in layout::files(&root, place).expect("the records") {
                let add = |line: &[u8]| {
                    lines.push(String::from_utf8(line.to_owned()).expect("JSON"));
                    true
                };
                if file.kind == Kind::Fine {
                    log::lines(&root.read(&file.path).expect("a log"), add).expect("read a log");
                }
            }
        }
        lines.into_iter().partition(|line| !line.contains("\"gap\":{"))
    }

    /// The records of a table, once there are more than `known`.
    fn more_than(&self, known: usize, table: &str) -> Vec<String> {
        let mut records = Vec::new();
        let came = eventually(PATIENCE, || {
            records = self.read(table).0;
            records.len() > known
        });
        assert!(came, "{table}: no record after {known}");
        records
    }
}

/// The document of a record, checked to add up.
fn document(record: &str) -> Document {
    Document::of(&format!("{record}\n"))
}

fn what_was_carried_is_what_is_recorded() {
    const CONNECTIONS: usize = 200;
    let scratch = Scratch::new("records");
    let daemon = Daemon::of_sockets();
    let records = Records { daemon: &daemon, dir: scratch.path() };
    let mut recorder = records.record();
    let mut load = Load::open(Config { connections: CONNECTIONS, ..Config::default() }).unwrap();
    daemon.write(&format!("{PPS}/period"), ENDLESS_MS);
    let before = truth::settled(&load);
    let plan = Plan::from_dist(&Dist::Zipf { exponent: 0.8, max: 500 }, CONNECTIONS).unwrap();
    load.run(&plan, &limits()).unwrap();
    let truth = truth::difference(&before, &truth::settled(&load));
    for (table, of) in [(BYTES, (|counts| counts.bytes()) as fn(&Counts) -> u64), (PPS, |counts| counts.packets())] {
        // One of the records may have been made before the last packet.
        let known = records.read(table).0.len();
        let found = records.more_than(known + 1, table);
        let last = document(found.last().unwrap());
        assert_eq!(last.rows.len(), 128, "{table}: fine records have all rows");
        let mut values: Vec<u64> = truth.values().map(of).collect();
        values.sort_unstable_by(|a, b| b.cmp(a));
        // The rows may include other sockets of the host.
        let ours: Vec<_> = last.rows.iter().filter_map(|(key, value)| Some((*value, of(truth.get(key)?)))).collect();
        assert!(!ours.is_empty() && ours.iter().all(|(value, carried)| value == carried), "{table}: {ours:?}");
        let shown: Vec<u64> = ours.iter().map(|(value, _)| *value).collect();
        assert_eq!(shown, values[..shown.len()], "{table}");
        found.iter().for_each(|record| drop(document(record)));
    }
    let mut flushed = HashSet::new();
    let kills = pace::work(KILLS, 2);
    for _ in 0..kills {
        flushed.extend(records.read(BYTES).0);
        recorder.0.kill().unwrap();
        recorder.0.wait().unwrap();
        let known = records.read(BYTES).0.len();
        // Long enough for a gap.
        std::thread::sleep(INTERVAL * 4);
        recorder = records.record();
        records.more_than(known, BYTES);
    }
    let after: HashSet<_> = records.read(BYTES).0.into_iter().collect();
    let lost: Vec<_> = flushed.difference(&after).collect();
    assert!(lost.is_empty(), "{} of {} records are lost: {lost:?}", lost.len(), flushed.len());
    let gaps = records.read(BYTES).1;
    let begun_again = gaps.iter().filter(|gap| gap.contains("the recorder did not run")).count() as u64;
    assert_eq!(begun_again, kills, "{gaps:?}");
    note(format!("{} records, none of which is lost", after.len()));
}
