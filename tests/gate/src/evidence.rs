// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks into failures: runs each failed test alone, several times, on the commit and on its parent, and decides by that.

use std::process::Command;
use std::time::Instant;

use anyhow::Result;
use jiff::Zoned;

use crate::case::Outcome;
use crate::gate::{Gate, Program, Report};
use crate::known::{Entry, Kind, Known};
use crate::parent::Parent;
use crate::verdict::{MOST_REPEATED, RUNS, RUNS_WHERE_TOUCHED, Repeated, Verdict, judge};

/// One run of a guest has this long, in seconds: several runs of one test, on an emulated CPU.
const GUEST_SECONDS: &str = "900";

/// The failed tests of a report, as the evidence sorts them.
#[derive(Debug, Default)]
pub struct Judged {
    /// Tests that make the gate red, each with the reason.
    pub rejected: Vec<(String, String)>,
    /// Tests that pass all the same, each with the reason and the log.
    pub passes: Vec<(String, Kind, String)>,
}

/// Where a failed test runs again.
#[derive(Clone, Copy)]
enum On<'a> {
    Commit,
    Parent(&'a Parent),
}

/// How a test is run alone.
#[derive(Debug, PartialEq, Eq)]
struct Single<'a> {
    /// The kernel of a guest, as `6.1`; `None`: this host.
    kernel: Option<&'a str>,
    program: Program,
    test: &'a str,
}

/// Which program has the test, and where. `None`: this is no single test, such as the check of a whole guest.
fn single<'a>(case: &'a str, programs: &[Program]) -> Option<Single<'a>> {
    let live =
        || programs.iter().find(|program| program.package == "topstat-live" && program.target == "live").cloned();
    if let Some((guest, test)) = case.split_once(' ') {
        let kernel = guest.strip_suffix("-stock")?;
        if !test.contains("::") {
            return None;
        }
        return Some(Single { kernel: Some(kernel), program: live()?, test });
    }
    let of = programs.iter().filter(|program| program.test && program.target != "live").filter_map(|program| {
        let test = case.strip_prefix(&program.name)?.strip_prefix("::")?;
        Some((program.name.len(), Single { kernel: None, program: program.clone(), test }))
    });
    // The longest name: the program `topstat::cli` has the test `topstat::cli::golden`, and `topstat` does not.
    let unit = of.max_by_key(|(length, _)| *length).map(|(_, single)| single);
    unit.or_else(|| Some(Single { kernel: None, program: live()?, test: case }))
}

/// The command of one run, or in a guest of all runs.
fn command(gate: &Gate, single: &Single<'_>, on: On<'_>, runs: u32, programs: &[Program]) -> Option<Command> {
    let alone = [single.test, "--exact", "--test-threads", "1"];
    let mut command = match single.kernel {
        None => {
            let mut command = gate.command(&single.program);
            command.args(alone);
            command
        }
        Some(kernel) => {
            // The guest's runner is the commit's in both places: it is not what is tried.
            let runner =
                gate.programs.iter().chain(programs).find(|program| program.target == "topstat-vm" && !program.test)?;
            let mut command = Command::new(gate.root.join(&runner.executable));
            command.args(["run", "--kernel", kernel, "--timeout", GUEST_SECONDS, "--", "sh", "-c"]);
            command.arg("n=$1; shift; while [ \"$n\" -gt 0 ] && \"$@\"; do n=$((n - 1)); done; true").arg("sh");
            command.arg(runs.to_string()).arg(gate.root.join(&single.program.executable)).args(alone);
            command.current_dir(&gate.root);
            command
        }
    };
    // Choices of the run that failed would leave the test out.
    command.env_remove("TOPSTAT_LIVE_ONLY").env_remove("TOPSTAT_LIVE_TAGS");
    Some(match on {
        On::Commit => command,
        On::Parent(_) => Parent::instead(gate, &command),
    })
}

/// Runs a test alone, this often or until it fails: one failure decides. `None`: it can't be run there, or there is no such test.
fn repeat(gate: &Gate, case: &str, on: On<'_>, runs: u32) -> Result<Option<Repeated>> {
    let programs = match on {
        On::Commit => &gate.programs,
        On::Parent(parent) => &parent.programs,
    };
    let Some(single) = single(case, programs) else { return Ok(None) };
    let mut repeated = Repeated { runs: 0, failed: 0 };
    let rounds = if single.kernel.is_some() { 1 } else { runs };
    for _ in 0..rounds {
        let Some(command) = command(gate, &single, on, runs, programs) else { return Ok(None) };
        let ran = gate.run("again", command)?;
        // Each run of a guest's loop has its line; a run on the host has one, or has broken off.
        let verdicts = ran.text.lines().filter(|line| line.starts_with("test result: "));
        let (mut seen, mut failed) = (0, 0);
        for verdict in verdicts {
            match verdict.starts_with("test result: ok") {
                true if verdict.contains(" 0 passed") => {}
                true => seen += 1,
                false => (seen, failed) = (seen + 1, failed + 1),
            }
        }
        let broke_off = single.kernel.is_none() && !ran.succeeded() && failed == 0;
        repeated.runs += seen + u32::from(broke_off);
        repeated.failed += failed + u32::from(broke_off);
        if repeated.failed > 0 {
            break;
        }
    }
    Ok((repeated.runs > 0).then_some(repeated))
}

/// Whether the change touches what a test is of: the family whose name the test begins with, else the test's package.
fn touches(changed: &[String], case: &str, programs: &[Program]) -> bool {
    let Some(single) = single(case, programs) else { return true };
    let family = format!("families/{}/", single.test.split("::").next().unwrap_or_default());
    let package = format!("{}/", single.program.folder.display());
    changed.iter().any(|file| file.starts_with(&family) || file.starts_with(&package))
}

