// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat ls`: which samples and tables there are.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use topstat_kernel::{SampleInfo, State, TableInfo, TableSettings};
use topstat_model::{TableType, human_ms};

use crate::args::{ColorWhen, ListFormat, LsArgs};
use crate::backend::Backend;
use crate::console::Console;
use crate::error::{Error, Exit};
use crate::resolve;
use crate::style::{BOLD, colors, paint};

pub fn run(
    args: &LsArgs,
    color: ColorWhen,
    backend: &mut dyn Backend,
    console: &mut dyn Console,
) -> Result<Exit, Error> {
    let samples = match &args.sample {
        Some(name) => resolve::samples(name)?,
        None => topstat_kernel::samples(),
    };
    let states = Pinned::open(&args.pins.dir(), backend);
    let text = match args.output {
        ListFormat::Text => text(&samples, &states, colors(color, console.facts())),
        ListFormat::Json => json(&samples, &states),
    };
    console.write(text.as_bytes()).map_err(Error::Output)?;
    for error in &states.failed {
        console.note(&format!("topstat: {error}"));
    }
    Ok(if states.failed.is_empty() { Exit::Done } else { Exit::Failed })
}

/// The daemon's tables.
struct Pinned {
    states: Vec<Arc<dyn State>>,
    /// Why those of some families can't be seen, each reason once.
    failed: Vec<String>,
}

impl Pinned {
    /// A user who may not look at them gets the list without, and that is no failure: which tables there are does not
    /// depend on a daemon.
    fn open(pins: &Path, backend: &mut dyn Backend) -> Self {
        let mut pinned = Self { states: Vec::new(), failed: Vec::new() };
        for family in topstat_kernel::families().iter() {
            match backend.open(pins, family) {
                Ok(state) => pinned.states.extend(state),
                Err(topstat_kernel::Error::Denied { .. }) => {}
                Err(error) => pinned.failed.push(error.to_string()),
            }
        }
        pinned.failed.dedup();
        pinned
    }

    /// How many rows a table keeps, and what it is set to.
    fn of(&self, table: &TableInfo) -> Option<(u32, TableSettings)> {
        let has = |state: &&Arc<dyn State>| state.samples().iter().any(|sample| sample.name == table.sample);
        let state = self.states.iter().find(has)?;
        Some((state.top(), state.settings(table).ok()?))
    }

    /// In a few words: `on, 1s`, `off (tcp_v4), 5s, delay 100ms`.
    fn text(&self, table: &TableInfo) -> String {
        let Some((_, set)) = self.of(table) else { return String::new() };
        let on = match set {
            TableSettings { root_enabled: false, .. } => "off (all)".to_owned(),
            TableSettings { sample_enabled: false, .. } => format!("off ({})", table.sample),
            TableSettings { enabled: false, .. } => "off".to_owned(),
            _ => "on".to_owned(),
        };
        let period = match table.kind {
            TableType::Dynamic => format!(", {}", human_ms(set.period_ms)),
            TableType::Static => String::new(),
        };
        let delay = if set.delay_ms > 0 { format!(", delay {}", human_ms(set.delay_ms)) } else { String::new() };
        let sync = if set.sync { "" } else { ", not sync" };
        format!("{on}{period}{delay}{sync}")
    }
}

fn text(samples: &[Arc<SampleInfo>], states: &Pinned, colors: bool) -> String {
    let tables = || samples.iter().flat_map(|sample| &sample.tables);
    let widest = |cell: fn(&TableInfo) -> &str| tables().map(|t| cell(t).len()).max().unwrap_or(0);
    let name = widest(|table| &table.name);
    let kind = widest(|table| table.kind.name());
    let unit = widest(|table| table.unit.name());
    let set = tables().map(|table| states.text(table).len()).max().unwrap_or(0);
    // Without a daemon there is no such column.
    let gap = if set > 0 { "  " } else { "" };
    let mut text = String::new();
    for sample in samples {
        let title = paint(&sample.name, BOLD, colors);
        text += &format!("{title}  {}\n", sample.about);
        for table in &sample.tables {
            text += &format!(
                "  {:name$}  {:kind$}  {:unit$}  {:set$}{gap}{}\n",
                table.name,
                table.kind.name(),
                table.unit.name(),
                states.text(table),
                table.about
            );
        }
    }
    text
}

#[derive(Serialize)]
struct SampleView<'a> {
    sample: &'a str,
    about: &'a str,
    tables: Vec<TableView<'a>>,
}

#[derive(Serialize)]
struct TableView<'a> {
    table: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    unit: &'a str,
    value_name: &'a str,
    about: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    daemon: Option<DaemonView>,
}

/// The daemon's table.
#[derive(Serialize)]
struct DaemonView {
    top: u32,
    /// Pushes count.
    on: bool,
    enabled: bool,
    sample_enabled: bool,
    topstat_enabled: bool,
    sync: bool,
    period_ms: u32,
    delay_ms: u32,
}

fn json(samples: &[Arc<SampleInfo>], states: &Pinned) -> String {
    let line = |sample: &Arc<SampleInfo>| {
        let view = SampleView {
            sample: &sample.name,
            about: &sample.about,
            tables: sample.tables.iter().map(|table| view(table, states)).collect(),
        };
        serde_json::to_string(&view).expect("texts serialise") + "\n"
    };
    samples.iter().map(line).collect()
}

fn view<'a>(table: &'a TableInfo, states: &Pinned) -> TableView<'a> {
    let daemon = states.of(table).map(|(top, set)| DaemonView {
        top,
        on: set.enabled && set.sample_enabled && set.root_enabled,
        enabled: set.enabled,
        sample_enabled: set.sample_enabled,
        topstat_enabled: set.root_enabled,
        sync: set.sync,
        period_ms: set.period_ms,
        delay_ms: set.delay_ms,
    });
    TableView {
        table: &table.name,
        kind: table.kind.name(),
        unit: table.unit.name(),
        value_name: &table.value_name,
        about: &table.about,
        daemon,
    }
}
