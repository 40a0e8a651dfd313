// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The result of the counts, as a table for docs/benchmarks.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use topstat_vm::kernel::Series;

use super::cases::{CASES, Case, find};
use super::guest::{MANY_SPEAK, Measured, Selection};
use crate::stats::{Spread, spread};

/// The cost that a case adds, by rounds in which it stood between turns of nothing.
pub struct More {
    /// The median.
    pub instructions: f64,
    /// The instructions of a transaction without attached programs.
    pub without: f64,
    /// The added cost in percent of `without`.
    pub percent: Spread,
    /// The largest difference between two measurements of nothing in any round, in percent: smaller effects can't be
    /// recognised.
    pub floor_percent: f64,
}

impl More {
    /// Whether the effect is too small to be recognised.
    pub fn is_lost(&self) -> bool {
        self.percent.median.abs() <= self.floor_percent
    }

    /// As a cell of a table.
    pub fn cell(&self) -> String {
        let Spread { median, low, high } = self.percent;
        let lost = if self.is_lost() { ", less than the floor" } else { "" };
        format!("{:+.0} ({median:+.2}%, {low:+.2} – {high:+.2}{lost})", self.instructions)
    }
}

/// All boots of one kernel.
pub struct Column {
    pub series: Series,
    pub release: String,
    pub boots: Vec<Vec<Measured>>,
}

impl Column {
    /// The measurements of a case in each boot.
    fn of<'a>(&'a self, connections: usize, case: &'a str) -> impl Iterator<Item = &'a Measured> {
        self.boots.iter().flatten().filter(move |measured| measured.connections == connections && measured.case == case)
    }

    /// One boot whose rounds gave these values: connections, case, instructions without it and with it.
    #[cfg(test)]
    pub fn of_rounds(rounds: &[(usize, &str, f64, f64)]) -> Self {
        let mut boot: Vec<Measured> = Vec::new();
        for &(connections, case, without, with) in rounds {
            let there = boot.iter().position(|one| one.connections == connections && one.case == case);
            let at = there.unwrap_or_else(|| {
                boot.push(Measured { connections, ..tests::measured(case, &[]) });
                boot.len() - 1
            });
            boot[at].turns.push(with);
            boot[at].without.push(without);
        }
        Self { series: Series::V6_1, release: "6.1.0-56-cloud-amd64".to_owned(), boots: vec![boot] }
    }

    /// The cost that a case adds to a transaction; or why it is unknown.
    pub fn more(&self, connections: usize, case: &str) -> Result<More, String> {
        let (Some(added), Some(nothing)) = (self.rounds(connections, case), self.rounds(connections, CASES[0].id))
        else {
            let mut said = self.of(connections, case).filter_map(|measured| measured.error.clone());
            return Err(said.next().unwrap_or_else(|| "it was not measured in rounds".to_owned()));
        };
        let percent = |rounds: &[(f64, f64)]| {
            spread(&rounds.iter().map(|(without, with)| (with / without - 1.0) * 100.0).collect::<Vec<_>>())
        };
        let floor = percent(&nothing);
        Ok(More {
            instructions: spread(&added.iter().map(|(without, with)| with - without).collect::<Vec<_>>()).median,
            without: spread(&added.iter().map(|(without, _)| *without).collect::<Vec<_>>()).median,
            percent: percent(&added),
            floor_percent: floor.low.abs().max(floor.high.abs()),
        })
    }

    /// All rounds of a case in all boots, without it and with it; `None` without a round.
    fn rounds(&self, connections: usize, case: &str) -> Option<Vec<(f64, f64)>> {
        let pairs =
            |boot: &'_ Measured| boot.without.iter().copied().zip(boot.turns.iter().copied()).collect::<Vec<_>>();
        let rounds: Vec<_> = self.of(connections, case).flat_map(pairs).collect();
        (!rounds.is_empty()).then_some(rounds)
    }

