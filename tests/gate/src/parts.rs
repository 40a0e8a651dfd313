// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parts that decide whether a change may land.

use std::fs;
use std::process::Command;

use anyhow::Result;

use crate::case::{Cases, Outcome, last_lines, of_junit, of_libtest};
use crate::gate::{Gate, Inputs, PROFILE, Report};
use crate::kept::Pass;
use crate::{build, guests};

/// A part, in the order of running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Part {
    /// Formatting, clippy, shellcheck, kernel C
    Lint,
    /// Everything, once
    Build,
    /// Unit, property, CLI and golden tests, and the corpora of the fuzzers
    Unit,
    /// topstat on this kernel
    Live,
    /// On other kernels, the tests that a kernel can make different
    Guests,
    /// The kernel module, on other kernels
    Module,
    /// `make run` and `make test` on a bare Debian 12
    Fresh,
}

impl Part {
    pub fn name(self) -> &'static str {
        match self {
            Part::Lint => "lint",
            Part::Build => "build",
            Part::Unit => "unit",
            Part::Live => "live",
            Part::Guests => "guests",
            Part::Module => "module",
            Part::Fresh => "fresh",
        }
    }

    /// Whether a failed test of it is looked into: the others have no tests that can be run alone.
    pub fn has_single_tests(self) -> bool {
        matches!(self, Part::Unit | Part::Live | Part::Guests)
    }

    /// # Errors
    /// A part that can't be run at all. A part that fails is a report.
    pub fn run(self, gate: &mut Gate) -> Result<Report> {
        match self {
            Part::Build => build::run(gate),
            Part::Unit => unit(gate),
            part => {
                if let Some(report) = part.inputs().and_then(|inputs| kept(gate, part.name(), inputs)) {
                    return Ok(report);
                }
                match part {
                    Part::Lint => lint(gate),
                    Part::Live => live(gate),
                    Part::Guests => guests::run(gate, part.name(), "--quick"),
                    Part::Module => guests::run(gate, part.name(), "--quick-module"),
                    _ => fresh(gate),
                }
            }
        }
    }

    /// What it depends on. The part `unit` is kept by packages.
    fn inputs(self) -> Option<Inputs<'static>> {
        match self {
            Part::Build | Part::Unit => None,
            Part::Lint => Some(SOURCES),
            Part::Live => Some(LIVE),
            Part::Guests => Some(GUESTS),
            Part::Module => Some(MODULE),
            Part::Fresh => Some(FRESH),
        }
    }

    /// Takes the hashes of its inputs. Called before the build, for a pass counts for the sources that were built.
    pub fn see_inputs(self, gate: &Gate) {
        match self.inputs() {
            Some(inputs) => drop(gate.hash(inputs)),
            None if self == Part::Unit => packages(gate).iter().for_each(|name| drop(gate.hash(package(&[name])))),
            None => {}
        }
    }

    /// Keeps the pass of a part that has passed.
    ///
    /// # Errors
    /// A file that can't be written.
    pub fn keep(self, gate: &Gate, report: &Report) -> Result<()> {
        self.inputs().map_or(Ok(()), |inputs| keep(gate, self.name(), inputs, &report.cases))
    }
}

/// Everything that is compiled, run or checked; the texts are not.
pub const SOURCES: Inputs<'_> = Inputs { packages: &[], paths: &[".", ":!*.md", ":!tests/known.toml"] };
/// The package of the live tests. They have another harness than the tests that nextest runs.
const LIVE_TESTS: &str = "topstat-live";
/// What the live tests run.
pub const LIVE: Inputs<'_> = Inputs { packages: &[LIVE_TESTS], paths: &[] };
/// What the tests in guests run. The live tests read the files of the module, too.
pub const GUESTS: Inputs<'_> = Inputs {
    packages: &[LIVE_TESTS, "topstat-vm", "topstat-bench"],
    paths: &[
        "kmod",
        "scripts/kmod",
        "scripts/kmod-tests",
        "scripts/portable",
        "scripts/vm-suite",
        "scripts/vm-tests",
        "tests/kmod",
    ],
};
/// The sources of the module, its tests and its lint: of the folders that it shares with eBPF, without the sources for eBPF alone.
pub const MODULE: Inputs<'_> = Inputs {
    packages: &["topstat-vm"],
    paths: &[
        "engine/include",
        "families/*.h",
        "families/*.kmod.c",
        "kmod",
        "observe/*.h",
        "scripts/kmod",
        "scripts/kmod-tests",
        "scripts/vm-suite",
        "scripts/vm-tests",
        "tests/kmod",
        "tests/lint",
        "Makefile",
        ":!*.bpf.h",
    ],
};
/// What decides whether installing and building work: packages, crates and build scripts.
pub const FRESH: Inputs<'_> = Inputs {
    packages: &[],
    paths: &["scripts", "Makefile", "**/Cargo.toml", "**/build.rs", "**/bindings.rs", "**/clang.rs"],
};

