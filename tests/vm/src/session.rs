// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that share a guest, on one kernel in one tier: boots guests until every command has an outcome, and judges each.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::deps::Tools;
use crate::guest::{End, Guest, Job, Seen};
use crate::kernel::Kernel;
use crate::klog::{self, AllowList, Report};
use crate::qemu::{Cgroup, Machine};
use crate::watch::Stream;
use crate::{EXIT_GUEST, EXIT_SKIPPED, EXIT_TIMED_OUT};

/// The outcome of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "result", content = "detail", rename_all = "snake_case")]
pub enum Outcome {
    /// Exit code 0, and nothing in the kernel log.
    Passed,
    /// Another exit code.
    Failed(i32),
    /// Exit code 77, with the reason: the command's last line.
    Skipped(String),
    /// The guest ended before the command: the summary of a report, or the last message.
    Crashed(String),
    /// The command exceeded its time limit.
    TimedOut,
    /// The kernel log has a report, whatever the exit code: its summary.
    Reported(String),
}

impl Outcome {
    /// Whether the outcome makes the whole run fail.
    pub fn is_failure(&self) -> bool {
        !matches!(self, Self::Passed | Self::Skipped(_))
    }

    /// The exit code of the program for this outcome.
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Passed => 0,
            Self::Failed(code) => *code,
            Self::Skipped(_) => EXIT_SKIPPED,
            Self::TimedOut => EXIT_TIMED_OUT,
            Self::Crashed(_) | Self::Reported(_) => EXIT_GUEST,
        }
    }

    /// The outcome in one word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "FAILED",
            Self::Skipped(_) => "skipped",
            Self::Crashed(_) => "CRASHED",
            Self::TimedOut => "TIMED OUT",
            Self::Reported(_) => "REPORTED",
        }
    }

    /// Further details of the outcome.
    pub fn note(&self) -> String {
        match self {
            Self::Passed => String::new(),
            Self::Failed(code) => format!("exit code {code}"),
            Self::Skipped(why) | Self::Crashed(why) | Self::Reported(why) => why.clone(),
            Self::TimedOut => "no end within the time limit".to_owned(),
        }
    }
}

/// A command's outcome, and how long it took.
#[derive(Debug, Clone)]
pub struct Judged {
    /// The index in the list of jobs.
    pub index: usize,
    /// The outcome.
    pub outcome: Outcome,
    /// The duration of the command.
    pub took: Duration,
    /// The reports in the kernel log during the command, allowed ones included.
    pub reports: Vec<Report>,
}

/// The results of all commands.
#[derive(Debug, Default)]
pub struct Session {
    /// A result for each command, in the order of the commands.
    pub judged: Vec<Judged>,
    /// The time until the first guest's system was ready.
    pub boot: Option<Duration>,
    /// The time of all guests together.
    pub total: Duration,
    /// The number of guests.
    pub guests: usize,
    /// The kernel logs, one after the other.
    pub log: String,
}

/// The commands, the kernel and the machine to run.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The programs to boot with.
    pub tools: &'a Tools,
    /// The kernel.
    pub kernel: &'a Kernel,
    /// The machine.
    pub machine: &'a Machine,
    /// The control groups.
    pub cgroup: Cgroup,
    /// The commands.
    pub jobs: &'a [Job],
    /// The time limit of each command.
    pub limit: Duration,
    /// Reports that are no failure.
    pub allow: &'a AllowList,
    /// The folder for the remains of the guests: logs, and the files that commands put into `$TOPSTAT_VM_OUT`.
    pub out: Option<PathBuf>,
}

/// Runs the plan's commands. They share a guest until a command ends it or makes its kernel report a fault; the remaining
/// commands get a new guest. `output` receives their output.
pub fn run(plan: &Plan<'_>, output: &mut dyn FnMut(usize, Stream, &[u8])) -> Result<Session> {
    let mut session = Session::default();
    let mut pending: Vec<usize> = (0..plan.jobs.len()).collect();
    while !pending.is_empty() {
        let guest = Guest::new(plan.tools, plan.kernel, plan.machine, plan.cgroup)?;
        let seen = guest.run(plan.jobs, &pending, plan.limit, output)?;
        if let Some(out) = &plan.out {
            keep(&guest.share(), out)?;
        }
        let judged = judge(&seen, &pending, plan.allow);
        pending.retain(|index| judged.iter().all(|done| done.index != *index));
        session.judged.extend(judged);
        session.boot = session.boot.or(seen.boot);
        session.total += seen.total;
        session.guests += 1;
        session.log += &seen.log;
    }
    if let Some(out) = &plan.out {
        fs::write(out.join("kernel.log"), &session.log)
            .with_context(|| format!("cannot write to {}", out.display()))?;
    }
    Ok(session)
}

