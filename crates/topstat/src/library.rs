// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The library of tables: definitions with a name, which are part of the program or in files of tables.

use std::path::{Path, PathBuf};

use topstat_model::definition::{self, Definition};
use topstat_model::typeset::escape;

use crate::document::{self, Problem, Wrong};
use crate::suggest::did_you_mean;

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

/// The definition that a configuration means: a definition, or `@NAME`.
///
/// # Errors
///
/// What is wrong, in the words for the user.
pub fn parse(text: &str) -> Result<Definition, String> {
    let text = match text.strip_prefix(OF_LIBRARY) {
        Some(name) => entry(name)?.table,
        None => text.to_owned(),
    };
    definition::parse(&text).map_err(|fault| fault.to_string())
}

/// A table of the library.
///
/// # Errors
///
/// There is none of this name, or the library can't be read. In the words for the user.
pub fn entry(name: &str) -> Result<Entry, String> {
    let all = all()?;
    let names: Vec<_> = all.iter().map(|entry| entry.name.clone()).collect();
    all.into_iter().find(|entry| entry.name == name).ok_or_else(|| {
        let meant = match did_you_mean(name, names.iter().map(String::as_str)) {
            meant if meant.is_empty() => format!(": there are {}", names.join(", ")),
            meant => meant,
        };
        format!("the library has no table {}{meant} (topstat ls --library lists all)", escape(name))
    })
}

/// All tables of the library: those in the folders, and those that are part of the program.
///
/// # Errors
///
/// A file can't be read, or is no file of tables. In the words for the user.
pub fn all() -> Result<Vec<Entry>, String> {
    let mut all = Vec::new();
    for folder in FOLDERS {
        for file in files(Path::new(folder))? {
            let read = std::fs::read_to_string(&file).map_err(|e| format!("cannot read {}: {e}", file.display()));
            let entries = read.and_then(|text| read_entries(&text).map_err(|e| format!("{}: {e}", file.display())));
            extend(&mut all, entries?);
        }
    }
    extend(&mut all, read_entries(LIBRARY)?);
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
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("cannot read {}: {error}", folder.display())),
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
    fn an_unknown_table_of_the_library_suggests_a_near_one() {
        let error = entry("run-queue-latancy").unwrap_err();
        assert!(error.contains("did you mean run-queue-latency?"), "{error}");
    }
}
