// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table at the end of a matrix.

use std::fmt::Write as _;
use std::time::Duration;

use crate::session::{Outcome, Session};

/// A guest, or more where one ended early, and its results.
#[derive(Debug)]
pub struct Row {
    /// The kernel's series.
    pub series: String,
    /// The kernel's release; empty if no kernel was available.
    pub release: String,
    /// The tier.
    pub tier: &'static str,
    /// The number of commands of the guest.
    pub commands: usize,
    /// The results of the commands; or why no guest could run.
    pub session: Result<Session, Outcome>,
}

/// The numbers of commands that passed, failed and were skipped.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Commands with exit code 0 and a clean log.
    pub passed: usize,
    /// All other commands.
    pub failed: usize,
    /// Commands that have reported that they were skipped.
    pub skipped: usize,
}

impl Counts {
    fn add(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Skipped(_) => self.skipped += 1,
            _ => self.failed += 1,
        }
    }
}

/// The maximum length of a note, so that a row of the table is one line.
const NOTE_LENGTH: usize = 90;

/// The maximum length of a command's label.
const LABEL_LENGTH: usize = 50;

/// Counts the outcomes of all `rows`; if no guest could run, each command of the row counts.
pub fn count(rows: &[Row]) -> Counts {
    let mut counts = Counts::default();
    for row in rows {
        match &row.session {
            Ok(session) => session.judged.iter().for_each(|judged| counts.add(&judged.outcome)),
            Err(outcome) => (0..row.commands).for_each(|_| counts.add(outcome)),
        }
    }
    counts
}

/// The table, followed by the counts. `labels` are the names of the commands.
pub fn table(rows: &[Row], labels: &[String], took: Duration) -> String {
    let mut lines: Vec<[String; 7]> =
        vec![["kernel", "release", "tier", "command", "result", "time", "note"].map(str::to_owned)];
    for row in rows {
        let head = || [row.series.clone(), row.release.clone(), row.tier.to_owned()];
        let mut line = |what: String, result: &str, time: String, note: &str| {
            let [series, release, tier] = head();
            lines.push([series, release, tier, what, result.to_owned(), time, shortened(note, NOTE_LENGTH)]);
        };
        match &row.session {
            Err(outcome) => line("-".into(), outcome.word(), "-".into(), &outcome.note()),
            Ok(session) => {
                for judged in &session.judged {
                    let label =
                        labels.get(judged.index).map_or_else(String::new, |label| shortened(label, LABEL_LENGTH));
                    line(label, judged.outcome.word(), seconds(judged.took), &judged.outcome.note());
                }
                let boot = session.boot.map_or_else(|| "no boot".to_owned(), |boot| format!("boot {}", seconds(boot)));
                let guests = if session.guests == 1 { String::new() } else { format!(", {} guests", session.guests) };
                line("(guest)".into(), "", seconds(session.total), &format!("{boot}{guests}"));
            }
        }
    }
    let widths: Vec<usize> =
        (0..7).map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for line in &lines {
        let mut joined = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            let _ = write!(joined, "{cell:width$}  ");
        }
        text += joined.trim_end();
        text.push('\n');
    }
    let counts = count(rows);
    let _ = write!(text, "all guests in {}\n\n{} passed, {} failed", seconds(took), counts.passed, counts.failed);
    if counts.skipped > 0 {
        let _ = write!(text, ", {} skipped", counts.skipped);
    }
    text.push('\n');
    text
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn shortened(text: &str, length: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= length { line.to_owned() } else { line.chars().take(length).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Judged;

    fn row(series: &str, session: Result<Vec<Outcome>, Outcome>) -> Row {
        let judged = |(index, outcome)| Judged { index, outcome, took: Duration::from_millis(1500), reports: vec![] };
        Row {
            series: series.to_owned(),
            release: format!("{series}.0"),
            tier: "stock",
            commands: 3,
            session: session.map(|outcomes| Session {
                judged: outcomes.into_iter().enumerate().map(judged).collect(),
                boot: Some(Duration::from_secs(2)),
                total: Duration::from_secs(5),
                guests: 1,
                log: String::new(),
            }),
        }
    }

    #[test]
    fn the_table_lines_up_and_ends_with_the_counts() {
        let rows = [
            row("6.1", Ok(vec![Outcome::Passed, Outcome::Failed(3)])),
            row("newest", Ok(vec![Outcome::Skipped("no kfunc".into()), Outcome::Reported("WARNING: x".into())])),
        ];
        let text = table(&rows, &["one".into(), "two words".into()], Duration::from_secs(9));
        let expected = "\
kernel  release   tier   command    result    time   note
6.1     6.1.0     stock  one        passed    1.5 s
6.1     6.1.0     stock  two words  FAILED    1.5 s  exit code 3
6.1     6.1.0     stock  (guest)              5.0 s  boot 2.0 s
newest  newest.0  stock  one        skipped   1.5 s  no kfunc
newest  newest.0  stock  two words  REPORTED  1.5 s  WARNING: x
newest  newest.0  stock  (guest)              5.0 s  boot 2.0 s
all guests in 9.0 s

1 passed, 2 failed, 1 skipped
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_guest_that_could_not_be_run_counts_for_all_its_commands() {
        let rows = [row("6.1", Err(Outcome::Skipped("no network".into())))];
        assert_eq!(count(&rows), Counts { passed: 0, failed: 0, skipped: 3 });
    }
}
