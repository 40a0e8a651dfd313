// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat check`: what this kernel and this user allow.

use std::path::Path;

use serde::Serialize;
use topstat_families::custom::{self, MOST_BYTES};
use topstat_kernel::{Check, Outcome};
use topstat_model::Unit;
use topstat_model::definition::Definition;
use topstat_model::typeset::{escape, width};

use crate::args::{CheckArgs, ColorWhen, ListFormat};
use crate::backend::Backend;
use crate::config::Config;
use crate::console::Console;
use crate::error::{Error, Exit};
use crate::resolve;
use crate::style::{GREEN, RED, YELLOW, colors, paint};

pub fn run(
    args: &CheckArgs,
    color: ColorWhen,
    backend: &mut dyn Backend,
    console: &mut dyn Console,
) -> Result<Exit, Error> {
    let mut samples = Vec::new();
    for name in &args.samples {
        samples.extend(resolve::samples(&topstat_families::catalogue().samples(), name)?);
    }
    let mut checks = backend.check(&samples);
    if args.samples.is_empty() || args.config.is_some() {
        checks.extend(configured(args.config.as_deref()));
    }
    let text = match args.output {
        ListFormat::Text => text(&checks, colors(color, console.facts())),
        ListFormat::Json => json(&checks),
    };
    console.write(text.as_bytes()).map_err(Error::Output)?;
    let missing = checks.iter().any(|check| check.outcome == Outcome::Missing);
    Ok(if missing { Exit::Failed } else { Exit::Done })
}

/// The memory of each table that the configuration defines, which is allocated when the table is loaded.
fn configured(file: Option<&Path>) -> Vec<Check> {
    let check = |name: String, outcome, found, advice: &str| Check { name, outcome, found, advice: advice.to_owned() };
    let config = match Config::find(file) {
        Ok((config, _)) => config,
        Err(error) => return vec![check("configuration".to_owned(), Outcome::Missing, error.to_string(), "")],
    };
    let table = |(path, definition): &(String, Definition)| {
        let bytes = custom::memory(definition);
        let found = format!("takes {} of the kernel's memory", Unit::Bytes.human(bytes));
        match bytes > MOST_BYTES {
            false => check(format!("table {path}"), Outcome::Ok, found, ""),
            true => {
                let found = format!("{found}, and at most {} are allowed", Unit::Bytes.human(MOST_BYTES));
                check(format!("table {path}"), Outcome::Missing, found, "give a smaller number after 'keys'")
            }
        }
    };
    config.defined().iter().map(table).collect()
}

/// The mark of an outcome, in text and in JSON.
fn mark(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Ok => "ok",
        Outcome::Degraded => "degraded",
        Outcome::Missing => "missing",
        Outcome::Unknown => "unknown",
    }
}

/// The checks as aligned lines.
pub(super) fn text(checks: &[Check], colors: bool) -> String {
    let marks = checks.iter().map(|check| mark(check.outcome).len()).max();
    let marks = marks.unwrap_or(0);
    let names = checks.iter().map(|check| width(&escape(&check.name))).max();
    let names = names.unwrap_or(0);
    let mut text = String::new();
    for check in checks {
        let style = match check.outcome {
            Outcome::Ok => GREEN,
            Outcome::Degraded | Outcome::Unknown => YELLOW,
            Outcome::Missing => RED,
        };
        let painted = paint(&format!("{:marks$}", mark(check.outcome)), style, colors);
        let name = escape(&check.name);
        let fill = " ".repeat(names - width(&name));
        let rest: Vec<_> = [&check.found, &check.advice]
            .into_iter()
            .filter(|part| !part.is_empty())
            .map(|part| escape(part))
            .collect();
        let line = format!("{painted}  {name}{fill}  {}", rest.join("; "));
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[derive(Serialize)]
struct CheckView<'a> {
    name: &'a str,
    outcome: &'a str,
    found: &'a str,
    advice: &'a str,
}

/// The checks as documents, a line each.
pub(super) fn json(checks: &[Check]) -> String {
    let line = |check: &Check| {
        let view =
            CheckView { name: &check.name, outcome: mark(check.outcome), found: &check.found, advice: &check.advice };
        serde_json::to_string(&view).expect("texts serialise") + "\n"
    };
    checks.iter().map(line).collect()
}
