// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Server-sent events: documents of tables and of the host, again and again.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http_body_util::channel::{Channel, Sender};
use http_body_util::{Either, Full};
use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use serde_json::json;
use topstat_model::{Format, Snapshot, json as document};

use crate::api;
use crate::live::SHARED;
use crate::query::{Query, Rows};
use crate::route::Answer;
use crate::server::{self, App, MOST_STREAMS};
use crate::source::Fault;

/// The most tables of one stream.
const MOST_TABLES: usize = 32;
/// The interval, and its limits.
const INTERVAL: (Duration, Duration, Duration) =
    (Duration::from_secs(2), Duration::from_millis(500), Duration::from_secs(60));
/// A read that fails after this time was a wait for a daemon that is stuck.
const STUCK: Duration = Duration::from_secs(2);
/// How soon a client connects again, in ms.
const RETRY_MS: u32 = 2000;
/// Rounds of events that wait for the client: a slow client gets fewer rounds, and no old ones.
const WAITING: usize = 1;

/// Begins a stream.
pub async fn answer(app: &Arc<App>, method: &Method, mut query: Query) -> Result<Answer, Fault> {
    let tables = query.all("table");
    let rows = Rows::take(&mut query)?;
    let (usual, least, most) = INTERVAL;
    let interval = query.length("interval", least..=most)?.unwrap_or(usual);
    query.end()?;
    if tables.len() > MOST_TABLES {
        return Err(Fault::Wrong(format!("a stream has at most {MOST_TABLES} tables")));
    }
    // A filter that is wrong is an error now. A table that is not there, or a daemon, may come: that is an event.
    if !rows.all() {
        for table in &tables {
            if let Err(wrong @ Fault::Wrong(_)) = snapshot(app, table, &rows).await {
                return Err(wrong);
            }
        }
    }
    let Ok(place) = Arc::clone(&app.streams).try_acquire_owned() else {
        let why = format!("there are {MOST_STREAMS} streams already, which is the most");
        return Ok(Answer::wrong(StatusCode::SERVICE_UNAVAILABLE, &why));
    };
    const KIND: &str = "text/event-stream";
    if method == Method::HEAD {
        return Ok(Answer { body: Either::Left(Full::default()), ..Answer::new(KIND, "") });
    }
    let (sender, body) = Channel::new(WAITING);
    let app = Arc::clone(app);
    tokio::spawn(async move {
        let _place = place;
        let mut ending = app.ending.clone();
        tokio::select! {
            // An error: the client has gone.
            _ = events(&app, &tables, &rows, interval, sender) => {}
            () = server::ended(&mut ending) => {}
        }
    });
    Ok(Answer { body: Either::Right(body), ..Answer::new(KIND, "") })
}

/// Sends events until the client goes.
async fn events(
    app: &App,
    tables: &[String],
    rows: &Rows,
    interval: Duration,
    mut sender: Sender<Bytes>,
) -> Result<(), http_body_util::channel::SendError> {
    sender.send_data(format!("retry: {RETRY_MS}\n\n").into()).await?;
    loop {
        let mut text = Vec::new();
        let mut stuck = None;
        for table in tables {
            let asked = Instant::now();
            let read = match &stuck {
                // One table has waited for all of them.
                Some(fault) => Err(Fault::clone(fault)),
                None => snapshot(app, table, rows).await,
            };
            if asked.elapsed() > STUCK {
                stuck = read.as_ref().err().cloned();
            }
            let (name, data) = match read {
                Ok(data) => ("snapshot", data),
                Err(fault) => ("fault", line(&json!({ "table": table, "error": fault.to_string() }))),
            };
            event(&mut text, name, &data);
        }
        match app.live.host().await {
            Ok(host) => event(&mut text, "host", &line(&host)),
            Err(fault) => event(&mut text, "fault", &line(&json!({ "error": fault.to_string() }))),
        }
        sender.send_data(text.into()).await?;
        // Sooner, it would be sent the documents of this round again.
        let next = until_next(SystemTime::now(), interval);
        tokio::time::sleep(if next > SHARED { next } else { next + interval }).await;
    }
}

/// The document of a table, one line.
async fn snapshot(app: &App, table: &str, rows: &Rows) -> Result<Bytes, Fault> {
    let shot = app.live.shot(table).await?;
    if rows.all() {
        return Ok(shot.document.clone());
    }
    let mut snapshot = Snapshot::clone(&*shot.snapshot()?);
    rows.apply(&mut snapshot)?;
    Ok(api::written(&snapshot, Format::Json).into())
}

fn line(value: &serde_json::Value) -> Bytes {
    let mut text = Vec::new();
    document::line(value, &mut text).expect("a Value is JSON");
    text.into()
}

/// Appends an event. The data is one line, with its end.
fn event(text: &mut Vec<u8>, name: &str, data: &[u8]) {
    text.extend(format!("event: {name}\ndata: ").bytes());
    text.extend(data);
    text.push(b'\n');
}

/// The time until the next whole multiple of the interval, by the clock of the host: streams with one interval read tables at the
/// same time, and so share the documents.
fn until_next(now: SystemTime, interval: Duration) -> Duration {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let into = u64::try_from(since % interval.as_nanos().max(1)).unwrap_or(0);
    interval.saturating_sub(Duration::from_nanos(into))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_one_interval_meet() {
        let at = |ms| UNIX_EPOCH + Duration::from_millis(ms);
        let two = Duration::from_secs(2);
        for (now, wait) in [(10_000, 2000), (10_001, 1999), (11_999, 1)] {
            assert_eq!(until_next(at(now), two), Duration::from_millis(wait));
        }
    }
}
