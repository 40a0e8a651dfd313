// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OTLP over HTTP, in its JSON encoding: metrics, and logs with one record for each snapshot, to an OpenTelemetry collector.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use ureq::Agent;

use crate::metrics::text::{Families, Kind, Number};
use crate::server::App;
use crate::{Error, access, metrics};

/// Requests that wait to be sent. Further ones are dropped, and counted.
const WAITING: usize = 32;
/// How long a request may take.
const REQUEST: Duration = Duration::from_secs(10);
/// The pause before a request is sent again: it doubles from the first to the second.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(32));
/// How long a request is sent again before it is dropped.
const PATIENCE: Duration = Duration::from_secs(300);
/// The most bytes of an answer.
const MOST_ANSWER: u64 = 64 << 10;

/// What is exported.
#[derive(Clone, Debug)]
pub struct Otlp {
    /// The collector: `/v1/metrics` and `/v1/logs` are added to this address.
    url: String,
    /// From one export to the next.
    pub interval: Duration,
    /// The tables whose snapshots become logs, by their paths.
    pub logs: Vec<String>,
    /// Headers of each request, such as one with a token.
    headers: Vec<(String, String)>,
}

/// Counts of exports.
#[derive(Debug, Default)]
pub struct Counts {
    /// Requests that the collector has accepted.
    pub sent: AtomicU64,
    /// Requests that were dropped: too many waited, or the collector has refused them or did not answer for long.
    pub dropped: AtomicU64,
    /// Data points and records that the collector has refused within accepted requests.
    pub rejected: AtomicU64,
}

impl Otlp {
    /// Exports to this address.
    ///
    /// # Errors
    ///
    /// The address is wrong; the file of headers can't be read, other users can read it, or a line is no header.
    pub fn new(url: &str, interval: Duration, logs: Vec<String>, headers: Option<&Path>) -> Result<Self, Error> {
        let uri: Option<ureq::http::Uri> = url.parse().ok();
        let known = |uri: &ureq::http::Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.query().is_none();
        if !uri.as_ref().is_some_and(known) {
            return Err(Error::Wrong(format!("--otlp {url}: not an address such as http://127.0.0.1:4318")));
        }
        let mut lines = Vec::new();
        if let Some(path) = headers {
            access::secret(path)?;
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|source| Error::File { path: path.to_owned(), source })?;
            for line in text.lines().filter(|line| !line.trim().is_empty()) {
                let pair = line.split_once(':').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
                let sound = |(name, value): &(String, String)| {
                    ureq::http::HeaderName::try_from(name.as_str()).is_ok()
                        && ureq::http::HeaderValue::try_from(value.as_str()).is_ok()
                };
                let wrong = || Error::Wrong(format!("{}: a line is not NAME: VALUE", path.display()));
                lines.push(pair.filter(sound).ok_or_else(wrong)?);
            }
        }
        Ok(Self { url: url.trim_end_matches('/').to_owned(), interval, logs, headers: lines })
    }
}

/// A request: the end of its path, and its body.
type Export = (&'static str, Vec<u8>);

/// Exports until the server ends.
pub async fn run(app: Arc<App>, otlp: Otlp) {
    let (sender, receiver) = sync_channel(WAITING);
    let (sending, counts) = (otlp.clone(), Arc::clone(&app.exports));
    // The thread ends with the program: a request that waits for a collector must not keep it.
    std::thread::spawn(move || send_all(&sending, &receiver, &counts));
    let mut tick = tokio::time::interval(otlp.interval);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut ending = app.ending.clone();
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = crate::server::ended(&mut ending) => return,
        }
        let families = metrics::families(&app).await;
        put(&app, &sender, ("/v1/metrics", body(&of_metrics(&families, SystemTime::now()))));
        let records = records(&app, &otlp.logs).await;
        if !records.is_empty() {
            put(&app, &sender, ("/v1/logs", body(&of_logs(&records))));
        }
    }
}

