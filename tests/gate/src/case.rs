// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Outcomes of single tests, read from the output of test programs.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// The outcome of one test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Passed,
    /// With the last lines that the test printed, where they are known.
    Failed(String),
    /// With the reason.
    Skipped(String),
}

/// Tests by their full name. A name that occurs twice keeps its worst outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cases(pub BTreeMap<String, Outcome>);

impl Cases {
    pub fn add(&mut self, name: impl Into<String>, outcome: Outcome) {
        let failed = |outcome: &Outcome| matches!(outcome, Outcome::Failed(_));
        let name = name.into();
        if !self.0.get(&name).is_some_and(failed) {
            self.0.insert(name, outcome);
        }
    }

    pub fn extend(&mut self, other: Cases) {
        for (name, outcome) in other.0 {
            self.add(name, outcome);
        }
    }

    pub fn passed(&self) -> usize {
        self.0.values().filter(|outcome| **outcome == Outcome::Passed).count()
    }

    pub fn failed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|(name, outcome)| match outcome {
            Outcome::Failed(log) => Some((name.as_str(), log.as_str())),
            _ => None,
        })
    }

    pub fn skipped(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|(name, outcome)| match outcome {
            Outcome::Skipped(reason) => Some((name.as_str(), reason.as_str())),
            _ => None,
        })
    }
}

/// The most lines of a failed test's output that are kept: the first ones, which have the failed assertion, and the last ones.
const LOG_LINES: (usize, usize) = (30, 30);

/// The first and the last lines of a failed test's output.
fn both_ends(log: &str) -> String {
    let lines: Vec<_> = log.trim_start_matches('\n').lines().collect();
    let (first, last) = LOG_LINES;
    let Some(between) = lines.len().checked_sub(first + last).filter(|between| *between > 0) else {
        return lines.join("\n");
    };
    let left_out = format!("… {between} lines are left out");
    [&lines[..first], &[left_out.as_str()], &lines[first + between..]].concat().join("\n")
}

pub fn last_lines(text: &str, most: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(most)..].join("\n")
}

/// Reads the lines of libtest and libtest-mimic: `test NAME ... ok`. Other lines may stand between, and a test's own output
/// may stand between its name and its outcome, as the program flushes the name first. `prefix` comes before each name.
/// The boolean is true where the program printed a result at its end: a program that broke off did not.
pub fn of_libtest(text: &str, prefix: &str) -> (Cases, bool) {
    let mut cases = Cases::default();
    let mut begun: Option<String> = None;
    let mut ended = false;
    let mut logs = Logs::default();
    for line in text.lines() {
        logs.line(line);
        if line.starts_with("test result: ") {
            ended = true;
            continue;
        }
        let (name, said) = match line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            Some((name, said)) => (name.trim_end().to_owned(), said.trim()),
            None => match begun.take() {
                Some(name) => (name, line.trim()),
                None => continue,
            },
        };
        let outcome = match said {
            "ok" => Outcome::Passed,
            "FAILED" => Outcome::Failed(String::new()),
            _ => match said.strip_prefix("ignored") {
                Some(reason) => Outcome::Skipped(reason.trim_matches([',', ' ', '(', ')']).to_owned()),
                None if said.ends_with("FAILED") => Outcome::Failed(String::new()),
                None if said.ends_with("ok") => Outcome::Passed,
                // Its own output has come before its outcome.
                None => {
                    begun = Some(name);
                    continue;
                }
            },
        };
        cases.add(format!("{prefix}{name}"), outcome);
    }
    if let Some(name) = begun.filter(|_| !ended) {
        cases.add(format!("{prefix}{name}"), Outcome::Failed("the test program ended within this test".to_owned()));
    }
    for (name, log) in logs.of {
        if let Some(Outcome::Failed(said)) = cases.0.get_mut(&format!("{prefix}{name}")) {
            *said = both_ends(&log);
        }
    }
    (cases, ended)
}

/// The section `failures:` of libtest, where each log stands below `---- NAME ----` or `---- NAME stdout ----`.
#[derive(Default)]
struct Logs {
    of: BTreeMap<String, String>,
    name: Option<String>,
}

impl Logs {
    fn line(&mut self, line: &str) {
        let title = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" ----"));
        if let Some(name) = title {
            self.name = Some(name.trim_end_matches(" stdout").to_owned());
        } else if line == "failures:" || line.starts_with("test result") {
            self.name = None;
        } else if let Some(name) = &self.name {
            let log = self.of.entry(name.clone()).or_default();
            log.push_str(line);
            log.push('\n');
        }
    }
}

