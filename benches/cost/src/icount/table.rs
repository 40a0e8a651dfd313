// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The result of counting, as a table for docs/benchmarks.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use topstat_vm::kernel::Series;

use super::cases::{CASES, Case, find};
use super::guest::{MANY_SPEAK, Measured, Selection};
use crate::stats::spread;

/// What a case adds.
pub struct More {
    pub instructions: f64,
    /// What a transaction takes without anything.
    pub without: f64,
    /// How far turns are apart, with it or without, in percent of a transaction.
    pub turns_apart: f64,
}

/// All boots of one kernel.
pub struct Column {
    pub series: Series,
    pub release: String,
    pub boots: Vec<Vec<Measured>>,
}

impl Column {
    /// What each boot says of a case.
    fn of<'a>(&'a self, connections: usize, case: &'a str) -> impl Iterator<Item = &'a Measured> {
        self.boots.iter().flatten().filter(move |measured| measured.connections == connections && measured.case == case)
    }

    /// One boot in which these were the medians: connections, case, instructions.
    #[cfg(test)]
    pub fn of_medians(medians: &[(usize, &str, f64)]) -> Self {
        let measured = |(connections, case, median): &(usize, &str, f64)| Measured {
            connections: *connections,
            case: (*case).to_owned(),
            turns: vec![*median],
            error: None,
            programs: BTreeMap::new(),
        };
        let boots = vec![medians.iter().map(measured).collect()];
        Self { series: Series::V6_1, release: "6.1.0-56-cloud-amd64".to_owned(), boots }
    }

    /// What a case adds to a transaction; or why that is not known.
    pub fn more(&self, connections: usize, case: &str) -> Result<More, String> {
        match (self.figure(connections, case), self.figure(connections, CASES[0].id)) {
            (Some(with), Some(without)) => Ok(More {
                instructions: with.median - without.median,
                without: without.median,
                turns_apart: with.turns_apart.max(without.turns_apart),
            }),
            _ => {
                let mut said = self.of(connections, case).filter_map(|measured| measured.error.clone());
                Err(said.next().unwrap_or_else(|| "it was not measured".to_owned()))
            }
        }
    }

    /// The median of all turns, and how far the boots' medians and the turns are apart, in percent. With hundreds of
    /// connections the order in which they speak changes what a table has to do, from turn to turn by one percent: the
    /// best of them is a matter of luck.
    fn figure(&self, connections: usize, case: &str) -> Option<Figure> {
        let turns: Vec<_> = self.of(connections, case).flat_map(|boot| boot.turns.iter().copied()).collect();
        if turns.is_empty() {
            return None;
        }
        let boots = self.of(connections, case).filter(|boot| !boot.turns.is_empty());
        let boots: Vec<_> = boots.map(|boot| spread(&boot.turns).median).collect();
        let apart = |values: &[f64]| (spread(values).high / spread(values).low - 1.0) * 100.0;
        Some(Figure { median: spread(&turns).median, boots_apart: apart(&boots), turns_apart: apart(&turns) })
    }
}

struct Figure {
    median: f64,
    boots_apart: f64,
    turns_apart: f64,
}

/// Which boots are apart the most.
pub struct Apart {
    /// In percent of a transaction.
    pub percent: f64,
    /// What they have counted.
    pub what: String,
}

/// How far the boots of any case are apart at most. Where something happens every second a turn has one more of that, or
/// one less: these are told on their own.
pub fn apart(columns: &[Column], every_second: bool) -> Option<Apart> {
    let cells = columns.iter().flat_map(|column| column.boots.iter().flatten().map(move |measured| (column, measured)));
    cells
        .filter_map(|(column, measured)| {
            let case = find(&measured.case).filter(|case| case.every_second == every_second)?;
            let percent = column.figure(measured.connections, case.id)?.boots_apart;
            let what = format!("{}, {} connection(s): {}", kernel_name(column), measured.connections, case.label);
            Some(Apart { percent, what })
        })
        .max_by(|one, other| one.percent.total_cmp(&other.percent))
}

/// The table, and what it comes to.
pub fn render(columns: &[Column], what: &Selection) -> String {
    let datagrams = if what.datagrams { ", two datagrams," } else { "" };
    let mut text = format!("## icount: instructions that a 64-byte request and its response{datagrams} take more\n\n");
    let (boots, turns) = (columns.first().map_or(0, |column| column.boots.len()), what.turns);
    let _ = writeln!(
        text,
        "(median of {turns} turns of {} ms in each of {boots} boots, of {} with several connections)\n",
        what.turn_ms,
        turns * MANY_SPEAK
    );
    let _ = write!(text, "| attached |");
    for column in columns {
        for connections in &what.connections {
            let plural = if *connections == 1 { "" } else { "s" };
            let _ = write!(text, " {}, {connections} connection{plural} |", kernel_name(column));
        }
    }
    let _ = writeln!(text, "\n|---|{}", "---:|".repeat(columns.len() * what.connections.len()));
    let base = CASES[0].id;
    let mut missing = BTreeMap::new();
    for case in CASES {
        let cells: Vec<_> = columns
            .iter()
            .flat_map(|column| what.connections.iter().map(move |&connections| (column, connections)))
            .map(|(column, connections)| cell(column, connections, case, base))
            .collect();
        if cells.iter().all(|cell| cell.is_empty()) {
            continue;
        }
        let _ = writeln!(text, "| {} | {} |", case.label, cells.join(" | "));
        for measured in columns.iter().flat_map(|column| column.boots.iter().flatten()) {
            if let (true, Some(error)) = (measured.case == case.id, &measured.error) {
                missing.insert(case.label, error);
            }
        }
    }
    text += "\n";
    if let Some(Apart { percent, what }) = apart(columns, false) {
        let _ = writeln!(text, "- Boots are at most {percent:.2}% of a transaction apart ({what}).");
    }
    if let Some(Apart { percent, what }) = apart(columns, true) {
        let _ = writeln!(
            text,
            "- Where something is read every second, of which a turn has one more or one less, {percent:.2}% ({what})."
        );
    }
    for (label, error) in missing {
        let _ = writeln!(text, "- {label}: n/a where it does not run: {error}");
    }
    for column in columns {
        for &connections in &what.connections {
            text += &against_tcptop(column, connections, base);
        }
    }
    text += &shares(columns);
    text
}

