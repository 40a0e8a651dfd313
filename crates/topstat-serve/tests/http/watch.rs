// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules on the model, with real commands and a real receiver of web hooks.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use topstat_serve::watch::{self, Action, Options, Rule};

use crate::model::{Model, PATIENCE};

/// Watches on a thread until the test has seen what it waits for.
struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watch {
    fn start(rules: &[&str], model: Arc<Model>, every: Duration, resolved: bool, action: Action) -> Self {
        // This name means two tables that are there, and one that is off.
        let both = |path: &str| match path {
            "net/both" => ["bps", "pps", "none"].map(|name| format!("net_procs/{name}")).to_vec(),
            path => vec![path.to_owned()],
        };
        let rules: Vec<Rule> = rules.iter().map(|rule| rule.parse::<Rule>().unwrap().over(both)).collect();
        let options = Options { interval: Duration::from_millis(20), every, resolved, actions: vec![action] };
        let stop = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&stop);
        let thread = std::thread::spawn(move || watch::watch(rules, &options, &*model, &ending).unwrap());
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let thread = self.thread.take().unwrap();
        assert!(thread.join().is_ok() || std::thread::panicking());
    }
}

fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_command_gets_the_document_once() {
    let path = std::env::temp_dir().join(format!("topstat-watch-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let command = Action::Exec(format!("cat >> {}", path.display()));
    // The largest row of the model has 32 of 528 parts.
    let rules = ["net_procs/bps share > 5%", "net_procs/bps share > 7%", "net_procs/none > 1"];
    let watch = Watch::start(&rules, Arc::default(), Duration::from_secs(3600), false, command);
    let lines = || std::fs::read_to_string(&path).unwrap_or_default();
    eventually("no document came", || lines().ends_with('\n'));
    std::thread::sleep(Duration::from_millis(300));
    drop(watch);
    let text = lines();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["condition"], rules[0]);
    assert_eq!((&document["state"], &document["row"]["object"]["pid"]), (&"met".into(), &100.into()));
    assert_eq!(document["label"], "100 p\"0\\");
    assert_eq!(document["table"]["table"], "bps");
    let share = document["number"].as_f64().unwrap();
    assert!((0.05..0.07).contains(&share), "{share}");
}

#[test]
fn the_tables_of_a_common_name_are_watched_as_one() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    // Each table has a total of 4.2 million.
    let rules = ["net/both total > 8M"];
    let watch = Watch::start(&rules, Arc::default(), Duration::from_secs(3600), false, Action::Webhook(url));
    let body = answer(&listener, "204 No Content");
    drop(watch);
    assert_eq!((&body["condition"], &body["label"]), (&rules[0].into(), &Value::Null));
    assert!(body["number"].as_u64().unwrap() > 8_000_000, "{}", body["number"]);
}

/// The model has no column of this name, and never will have.
#[test]
fn a_condition_that_does_not_fit_its_table_ends_the_watch() {
    let options = Options {
        interval: Duration::from_millis(20),
        every: Duration::ZERO,
        resolved: false,
        actions: vec![Action::Exec("true".to_owned())],
    };
    let rules = vec!["net_procs/bps com:reindex share > 50%".parse().unwrap()];
    let error = watch::watch(rules, &options, &Model::default(), &Arc::default()).unwrap_err().to_string();
    assert!(
        error.starts_with("net_procs/bps com:reindex share > 50%: ") && error.contains("column \"com\""),
        "{error}"
    );
}

/// Takes a request, and answers it with this status. Returns the document in it.
fn answer(listener: &TcpListener, status: &str) -> Value {
    let (mut socket, _) = listener.accept().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut request = Vec::new();
    let body = loop {
        let mut part = [0; 4096];
        let read = socket.read(&mut part).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&request));
        request.extend(&part[..read]);
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && body.ends_with('\n')
        {
            assert!(head.starts_with("POST /hook HTTP/1.1"), "{head}");
            break serde_json::from_str::<Value>(body).unwrap();
        }
    };
    write!(socket, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
    body
}

#[test]
fn a_hook_is_called_again_after_a_failure_and_told_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    // The model's smallest value grows with each read, until no row matches.
    let rules = ["net_procs/bps value<8400 value > 8000"];
    let watch = Watch::start(&rules, Arc::default(), Duration::ZERO, true, Action::Webhook(url));
    let mut bodies = Vec::new();
    for status in ["500 Internal Server Error", "204 No Content", "204 No Content"] {
        bodies.push(answer(&listener, status));
    }
    drop(watch);
    assert_eq!(bodies[0], bodies[1], "the one that failed is sent again");
    assert_eq!((&bodies[1]["state"], &bodies[2]["state"]), (&"met".into(), &"resolved".into()));
    assert_eq!(bodies[2]["row"], Value::Null, "no row matches");
    for body in &bodies {
        assert_eq!((&body["label"], &body["object"]["pid"]), (&"131 p\"31\\".into(), &131.into()), "{body}");
    }
}

#[test]
fn a_command_that_does_not_end_is_left_when_the_program_ends() {
    let begun = Instant::now();
    let watch = Watch::start(
        &["net_procs/bps > 0"],
        Arc::default(),
        Duration::ZERO,
        false,
        Action::Exec("exec sleep 300".to_owned()),
    );
    std::thread::sleep(Duration::from_millis(200));
    drop(watch);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}
