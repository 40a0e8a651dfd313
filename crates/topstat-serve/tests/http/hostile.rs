// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients that are slow, greedy or mad: the server answers or closes, and serves all others at the same time.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::model::{PATIENCE, Reply, Server};

/// How long the server allows for a head, with what a busy host adds.
const HEAD: Duration = Duration::from_secs(10);

fn connect(server: &Server) -> UnixStream {
    let socket = UnixStream::connect(&server.unix).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Waits until the server closes, and returns its last words.
fn closed(mut socket: UnixStream) -> Vec<u8> {
    let mut rest = Vec::new();
    match socket.read_to_end(&mut rest) {
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        read => drop(read.expect("an end")),
    }
    rest
}

#[test]
fn only_reading_is_answered_and_large_requests_are_not() {
    let server = Server::start();
    let status = |request: &str| Reply::of(&server.raw(request.as_bytes())).status;
    let line = |line: &str| format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "SET"] {
        assert_eq!(status(&line(&format!("{method} /api/v1/tables"))), 405, "{method}");
    }
    let head = Reply::of(&server.raw(line("HEAD /api/v1/tables").as_bytes()));
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert!(head.header("content-length").unwrap().parse::<usize>().unwrap() > 100);
    let head = Reply::of(&server.raw(line("HEAD /api/v1/stream?table=net_procs/bps").as_bytes()));
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    let body = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(status(body), 413);
    let chunked =
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    assert_eq!(status(chunked), 413);
    let long = "a".repeat(20_000);
    assert_eq!(status(&line(&format!("GET /{long}"))) / 100, 4);
    assert_eq!(status(&format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n")), 431);
    let many: String = (0..200).map(|n| format!("X-{n}: 1\r\n")).collect();
    assert_eq!(status(&format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many}\r\n")), 431);
    assert_eq!(status(&line("GET /metrics")), 200);
}

#[test]
fn slow_and_silent_clients_are_closed_and_the_others_served() {
    let server = Server::start();
    let begun = Instant::now();
    let silent: Vec<_> = (0..100).map(|_| connect(&server)).collect();
    let half: Vec<_> = (0..100)
        .map(|_| {
            let mut socket = connect(&server);
            socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: local").unwrap();
            socket
        })
        .collect();
    // Idle after a whole request.
    let idle: Vec<_> = (0..20)
        .map(|_| {
            let mut socket = connect(&server);
            socket.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            let mut first = [0; 12];
            socket.read_exact(&mut first).unwrap();
            assert_eq!(&first, b"HTTP/1.1 200");
            socket
        })
        .collect();
    let mut dripping = connect(&server);
    for byte in b"GET /metrics HTTP/1.1\r\n" {
        // The server may have closed.
        let _ = dripping.write_all(&[*byte]);
        assert_eq!(server.get("/healthz").status, 200);
        std::thread::sleep(Duration::from_millis(50));
    }
    for socket in silent.into_iter().chain(half).chain(idle).chain([dripping]) {
        closed(socket);
    }
    assert!(begun.elapsed() < 3 * HEAD, "{:?}", begun.elapsed());
}

#[test]
fn a_thousand_clients_are_served_or_refused() {
    let server = Server::start();
    let mut sockets: Vec<_> = (0..1000).map(|_| connect(&server)).collect();
    for socket in &mut sockets {
        // One that is refused may be closed already.
        let _ = socket.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    }
    let (mut served, mut refused) = (0, 0);
    for socket in sockets {
        match closed(socket).get(9..12) {
            Some(b"200") => served += 1,
            // A socket that is closed with unread data loses the answer.
            Some(b"503") | None => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(served >= 256, "{served} served, {refused} refused");
    assert_eq!(server.get("/healthz").status, 200);
    assert_eq!(server.metric("topstat_serve_connections_refused_total "), f64::from(refused));
}

/// A client that takes nothing of its answers.
#[test]
fn a_client_that_does_not_read_is_closed() {
    let server = Server::start();
    let mut socket = connect(&server);
    socket.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let begun = Instant::now();
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100);
    // Ends with an error: the server takes no more requests, and then closes.
    while begun.elapsed() < 2 * PATIENCE {
        match socket.write(request.as_bytes()) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => break,
            Ok(_) => {}
        }
        assert_eq!(server.get("/healthz").status, 200);
    }
    assert!(begun.elapsed() < 2 * PATIENCE, "it is still open");
}

/// Requests of any kind, most of them nearly right.
fn requests() -> impl Strategy<Value = Vec<u8>> {
    let paths = prop::sample::select(vec![
        "/",
        "/metrics",
        "/healthz",
        "/api/v1/tables",
        "/api/v1/tables/net_procs/bps",
        "/api/v1/tables/a/b",
        "/api/v1/history/net_procs/bps",
        "/api/v1/host",
        "/api/v1/openapi.json",
        "/..%2f",
        "//",
        "*",
        "http://x/",
    ]);
    let keys = prop::sample::select(vec!["n", "filter", "at", "from", "to", "points", "format", "interval", "x"]);
    let values =
        prop_oneof!["[ -~]{0,20}", "[0-9]{1,20}", "%[0-9a-fA-F]{2}(%[0-9a-f]{2}){0,4}", "pid[:<>=!~]{1,2}[0-9]*"];
    let query = prop::collection::vec((keys, values).prop_map(|(key, value)| format!("{key}={value}")), 0..4);
    let methods = prop::sample::select(vec!["GET", "GET", "GET", "HEAD", "POST", "get", "", "GET\0"]);
    let versions = prop::sample::select(vec!["HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/9", ""]);
    let headers = prop::collection::vec(
        prop_oneof![
            Just("Host: localhost".to_owned()),
            Just("Content-Length: 3".to_owned()),
            Just("Content-Length: -1".to_owned()),
            Just("Transfer-Encoding: chunked".to_owned()),
            Just("Expect: 100-continue".to_owned()),
            Just("Upgrade: websocket".to_owned()),
            "[A-Za-z-]{1,12}: [ -~]{0,30}",
            "[ -~]{0,20}",
        ],
        0..5,
    );
    let near = (methods, paths, query, versions, headers).prop_map(|(method, path, query, version, headers)| {
        let (mark, query) = (if query.is_empty() { "" } else { "?" }, query.join("&"));
        format!("{method} {path}{mark}{query} {version}\r\n{}\r\n\r\n", headers.join("\r\n")).into_bytes()
    });
    prop_oneof![9 => near, 1 => prop::collection::vec(any::<u8>(), 0..200)]
}

/// 10,000 requests; `TOPSTAT_SERVE_REQUESTS` is another number.
#[test]
fn any_request_is_answered_or_closed() {
    let count = std::env::var("TOPSTAT_SERVE_REQUESTS").ok().and_then(|count| count.parse().ok()).unwrap_or(10_000);
    let server = Server::start();
    let mut runner = TestRunner::new(Config { cases: count, failure_persistence: None, ..Config::default() });
    let ran = runner.run(&requests(), |request| {
        let mut socket = connect(&server);
        let _ = socket.write_all(&request);
        // The end of the input: the server does not wait for the rest of a request.
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let reply = closed(socket);
        if !reply.is_empty() {
            prop_assert!(reply.starts_with(b"HTTP/1."), "{:?}", String::from_utf8_lossy(&reply));
            let status: u16 = String::from_utf8_lossy(&reply[9..12]).parse().expect("a status");
            prop_assert!((100..500).contains(&status) || status == 503, "{status}");
        }
        Ok(())
    });
    ran.unwrap_or_else(|failed| panic!("{failed}"));
    assert_eq!(server.get("/healthz").status, 200);
}
