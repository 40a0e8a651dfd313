// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parts `guests` and `module`: other kernels, in virtual machines. scripts/vm-tests runs them; this module reads its output.

use std::process::Command;

use anyhow::Result;

use crate::case::{Cases, Outcome, last_lines, of_libtest};
use crate::gate::{Gate, Report};

/// Kernels of the gate: the oldest one that has all that topstat needs, and the newest one.
const KERNELS: &str = "6.1,newest";
/// The exit code of a command that could not do its work here.
const SKIPPED: i32 = 77;
/// Lines of a section that are kept where it fails without a test that does.
const LINES: usize = 60;

/// Runs scripts/vm-tests with the option `suite`. Its output goes to the log `name`.
///
/// # Errors
/// scripts/vm-tests that can't be run.
pub fn run(gate: &Gate, name: &str, suite: &str) -> Result<Report> {
    let kernels = std::env::var("TOPSTAT_TEST_KERNELS").unwrap_or_else(|_| KERNELS.to_owned());
    let mut report = Report::default();
    if kernels.is_empty() {
        report.cases.add(name, Outcome::Skipped("TOPSTAT_TEST_KERNELS is empty".to_owned()));
        return Ok(report);
    }
    let mut command = Command::new("scripts/vm-tests");
    command.args([suite, "--kernels", &kernels]);
    let ran = gate.run(name, command)?;
    let read = read(&ran.text);
    report.cases = read.cases;
    report.notes = read.notes;
    if ran.code == Some(SKIPPED) {
        let reason = ran.text.lines().find_map(|line| line.split_once("SKIPPED, no guest was run: "));
        let reason = reason.map_or_else(|| last_lines(&ran.text, 1), |(_, reason)| reason.to_owned());
        report.cases.add(name, Outcome::Skipped(reason));
    } else if !ran.succeeded() && report.cases.failed().next().is_none() {
        println!("{}", last_lines(&ran.text, LINES));
        report.broke = Some(format!("scripts/vm-tests: {}", ran.how()));
    }
    Ok(report)
}

/// Reads what `topstat-vm matrix --verbose` prints: a section for each command of each guest, below
/// `--- GUEST: scripts/vm-suite COMMAND: OUTCOME NOTE`.
pub fn read(text: &str) -> Report {
    let mut report = Report::default();
    let mut section: Option<Section> = None;
    for line in text.lines() {
        match line.strip_prefix("--- ") {
            None => {
                if let Some(section) = &mut section {
                    section.body.push_str(line);
                    section.body.push('\n');
                }
            }
            Some(title) => {
                if let Some(section) = section.take() {
                    section.close(&mut report.cases);
                }
                if title.contains(" took ") {
                    report.notes.push(title.to_owned());
                } else {
                    section = Section::new(title);
                }
            }
        }
    }
    if let Some(section) = section {
        section.close(&mut report.cases);
    }
    report
}

struct Section {
    guest: String,
    command: String,
    outcome: String,
    note: String,
    body: String,
}

impl Section {
    fn new(title: &str) -> Option<Self> {
        let (guest, rest) = title.split_once(": ")?;
        // No guest could be run: there is no command.
        let (command, rest) = rest.split_once(": ").unwrap_or(("guest", rest));
        let words = ["passed", "FAILED", "skipped", "CRASHED", "TIMED OUT", "REPORTED"];
        let outcome = words.into_iter().find(|word| rest.starts_with(word))?;
        Some(Self {
            guest: guest.to_owned(),
            command: command.rsplit(' ').next().unwrap_or(command).to_owned(),
            outcome: outcome.to_owned(),
            note: rest[outcome.len()..].trim().to_owned(),
            body: String::new(),
        })
    }

    fn close(self, cases: &mut Cases) {
        let whole = format!("{} {}", self.guest, self.command);
        let (within, _) = of_libtest(&self.body, &format!("{} ", self.guest));
        let failed = within.failed().next().is_some();
        let none = within.0.is_empty();
        cases.extend(within);
        match self.outcome.as_str() {
            "passed" if none => cases.add(whole, Outcome::Passed),
            "passed" => {}
            "skipped" => cases.add(whole, Outcome::Skipped(self.note)),
            "FAILED" if failed => {}
            word => {
                cases.add(whole, Outcome::Failed(format!("{word} {}\n{}", self.note, last_lines(&self.body, LINES))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_of_guests_are_read() {
        let text = "\
vm-tests: something before\n\
--- 6.1-stock: scripts/vm-suite check: passed \n\
tcp_v4 ready\n\
--- 6.1-stock: scripts/vm-suite beside: FAILED exit code 101\n\
test inet::right::udp ... ok\n\
test inet::right::tcp ... FAILED\n\
\n\
failures:\n\
\n\
---- inet::right::tcp ----\n\
wrong\n\
\n\
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n\
--- 6.1-stock: scripts/vm-suite kmod: skipped no headers\n\
--- 6.1-stock took 90 s\n\
--- newest-stock: scripts/vm-suite live: REPORTED WARNING: bad unlock\n\
test inet::right::udp ... ok\n\
test result: ok. 1 passed; 0 failed; 0 ignored\n\
--- 6.12-stock: skipped no network\n";
        let report = read(text);
        assert_eq!(report.cases.passed(), 3);
        let failed: Vec<_> = report.cases.failed().collect();
        assert_eq!(failed[0], ("6.1-stock inet::right::tcp", "wrong\n"));
        assert_eq!(failed[1].0, "newest-stock live");
        assert!(failed[1].1.starts_with("REPORTED WARNING: bad unlock\n"), "{}", failed[1].1);
        let skipped: Vec<_> = report.cases.skipped().collect();
        assert_eq!(skipped, [("6.1-stock kmod", "no headers"), ("6.12-stock guest", "no network")]);
        assert_eq!(report.notes, ["6.1-stock took 90 s"]);
    }
}
