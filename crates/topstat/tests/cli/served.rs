// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The records of `topstat record`, as the real `topstat serve` answers requests for them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Instant;

use serde_json::{Value, json};
use topstat_history::Gap;
use topstat_history::layout::{Kind, safe_name};

use crate::record::{PATIENCE, Scratch, TABLE, TOPSTAT, at, document};

/// A server of the records of a directory. No daemon runs.
struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    fn start(scratch: &Scratch, history: &Path) -> Self {
        let socket = scratch.0.join("serve.sock");
        let mut command = Command::new(TOPSTAT);
        command.arg("serve").arg("--socket").arg(&socket).arg("--mount").arg(scratch.0.join("tree"));
        let server = Self { child: command.arg("--history").arg(history).spawn().unwrap(), socket };
        let begun = Instant::now();
        while UnixStream::connect(&server.socket).is_err() {
            assert!(begun.elapsed() < PATIENCE, "it does not listen");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        server
    }

    /// The status and the body of the answer to a request for a path below `/api/v1`.
    fn get(&self, path: &str) -> (u16, String) {
        let mut socket = UnixStream::connect(&self.socket).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(socket, "GET /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// The document of an answer with this status.
    fn document(&self, path: &str, status: u16) -> Value {
        let (found, body) = self.get(path);
        assert_eq!(found, status, "{path}: {body}");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
    }

    /// The error of an answer with this status.
    fn error(&self, path: &str, status: u16) -> String {
        self.document(path, status)["error"].as_str().expect("an error").to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A path of the history of the table.
fn history(query: &str) -> String {
    format!("history/{TABLE}?{query}")
}

/// A path of the table at this time of 2026-11-21.
fn then(time: &str) -> String {
    format!("tables/{TABLE}?at=2026-11-21T{time}Z")
}

/// The second of each point after 08:00, which is its row's value.
fn seconds(history: &Value) -> Vec<u64> {
    let points = history["points"].as_array().expect("points");
    points.iter().map(|point| point["rows"][0]["value"].as_u64().expect("a row")).collect()
}

/// Records every ten seconds from 08:10 on, with a gap from 08:11 to 08:20; and one each second for the first ten minutes.
fn recorded(scratch: &Scratch) {
    let lines = |from: u64, to: u64, step| (from..=to).step_by(step).map(|second| document(at(second), TABLE, second));
    let gap = Gap { time: at(1200), from: at(660), reason: "the disk was full".into(), unread: None };
    let gap = String::from_utf8(gap.line("tcp_v4", "conns_pps")).unwrap();
    let coarse: Vec<_> = lines(600, 660, 10).chain([gap]).chain(lines(1200, 1800, 10)).collect();
    scratch.log_of("elsewhere", Kind::Log, TABLE, at(0), &coarse);
    scratch.log_of("elsewhere", Kind::Fine, TABLE, at(600), &lines(600, 660, 1).collect::<Vec<_>>());
}

#[test]
fn an_instant_of_the_past_has_the_record_of_that_time() {
    let scratch = Scratch::new("served-instants");
    recorded(&scratch);
    let server = Server::start(&scratch, &scratch.history());
    for (time, second) in [("08:10:00", 600), ("08:10:07", 607), ("08:20:09", 1200), ("08:30:25", 1800)] {
        let found = server.document(&then(time), 200);
        assert_eq!((&found["table"], &found["rows"][0]["value"]), (&json!("conns_pps"), &json!(second)), "{time}");
        assert_eq!(found["total"], found["rows"][0]["value"].as_u64().unwrap() + found["other"].as_u64().unwrap());
    }
    let (status, csv) = server.get(&format!("{}&format=csv&n=1", then("08:10:07")));
    assert!(status == 200 && csv.lines().any(|line| line.contains(",1,607,10.0.0.1,80,")), "{csv}");
    for (time, why) in [
        ("08:05:00", "there are no records of tcp_v4/conns_pps as old as 2026-11-21T08:05:00.000"),
        ("08:15:00", "nothing was recorded from 2026-11-21T08:11:00.000"),
        ("08:15:00", ": the disk was full"),
        ("08:30:45", "the last record is of 2026-11-21T08:30:00.000"),
    ] {
        let error = server.error(&then(time), 404);
        assert!(error.contains(why), "{time}: {error}");
    }
}

#[test]
fn a_range_of_the_past_has_points_and_gaps() {
    let scratch = Scratch::new("served-ranges");
    recorded(&scratch);
    let server = Server::start(&scratch, &scratch.history());
    let range = |from, to, more: &str| {
        server.document(&history(&format!("from=2026-11-21T{from}Z&to=2026-11-21T{to}Z{more}")), 200)
    };
    // Some seconds have the fine records.
    let short = range("08:10:03", "08:10:06", "");
    assert_eq!(seconds(&short), [603, 604, 605, 606]);
    assert_eq!((&short["gaps"], &short["whole"], &short["unit"]), (&json!([]), &json!(true), &json!("packets")));
    assert_eq!((&short["sample"], &short["period_ms"]), (&json!("tcp_v4"), &json!(1000)));
    // A longer range has the coarse ones: the last record of each part, with at most `n` rows.
    let long = range("08:10:00", "08:30:00", "&points=2");
    assert_eq!(seconds(&long), [660, 1790, 1800]);
    let gap = &long["gaps"][0];
    assert_eq!((long["gaps"].as_array().unwrap().len(), &gap["reason"]), (1, &json!("the disk was full")), "{gap}");
    assert!(gap["from"].as_str().unwrap().starts_with("2026-11-21T08:11:00.000"), "{gap}");
    let none = range("08:10:00", "08:30:00", "&n=0");
    assert!(none["points"].as_array().unwrap().iter().all(|point| point["rows"] == json!([])));
    // The rows that are left out are in `other`.
    assert_eq!(none["points"][0]["total"], none["points"][0]["other"]);
    let empty = range("06:00:00", "07:00:00", "");
    assert_eq!((&empty["points"], &empty["gaps"], &empty["whole"]), (&json!([]), &json!([]), &json!(true)));
}

#[test]
fn a_file_that_can_not_be_read_is_a_gap_of_the_range() {
    let scratch = Scratch::new("served-unread");
    for hour in [0, 2] {
        let time = at(hour * 3600);
        scratch.log_of("elsewhere", Kind::Log, TABLE, time, &[document(time, TABLE, 100 + hour)]);
    }
    let dir = scratch.history().join("host=elsewhere/table=tcp_v4.conns_pps/date=2026-11-21");
    fs::write(dir.join("09.parquet"), "no Parquet").unwrap();
    let server = Server::start(&scratch, &scratch.history());
    let found = server.document(&history("from=2026-11-21T07:00:00Z&to=2026-11-21T12:00:00Z"), 200);
    assert_eq!(seconds(&found), [100, 102]);
    let gaps = found["gaps"].as_array().unwrap();
    let reason = gaps[0]["reason"].as_str().unwrap();
    assert!(gaps.len() == 1 && reason.contains("09.parquet"), "{gaps:?}");
}

#[test]
fn records_of_several_hosts_are_not_mixed() {
    let scratch = Scratch::new("served-hosts");
    let write = |host: &str, value| {
        scratch.log_of(host, Kind::Log, TABLE, at(0), &[document(at(0), TABLE, value)]);
    };
    write("elsewhere", 1);
    let server = Server::start(&scratch, &scratch.history());
    assert_eq!(server.document(&then("08:00:01"), 200)["rows"][0]["value"], 1, "the only host");
    write("another", 2);
    let error = server.error(&then("08:00:01"), 404);
    assert!(error.contains("there are records of several hosts, and none of"), "{error}");
    // The host of the server comes first.
    write(&safe_name(&rustix::system::uname().nodename().to_string_lossy()), 3);
    assert_eq!(server.document(&then("08:00:01"), 200)["rows"][0]["value"], 3);
}

#[test]
fn a_wrong_request_for_the_past_is_refused_with_the_reason() {
    let scratch = Scratch::new("served-wrong");
    recorded(&scratch);
    let server = Server::start(&scratch, &scratch.history());
    for (path, status, why) in [
        (format!("tables/{TABLE}?at=yesterday"), 400, "at=yesterday is no time in RFC 3339"),
        (format!("tables/{TABLE}?at=2026-11-21T08:10:00+01:00"), 400, "(+ is %2B in an URI)"),
        (format!("{}&at=2026-11-21T08:10:00Z", then("08:10:00")), 400, "at is given several times"),
        (format!("{}&filter=none:1", then("08:10:00")), 400, "there is no column \"none\""),
        (format!("{}&n=1025", then("08:10:00")), 400, "n=1025 is no number from 0 to 1024"),
        (format!("{}&format=xml", then("08:10:00")), 400, "format=xml is neither json nor csv"),
        (format!("{}&to=2026-11-21T09:00:00Z", then("08:10:00")), 400, "there is no parameter \"to\" here"),
        (history("from=2026-11-21T09:00:00Z&to=2026-11-21T08:00:00Z"), 400, "from is after to"),
        (history("from=2026-10-01T09:00:00Z&to=2026-11-21T08:00:00Z"), 400, "more than 31 days apart"),
        (history("points=0"), 400, "points=0 is no number from 1 to 2000"),
        (history("points=-1"), 400, "points=-1 is no number"),
        ("history/tcp_v4/none".to_owned(), 404, "there are no records of tcp_v4/none in"),
        (
            "tables/tcp_v6/conns_pps?at=2026-11-21T08:10:00Z".to_owned(),
            404,
            "there are no records of tcp_v6/conns_pps in",
        ),
        ("history/%2e%2e/etc".to_owned(), 404, "there are no records of"),
        ("history/tcp_v4".to_owned(), 404, "there is nothing at this path"),
    ] {
        let error = server.error(&path, status);
        assert!(error.contains(why), "{path}: {error}");
    }
}

#[test]
fn without_records_the_answer_says_where_they_were_looked_for() {
    let scratch = Scratch::new("served-none");
    let server = Server::start(&scratch, &scratch.history());
    let error = server.error(&then("08:00:00"), 404);
    let dir = scratch.history();
    assert!(error.contains(&format!("cannot read records in {}", dir.display())), "{error}");
    assert!(error.contains("topstat record makes records"), "{error}");
    fs::write(&dir, "a file").unwrap();
    assert!(server.error(&then("08:00:00"), 503).contains("cannot read records in"));
}