/// The outcomes of the `pending` commands that `seen` decides: at least one.
fn judge(seen: &Seen, pending: &[usize], allow: &AllowList) -> Vec<Judged> {
    let reports = klog::scan(&seen.log, allow);
    if seen.begun.is_empty() {
        // Another guest would fail in the same way.
        let why = match (&*seen.complaint, reports.iter().find(|report| report.allowed.is_none())) {
            (_, Some(report)) => report.summary(),
            ("", None) => last_words(&seen.log),
            (complaint, None) => complaint.to_owned(),
        };
        let outcome = Outcome::Crashed(format!("the guest did not boot: {why}"));
        let judged =
            |&index| Judged { index, outcome: outcome.clone(), took: Duration::ZERO, reports: reports.clone() };
        return pending.iter().map(judged).collect();
    }
    let first = seen.begun[0].index;
    let judge_one = |begun: &crate::watch::Begun| {
        // Reports during boot count for the first command.
        let reports: Vec<Report> =
            reports.iter().filter(|report| report.command.unwrap_or(first) == begun.index).cloned().collect();
        let bad = reports.iter().find(|report| report.allowed.is_none()).map(Report::summary);
        let outcome = match (begun.code, bad) {
            (None, _) if seen.end == End::TimeOut => Outcome::TimedOut,
            (None, Some(bad)) => Outcome::Crashed(bad),
            (None, None) => {
                Outcome::Crashed(format!("the guest ended without an exit code: {}", last_words(&seen.log)))
            }
            (Some(_), Some(bad)) => Outcome::Reported(bad),
            (Some(0), None) => Outcome::Passed,
            (Some(EXIT_SKIPPED), None) => Outcome::Skipped(begun.last_line.clone()),
            (Some(code), None) => Outcome::Failed(code),
        };
        Judged { index: begun.index, outcome, took: begun.took, reports }
    };
    seen.begun.iter().map(judge_one).collect()
}

fn last_words(log: &str) -> String {
    log.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it said nothing").to_owned()
}

/// Copies the outputs of commands, and their files in `$TOPSTAT_VM_OUT`, to the folder `out`.
fn keep(share: &Path, out: &Path) -> Result<()> {
    fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    copy_tree(&share.join("out"), out)?;
    for entry in fs::read_dir(share)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ext| ext == "out" || ext == "err") {
            fs::copy(&path, out.join(path.file_name().unwrap_or_default()))?;
        }
    }
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), &target).with_context(|| format!("cannot copy to {}", target.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Begun;

    fn seen(begun: &[(usize, Option<i32>)], end: End, log: &str) -> Seen {
        let begun = begun.iter().map(|&(index, code)| Begun {
            index,
            code,
            took: Duration::from_secs(1),
            last_line: "needs more".to_owned(),
        });
        Seen {
            boot: None,
            total: Duration::ZERO,
            begun: begun.collect(),
            end,
            log: log.to_owned(),
            complaint: String::new(),
        }
    }

    fn outcomes(seen: &Seen, pending: &[usize]) -> Vec<(usize, Outcome)> {
        let allow = AllowList::parse("").unwrap();
        judge(seen, pending, &allow).into_iter().map(|judged| (judged.index, judged.outcome)).collect()
    }

    #[test]
    fn exit_codes_are_judged() {
        let seen = seen(&[(0, Some(0)), (1, Some(3)), (2, Some(77))], End::Done, "");
        let expected = [(0, Outcome::Passed), (1, Outcome::Failed(3)), (2, Outcome::Skipped("needs more".into()))];
        assert_eq!(outcomes(&seen, &[0, 1, 2]), expected);
    }

    #[test]
    fn a_report_outweighs_the_exit_code_and_leaves_the_rest_pending() {
        let log = "[ 1.0] topstat-vm: begin 4\n[ 1.0] WARNING: x\n[ 1.0] topstat-vm: end 4\n";
        assert_eq!(
            outcomes(&seen(&[(4, Some(0))], End::Done, log), &[4, 5]),
            [(4, Outcome::Reported("WARNING: x".into()))]
        );
    }

    #[test]
    fn a_report_while_booting_fails_the_first_command() {
        let log = "[ 1.0] WARNING: boot\n[ 2.0] topstat-vm: begin 0\n";
        let found = outcomes(&seen(&[(0, Some(0)), (1, Some(0))], End::Done, log), &[0, 1]);
        assert_eq!(found, [(0, Outcome::Reported("WARNING: boot".into())), (1, Outcome::Passed)]);
    }

    #[test]
    fn a_missing_exit_code_is_a_crash_or_a_hang() {
        let log = "[ 1.0] topstat-vm: begin 0\n[ 1.0] Kernel panic - not syncing: x\n";
        assert_eq!(
            outcomes(&seen(&[(0, None)], End::Died, log), &[0]),
            [(0, Outcome::Crashed("Kernel panic - not syncing: x".into()))]
        );
        assert_eq!(outcomes(&seen(&[(0, None)], End::TimeOut, log), &[0]), [(0, Outcome::TimedOut)]);
        let silent = outcomes(&seen(&[(0, None)], End::Done, ""), &[0]);
        assert!(matches!(&silent[0].1, Outcome::Crashed(why) if why.contains("without an exit code")));
    }

    #[test]
    fn a_guest_that_does_not_boot_fails_all() {
        let found = outcomes(&seen(&[], End::Died, "topstat-vm: boot failed: cannot mount x\n"), &[0, 1]);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|(_, outcome)| outcome.note().ends_with("cannot mount x")));
    }
}
