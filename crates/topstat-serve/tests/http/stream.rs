// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Server-sent events.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::model::{PATIENCE, Server};

/// A client of events.
struct Client(BufReader<UnixStream>);

impl Client {
    fn open(server: &Server, query: &str) -> Self {
        let mut socket = UnixStream::connect(&server.unix).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(socket, "GET /api/v1/stream?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        Self(BufReader::new(socket))
    }

    /// The next event, and its data; `None`: the stream has ended.
    fn next(&mut self) -> Option<(String, Value)> {
        let mut name = String::new();
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(event) = line.strip_prefix("event: ") {
                name = event.trim().to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((name, serde_json::from_str(data).unwrap()));
            }
        }
    }
}

#[test]
fn events_are_the_documents_of_tables_and_of_the_host() {
    let server = Server::start();
    let mut client = Client::open(&server, "table=net_procs/bps&table=tasks/cpu&interval=500ms&n=2");
    let mut times = std::collections::HashSet::new();
    let begun = Instant::now();
    for _ in 0..3 {
        for table in ["bps", "cpu"] {
            let (name, data) = client.next().unwrap();
            assert_eq!((name.as_str(), data["table"].as_str()), ("snapshot", Some(table)));
            assert_eq!(data["rows"].as_array().unwrap().len(), 2);
            times.insert(data["time"].to_string());
        }
        let (name, data) = client.next().unwrap();
        assert_eq!((name.as_str(), &data["cpus"][0]), ("host", &0.25.into()));
    }
    assert!(begun.elapsed() > Duration::from_millis(500) && times.len() >= 3, "{times:?}");
    server.model.down.store(true, Ordering::SeqCst);
    let fault = std::iter::from_fn(|| client.next()).take(9).find(|(name, _)| name == "fault").expect("a fault");
    assert!(fault.1["error"].as_str().unwrap().contains("no daemon"), "{fault:?}");
    let mut none = Client::open(&server, "table=none/none&interval=500ms");
    assert_eq!(none.next().unwrap().0, "fault");
    server.model.down.store(false, Ordering::SeqCst);
    let back = std::iter::from_fn(|| client.next()).take(9).find(|(name, _)| name == "snapshot");
    assert!(back.is_some(), "the stream goes on when there is a daemon again");
}

#[test]
fn clients_share_reads_and_places_are_bounded() {
    let server = Server::start();
    let mut clients: Vec<_> = (0..64).map(|_| Client::open(&server, "table=net_procs/pps&interval=500ms")).collect();
    for client in &mut clients {
        assert_eq!(client.next().unwrap().0, "snapshot");
    }
    assert_eq!(server.metric("topstat_serve_streams "), 64.0);
    let refused = server.get("/api/v1/stream?table=net_procs/pps");
    assert_eq!((refused.status, refused.body.contains("64 streams already")), (503, true));
    let (before, begun) = (server.model.reads.load(Ordering::SeqCst), Instant::now());
    for client in &mut clients {
        for _ in 0..6 {
            client.next().unwrap();
        }
    }
    let (reads, most) = (server.model.reads.load(Ordering::SeqCst) - before, begun.elapsed().as_millis() / 100 + 4);
    assert!(u128::from(reads) <= most, "{reads} reads for 64 clients; {most} are allowed");
    drop(clients);
    let begun = Instant::now();
    while server.metric("topstat_serve_streams ") > 0.0 {
        assert!(begun.elapsed() < PATIENCE, "places of clients that have gone are not free");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(Client::open(&server, "table=net_procs/pps").next().unwrap().0, "snapshot");
}

/// A server that ends tells its clients at once; they find the next one.
#[test]
fn a_stream_ends_with_the_server_and_begins_again_with_the_next() {
    let mut server = Server::start();
    let mut client = Client::open(&server, "table=net_procs/bps&interval=60s");
    assert_eq!(client.next().unwrap().0, "snapshot");
    assert!(server.stop() < Duration::from_secs(5), "a stream keeps the server from its end");
    let rest = std::iter::from_fn(|| client.next()).count();
    assert!(rest <= 1, "{rest}");
    let server = Server::start();
    assert_eq!(Client::open(&server, "table=net_procs/bps").next().unwrap().0, "snapshot");
}
