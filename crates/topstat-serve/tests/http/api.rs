// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The JSON API.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use topstat_model::rfc3339;

use crate::model::{OTHER, ROWS, Reply, Server, tables};

const BPS: &str = "/api/v1/tables/net_procs/bps";

#[test]
fn tables_are_listed_and_read() {
    let server = Server::start();
    let list = server.get("/api/v1/tables").json();
    assert_eq!(list.as_array().unwrap().len(), tables().len());
    assert_eq!(list[0]["sample"], "net_procs");
    assert_eq!(list[0]["unit"], "bits");
    assert_eq!(list[0]["columns"][1], serde_json::json!({"name": "comm", "kind": "text", "optional": false}));
    let reply = server.get(BPS);
    let table = reply.json();
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    assert_eq!(table["rows"].as_array().unwrap().len() as u64, ROWS);
    assert_eq!(reply.header("etag").unwrap(), format!("\"{}\"", table["time"].as_str().unwrap()));
    assert_eq!(server.get("/api/v1/host").json()["cpus"][1], 0.5);
    assert_eq!(server.get("/healthz").json()["tables"], tables().len());
    let openapi = server.get("/api/v1/openapi.json").json();
    for path in ["/metrics", "/api/v1/tables", "/api/v1/stream", "/api/v1/history/{sample}/{table}"] {
        assert!(openapi["paths"][path]["get"]["responses"]["200"].is_object(), "{path} is not described");
    }
    assert!(server.get("/").body.contains("topstat"));
}

#[test]
fn hidden_rows_go_to_other() {
    let server = Server::start();
    let shown = |query: &str| {
        let table = server.get(&format!("{BPS}?{query}")).json();
        let rows = table["rows"].as_array().unwrap().clone();
        let sum: u64 = rows.iter().map(|row| row["value"].as_u64().unwrap()).sum();
        let (other, total) = (table["other"].as_u64().unwrap(), table["total"].as_u64().unwrap());
        assert_eq!(sum + other, total, "{query}");
        assert!(rows.len() as u64 == ROWS || other > OTHER, "{query}");
        rows.len()
    };
    assert_eq!(shown("n=3"), 3);
    assert_eq!(shown("n=0"), 0);
    assert_eq!(shown("filter=pid%3E%3D110"), 22);
    assert_eq!(shown("filter=pid:100,101,102&n=2"), 2);
    assert_eq!(shown("filter="), 32);
    let csv = server.get(&format!("{BPS}?n=2&format=csv"));
    assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8"));
    let lines: Vec<_> = csv.body.lines().collect();
    assert_eq!(lines[0], "time,sample,table,rank,value,pid,comm,container,cpus");
    assert!(lines.len() == 5 && lines[4].contains(",total,"), "{lines:?}");
}

#[test]
fn mistakes_are_told() {
    let server = Server::start();
    for (path, status, why) in [
        ("/api/v1/tables/net_procs/none", 404, "there is no table net_procs/none"),
        ("/api/v1/tables/net_procs", 404, "there is nothing at this path"),
        ("/api/v1/none", 404, "there is nothing at this path"),
        ("/none", 404, "there is nothing at this path"),
        (&format!("{BPS}?filter=nokey:1"), 400, "there is no column \\\"nokey\\\"; there are: "),
        (&format!("{BPS}?filter=pid:x"), 400, "is no number"),
        (&format!("{BPS}?filter=pid%3E"), 400, "a value is missing here"),
        (&format!("{BPS}?n=x"), 400, "n=x is no number from 0 to 1024"),
        (&format!("{BPS}?at=yesterday"), 400, "is no time in RFC 3339"),
        (&format!("{BPS}?format=xml"), 400, "format=xml is neither json nor csv"),
        (&format!("{BPS}?nothing=1"), 400, "there is no parameter"),
        ("/metrics?a=b", 400, "there is no parameter"),
        ("/api/v1/history/net_procs/bps?from=2026-01-01T00:00:00Z&to=2025-01-01T00:00:00Z", 400, "from is after to"),
        ("/api/v1/history/net_procs/bps?from=1970-01-01T00:00:00Z", 400, "more than 31 days apart"),
        ("/api/v1/stream?table=net_procs/bps&filter=nokey:1", 400, "there is no column"),
        ("/api/v1/stream?interval=1ms", 400, "interval=1ms is no time from 500ms to 60s"),
    ] {
        let reply = server.get(path);
        assert_eq!(reply.status, status, "{path}: {reply:?}");
        assert!(reply.body.starts_with("{\"error\":\"") && reply.body.contains(why), "{path}: {}", reply.body);
    }
}