/// On another Debian with this kernel: live tests run only where its compilers and tools can make a difference.
pub const FRESH_TAGS: &str = "TOPSTAT_LIVE_TAGS=distribution";

/// What the tests of one package depend on.
fn package<'a>(name: &'a [&'a str; 1]) -> Inputs<'a> {
    Inputs { packages: name, paths: &[] }
}

/// Keeps a pass, unless its inputs have been edited since the build.
///
/// # Errors
/// A file that can't be written.
pub fn keep(gate: &Gate, name: &str, inputs: Inputs<'_>, cases: &Cases) -> Result<()> {
    match gate.unchanged(inputs) {
        Some(hash) => Pass::keep(&gate.state, name, &hash, &gate.commit, cases),
        None => Ok(()),
    }
}

/// The report of a pass that is kept, where there is one.
pub fn kept(gate: &Gate, name: &str, inputs: Inputs<'_>) -> Option<Report> {
    let hash = gate.hash(inputs).filter(|_| !gate.again)?;
    let pass = Pass::find(&gate.state, name, &hash)?;
    let line = format!(
        "{name} passed with the same inputs on {} ({})",
        pass.when.strftime("%F %R UTC"),
        pass.commit.get(..8).unwrap_or("no commit")
    );
    Some(Report { cases: pass.cases, kept: vec![line], is_kept: true, ..Report::default() })
}

/// The lints of the Makefile; each is a case. A pass is kept where a lint depends on few files.
const LINTS: [(&str, Option<Inputs<'_>>); 6] = [
    ("lint-format", None),
    ("lint-shell", None),
    ("lint-kernel", Some(MODULE)),
    ("lint-text", None),
    ("lint-lints", None),
    ("lint-rust", None),
];
/// Lines of a lint that are shown.
const LINES: usize = 80;

fn lint(gate: &Gate) -> Result<Report> {
    let mut report = Report::default();
    for (lint, inputs) in LINTS {
        if let Some(kept) = inputs.and_then(|inputs| kept(gate, lint, inputs)) {
            report.cases.extend(kept.cases);
            report.kept.extend(kept.kept);
            continue;
        }
        let mut command = Command::new("make");
        command.args(["--no-print-directory", lint]);
        let ran = gate.run(lint, command)?;
        let outcome = match ran.succeeded() {
            true => Outcome::Passed,
            false => Outcome::Failed(format!("{}: {}", ran.how(), last_lines(&ran.text, LINES))),
        };
        let mut case = Cases::default();
        case.add(lint, outcome);
        if let Some(inputs) = inputs.filter(|_| ran.succeeded()) {
            keep(gate, lint, inputs, &case)?;
        }
        report.cases.extend(case);
    }
    Ok(report)
}

/// The packages of the part `unit`.
fn packages(gate: &Gate) -> Vec<&str> {
    gate.packages.iter().map(|package| package.name.as_str()).filter(|name| *name != LIVE_TESTS).collect()
}

fn unit(gate: &Gate) -> Result<Report> {
    let mut report = Report::default();
    let tested = |name: &str| gate.programs.iter().any(|program| program.test && program.package == name);
    let mut left = Vec::new();
    for name in packages(gate).into_iter().filter(|name| tested(name)) {
        match kept(gate, &pass_of(name), package(&[name])) {
            Some(kept) => {
                report.cases.extend(kept.cases);
                report.kept.extend(kept.kept);
            }
            None => left.push(name),
        }
    }
    if left.is_empty() {
        report.is_kept = true;
        return Ok(report);
    }
    let mut command = Command::new("cargo-nextest");
    command.args(["nextest", "run", "--locked", "--cargo-profile", PROFILE, "--profile", "gate", "--no-tests", "pass"]);
    // Tests of time limits wait for a third of the time of all tests.
    let threads = 2 * std::thread::available_parallelism().map_or(1, usize::from);
    command.args(["--test-threads", &threads.to_string()]);
    // The features of the whole workspace, as the part `build` has built it; then the tests of these packages.
    let filter: Vec<_> = left.iter().map(|name| format!("package(={name})")).collect();
    command.args(["--workspace", "-E", &filter.join(" | ")]).args(&gate.flags);
    let junit = gate.target.join("nextest/gate/junit.xml");
    let _ = fs::remove_file(&junit);
    let ran = gate.run("unit", command)?;
    let text = match fs::read_to_string(&junit) {
        Ok(text) => text,
        Err(e) => {
            println!("{}", last_lines(&ran.text, LINES));
            return Ok(Report::broken(format!("cargo nextest: {}; {}: {e}", ran.how(), junit.display())));
        }
    };
    let cases = of_junit(&text)?;
    if !ran.succeeded() && cases.failed().next().is_none() {
        println!("{}", last_lines(&ran.text, LINES));
        return Ok(Report::broken(format!("cargo nextest: {}", ran.how())));
    }
    for name in left {
        let own = |case: &str| case.strip_prefix(name).is_some_and(|rest| rest.starts_with("::"));
        let of =
            Cases(cases.0.iter().filter(|(case, _)| own(case)).map(|(case, o)| (case.clone(), o.clone())).collect());
        if of.failed().next().is_none() {
            keep(gate, &pass_of(name), package(&[name]), &of)?;
        }
    }
    report.cases.extend(cases);
    // Tests with #[ignore] are not in the report of nextest.
    if let Some(ignored) = ignored(&ran.text).filter(|count| *count > 0) {
        let reason = format!("{ignored} tests of virtual machines: part of make test-all");
        report.cases.add("#[ignore]", Outcome::Skipped(reason));
    }
    Ok(report)
}

/// How many tests nextest has not run: `Summary [ 4.1s] 671 tests run: 671 passed, 7 skipped`.
fn ignored(text: &str) -> Option<u32> {
    let summary = text.lines().rfind(|line| line.trim_start().starts_with("Summary ["))?;
    let (_, said) = summary.split_once(" passed")?;
    said.split(", ").find_map(|part| part.trim().strip_suffix(" skipped")?.parse().ok())
}

fn pass_of(package: &str) -> String {
    format!("unit-{package}")
}

fn live(gate: &Gate) -> Result<Report> {
    let ran = gate.run("live", gate.live_tests()?)?;
    let (cases, ended) = of_libtest(&ran.text, "");
    let notes = ran.text.lines().filter(|line| line.contains("tried again: attempt")).map(str::to_owned).collect();
    let mut report = Report { cases, notes, ..Report::default() };
    if !ran.succeeded() && (!ended || report.cases.failed().next().is_none()) {
        println!("{}", last_lines(&ran.text, LINES));
        report.broke = Some(format!("the live tests: {}", ran.how()));
    }
    Ok(report)
}

fn fresh(gate: &Gate) -> Result<Report> {
    let mut command = Command::new("env");
    command.args([FRESH_TAGS, "make", "--no-print-directory", "fresh", "FRESH=12"]);
    let ran = gate.run("fresh", command)?;
    let mut report = Report::default();
    let (outcome, broke) = match ran.succeeded() {
        true => (Outcome::Passed, None),
        false => {
            println!("{}", last_lines(&ran.text, LINES));
            (Outcome::Failed(ran.how()), Some(format!("make fresh: {}", ran.how())))
        }
    };
    report.cases.add("fresh Debian 12", outcome);
    report.broke = broke;
    report.notes = ran.text.lines().filter(|line| line.starts_with("fresh: ")).map(str::to_owned).collect();
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::ignored;

    #[test]
    fn ignored_tests_are_in_the_summary_of_nextest() {
        assert_eq!(ignored("x\n     Summary [ 135.383s] 671 tests run: 671 passed (1 slow), 7 skipped\n"), Some(7));
        assert_eq!(ignored("     Summary [ 1.0s] 10 tests run: 9 passed, 1 failed, 2 skipped"), Some(2));
        assert_eq!(ignored("     Summary [ 1.0s] 10 tests run: 10 passed"), None);
    }
}
