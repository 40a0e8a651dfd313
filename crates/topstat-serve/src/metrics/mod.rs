// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `/metrics`. The number of series is known before: it depends on the number of tables, and not on the number of objects.

mod gather;
mod objects;
pub mod text;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use hyper::header::{ACCEPT, HeaderMap};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Mutex as Turn;

use crate::live::SHARED;
use crate::route::Answer;
use crate::server::App;
use crate::source::{Fault, Table};
use objects::Objects;
use text::{Families, Kind};

const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The state behind `/metrics`.
pub struct Metrics {
    /// The tables to read, by their paths or samples; empty: all.
    read: Vec<String>,
    /// The static tables whose objects have series.
    wanted: Vec<String>,
    objects: Arc<Mutex<Objects>>,
    last: Turn<Option<(Instant, Arc<Families>)>>,
}

impl Metrics {
    /// The state at the start. `read` are the paths or samples of the tables to read (empty: all), `wanted` the paths of tables
    /// whose objects have series.
    pub fn new(read: Vec<String>, wanted: Vec<String>) -> Self {
        Self { read, wanted, objects: Arc::default(), last: Turn::default() }
    }
}

/// The answer to a scrape. Without a daemon it says so by `topstat_up`, and is no error.
pub async fn answer(app: &App, headers: &HeaderMap) -> Answer {
    let families = families(app).await;
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let open =
        accepts.flat_map(|value| value.split(',')).any(|one| one.trim().starts_with("application/openmetrics-text"));
    Answer::new(if open { OPEN_METRICS } else { PROMETHEUS }, families.text(open))
}

/// All families, at most 100 ms old.
pub async fn families(app: &App) -> Arc<Families> {
    let mut last = app.metrics.last.lock().await;
    if let Some((at, families)) = &*last
        && at.elapsed() < SHARED
    {
        return Arc::clone(families);
    }
    let begun = Instant::now();
    let (mut families, up) = match gathered(app).await {
        Ok(families) => (families, 1),
        Err(fault) => {
            log::debug!("no metrics of tables: {fault}");
            (Families::default(), 0)
        }
    };
    families.add(("topstat_up", Kind::Gauge, "Whether the daemon's tables could be read (1) or not (0)."), &[], up);
    own(app, &mut families);
    let seconds = begun.elapsed().as_secs_f64();
    let help = "Time that reading all tables for this scrape took, in seconds.";
    families.add(("topstat_serve_scrape_seconds", Kind::Gauge, help), &[], seconds);
    let families = Arc::new(families);
    *last = Some((Instant::now(), Arc::clone(&families)));
    families
}

async fn gathered(app: &App) -> Result<Families, Fault> {
    let tables = app.live.tables().await?;
    let read = &app.metrics.read;
    let is_read =
        |table: &&Arc<Table>| read.is_empty() || read.iter().any(|name| *name == table.sample || *name == table.path());
    let chosen: Vec<_> = tables.iter().filter(is_read).cloned().collect();
    let (wanted, objects) = (app.metrics.wanted.clone(), Arc::clone(&app.metrics.objects));
    app.live
        .read(move |source| {
            let mut objects = objects.lock().unwrap_or_else(PoisonError::into_inner);
            gather::gather(source, (&tables, &chosen), &wanted, &mut objects)
        })
        .await
}

/// The server's own cost and counts.
fn own(app: &App, families: &mut Families) {
    let counter = |name: &'static str, help: &'static str| (name, Kind::Counter, help);
    let gauge = |name: &'static str, help: &'static str| (name, Kind::Gauge, help);
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    #[allow(clippy::cast_precision_loss)] // exact for years
    let cpu = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
    let help = "CPU time of this server, without its child process for reading the tree, in seconds.";
    families.add(counter("process_cpu_seconds", help), &[], cpu);
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    let bytes = pages * u64::try_from(rustix::param::page_size()).unwrap_or(0);
    families.add(gauge("process_resident_memory_bytes", "Resident memory of this server, in bytes."), &[], bytes);
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    for (class, requests) in app.counts.requests.iter().enumerate().skip(2) {
        let class = format!("{class}xx");
        let help = "Requests that were answered, by the class of their status.";
        families.add(counter("topstat_serve_requests", help), &[("code", &class)], count(requests));
    }
    let help = "Connections that were accepted.";
    families.add(counter("topstat_serve_connections", help), &[], count(&app.counts.connections));
    let help = "Connections that were refused because there were too many.";
    families.add(counter("topstat_serve_connections_refused", help), &[], count(&app.counts.refused));
    if app.config.otlp.is_some() {
        for (result, number) in [("sent", &app.exports.sent), ("dropped", &app.exports.dropped)] {
            let help = "Exports by OTLP that the collector has accepted (sent), or that were dropped.";
            families.add(counter("topstat_serve_exports", help), &[("result", result)], count(number));
        }
        let help = "Data points and log records that the collector has refused in exports that it has accepted.";
        families.add(counter("topstat_serve_exports_rejected", help), &[], count(&app.exports.rejected));
    }
    let streams = crate::server::MOST_STREAMS - app.streams.available_permits();
    families.add(gauge("topstat_serve_streams", "Streams of events that are open."), &[], streams as u64);
}