#[test]
fn one_read_is_for_all_clients_and_a_tag_saves_the_rest() {
    let server = Server::start();
    let first = server.get(BPS);
    let begun = std::time::Instant::now();
    let again = server.get(BPS);
    if begun.elapsed() < Duration::from_millis(80) {
        assert_eq!(again.body, first.body);
    }
    // Twenty clients at once, for half a second.
    let before = server.model.reads.load(Ordering::SeqCst);
    let begun = std::time::Instant::now();
    let answers: usize = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..20)
            .map(|_| {
                scope.spawn(|| {
                    let mut answers = 0;
                    while begun.elapsed() < Duration::from_millis(500) {
                        assert_eq!(server.get(BPS).status, 200);
                        answers += 1;
                    }
                    answers
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    let reads = server.model.reads.load(Ordering::SeqCst) - before;
    let most = begun.elapsed().as_millis() / 100 + 2;
    assert!(answers > 20 && u128::from(reads) <= most, "{answers} answers took {reads} reads, {most} are allowed");
    // A tag of the past, which does not change.
    let at = rfc3339(SystemTime::now() - Duration::from_secs(600));
    let then = server.get(&format!("{BPS}?at={at}"));
    assert_eq!((then.status, then.json()["time"].as_str()), (200, Some(at.as_str())));
    let tag = then.header("etag").unwrap();
    for (given, status) in [(tag, 304), ("\"x\"", 200), ("*", 304), (&format!("\"x\", W/{tag}"), 304)] {
        let reply = server.get_with(&format!("{BPS}?at={at}"), &format!("If-None-Match: {given}\r\n"));
        assert_eq!((reply.status, reply.body.is_empty()), (status, status == 304), "{given}");
        assert_eq!(reply.header("etag"), Some(tag));
    }
}

#[test]
fn history_is_a_bounded_number_of_points() {
    let server = Server::start();
    let (now, ago) = (SystemTime::now(), |s| rfc3339(SystemTime::now() - Duration::from_secs(s)));
    let path = format!("/api/v1/history/net_procs/bps?from={}&to={}&points=60&n=2", ago(3600), rfc3339(now));
    let history = server.get(&path).json();
    let points = history["points"].as_array().unwrap();
    assert!((60..=61).contains(&points.len()), "{}", points.len());
    assert_eq!((history["unit"].as_str(), history["whole"].as_bool()), (Some("bits"), Some(true)));
    for point in points {
        let rows: u64 = point["rows"].as_array().unwrap().iter().map(|row| row["value"].as_u64().unwrap()).sum();
        assert_eq!(rows + point["other"].as_u64().unwrap(), point["total"].as_u64().unwrap());
        assert_eq!(point["rows"].as_array().unwrap().len(), 2);
        assert_eq!(point["rows"][0]["label"], "100 p\"0\\");
    }
    assert!(points.is_sorted_by_key(|point| point["time"].as_str().unwrap().to_owned()));
    assert_eq!(server.get("/api/v1/history/none/none").json()["points"].as_array().unwrap().len(), 0);
}

#[test]
fn a_daemon_that_is_away_or_stuck_is_told() {
    let server = Server::start();
    server.model.down.store(true, Ordering::SeqCst);
    for path in ["/api/v1/tables", BPS, "/healthz"] {
        let reply = server.get(path);
        assert_eq!((reply.status, reply.body.contains("there is no daemon")), (503, true), "{path}: {reply:?}");
    }
    assert!(server.get("/metrics").body.contains("\ntopstat_up 0\n"));
    server.model.down.store(false, Ordering::SeqCst);
    assert_eq!(server.get(BPS).status, 200, "it goes on as soon as there is a daemon");
    server.model.stuck.store(true, Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(150));
    let begun = std::time::Instant::now();
    let replies: Vec<Reply> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..8).map(|_| scope.spawn(|| server.get(BPS))).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    for reply in replies {
        assert_eq!((reply.status, reply.body.contains("is the daemon stuck?")), (503, true), "{reply:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(45), "{:?}", begun.elapsed());
    assert_eq!(server.get("/").status, 200, "what needs no daemon is served");
    server.model.stuck.store(false, Ordering::SeqCst);
    assert_eq!(server.get(BPS).status, 200);
}

/// A process of the source ends with the thread that has started it.
#[test]
fn threads_that_read_stay() {
    let server = Server::start();
    assert_eq!(server.get(BPS).status, 200);
    // Longer than tokio keeps an idle thread by default.
    std::thread::sleep(Duration::from_secs(12));
    let threads = server.model.threads.lock().unwrap();
    assert!(!threads.is_empty());
    for thread in &*threads {
        assert!(std::path::Path::new("/proc").join(thread).exists(), "{} has ended", thread.display());
    }
}