fn kernel_name(column: &Column) -> String {
    // 7.3.4+deb13-cloud-amd64
    column.release.split(['-', '+']).next().unwrap_or_default().split('.').take(2).collect::<Vec<_>>().join(".")
}

fn cell(column: &Column, connections: usize, case: &Case, base: &str) -> String {
    let figure = column.figure(connections, case.id);
    match (figure, column.figure(connections, base)) {
        (Some(figure), _) if case.id == base => format!("{:.0} ±{:.2}%", figure.median, figure.turns_apart),
        (Some(figure), Some(base)) => {
            let more = figure.median - base.median;
            format!("{more:+.0} ({:+.1}%) ±{:.2}%", more / base.median * 100.0, figure.turns_apart)
        }
        (Some(figure), None) => format!("{:.0} in all", figure.median),
        (None, _) if column.of(connections, case.id).next().is_some() => "n/a".to_owned(),
        (None, _) => String::new(),
    }
}

/// topstat's share of what the cheaper tcptop adds.
fn against_tcptop(column: &Column, connections: usize, base: &str) -> String {
    let more = |case: &str| Some(column.figure(connections, case)?.median - column.figure(connections, base)?.median);
    let cheaper = ["libbpf", "bcc"].into_iter().filter_map(more).reduce(f64::min);
    let (Some(cheaper), Some(now), Some(later)) = (cheaper, more("all_0"), more("all_100")) else {
        return String::new();
    };
    format!(
        "- {}, {connections} connection(s): all of topstat's tables add {:.0}% of what the cheaper tcptop adds, \
         with a delay of 100 ms {:.0}%.\n",
        kernel_name(column),
        now / cheaper * 100.0,
        later / cheaper * 100.0
    )
}

/// What `--profile` has found.
fn shares(columns: &[Column]) -> String {
    let mut text = String::new();
    for column in columns {
        for measured in column.boots.iter().take(1).flatten() {
            for (program, (runs, instructions)) in &measured.programs {
                let _ = writeln!(
                    text,
                    "{} {:4} {:14} {program:24} {runs:6.2} runs of {instructions:6.0}: {:6.0}",
                    column.series,
                    measured.connections,
                    measured.case,
                    runs * instructions
                );
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(case: &str, turns: &[f64]) -> Measured {
        Measured {
            connections: 1,
            case: case.to_owned(),
            turns: turns.to_vec(),
            error: turns.is_empty().then(|| "no headers".to_owned()),
            programs: BTreeMap::new(),
        }
    }

    fn column() -> Column {
        let boot = |base: f64| {
            vec![
                measured("nothing", &[base, base + 1.0]),
                measured("all_0", &[base + 100.0, base + 110.0]),
                measured("all_100", &[base + 40.0]),
                measured("libbpf", &[base + 200.0]),
                measured("bcc", &[]),
            ]
        };
        Column {
            series: Series::V6_1,
            release: "6.1.0-56-cloud-amd64".to_owned(),
            boots: vec![boot(1000.0), boot(1002.0)],
        }
    }

    fn selection() -> Selection {
        Selection { connections: vec![1], turn_ms: 200, turns: 2, datagrams: false, cases: vec![], profile: false }
    }

    #[test]
    fn the_median_of_all_boots_counts_and_what_is_missing_says_why() {
        let text = render(&[column()], &selection());
        assert!(text.contains("| attached | 6.1, 1 connection |"), "{text}");
        assert!(text.contains("| nothing | 1002 ±0.30% |"), "{text}");
        assert!(text.contains("| topstat, all tables, delay 0 ms | +104 (+10.4%) ±1.09% |"), "{text}");
        assert!(text.contains("| tcptop of bcc | n/a |") && text.contains("no headers"), "{text}");
        assert!(!text.contains("one table"), "{text}");
        assert!(text.contains("add 52% of what the cheaper tcptop adds, with a delay of 100 ms 20%"), "{text}");
    }

    #[test]
    fn boots_that_disagree_are_seen() {
        let apart = apart(&[column()], false).unwrap();
        assert!((apart.percent - 0.2).abs() < 1e-3 && apart.what == "6.1, 1 connection(s): nothing", "{}", apart.what);
    }
}
