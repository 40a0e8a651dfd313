// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of the user's own: on the command line, in the configuration, in files of tables, and pinned by a daemon.

use std::path::Path;

use topstat_families::custom::Trouble;
use topstat_model::definition::{self, Definition, Fault};
use topstat_model::typeset::escape;

use crate::backend::Backend;
use crate::error::Error;
use crate::library::{self, OF_LIBRARY};

/// The sample of a table that is defined on the command line.
const SAMPLE: &str = "event";
/// A name or a definition as the user has written it. Returns the path of its table, which is in the catalogue then:
/// `SAMPLE/TABLE` as it is, a definition or `@NAME` as the table that was made of it.
///
/// # Errors
///
/// The definition is wrong, or there is no such table in the library.
pub fn table(written: &str, backend: &mut dyn Backend) -> Result<String, Error> {
    if let Some(name) = written.strip_prefix(OF_LIBRARY) {
        let entry = library::entry(name).map_err(Error::Usage)?;
        let sample = name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        return define(&sample, &entry.table, backend);
    }
    if definition::is_definition(written) { define(SAMPLE, written, backend) } else { Ok(written.to_owned()) }
}

/// Adds the table of a definition, with a name that follows from its amount.
fn define(sample: &str, text: &str, backend: &mut dyn Backend) -> Result<String, Error> {
    let definition = definition::parse(text).map_err(|fault| wrong(text, &fault))?;
    let table = match (&definition.source, &definition.amount) {
        (definition::Source::Span { .. }, _) => "time",
        (_, Some(_)) => "sum",
        _ => "count",
    };
    let path = format!("{sample}/{table}");
    if topstat_families::catalogue().find(sample, table).is_none() {
        add(sample, table, text, &definition, backend)?;
    }
    Ok(path)
}

/// Adds a table to the catalogue.
fn add(sample: &str, table: &str, text: &str, definition: &Definition, backend: &mut dyn Backend) -> Result<(), Error> {
    backend.define(sample, table, definition).map_err(|trouble| match trouble {
        Trouble::Definition(fault) => wrong(text, &fault),
        Trouble::Other(error) => error.into(),
    })
}

/// The error for a definition: what is wrong, and the definition with a mark below the place.
fn wrong(text: &str, fault: &Fault) -> Error {
    let before: String = text.chars().take(fault.at.saturating_sub(1)).collect();
    let shown = escape(text);
    let width = topstat_model::typeset::width(&escape(&before));
    Error::Usage(format!("{}\n  {shown}\n  {:width$}^", fault.why, ""))
}

/// Adds the tables that a daemon has pinned, so that commands find them by their names. A user who may not see the pins sees the
/// built-in tables alone, and the files of the tree.
pub fn add_pinned(pins: &Path, backend: &mut dyn Backend) {
    for pinned in backend.defined(pins).unwrap_or_default() {
        let Some((sample, table)) = pinned.name.split_once('/') else { continue };
        // A definition that this kernel has no events for any more stays pinned, and can't be read.
        if let Ok(definition) = definition::parse(&pinned.definition)
            && topstat_families::catalogue().find(sample, table).is_none()
        {
            let _ = backend.define(sample, table, &definition);
        }
    }
}

/// The table of processes that have ended, which the live view shows, and the name of its definition in the library.
pub const ENDED: (&str, &str, &str) = ("ended", "cpu", "ended-processes");

/// Adds the table [`ENDED`], unless there is one of this name, such as a daemon's. Returns whether the table is new.
pub fn add_ended(backend: &mut dyn Backend) -> bool {
    let (sample, table, name) = ENDED;
    let is_new = topstat_families::catalogue().find(sample, table).is_none();
    is_new
        && library::entry(name)
            .map_err(Error::Usage)
            .and_then(|entry| {
                let definition = definition::parse(&entry.table).map_err(|fault| wrong(&entry.table, &fault))?;
                add(sample, table, &entry.table, &definition, backend)
            })
            .is_ok()
}

/// Adds the tables of a configuration. Returns what is wrong with those that can't be added, each with its name.
pub fn add_configured(tables: &[(String, Definition)], backend: &mut dyn Backend) -> Vec<String> {
    let mut wrong = Vec::new();
    for (path, definition) in tables {
        let Some((sample, table)) = path.split_once('/') else { continue };
        if let Err(error) = add(sample, table, &definition.text, definition, backend) {
            wrong.push(format!("tables.{path:?}: {error}"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_definition_is_shown_with_its_place() {
        let text = "block:block_rq_issue bye dev";
        let fault = definition::parse(text).unwrap_err();
        let error = wrong(text, &fault).to_string();
        let lines: Vec<_> = error.lines().collect();
        assert_eq!(lines[1], format!("  {text}"));
        assert_eq!(lines[2].find('^'), text.find("bye").map(|at| at + 2), "{error}");
    }
}
