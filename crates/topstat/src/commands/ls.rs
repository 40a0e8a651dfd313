// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat ls`: which samples and tables there are.

use serde::Serialize;
use topstat_samples::{SampleInfo, TableInfo};

use crate::args::{ColorWhen, ListFormat, LsArgs};
use crate::console::Console;
use crate::error::{Error, Exit};
use crate::resolve;
use crate::style::{BOLD, colors, paint};

pub fn run(args: &LsArgs, color: ColorWhen, console: &mut dyn Console) -> Result<Exit, Error> {
    let samples = match &args.sample {
        Some(name) => resolve::samples(name)?,
        None => topstat_samples::samples().to_vec(),
    };
    let text = match args.output {
        ListFormat::Text => text(&samples, colors(color, console.facts())),
        ListFormat::Json => json(&samples),
    };
    console.write(text.as_bytes()).map_err(Error::Output)?;
    Ok(Exit::Done)
}

fn text(samples: &[&SampleInfo], colors: bool) -> String {
    let tables = || samples.iter().flat_map(|sample| sample.tables);
    let widest = |cell: fn(&TableInfo) -> &str| tables().map(|t| cell(t).len()).max().unwrap_or(0);
    let name = widest(|table| table.name);
    let kind = widest(|table| table.kind.name());
    let unit = widest(|table| table.unit.name());
    let mut text = String::new();
    for sample in samples {
        let title = paint(sample.name, BOLD, colors);
        text += &format!("{title}  {}\n", sample.about);
        for table in sample.tables {
            text += &format!(
                "  {:name$}  {:kind$}  {:unit$}  {}\n",
                table.name,
                table.kind.name(),
                table.unit.name(),
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
}

fn json(samples: &[&SampleInfo]) -> String {
    let line = |sample: &&SampleInfo| {
        let view = SampleView {
            sample: sample.name,
            about: sample.about,
            tables: sample.tables.iter().map(TableView::from).collect(),
        };
        serde_json::to_string(&view).expect("texts serialise") + "\n"
    };
    samples.iter().map(line).collect()
}

impl<'a> From<&'a TableInfo> for TableView<'a> {
    fn from(table: &'a TableInfo) -> Self {
        Self {
            table: table.name,
            kind: table.kind.name(),
            unit: table.unit.name(),
            value_name: table.value_name,
            about: table.about,
        }
    }
}