/// Reads the JUnit report of nextest. A name is `PROGRAM::TEST`, PROGRAM as nextest calls it (`topstat::cli`).
///
/// # Errors
/// Text that is not such a report.
pub fn of_junit(text: &str) -> Result<Cases> {
    let document = roxmltree::Document::parse(text).context("the report of nextest is no XML")?;
    let mut cases = Cases::default();
    for case in document.descendants().filter(|node| node.has_tag_name("testcase")) {
        let attribute =
            |name| case.attribute(name).with_context(|| format!("a test in nextest's report has no {name}"));
        let child = |names: &[&str]| case.children().find(|node| names.iter().any(|name| node.has_tag_name(*name)));
        let outcome = match (child(&["failure", "error"]), child(&["skipped"])) {
            (Some(failure), _) => {
                let said: Vec<_> = [Some(failure), child(&["system-err"]), child(&["system-out"])]
                    .into_iter()
                    .flatten()
                    .filter_map(|node| node.text())
                    .collect();
                Outcome::Failed(both_ends(&said.join("\n")))
            }
            (None, Some(skipped)) => Outcome::Skipped(skipped.attribute("message").unwrap_or_default().to_owned()),
            (None, None) => Outcome::Passed,
        };
        cases.add(format!("{}::{}", attribute("classname")?, attribute("name")?), outcome);
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_keeps_its_assertion_and_its_end() {
        let lines: Vec<_> = (1..=100).map(|line| line.to_string()).collect();
        let kept = both_ends(&format!("\n{}", lines.join("\n")));
        assert!(kept.starts_with("1\n2\n") && kept.ends_with("\n99\n100"), "{kept}");
        assert!(kept.contains("\n30\n… 40 lines are left out\n71\n"), "{kept}");
        assert_eq!(both_ends(&lines[..60].join("\n")), lines[..60].join("\n"));
    }

    #[test]
    fn lines_of_libtest_are_read() {
        let text = "\nrunning 5 tests\n\
            test a::one   ... ok\n\
            test a::two ... ignored, needs root\n\
            test a::three ... ignored (needs two CPUs)\n\
            test a::four ... it said this first\nand this\nFAILED\n\
            test a::five ... ok\n\
            \nfailures:\n\n---- a::four ----\nassertion failed\n  left: 1\n\nfailures:\n    a::four\n\n\
            test result: FAILED. 2 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.1s\n";
        let (cases, ended) = of_libtest(text, "live ");
        assert!(ended);
        assert_eq!(cases.passed(), 2);
        assert_eq!(cases.failed().collect::<Vec<_>>(), [("live a::four", "assertion failed\n  left: 1\n")]);
        assert_eq!(
            cases.skipped().collect::<Vec<_>>(),
            [("live a::three", "needs two CPUs"), ("live a::two", "needs root")]
        );
    }

    #[test]
    fn a_program_that_broke_off_has_failed_in_the_test_that_it_had_begun() {
        let (cases, ended) = of_libtest("running 2 tests\ntest a ... ok\ntest b ... Segmentation fault\n", "");
        assert!(!ended);
        assert_eq!(cases.passed(), 1);
        assert_eq!(cases.failed().map(|(name, _)| name).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn a_name_keeps_its_worst_outcome() {
        let mut cases = Cases::default();
        cases.add("a", Outcome::Failed("why".into()));
        cases.add("a", Outcome::Passed);
        assert_eq!(cases.failed().collect::<Vec<_>>(), [("a", "why")]);
    }

    #[test]
    fn reports_of_nextest_are_read() {
        let text = r#"<?xml version="1.0"?><testsuites><testsuite name="topstat::cli">
            <testcase name="golden::top" classname="topstat::cli" time="0.1"></testcase>
            <testcase name="golden::ls" classname="topstat::cli" time="0.1"><failure type="test failure">left: 1</failure>
              <system-err>panicked</system-err></testcase></testsuite></testsuites>"#;
        let cases = of_junit(text).unwrap();
        assert_eq!(cases.passed(), 1);
        assert_eq!(cases.failed().collect::<Vec<_>>(), [("topstat::cli::golden::ls", "left: 1\npanicked")]);
        assert!(of_junit("no XML").is_err());
    }
}
