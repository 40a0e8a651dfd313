// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of the user's own: on the command line, in the configuration, in files of tables, and pinned by a daemon.

use std::path::{Path, PathBuf};

use topstat_families::custom::Trouble;
use topstat_model::definition::{self, Definition, Fault};
use topstat_model::typeset::escape;

use crate::backend::Backend;
use crate::config::document::{self, Problem, Wrong};
use crate::error::Error;
use crate::suggest::did_you_mean;

/// The sample of a table that is defined on the command line.
const SAMPLE: &str = "event";
/// The mark before the name of a table of the library.
pub const OF_LIBRARY: char = '@';
/// Folders of files with tables. A table in an earlier folder takes the place of a later one with its name.
const FOLDERS: [&str; 2] = ["/etc/topstat/tables.d", "/usr/share/topstat/tables.d"];

/// The library that is part of the program.
const LIBRARY: &str = include_str!("../../../families/custom/library.toml");

/// A table of the library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name, with which `@` goes: `run-queue-latency`.
    pub name: String,
    /// What it answers, for people.
    pub about: String,
    /// The definition.
    pub table: String,
}

/// A name or a definition as the user has written it. Returns the path of its table, which is in the catalogue then:
/// `SAMPLE/TABLE` as it is, a definition or `@NAME` as the table that was made of it.
///
/// # Errors
///
/// The definition is wrong, or there is no such table in the library.
pub fn table(written: &str, backend: &mut dyn Backend) -> Result<String, Error> {
    if let Some(name) = written.strip_prefix(OF_LIBRARY) {
        let entry = entry(name)?;
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
        && entry(name)
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

/// The definition that a configuration means: a definition, or `@NAME`.
///
/// # Errors
///
/// What is wrong, in the words for the user.
pub fn parse(text: &str) -> Result<Definition, String> {
    let text = match text.strip_prefix(OF_LIBRARY) {
        Some(name) => entry(name).map_err(|error| error.to_string())?.table,
        None => text.to_owned(),
    };
    definition::parse(&text).map_err(|fault| fault.to_string())
}

/// A table of the library.
fn entry(name: &str) -> Result<Entry, Error> {
    let all = library()?;
    let names: Vec<_> = all.iter().map(|entry| entry.name.clone()).collect();
    all.into_iter().find(|entry| entry.name == name).ok_or_else(|| {
        let meant = match did_you_mean(name, names.iter().map(String::as_str)) {
            meant if meant.is_empty() => format!(": there are {}", names.join(", ")),
            meant => meant,
        };
        Error::Usage(format!("the library has no table {}{meant} (topstat ls --library lists all)", escape(name)))
    })
}

/// All tables of the library: those in the folders, and those that are part of the program.
///
/// # Errors
///
/// A file can't be read, or is no file of tables.
pub fn library() -> Result<Vec<Entry>, Error> {
    let mut all = Vec::new();
    for folder in FOLDERS {
        for file in files(Path::new(folder))? {
            let read = std::fs::read_to_string(&file).map_err(|e| format!("cannot read {}: {e}", file.display()));
            let entries = read.and_then(|text| read_entries(&text).map_err(|e| format!("{}: {e}", file.display())));
            extend(&mut all, entries.map_err(Error::Usage)?);
        }
    }
    extend(&mut all, read_entries(LIBRARY).map_err(Error::Usage)?);
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// Adds entries whose names are new.
fn extend(all: &mut Vec<Entry>, more: Vec<Entry>) {
    for entry in more {
        if !all.iter().any(|known| known.name == entry.name) {
            all.push(entry);
        }
    }
}

/// The files of a folder that are named `*.toml`, in the order of their names. A folder may be absent.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::Usage(format!("cannot read {}: {error}", folder.display()))),
    };
    let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    Ok(files)
}

/// The entries of a file: tables of TOML with the texts `about` and `table`.
fn read_entries(text: &str) -> Result<Vec<Entry>, String> {
    let mut all = Vec::new();
    let read = document::read(text, |root, problems| {
        root.each(problems, |name, value, problems| {
            let (mut about, mut table) = (None, None);
            value.table()?.each(problems, |key, value, _| {
                match key {
                    "about" => about = Some(value.string()?.to_owned()),
                    "table" => table = Some(value.string()?.to_owned()),
                    _ => return Err(Wrong::Key(format!("unknown key {}: there are about and table", escape(key)))),
                }
                Ok(())
            });
            let missing = |key: &str| Wrong::Key(format!("the table {} has no text {key}", escape(name)));
            let table = table.ok_or_else(|| missing("table"))?;
            all.push(Entry { name: name.to_owned(), about: about.ok_or_else(|| missing("about"))?, table });
            Ok(())
        });
    });
    let places = |problems: Vec<Problem>| {
        let place = |problem: &Problem| format!("{}:{}: {}", problem.line, problem.column, problem.text);
        problems.iter().map(place).collect::<Vec<_>>().join("; ")
    };
    read.map(|()| all).map_err(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_of_the_library_parses_and_says_what_it_answers() {
        let all = read_entries(LIBRARY).unwrap();
        assert!(all.len() >= 25, "{} tables", all.len());
        for entry in &all {
            definition::parse(&entry.table).unwrap_or_else(|fault| panic!("{}: {fault}", entry.name));
            assert!(entry.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{}", entry.name);
            assert!(entry.about.len() > 10, "{}", entry.name);
        }
    }

    #[test]
    fn a_wrong_definition_is_shown_with_its_place() {
        let text = "block:block_rq_issue bye dev";
        let fault = definition::parse(text).unwrap_err();
        let error = wrong(text, &fault).to_string();
        let lines: Vec<_> = error.lines().collect();
        assert_eq!(lines[1], format!("  {text}"));
        assert_eq!(lines[2].find('^'), text.find("bye").map(|at| at + 2), "{error}");
    }

    #[test]
    fn an_unknown_table_of_the_library_suggests_a_near_one() {
        let error = entry("run-queue-latancy").unwrap_err().to_string();
        assert!(error.contains("did you mean run-queue-latency?"), "{error}");
    }
}