fn put(app: &App, sender: &SyncSender<Export>, export: Export) {
    match sender.try_send(export) {
        Ok(()) => {}
        Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
            app.exports.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn body(document: &Value) -> Vec<u8> {
    serde_json::to_vec(document).expect("a Value is JSON")
}

/// The log records of these tables. The log of the server has what can't be read.
async fn records(app: &App, tables: &[String]) -> Vec<Value> {
    let mut records = Vec::new();
    for table in tables {
        match app.live.shot(table).await {
            Err(fault) => log::debug!("no log of {table}: {fault}"),
            Ok(shot) => {
                let time = topstat_model::parse_rfc3339(&shot.time).unwrap_or(UNIX_EPOCH);
                let document = String::from_utf8_lossy(&shot.document);
                records.push(json!({
                    "timeUnixNano": nanos(time),
                    "observedTimeUnixNano": nanos(SystemTime::now()),
                    "severityNumber": 9,
                    "severityText": "INFO",
                    "eventName": "topstat.snapshot",
                    "body": { "stringValue": document.trim_end() },
                    "attributes": [attribute("sample", &shot.table.sample), attribute("table", &shot.table.name)],
                }));
            }
        }
    }
    records
}

/// 64-bit numbers are texts in this encoding.
fn nanos(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

fn attribute(name: &str, value: &str) -> Value {
    json!({ "key": name, "value": { "stringValue": value } })
}

fn resource() -> Value {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    json!({ "attributes": [
        attribute("service.name", "topstat"),
        attribute("service.version", env!("CARGO_PKG_VERSION")),
        attribute("host.name", &host),
    ] })
}

fn scope() -> Value {
    json!({ "name": "topstat", "version": env!("CARGO_PKG_VERSION") })
}

fn of_logs(records: &[Value]) -> Value {
    json!({ "resourceLogs": [{ "resource": resource(), "scopeLogs": [{ "scope": scope(), "logRecords": records }] }] })
}

/// All families as metrics of OTLP.
fn of_metrics(families: &Families, now: SystemTime) -> Value {
    let time = nanos(now);
    let metric = |(name, family): (&std::borrow::Cow<'static, str>, &crate::metrics::text::Family)| {
        let points: Vec<_> = family
            .samples
            .iter()
            .map(|sample| {
                let attributes: Vec<_> = sample.labels.iter().map(|(name, value)| attribute(name, value)).collect();
                let mut point = json!({ "timeUnixNano": time, "attributes": attributes });
                match sample.number {
                    Number::Whole(number) => match i64::try_from(number) {
                        Ok(number) => point["asInt"] = number.to_string().into(),
                        #[allow(clippy::cast_precision_loss)] // OTLP has no larger integers
                        Err(_) => point["asDouble"] = (number as f64).into(),
                    },
                    Number::Real(number) => point["asDouble"] = number.into(),
                }
                point
            })
            .collect();
        let mut metric = json!({ "name": name, "description": family.help });
        match family.kind {
            // 2: cumulative.
            Kind::Counter => {
                metric["sum"] = json!({ "dataPoints": points, "aggregationTemporality": 2, "isMonotonic": true });
            }
            Kind::Gauge => metric["gauge"] = json!({ "dataPoints": points }),
        }
        metric
    };
    let metrics: Vec<_> = families.0.iter().map(metric).collect();
    let scopes = json!([{ "scope": scope(), "metrics": metrics }]);
    json!({ "resourceMetrics": [{ "resource": resource(), "scopeMetrics": scopes }] })
}

/// Sends requests, one after the other.
fn send_all(otlp: &Otlp, receiver: &Receiver<Export>, counts: &Counts) {
    let config = Agent::config_builder().timeout_global(Some(REQUEST)).max_redirects(0).http_status_as_error(false);
    let agent = Agent::new_with_config(config.build());
    let mut wrong = None;
    for (path, body) in receiver {
        match send(otlp, &agent, path, &body, counts) {
            Ok(()) => {
                counts.sent.fetch_add(1, Ordering::Relaxed);
                if wrong.take().is_some() {
                    log::info!("{} accepts exports again", otlp.url);
                }
            }
            Err(why) => {
                counts.dropped.fetch_add(1, Ordering::Relaxed);
                if wrong.as_ref() != Some(&why) {
                    log::error!("an export to {}{path} is dropped: {why}", otlp.url);
                }
                wrong = Some(why);
            }
        }
    }
}

/// Sends a request, again and again while the specification of OTLP allows it.
fn send(otlp: &Otlp, agent: &Agent, path: &str, body: &[u8], counts: &Counts) -> Result<(), String> {
    let (begun, mut pause) = (Instant::now(), PAUSES.0);
    loop {
        let mut request = agent.post(format!("{}{path}", otlp.url)).content_type("application/json");
        for (name, value) in &otlp.headers {
            request = request.header(name, value);
        }
        let why = match request.send(body) {
            Ok(mut answer) if answer.status().is_success() => {
                let text = answer.body_mut().with_config().limit(MOST_ANSWER).read_to_string().unwrap_or_default();
                counts.rejected.fetch_add(rejected(&text), Ordering::Relaxed);
                return Ok(());
            }
            Ok(answer) => match answer.status().as_u16() {
                429 | 502..=504 => format!("status {}", answer.status()),
                status => return Err(format!("status {status}")),
            },
            Err(error) => error.to_string(),
        };
        if begun.elapsed() + pause > PATIENCE {
            return Err(why);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// The data points and records that an answer says were refused.
fn rejected(answer: &str) -> u64 {
    let answer: Value = serde_json::from_str(answer).unwrap_or_default();
    let of = |name: &str| match &answer["partialSuccess"][name] {
        Value::String(text) => text.parse().unwrap_or(0),
        number => number.as_u64().unwrap_or(0),
    };
    of("rejectedDataPoints") + of("rejectedLogRecords")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_sums_and_other_metrics_gauges() {
        let mut families = Families::default();
        families.add(("a_bytes", Kind::Counter, "Bytes."), &[("table", "t")], u64::MAX / 2);
        families.add(("b", Kind::Gauge, "A gauge."), &[], 0.5);
        let all = of_metrics(&families, UNIX_EPOCH + Duration::from_nanos(7));
        let metrics = &all["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
        assert_eq!(
            metrics[0],
            json!({"name": "a_bytes", "description": "Bytes.", "sum": {
                "dataPoints": [{"timeUnixNano": "7", "attributes": [{"key": "table", "value": {"stringValue": "t"}}],
                                "asInt": "9223372036854775807"}],
                "aggregationTemporality": 2, "isMonotonic": true}})
        );
        assert_eq!(metrics[1]["gauge"]["dataPoints"][0]["asDouble"], 0.5);
    }

    #[test]
    fn refusals_within_an_answer_are_counted() {
        for (answer, count) in [
            ("", 0),
            ("{}", 0),
            (r#"{"partialSuccess":{}}"#, 0),
            (r#"{"partialSuccess":{"rejectedDataPoints":"5","errorMessage":"x"}}"#, 5),
            (r#"{"partialSuccess":{"rejectedLogRecords":2}}"#, 2),
        ] {
            assert_eq!(rejected(answer), count, "{answer}");
        }
    }
}