    /// The median of all turns, and the differences between the boots' medians and between the turns, in percent. With
    /// hundreds of connections the order of their traffic changes the work of a table by one percent from turn to turn, so
    /// the best turn is a matter of luck.
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

/// The boots that differ the most.
pub struct Apart {
    /// The difference in percent of a transaction.
    pub percent: f64,
    /// The measurement in which they differ.
    pub what: String,
}

/// The largest difference between the boots of any case. A turn may contain one second's action more or less, so the cases
/// that act every second are reported separately.
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

/// The table, and its conclusions.
pub fn render(columns: &[Column], what: &Selection) -> String {
    let datagrams = if what.datagrams { ", two datagrams," } else { "" };
    let mut text = format!("## icount: instructions that a 64-byte request and its response{datagrams} take more\n\n");
    let (boots, turns) = (columns.first().map_or(0, |column| column.boots.len()), what.turns);
    let _ = match what.rounds {
        0 => writeln!(
            text,
            "(median of {turns} turns of {} ms in each of {boots} boots, of {} with several connections)\n",
            what.turn_ms,
            turns * MANY_SPEAK
        ),
        rounds => writeln!(
            text,
            "({rounds} rounds in each of {boots} boots, {turns} turns of {} ms between as many of nothing; median, least and most; \
             the floor is the most that nothing differs from nothing in a round)\n",
            what.turn_ms
        ),
    };
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
    if let Ok(more) = column.more(connections, case.id) {
        return if case.id == base {
            format!("{:.0}, floor ±{:.2}%", more.without, more.floor_percent)
        } else {
            more.cell()
        };
    }
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

/// topstat's share of the cost that the cheaper tcptop adds.
fn against_tcptop(column: &Column, connections: usize, base: &str) -> String {
    let more = |case: &str| Some(column.figure(connections, case)?.median - column.figure(connections, base)?.median);
    let cheaper = ["libbpf", "bcc"].into_iter().filter_map(more).reduce(f64::min);
    let (Some(cheaper), Some(all)) = (cheaper, more("all")) else {
        return String::new();
    };
    format!(
        "- {}, {connections} connection(s): all of topstat's tables add {:.0}% of what the cheaper tcptop adds.\n",
        kernel_name(column),
        all / cheaper * 100.0
    )
}

/// The results of `--profile`.
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

    pub fn measured(case: &str, turns: &[f64]) -> Measured {
        Measured {
            connections: 1,
            case: case.to_owned(),
            turns: turns.to_vec(),
            without: Vec::new(),
            error: turns.is_empty().then(|| "no headers".to_owned()),
            programs: BTreeMap::new(),
        }
    }

    fn column() -> Column {
        let boot = |base: f64| {
            vec![
                measured("nothing", &[base, base + 1.0]),
                measured("all", &[base + 100.0, base + 110.0]),
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
        Selection {
            connections: vec![1],
            turn_ms: 200,
            turns: 2,
            rounds: 0,
            datagrams: false,
            cases: vec![],
            profile: false,
        }
    }

    #[test]
    fn the_median_of_all_boots_counts_and_what_is_missing_says_why() {
        let text = render(&[column()], &selection());
        assert!(text.contains("| attached | 6.1, 1 connection |"), "{text}");
        assert!(text.contains("| nothing | 1002 ±0.30% |"), "{text}");
        assert!(text.contains("| topstat, all tables | +104 (+10.4%) ±1.09% |"), "{text}");
        assert!(text.contains("| tcptop of bcc | n/a |") && text.contains("no headers"), "{text}");
        assert!(!text.contains("one table"), "{text}");
        assert!(text.contains("add 52% of what the cheaper tcptop adds."), "{text}");
    }

    #[test]
    fn a_drift_is_on_both_sides_and_what_is_below_the_floor_says_so() {
        let column = Column::of_rounds(&[
            (1, "nothing", 1000.0, 1001.0),
            (1, "nothing", 1100.0, 1097.8),
            (1, "kmod", 1000.0, 1010.0),
            (1, "kmod", 1100.0, 1111.0),
            (1, "tcp", 1000.0, 1001.0),
            (1, "tcp", 1100.0, 1102.2),
        ]);
        let more = column.more(1, "kmod").unwrap();
        assert_eq!(more.cell(), "+10 (+1.00%, +1.00 – +1.00)");
        assert!((more.floor_percent - 0.2).abs() < 1e-6 && !more.is_lost(), "{}", more.floor_percent);
        assert_eq!(column.more(1, "tcp").unwrap().cell(), "+2 (+0.15%, +0.10 – +0.20, less than the floor)");
        assert_eq!(column.more(1, "all").err().unwrap(), "it was not measured in rounds");
        let text = render(&[column], &Selection { rounds: 2, ..selection() });
        assert!(text.contains("| nothing | 1050, floor ±0.20% |"), "{text}");
        assert!(text.contains("all tables of connections | +10 (+1.00%"), "{text}");
    }

    #[test]
    fn boots_that_disagree_are_seen() {
        let apart = apart(&[column()], false).unwrap();
        assert!((apart.percent - 0.2).abs() < 1e-3 && apart.what == "6.1, 1 connection(s): nothing", "{}", apart.what);
    }
}
