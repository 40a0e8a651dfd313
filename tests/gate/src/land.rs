// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat-gate land`: decides whether a change may land.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::evidence::{self, Judged};
use crate::gate::Gate;
use crate::known::Known;
use crate::parent::Parent;
use crate::parts::Part;
use crate::table::{Row, say, table};

/// Failures that a gate let pass: in the checkout, for people, and beside what is kept, for the next run of a gate here.
fn lists(gate: &Gate) -> [PathBuf; 2] {
    [gate.root.join("tests/known.toml"), gate.state.join("known.toml")]
}

/// All known failures. Those that only a run of continuous integration has seen are added to the list in the checkout: the
/// checkout of that run is gone.
fn known(gate: &Gate) -> Result<Known> {
    let [listed, kept] = lists(gate);
    let mut known = Known::read(&listed)?;
    let before = known.entries.len();
    known.merge(&Known::read(&kept)?);
    if known.entries.len() > before {
        println!("tests/known.toml: {} more, from earlier runs here; commit them", known.entries.len() - before);
        known.write(&listed)?;
        if !is_ci() {
            Known::default().write(&kept)?;
        }
    }
    Ok(known)
}

/// Whether continuous integration runs this.
fn is_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty())
}

/// Runs the parts, and says whether the change may land.
///
/// # Errors
/// What keeps the gate itself from running.
pub fn run(gate: &mut Gate, parts: &[Part]) -> Result<bool> {
    let known = known(gate)?;
    if !known.entries.is_empty() {
        println!(
            "tests/known.toml has {} known failures: each is a defect until its cause is known",
            known.entries.len()
        );
    }
    let mut parts = parts.to_vec();
    parts.push(Part::Build);
    parts.sort_unstable();
    parts.dedup();
    parts.iter().for_each(|part| part.see_inputs(gate));
    let (mut rows, mut notes, mut skipped, mut failed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut seen = Known::default();
    for part in parts {
        let begun = Instant::now();
        let mut report = part.run(gate).with_context(|| format!("cannot run the part {}", part.name()))?;
        let mut judged = Judged::default();
        if part.has_single_tests() && report.broke.is_none() {
            judged = evidence::look_into(gate, &mut report, &known)?;
        }
        seen.merge(&evidence::entries(gate, &judged));
        let row = Row::new(part.name(), &report, &judged, begun.elapsed());
        say(&row, &report, &judged);
        if row.failed == 0 && !row.kept {
            part.keep(gate, &report)?;
        }
        notes.extend(report.notes.iter().cloned());
        skipped.extend(report.cases.skipped().map(|(name, why)| format!("{name}: {why}")));
        failed.extend(report.cases.failed().map(|(name, _)| name.to_owned()));
        let built = part != Part::Build || report.broke.is_none();
        rows.push(row);
        if !built {
            break;
        }
    }
    let green = rows.iter().all(|row| row.failed == 0);
    if green {
        Parent::keep(gate)?;
    }
    write_down(gate, &known, &seen)?;
    conclude(&rows, &notes, &skipped, &failed, &seen);
    Ok(green)
}

/// Adds the entries of this run to both lists.
fn write_down(gate: &Gate, known: &Known, seen: &Known) -> Result<()> {
    if seen.entries.is_empty() {
        return Ok(());
    }
    let [listed, kept] = lists(gate);
    let mut all = known.clone();
    all.merge(seen);
    all.write(&listed)?;
    let mut own = Known::read(&kept)?;
    own.merge(seen);
    if is_ci() { own.write(&kept) } else { Ok(()) }
}

fn conclude(rows: &[Row], notes: &[String], skipped: &[String], failed: &[String], seen: &Known) {
    let list = |title: &str, lines: &[String]| {
        if !lines.is_empty() {
            println!("\n{title}:\n  {}", lines.join("\n  "));
        }
    };
    list("skipped", skipped);
    list("notes", notes);
    list("failed", failed);
    for entry in &seen.entries {
        println!("\nentered in tests/known.toml: {} ({:?})\n{}", entry.case, entry.kind, entry.log);
    }
    println!("\n{}", table(rows));
    let sum = |of: fn(&Row) -> usize| rows.iter().map(of).sum::<usize>();
    println!("{} passed, {} failed, {} skipped", sum(|row| row.passed), sum(|row| row.failed), sum(|row| row.skipped));
}
