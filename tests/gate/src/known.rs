// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `tests/known.toml`: failures that a gate let pass, and for how long. An entry is a defect until its cause is known; the
//! commit that names the cause removes the entry.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use jiff::civil::Date;
use jiff::{Span, ToSpan as _};
use serde::{Deserialize, Serialize};

/// How long a test may go on failing that fails on the parent, too.
fn grace() -> Span {
    7.days()
}

/// The number of days within which entries of one test count together …
fn window() -> Span {
    30.days()
}

/// … and the number of them that makes the gate red.
const TOO_MANY: usize = 3;

/// The first lines of a log that an entry keeps.
const LOG_LINES: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// It failed once and passed when it was repeated.
    Unreproduced,
    /// It fails on the parent, too.
    Failing,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The test's full name, as the gate prints it.
    pub case: String,
    pub kind: Kind,
    /// The day on which it failed.
    pub date: Date,
    /// The commit that was tried.
    pub commit: String,
    /// The author of that commit: the person to look into it first.
    pub owner: String,
    /// The first lines of its log; a seed is among them, where the test has one.
    pub log: String,
}

impl Entry {
    pub fn new(case: &str, kind: Kind, date: Date, commit: &str, owner: &str, log: &str) -> Self {
        let seed = log.lines().filter(|line| line.to_lowercase().contains("seed"));
        let first = log.lines().filter(|line| !line.trim().is_empty()).take(LOG_LINES);
        let mut lines: Vec<&str> = first.collect();
        for line in seed {
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let log = lines.join("\n");
        Self { case: case.to_owned(), kind, date, commit: commit.to_owned(), owner: owner.to_owned(), log }
    }
}

/// The entries of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    #[serde(default, rename = "entry", skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<Entry>,
}

const HEAD: &str = "\
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Failures that `make test` let pass: see CONTRIBUTING.md. Each is a defect until its cause is known. Begin your work with
# this list. The commit that repairs the cause removes the entry.
";

impl Known {
    /// Reads a file; one that is not there has no entries.
    ///
    /// # Errors
    /// A file that can't be read, or that is no list of entries.
    pub fn read(path: &Path) -> Result<Self> {
        match fs::read_to_string(path) {
            Ok(text) => {
                toml::from_str(&text).with_context(|| format!("{} is no list of known failures", path.display()))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(e).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// # Errors
    /// A file that can't be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = toml::to_string(self).context("cannot write entries as TOML")?;
        let separator = if self.entries.is_empty() { "" } else { "\n" };
        fs::write(path, format!("{HEAD}{separator}{text}")).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Adds the entries of another list that are not here yet.
    pub fn merge(&mut self, other: &Known) {
        for entry in &other.entries {
            if !self.entries.contains(entry) {
                self.entries.push(entry.clone());
            }
        }
    }

    /// Why a failure that the evidence would let pass is too much all the same; `None`: it is not.
    pub fn refuses(&self, case: &str, kind: Kind, today: Date) -> Option<String> {
        let of_case = || self.entries.iter().filter(|entry| entry.case == case);
        match kind {
            Kind::Failing => {
                let first = of_case().filter(|entry| entry.kind == Kind::Failing).map(|entry| entry.date).min()?;
                let last = first.saturating_add(grace());
                (today > last).then(|| format!("it has been failing since {first}, and had until {last}"))
            }
            Kind::Unreproduced => {
                let since = today.saturating_sub(window());
                let recent = of_case().filter(|entry| entry.date >= since).count() + 1;
                (recent >= TOO_MANY).then(|| format!("this is its failure number {recent} since {since}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    fn entry(case: &str, kind: Kind, date: Date) -> Entry {
        Entry::new(case, kind, date, "abc", "somebody", "panicked\n\nleft: 1\n")
    }

    #[test]
    fn a_test_that_fails_on_has_seven_days() {
        let known = Known { entries: vec![entry("a", Kind::Failing, date(2026, 11, 1))] };
        assert_eq!(known.refuses("a", Kind::Failing, date(2026, 11, 8)), None);
        assert!(known.refuses("a", Kind::Failing, date(2026, 11, 9)).is_some_and(|why| why.contains("2026-11-08")));
        assert_eq!(known.refuses("b", Kind::Failing, date(2026, 12, 9)), None);
    }

    #[test]
    fn the_third_within_thirty_days_is_too_much() {
        let of = |days: &[i8]| {
            let entries = days.iter().map(|day| entry("a", Kind::Unreproduced, date(2026, 11, *day))).collect();
            Known { entries }.refuses("a", Kind::Unreproduced, date(2026, 11, 30))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[20]), None);
        assert!(of(&[20, 21]).is_some_and(|why| why.contains("number 3")));
        let known = Known { entries: vec![entry("a", Kind::Unreproduced, date(2026, 9, 1)); 2] };
        assert_eq!(known.refuses("a", Kind::Unreproduced, date(2026, 11, 30)), None);
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let folder = std::env::temp_dir().join(format!("topstat-gate-known-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("known.toml");
        assert_eq!(Known::read(&path).unwrap(), Known::default());
        for entries in [vec![], vec![entry("a \"b\"", Kind::Failing, date(2026, 11, 1))]] {
            let known = Known { entries };
            known.write(&path).unwrap();
            assert_eq!(Known::read(&path).unwrap(), known);
            assert!(fs::read_to_string(&path).unwrap().starts_with("# SPDX"));
        }
        fs::write(&path, "[[entry]]\ncase = 1\n").unwrap();
        assert!(Known::read(&path).unwrap_err().to_string().contains("no list"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn an_entry_has_the_first_lines_and_the_seed() {
        let lines: Vec<_> = (0..30).map(|n| format!("line {n}")).collect();
        let log = format!("{}\nSeed: 17\n", lines.join("\n"));
        let entry = Entry::new("a", Kind::Failing, date(2026, 11, 1), "abc", "x", &log);
        assert!(entry.log.starts_with("line 0\n") && entry.log.ends_with("\nSeed: 17"), "{}", entry.log);
        assert_eq!(entry.log.lines().count(), LOG_LINES + 1);
    }
}
