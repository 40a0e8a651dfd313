// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exports by OTLP, to a receiver that fails first.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use serde_json::Value;
use topstat_serve::Otlp;

use crate::model::{PATIENCE, Server};

/// Takes a request, answers, and returns its head and its body.
fn take(listener: &TcpListener, answer: &str) -> (String, Value) {
    let (mut socket, _) = listener.accept().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut request = Vec::new();
    loop {
        let mut part = [0; 65536];
        let read = socket.read(&mut part).unwrap();
        assert!(read > 0, "half a request");
        request.extend(&part[..read]);
        let Some(at) = request.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(request[..at].to_vec()).unwrap();
        let length =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let length: usize = length.expect("a length");
        if request.len() == at + 4 + length {
            write!(socket, "HTTP/1.1 {answer}").unwrap();
            return (head, serde_json::from_slice(&request[at + 4..]).unwrap());
        }
    }
}

#[test]
fn metrics_and_logs_are_exported_and_refusals_counted() {
    const OK: &str = "200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let headers = std::env::temp_dir().join(format!("topstat-otlp-{}", std::process::id()));
    std::fs::write(&headers, "X-Token: secret\n").unwrap();
    std::fs::set_permissions(&headers, std::fs::Permissions::from_mode(0o644)).unwrap();
    let of = || Otlp::new(&url, Duration::from_millis(500), vec!["tasks/cpu".into()], Some(&headers));
    assert!(of().unwrap_err().to_string().contains("has mode 0644"));
    std::fs::set_permissions(&headers, std::fs::Permissions::from_mode(0o600)).unwrap();
    let otlp = of().unwrap();
    std::fs::remove_file(&headers).unwrap();
    assert!(Otlp::new("collector:4318", Duration::ZERO, vec![], None).is_err());
    let server = Server::with(false, |config| config.otlp = Some(otlp));
    let (head, first) = take(&listener, "503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    assert!(head.starts_with("POST /v1/metrics HTTP/1.1"), "{head}");
    assert!(head.to_ascii_lowercase().contains("x-token: secret"), "{head}");
    let partial = r#"{"partialSuccess":{"rejectedDataPoints":"5"}}"#;
    let partial = format!("200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{partial}", partial.len());
    let (_, again) = take(&listener, &partial);
    assert_eq!(again, first, "the request that failed is sent again");
    let metrics = first["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let metric = |name: &str| metrics.iter().find(|metric| metric["name"] == name).unwrap_or_else(|| panic!("{name}"));
    assert_eq!(metric("topstat_pushed_packets")["sum"]["dataPoints"][0]["asInt"], "123456789");
    assert_eq!(metric("topstat_rank_seconds_per_second")["gauge"]["dataPoints"].as_array().unwrap().len(), 11);
    let (head, logs) = take(&listener, OK);
    assert!(head.starts_with("POST /v1/logs HTTP/1.1"), "{head}");
    let record = &logs["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
    let document: Value = serde_json::from_str(record["body"]["stringValue"].as_str().unwrap()).unwrap();
    assert_eq!((&document["table"], &record["attributes"][1]["value"]["stringValue"]), (&"cpu".into(), &"cpu".into()));
    let begun = Instant::now();
    while server.metric("topstat_serve_exports_total{result=\"sent\"} ") < 2.0 {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(server.metric("topstat_serve_exports_rejected_total "), 5.0);
    // A collector that refuses for good: the request is dropped at once. And one that has gone: the queue is bounded.
    take(&listener, "400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    drop(listener);
    while server.metric("topstat_serve_exports_total{result=\"dropped\"} ") < 4.0 {
        assert!(begun.elapsed() < PATIENCE, "nothing is dropped");
        std::thread::sleep(Duration::from_millis(50));
    }
}
