// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exports by OTLP, to a receiver that fails first, and to a real collector.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command};
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

/// A collector of OpenTelemetry that writes what it receives into a file. It ends with the test.
struct Collector {
    process: Child,
    address: SocketAddr,
    folder: PathBuf,
}

impl Collector {
    fn start() -> Self {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").expect("HOME")).join(".cache"));
        let program = cache.join("topstat/tools/bin/otelcol");
        assert!(program.exists(), "there is no {}: scripts/setup readers", program.display());
        let folder = std::env::temp_dir().join(format!("topstat-otelcol-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let pipeline = "{ receivers: [otlp], exporters: [debug] }";
        let config = format!(
            "receivers: {{ otlp: {{ protocols: {{ http: {{ endpoint: \"{address}\" }} }} }} }}\n\
             exporters: {{ debug: {{ verbosity: detailed }} }}\n\
             service: {{ telemetry: {{ metrics: {{ level: none }} }}, pipelines: {{ metrics: {pipeline}, logs: {pipeline} }} }}\n"
        );
        std::fs::write(folder.join("config.yaml"), config).unwrap();
        let output = std::fs::File::create(folder.join("output")).unwrap();
        let mut command = Command::new(program);
        command.arg("--config").arg(format!("file:{}", folder.join("config.yaml").display()));
        let process = command.stdout(output.try_clone().unwrap()).stderr(output).spawn().unwrap();
        let mut collector = Self { process, address, folder };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ends = collector.process.try_wait().unwrap().is_some() || begun.elapsed() > PATIENCE;
            assert!(!ends, "it does not listen: {}", collector.output());
            std::thread::sleep(Duration::from_millis(50));
        }
        collector
    }

    fn output(&self) -> String {
        std::fs::read_to_string(self.folder.join("output")).unwrap_or_default()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
#[ignore = "wants an OpenTelemetry collector, which Go compiles: make readers"]
fn a_collector_takes_metrics_and_logs() {
    let collector = Collector::start();
    let url = format!("http://{}", collector.address);
    let otlp = Otlp::new(&url, Duration::from_millis(500), vec!["tasks/cpu".into()], None).unwrap();
    let server = Server::with(false, |config| config.otlp = Some(otlp));
    let begun = Instant::now();
    while server.metric("topstat_serve_exports_total{result=\"sent\"} ") < 4.0 {
        assert!(begun.elapsed() < PATIENCE, "{}", collector.output());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(server.metric("topstat_serve_exports_rejected_total "), 0.0);
    assert_eq!(server.metric("topstat_serve_exports_total{result=\"dropped\"} "), 0.0);
    let begun = Instant::now();
    for expected in [
        "-> Name: topstat_pushed_packets",
        "-> DataType: Sum",
        "-> IsMonotonic: true",
        "-> AggregationTemporality: Cumulative",
        "Value: 123456789",
        "-> Name: topstat_rank_seconds_per_second",
        "-> rank: Str(other)",
        "EventName: topstat.snapshot",
        "Body: Str({\"time\":",
        "-> service.name: Str(topstat)",
    ] {
        while !collector.output().contains(expected) {
            assert!(begun.elapsed() < PATIENCE, "no {expected}: {}", collector.output());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    assert!(!collector.output().contains("\terror\t"), "{}", collector.output());
}
