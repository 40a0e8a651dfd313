// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat ls`: lists samples and tables.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use serde_json::json;
use topstat_kernel::{SampleInfo, State, TableInfo, TableSettings};
use topstat_model::typeset::escape;
use topstat_model::{TableType, human_ms};

use crate::args::{ColorWhen, ListFormat, LsArgs};
use crate::backend::Backend;
use crate::console::Console;
use crate::error::{Error, Exit};
use crate::files::Files;
use crate::library;
use crate::resolve;
use crate::style::{BOLD, colors, paint};

pub fn run(
    args: &LsArgs,
    color: ColorWhen,
    backend: &mut dyn Backend,
    console: &mut dyn Console,
) -> Result<Exit, Error> {
    if let Some(pattern) = &args.events {
        return events(pattern, args.output, backend, console);
    }
    if args.library {
        return library(args.output, console);
    }
    let files = args.root.as_deref().map(Files::open).transpose()?;
    let files = files.map(Files::described).transpose()?;
    let all = files.as_ref().map_or_else(|| topstat_families::catalogue().samples(), |files| files.samples().to_vec());
    let samples = match &args.sample {
        Some(name) => resolve::samples(&all, name)?,
        None => all,
    };
    let states = match files {
        Some(files) => Set::in_files(&samples, &files)?,
        None => Set::pinned(&samples, &args.pins.dir(), backend),
    };
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

/// Lists events and their fields.
fn events(
    pattern: &str,
    output: ListFormat,
    backend: &mut dyn Backend,
    console: &mut dyn Console,
) -> Result<Exit, Error> {
    let found = backend.events_of(pattern).map_err(Error::Usage)?;
    if found.is_empty() {
        return Err(Error::Usage(format!("no event has a name like {}", escape(pattern))));
    }
    let mut text = String::new();
    for (event, fields) in &found {
        match output {
            ListFormat::Text => {
                let width = fields.iter().map(|field| field.name.len()).max().unwrap_or(0);
                let _ = writeln!(text, "{event}");
                for field in fields {
                    let _ = writeln!(text, "    {:width$}  {}", field.name, field.kind);
                }
            }
            ListFormat::Json => {
                let fields: Vec<_> =
                    fields.iter().map(|field| json!({"name": field.name, "type": field.kind})).collect();
                let _ = writeln!(text, "{}", json!({"event": event, "fields": fields}));
            }
        }
    }
    console.write(text.as_bytes()).map_err(Error::Output)?;
    Ok(Exit::Done)
}

/// Lists the tables of the library.
fn library(output: ListFormat, console: &mut dyn Console) -> Result<Exit, Error> {
    let mut text = String::new();
    for library::Entry { name, about, table } in library::all().map_err(Error::Usage)? {
        match output {
            ListFormat::Text => {
                let _ = writeln!(text, "@{name}\n    {about}\n    {table}");
            }
            ListFormat::Json => {
                let _ = writeln!(text, "{}", json!({"name": name, "about": about, "table": table}));
            }
        }
    }
    console.write(text.as_bytes()).map_err(Error::Output)?;
    Ok(Exit::Done)
}

/// The settings of tables.
struct Set {
    tables: HashMap<String, (TableSettings, Where)>,
    /// Why the settings of some families can't be read, each reason once.
    failed: Vec<String>,
}

/// The owner of a table.
#[derive(Clone, Copy)]
enum Where {
    /// The daemon, whose tables keep this many rows.
    Daemon(u32),
    /// Another tree (`--root`).
    Tree,
}

impl Set {
    /// The settings of the daemon's tables. A user without the right to read them gets the list without settings. That is no
    /// failure: the list of tables does not depend on a daemon.
    fn pinned(samples: &[Arc<SampleInfo>], pins: &Path, backend: &mut dyn Backend) -> Self {
        let mut set = Self { tables: HashMap::new(), failed: Vec::new() };
        for family in topstat_families::catalogue().families().iter() {
            match backend.open(pins, family) {
                Ok(None) | Err(topstat_kernel::Error::Denied { .. }) => {}
                Ok(Some(state)) => set.add(samples, state.as_ref()),
                Err(error) => set.failed.push(error.to_string()),
            }
        }
        set.failed.dedup();
        set
    }

    fn add(&mut self, samples: &[Arc<SampleInfo>], state: &dyn State) {
        let of_state = |sample: &&Arc<SampleInfo>| state.samples().iter().any(|own| own.name == sample.name);
        for table in samples.iter().filter(of_state).flat_map(|sample| &sample.tables) {
            if let Ok(settings) = state.settings(table) {
                self.tables.insert(table.path(), (settings, Where::Daemon(state.top())));
            }
        }
    }

    fn in_files(samples: &[Arc<SampleInfo>], files: &Files) -> Result<Self, Error> {
        let tables = samples.iter().flat_map(|sample| &sample.tables);
        let set = |table: &Arc<TableInfo>| Ok((table.path(), (files.settings(table)?, Where::Tree)));
        Ok(Self { tables: tables.map(set).collect::<Result<_, Error>>()?, failed: vec![] })
    }

    fn of(&self, table: &TableInfo) -> Option<&(TableSettings, Where)> {
        self.tables.get(&table.path())
    }

    /// The settings in short: `on, 1s`, `off (tcp_v4), 5s, delay 100ms`.
    fn text(&self, table: &TableInfo) -> String {
        let Some((set, _)) = self.of(table) else { return String::new() };
        let on = match *set {
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

fn text(samples: &[Arc<SampleInfo>], states: &Set, colors: bool) -> String {
    let tables = || samples.iter().flat_map(|sample| &sample.tables);
    let widest = |cell: fn(&TableInfo) -> &str| tables().map(|t| cell(t).len()).max().unwrap_or(0);
    let name = widest(|table| &table.name);
    let kind = widest(|table| table.kind.name());
    let unit = widest(|table| table.unit.name());
    let set = tables().map(|table| states.text(table).len()).max().unwrap_or(0);
    // Without settings the column is left out.
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
    /// The settings of the daemon's table.
    #[serde(skip_serializing_if = "Option::is_none")]
    daemon: Option<SetView>,
    /// The settings of another tree's table.
    #[serde(skip_serializing_if = "Option::is_none")]
    tree: Option<SetView>,
}

#[derive(Serialize)]
struct SetView {
    #[serde(skip_serializing_if = "Option::is_none")]
    top: Option<u32>,
    /// Pushes count.
    on: bool,
    enabled: bool,
    sample_enabled: bool,
    topstat_enabled: bool,
    sync: bool,
    period_ms: u32,
    delay_ms: u32,
}

fn json(samples: &[Arc<SampleInfo>], states: &Set) -> String {
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

fn view<'a>(table: &'a TableInfo, states: &Set) -> TableView<'a> {
    let set = |top: Option<u32>, set: &TableSettings| SetView {
        top,
        on: set.counts(),
        enabled: set.enabled,
        sample_enabled: set.sample_enabled,
        topstat_enabled: set.root_enabled,
        sync: set.sync,
        period_ms: set.period_ms,
        delay_ms: set.delay_ms,
    };
    let (daemon, tree) = match states.of(table) {
        Some((settings, Where::Daemon(top))) => (Some(set(Some(*top), settings)), None),
        Some((settings, Where::Tree)) => (None, Some(set(None, settings))),
        None => (None, None),
    };
    TableView {
        table: &table.name,
        kind: table.kind.name(),
        unit: table.unit.name(),
        value_name: &table.value_name,
        about: &table.about,
        daemon,
        tree,
    }
}
