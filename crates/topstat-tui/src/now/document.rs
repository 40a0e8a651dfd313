// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The "now" screen as JSON, for programs.

use serde::Serialize;
use topstat_model::json::{self, ObjectView};
use topstat_model::rfc3339;

use super::text::MOST;
use super::{Line, Panel};
use crate::host::Host;
use crate::state::App;

#[derive(Serialize)]
struct Document<'a> {
    time: String,
    host: Option<HostView<'a>>,
    panels: Vec<PanelView>,
    complete: bool,
    doubts: Vec<String>,
}

#[derive(Serialize)]
struct HostView<'a> {
    load: Option<f64>,
    cpu: Option<CpuView>,
    cpus_busy: &'a [f64],
    memory: Option<MemoryView>,
    network: Option<NetworkView>,
    retransmits_per_second: Option<f64>,
    disk: Option<DiskView<'a>>,
    pressure: PressureView,
}

#[derive(Serialize)]
struct CpuView {
    user: f64,
    system: f64,
    irq: f64,
    steal: f64,
}

#[derive(Serialize)]
struct MemoryView {
    total_bytes: u64,
    available_bytes: u64,
    swap_total_bytes: u64,
    swap_used_bytes: u64,
}

#[derive(Serialize)]
struct NetworkView {
    received_bits_per_second: u64,
    sent_bits_per_second: u64,
}

#[derive(Serialize)]
struct DiskView<'a> {
    read_bytes_per_second: u64,
    written_bytes_per_second: u64,
    busiest: Option<&'a str>,
    busiest_share: Option<f64>,
}

#[derive(Serialize)]
struct PressureView {
    cpu: Option<f64>,
    memory: Option<f64>,
    io: Option<f64>,
}

#[derive(Serialize)]
struct PanelView {
    panel: &'static str,
    unit: &'static str,
    rows: Vec<serde_json::Value>,
    other: Option<OtherView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    said: Option<String>,
}

#[derive(Serialize)]
struct OtherView {
    value: f64,
    objects: Option<u64>,
}

#[derive(Serialize)]
struct RowView<'a> {
    rank: usize,
    value: f64,
    share: f64,
    name: &'a str,
    place: &'a str,
    more: &'a str,
    closed: bool,
    table: Option<String>,
    object: Option<ObjectView<'a>>,
}

/// The screen as one line of JSON: the host, the panels one after the other, and whether that is complete. docs/schema has the
/// meaning and the unit of each key.
///
/// # Errors
///
/// A value that JSON has no form for.
pub fn document(app: &App) -> std::io::Result<Vec<u8>> {
    let hosts: Vec<_> = app.hosts.until(None, 1).collect();
    let doubts = app.trust().doubts;
    let mut written = Vec::new();
    let document = Document {
        time: rfc3339(app.shown_at()),
        host: hosts.last().map(|host| HostView::of(host)),
        panels: Panel::ALL.into_iter().map(|panel| PanelView::of(app, panel)).collect::<Result<_, _>>()?,
        complete: doubts.is_empty(),
        doubts,
    };
    json::line(&document, &mut written)?;
    Ok(written)
}

impl<'a> HostView<'a> {
    fn of(host: &'a Host) -> Self {
        Self {
            load: host.load,
            cpu: host.cpu.map(|cpu| CpuView { user: cpu.user, system: cpu.system, irq: cpu.irq, steal: cpu.steal }),
            cpus_busy: &host.cpus,
            memory: host.memory.map(|memory| MemoryView {
                total_bytes: memory.total,
                available_bytes: memory.available,
                swap_total_bytes: memory.swap_total,
                swap_used_bytes: memory.swap_used,
            }),
            network: host
                .net
                .map(|(received, sent)| NetworkView { received_bits_per_second: received, sent_bits_per_second: sent }),
            retransmits_per_second: host.retrans,
            disk: host.disk.as_ref().map(|disk| DiskView {
                read_bytes_per_second: disk.read,
                written_bytes_per_second: disk.written,
                busiest: disk.busiest.as_ref().map(|(name, _)| name.as_str()),
                busiest_share: disk.busiest.as_ref().map(|(_, share)| *share),
            }),
            pressure: PressureView { cpu: host.pressure.cpu, memory: host.pressure.memory, io: host.pressure.io },
        }
    }
}

impl PanelView {
    fn of(app: &App, panel: Panel) -> Result<Self, serde_json::Error> {
        let content = app.panel(panel, MOST);
        Ok(Self {
            panel: panel.name(),
            unit: panel.unit(),
            rows: (1..).zip(&content.lines).map(|(rank, line)| row(app, rank, line)).collect::<Result<_, _>>()?,
            other: content.others.map(|others| OtherView { value: others.value, objects: others.count }),
            said: content.said,
        })
    }
}

fn row(app: &App, rank: usize, line: &Line) -> Result<serde_json::Value, serde_json::Error> {
    let of = line.of.as_ref();
    let snapshot = of.and_then(|(table, _)| app.shown(*table).ok());
    serde_json::to_value(RowView {
        rank,
        value: line.value,
        share: line.share,
        name: &line.name,
        place: &line.place,
        more: &line.more,
        closed: line.ended,
        table: snapshot.as_ref().map(|snapshot| format!("{}/{}", snapshot.sample, snapshot.table)),
        object: snapshot
            .as_ref()
            .zip(of)
            .map(|(snapshot, (_, object))| ObjectView { columns: &snapshot.columns, object }),
    })
}