/// Judges the failed tests of a report; those that may pass are moved to [`Judged::passes`].
///
/// # Errors
/// A command that can't be run, an interruption.
pub fn look_into(gate: &Gate, report: &mut Report, known: &Known) -> Result<Judged> {
    let failed: Vec<(String, String)> =
        report.cases.failed().map(|(name, log)| (name.to_owned(), log.to_owned())).collect();
    let mut judged = Judged::default();
    if failed.len() > MOST_REPEATED {
        let why = format!("{} tests failed: more than {MOST_REPEATED} are not repeated", failed.len());
        judged.rejected = failed.into_iter().map(|(name, _)| (name, why.clone())).collect();
        return Ok(judged);
    }
    let parent = Parent::find(gate);
    // Without a parent all may have changed.
    let changed = parent.as_ref().map(|parent| gate.changed_since(&parent.commit));
    let today = Zoned::now().date();
    for (case, log) in failed {
        if Instant::now() >= gate.deadline {
            judged.rejected.push((case, "no time was left to run it alone".to_owned()));
            continue;
        }
        let touched = changed.as_ref().is_none_or(|changed| touches(changed, &case, &gate.programs));
        let runs = if touched { RUNS_WHERE_TOUCHED } else { RUNS };
        let Some(commit) = repeat(gate, &case, On::Commit, runs)? else {
            judged.rejected.push((case, "it can't be run alone".to_owned()));
            continue;
        };
        // The parent matters only where the commit fails again.
        let parent = match &parent {
            Some(parent) if commit.failed > 0 => repeat(gate, &case, On::Parent(parent), RUNS)?,
            _ => None,
        };
        let seen = |what: &str, repeated: Repeated| format!("{} of {} runs {what}", repeated.failed, repeated.runs);
        let mut evidence = format!("failed once, and alone {}", seen("on this commit", commit));
        match parent {
            Some(parent) => evidence += &format!(", {}", seen("on the parent", parent)),
            None if commit.failed > 0 => evidence += "; the parent's programs are not kept here, or lack the test",
            None => {}
        }
        let kind = match judge(commit, parent) {
            Verdict::Rejected => {
                judged.rejected.push((case, evidence));
                continue;
            }
            Verdict::NotThisChange => Kind::Failing,
            Verdict::Unreproduced => Kind::Unreproduced,
        };
        if let Some(why) = known.refuses(&case, kind, today) {
            judged.rejected.push((case, format!("{evidence}; {why}")));
            continue;
        }
        let outcome = match kind {
            Kind::Unreproduced => Outcome::Passed,
            Kind::Failing => Outcome::Skipped(format!("known failure: {evidence}")),
        };
        report.cases.0.insert(case.clone(), outcome);
        report.notes.push(format!("{} {case}: {evidence}", kind_name(kind)));
        judged.passes.push((case, kind, log));
    }
    Ok(judged)
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Unreproduced => "unreproduced:",
        Kind::Failing => "known failure:",
    }
}

/// The entries for what was let pass.
pub fn entries(gate: &Gate, judged: &Judged) -> Known {
    let today = Zoned::now().date();
    let entry =
        |(case, kind, log): &(String, Kind, String)| Entry::new(case, *kind, today, &gate.commit, &gate.owner, log);
    Known { entries: judged.passes.iter().map(entry).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn program(name: &str, package: &str, target: &str, test: bool) -> Program {
        let text = |text: &str| text.to_owned();
        Program {
            name: text(name),
            package: text(package),
            target: text(target),
            test,
            executable: PathBuf::from("target/ci/deps").join(target),
            folder: PathBuf::from("crates").join(package),
        }
    }

    fn programs() -> Vec<Program> {
        vec![
            program("topstat", "topstat", "topstat", true),
            program("topstat::cli", "topstat", "cli", true),
            program("topstat::bin/topstat", "topstat", "topstat", false),
            program("topstat-live::live", "topstat-live", "live", true),
        ]
    }

    #[test]
    fn a_test_is_found_in_its_program() {
        let programs = programs();
        let of = |case| single(case, &programs).map(|single| (single.kernel, single.program.target, single.test));
        assert_eq!(of("topstat::cli::golden::top"), Some((None, "cli".to_owned(), "golden::top")));
        assert_eq!(of("topstat::args::tests::a"), Some((None, "topstat".to_owned(), "args::tests::a")));
        assert_eq!(of("inet::right::udp"), Some((None, "live".to_owned(), "inet::right::udp")));
        assert_eq!(of("6.1-stock inet::right::udp"), Some((Some("6.1"), "live".to_owned(), "inet::right::udp")));
        assert_eq!(of("6.1-stock verified"), None);
        assert_eq!(of("6.1-debug inet::right::udp"), None);
    }

    #[test]
    fn a_change_touches_a_family_or_a_package() {
        let programs = programs();
        let touched = |file: &str, case| touches(&[file.to_owned()], case, &programs);
        assert!(touched("families/inet/logic.h", "inet::right::udp"));
        assert!(touched("families/inet/logic.h", "newest-stock inet::right::udp"));
        assert!(!touched("families/net/logic.h", "inet::right::udp"));
        assert!(touched("crates/topstat/src/main.rs", "topstat::cli::golden::top"));
        assert!(!touched("crates/topstat-tui/src/lib.rs", "topstat::cli::golden::top"));
    }
}
