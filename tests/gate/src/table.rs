// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table at the end.

use std::fmt::Write as _;
use std::time::Duration;

use crate::evidence::Judged;
use crate::gate::Report;
use crate::known::Kind;

/// A part that has run, for the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    pub part: String,
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
    /// Tests that failed once and not again.
    pub unreproduced: usize,
    pub took: Duration,
    /// Whether it was not run, as it has passed with these inputs.
    pub kept: bool,
}

impl Row {
    /// `broke` of a report counts as a failure only where no test does.
    pub fn new(part: &str, report: &Report, judged: &Judged, took: Duration) -> Self {
        let failed = report.cases.failed().count();
        Self {
            part: part.to_owned(),
            passed: report.cases.passed(),
            failed: if failed == 0 { usize::from(report.broke.is_some()) } else { failed },
            skipped: report.cases.skipped().count(),
            unreproduced: judged.passes.iter().filter(|(_, kind, _)| *kind == Kind::Unreproduced).count(),
            took,
            kept: report.is_kept,
        }
    }
}

/// Prints the end of a part.
pub fn say(row: &Row, report: &Report, judged: &Judged) {
    let counts = format!("{} passed, {} failed, {} skipped", row.passed, row.failed, row.skipped);
    println!("{}: {counts} in {} s", row.part, row.took.as_secs());
    for line in &report.kept {
        println!("  kept: {line}");
    }
    for note in &report.notes {
        println!("  {note}");
    }
    for (name, log) in report.cases.failed() {
        println!("\n---- {name} ----\n{log}\n");
    }
    for (name, why) in &judged.rejected {
        println!("rejected: {name}: {why}");
    }
    if let Some(why) = &report.broke {
        println!("{} broke off: {why}", row.part);
    }
}

/// As Markdown, with a last row that adds up.
pub fn table(rows: &[Row]) -> String {
    let sum = |of: fn(&Row) -> usize| rows.iter().map(of).sum::<usize>();
    let all = Row {
        part: "all".to_owned(),
        passed: sum(|row| row.passed),
        failed: sum(|row| row.failed),
        skipped: sum(|row| row.skipped),
        unreproduced: sum(|row| row.unreproduced),
        took: rows.iter().map(|row| row.took).sum(),
        kept: false,
    };
    let mut text = String::from("| part | cases | passed | failed | skipped | unreproduced | time |\n");
    text += "|---|---:|---:|---:|---:|---:|---:|\n";
    for row in rows.iter().chain([&all]) {
        let cases = row.passed + row.failed + row.skipped;
        let seconds = row.took.as_secs();
        let (minutes, seconds) = (seconds / 60, seconds % 60);
        let kept = if row.kept { " (kept)" } else { "" };
        let _ = writeln!(
            text,
            "| {} | {cases} | {} | {} | {} | {} | {minutes}:{seconds:02}{kept} |",
            row.part, row.passed, row.failed, row.skipped, row.unreproduced
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Outcome;

    #[test]
    fn rows_add_up() {
        let mut report = Report { broke: Some("exit code 101".into()), ..Report::default() };
        report.cases.add("a", Outcome::Passed);
        report.cases.add("b", Outcome::Failed("log".into()));
        report.cases.add("c", Outcome::Skipped("why".into()));
        let first = Row::new("unit", &report, &Judged::default(), Duration::from_secs(61));
        let broken = Row::new("build", &Report::broken("x"), &Judged::default(), Duration::from_secs(5));
        let kept = Report { is_kept: true, ..Report::default() };
        let kept = Row::new("live", &kept, &Judged::default(), Duration::ZERO);
        let expected = "\
| part | cases | passed | failed | skipped | unreproduced | time |
|---|---:|---:|---:|---:|---:|---:|
| unit | 3 | 1 | 1 | 1 | 0 | 1:01 |
| build | 1 | 0 | 1 | 0 | 0 | 0:05 |
| live | 0 | 0 | 0 | 0 | 0 | 0:00 (kept) |
| all | 4 | 1 | 2 | 1 | 0 | 1:06 |
";
        assert_eq!(table(&[first, broken, kept]), expected);
    }
}
