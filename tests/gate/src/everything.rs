// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat-gate all`: everything there is, part after part. A part that has passed with these sources is not run again, so a
//! run that was ended goes on where it was.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::case::{Cases, Outcome, last_lines, of_libtest};
use crate::evidence::{self, Judged};
use crate::gate::{Gate, Inputs, Report};
use crate::guests;
use crate::known::Known;
use crate::parts::{FRESH, FRESH_TAGS, GUESTS, LIVE, Part, SOURCES, keep, kept};
use crate::table::{Row, say, table};

/// How long all of it takes on two cores, about.
pub const SECONDS: u64 = 2 * 3600;

/// How often every live case runs.
const REPEATS: u32 = 20;

/// How a part is run and read.
enum Run {
    /// A part of the gate.
    Gate(Part),
    /// A command that prints sections of guests.
    Guests(&'static [&'static str]),
    /// A command whose exit code is its outcome, or that prints libtest's lines. `$S` stands for the seconds of the
    /// part, and `$C` for the seconds of each of [`COMMANDS`].
    Plain(&'static [&'static str]),
    /// The live tests, again and again.
    Repeat,
}

/// A part of everything.
struct Piece {
    name: &'static str,
    /// Its part of the time in per cent, where it can be cut short; 0: it takes what it takes.
    share: u64,
    /// A pass of it is kept for these.
    inputs: Inputs<'static>,
    run: Run,
}

const fn piece(name: &'static str, share: u64, inputs: Inputs<'static>, run: Run) -> Piece {
    Piece { name, share, inputs, run }
}

/// What the fuzzers feed.
const FUZZED: Inputs<'_> = Inputs { packages: &["topstat-fuzz"], paths: &["scripts/fuzz"] };

/// What the patches for a kernel's source are made of.
const PATCHES: Inputs<'_> =
    Inputs { packages: &["topstat-vm"], paths: &["kmod", "engine/include", "scripts/kmod-patch"] };

/// What programs of others read.
const READERS: Inputs<'_> = Inputs { packages: &["topstat-fleet", "topstat-serve"], paths: &["dist/spark"] };

/// All, in the order of running. The last part fills the rest of the time.
const PIECES: [Piece; 20] = [
    piece("lint", 0, SOURCES, Run::Gate(Part::Lint)),
    piece("unit", 0, SOURCES, Run::Gate(Part::Unit)),
    // All live cases, also those that are slow by nature: the lab, faults, watchdogs, budgets.
    piece("live", 0, LIVE, Run::Gate(Part::Live)),
    // Guests, two at a time: each piece is kept by itself.
    piece("vm-old", 0, GUESTS, Run::Guests(&["scripts/vm-tests", "--kernels", "6.1,6.12"])),
    piece("vm-new", 0, GUESTS, Run::Guests(&["scripts/vm-tests", "--kernels", "6.18,newest"])),
    piece("vm-checked", 0, GUESTS, Run::Guests(&["scripts/vm-tests", "--kernels", "6.1", "--tiers", "slub,debug"])),
    piece("vm-systemd", 0, GUESTS, Run::Guests(&["scripts/vm-tests", "--kernels", "6.1,newest", "--tiers", "systemd"])),
    piece("vm-numa", 0, GUESTS, Run::Guests(&["scripts/vm-tests", "--kernels", "newest", "--tiers", "numa"])),
    // The oldest and the newest kernel, each with one of the two sizes of pages.
    piece("vm-arm64", 0, GUESTS, Run::Guests(&["scripts/vm-tests", "--arm64", "--kernels", "6.1"])),
    piece("vm-arm64-16k", 0, GUESTS, Run::Guests(&["scripts/vm-tests", "--arm64-16k", "--kernels", "newest"])),
    // The guests above run the module's tests on their kernels.
    piece("kmod", 0, GUESTS, Run::Plain(&["scripts/kmod-tests", "5.10", "debug"])),
    piece(
        "kmod-patch",
        0,
        PATCHES,
        Run::Plain(&["make", "--no-print-directory", "kmod-patch", "KERNEL=6.1", "KUNIT=1"]),
    ),
    piece("vm-runner", 0, GUESTS, Run::Plain(&["make", "--no-print-directory", "vm-test"])),
    // The kernel is this one, on which the piece `live` runs all cases.
    piece("fresh-12", 0, FRESH, Run::Gate(Part::Fresh)),
    piece("fresh-13", 0, FRESH, Run::Plain(&["env", FRESH_TAGS, "scripts/fresh", "13"])),
    piece("readers", 0, READERS, Run::Plain(&["make", "--no-print-directory", "readers"])),
    piece("fuzz", 5, FUZZED, Run::Plain(&["make", "--no-print-directory", "fuzz", "SECONDS=$S"])),
    piece("soak", 8, LIVE, Run::Plain(&["make", "--no-print-directory", "soak", "SECONDS=$S"])),
    piece("faults", 8, LIVE, Run::Plain(&["make", "--no-print-directory", "faults", "FAULTS_SECONDS=$C"])),
    piece("repeat", 100, LIVE, Run::Repeat),
];

