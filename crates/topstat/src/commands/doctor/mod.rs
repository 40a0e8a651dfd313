// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat doctor`: the lines of `topstat check`, and lines of all installed, loaded, pinned and running parts.

mod archive;
mod host;
mod kernel;
mod units;

use topstat_kernel::{Check, Outcome};

use super::check;
use crate::args::doctor::DoctorArgs;
use crate::args::{ColorWhen, ListFormat};
use crate::backend::Backend;
use crate::console::Console;
use crate::error::{Error, Exit};
use crate::style::colors;
use host::Host;

pub fn run(
    args: &DoctorArgs,
    color: ColorWhen,
    backend: &mut dyn Backend,
    console: &mut dyn Console,
) -> Result<Exit, Error> {
    let host = Host { root: backend.host(), mount: args.mount.dir(), pins: args.pins.dir() };
    let mut checks = host.installed();
    checks.extend(units::checks(&host));
    checks.push(host.daemon());
    checks.extend(host.pinned(backend.status(&host.pins)));
    checks.push(host.tree());
    checks.push(host.configuration());
    checks.push(host.history());
    checks.extend(kernel::checks(&host));
    checks.extend(backend.check(&[]));
    let text = match args.output {
        ListFormat::Text => check::text(&checks, colors(color, console.facts())),
        ListFormat::Json => check::json(&checks),
    };
    console.write(text.as_bytes()).map_err(Error::Output)?;
    if let Some(path) = &args.archive {
        archive::write(path, &host, &checks)?;
        console.note(&format!("topstat: {} is written; look into it before you send it", path.display()));
    }
    let missing = checks.iter().any(|check| check.outcome == Outcome::Missing);
    Ok(if missing { Exit::Failed } else { Exit::Done })
}

fn line(name: &str, outcome: Outcome, found: impl Into<String>, advice: &str) -> Check {
    Check { name: name.to_owned(), outcome, found: found.into(), advice: advice.to_owned() }
}

fn ok(name: &str, found: impl Into<String>) -> Check {
    line(name, Outcome::Ok, found, "")
}