/// The commands whose system calls `make faults` has fail, one after the other.
const COMMANDS: u64 = 12;
/// A part that is cut short still has this long, in seconds: less shows nothing.
const LEAST: u64 = 60;
/// Lines of a part that are kept where it fails without a test that does.
const LINES: usize = 60;

/// Runs everything, or the parts that are named, and says whether all has passed.
///
/// # Errors
/// An unknown part; what keeps the gate itself from running.
pub fn run(gate: &mut Gate, seconds: u64, named: &[String]) -> Result<bool> {
    if let Some(unknown) = named.iter().find(|name| PIECES.iter().all(|piece| piece.name != *name)) {
        let names: Vec<_> = PIECES.iter().map(|piece| piece.name).collect();
        bail!("there is no part {unknown}; there are {}", names.join(", "));
    }
    let begun = Instant::now();
    let end = begun + Duration::from_secs(seconds);
    let known = Known::read(&gate.root.join("tests/known.toml"))?;
    let (mut rows, mut missing, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    // Before the build: a pass counts for the sources that were built.
    PIECES.iter().for_each(|piece| drop(gate.hash(piece.inputs)));
    // All parts run these programs.
    build(gate)?;
    for piece in PIECES.iter().filter(|piece| named.is_empty() || named.iter().any(|name| name == piece.name)) {
        let left = end.saturating_duration_since(Instant::now()).as_secs();
        let name = format!("all-{}", piece.name);
        let begun = Instant::now();
        let mut report;
        let mut judged = Judged::default();
        if let Some(kept) = kept(gate, &name, piece.inputs) {
            report = kept;
        } else if left < LEAST {
            missing.push(piece.name);
            continue;
        } else {
            report = one(gate, piece, left)?;
            if report.broke.is_none() {
                judged = evidence::look_into(gate, &mut report, &known)?;
            }
        }
        let row = Row::new(piece.name, &report, &judged, begun.elapsed());
        say(&row, &report, &judged);
        let failures = report.cases.failed().map(|(case, _)| case).chain(report.broke.as_deref());
        failed.extend(failures.map(|what| format!("{}: {what}", piece.name)));
        if !row.kept && row.failed == 0 {
            keep(gate, &name, piece.inputs, &report.cases)?;
        }
        rows.push(row);
        // If this run is ended, the table has the parts so far.
        write_down(gate, &rows, &missing, &failed)?;
    }
    println!("\n{}", write_down(gate, &rows, &missing, &failed)?);
    Ok(failed.is_empty() && missing.is_empty())
}

fn build(gate: &mut Gate) -> Result<()> {
    match Part::Build.run(gate)?.broke {
        None => Ok(()),
        Some(why) => bail!("nothing can be run: {why}"),
    }
}

fn one(gate: &mut Gate, piece: &Piece, left: u64) -> Result<Report> {
    let seconds = if piece.share == 0 { left } else { (left * piece.share / 100).max(LEAST) };
    // The gate's own pass of the live tests lacks those that are slow by nature.
    gate.slow = matches!(piece.run, Run::Gate(Part::Live));
    let usual = gate.deadline;
    gate.deadline = Instant::now() + Duration::from_secs(left);
    let report = match &piece.run {
        Run::Gate(part) => {
            let again = gate.again;
            gate.again |= gate.slow;
            let report = part.run(gate);
            gate.again = again;
            report
        }
        Run::Guests(command) => guests_of(gate, piece.name, command),
        Run::Plain(command) => plain(gate, piece.name, command, seconds),
        Run::Repeat => repeat(gate, seconds),
    };
    gate.deadline = usual;
    report.with_context(|| format!("cannot run {}", piece.name))
}

fn guests_of(gate: &Gate, name: &str, line: &[&str]) -> Result<Report> {
    let mut command = Command::new(line[0]);
    command.args(&line[1..]);
    let ran = gate.run(name, command)?;
    let mut report = guests::read(&ran.text);
    if !ran.succeeded() && report.cases.failed().next().is_none() {
        report.broke = Some(format!("{}: {}\n{}", line[0], ran.how(), last_lines(&ran.text, LINES)));
    }
    Ok(report)
}

fn plain(gate: &Gate, name: &str, line: &[&str], seconds: u64) -> Result<Report> {
    let mut command = Command::new(line[0]);
    let word = |word: &&str| word.replace("$S", &seconds.to_string()).replace("$C", &(seconds / COMMANDS).to_string());
    command.args(line[1..].iter().map(word));
    let ran = gate.run(name, command)?;
    let (cases, _) = of_libtest(&ran.text, &format!("{name} "));
    let mut report = Report { cases, ..Report::default() };
    if report.cases.0.is_empty() && ran.succeeded() {
        report.cases.add(name, Outcome::Passed);
    }
    if !ran.succeeded() && report.cases.failed().next().is_none() {
        report.broke = Some(format!("{}: {}\n{}", line.join(" "), ran.how(), last_lines(&ran.text, LINES)));
    }
    Ok(report)
}

/// Runs the live tests up to [`REPEATS`] times, as often as there is time for. A case counts once; it has failed if it failed
/// in any round.
fn repeat(gate: &Gate, seconds: u64) -> Result<Report> {
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut all, mut rounds, mut longest) = (Cases::default(), 0, Duration::ZERO);
    while rounds < REPEATS && Instant::now() + longest < end {
        let begun = Instant::now();
        let ran = gate.run("repeat", gate.live_tests()?)?;
        if ran.timed_out {
            break;
        }
        let (cases, ended) = of_libtest(&ran.text, "");
        if !ended {
            return Ok(Report { cases, ..Report::broken(format!("round {}: {}", rounds + 1, ran.how())) });
        }
        all.extend(cases);
        rounds += 1;
        longest = longest.max(begun.elapsed());
    }
    Ok(Report { cases: all, notes: vec![format!("{rounds} rounds of {REPEATS}")], ..Report::default() })
}

/// Writes the table to `target/test-all.md`, and gives it.
fn write_down(gate: &Gate, rows: &[Row], missing: &[&str], failed: &[String]) -> Result<String> {
    let mut text = table(rows);
    let mut list = |title: &str, lines: &[String]| {
        if !lines.is_empty() {
            text += &format!("\n{title}: {}\n", lines.join("; "));
        }
    };
    list("failed", failed);
    list("not run, for want of time", &missing.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    text += &format!(
        "\nof commit {}{}\n",
        gate.commit,
        if gate.clean { "" } else { ", with changes that are not committed" }
    );
    let path = gate.target.join("test-all.md");
    fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(text)
}
