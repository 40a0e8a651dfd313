// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The plan of `topstat top`: its names are resolved, its numbers checked, and its defaults decided.

use std::sync::Arc;
use std::time::Duration;

use topstat_kernel::{DEFAULT_TOP, Options, SampleInfo, State, TableInfo};
use topstat_model::{TableType, human_ms};

use super::selection::Selection;
use crate::args::{ColorWhen, TopArgs};
use crate::console::Facts;
use crate::error::Error;
use crate::output::Output;
use crate::resolve;

/// The validated arguments.
#[derive(Debug)]
pub struct Plan {
    /// The name of the table, or of several tables: `tcp/conns_bps`.
    pub name: String,
    /// The tables, shown as one ranking.
    pub tables: Vec<Arc<TableInfo>>,
    /// How to load them.
    pub options: Options,
    /// Which rows to show.
    pub selection: Selection,
    /// The time from loading the tables to the first snapshot.
    pub first_after: Duration,
    /// How to show them.
    pub output: Output,
}

impl Plan {
    /// Validates the parsed arguments for the tables of this name and for this output; `all` has the samples that can be shown.
    pub fn new(
        args: &TopArgs,
        name: &str,
        all: &[Arc<SampleInfo>],
        color: ColorWhen,
        facts: Facts,
    ) -> Result<Self, Error> {
        let tables = resolve::tables(all, name, args.choice.only)?;
        if let Some(table) = tables.iter().find(|table| args.threads && !may_be_threads(table)) {
            return Err(Error::Usage(format!(
                "--threads is for tables that rank processes, and {} does not: {} do",
                table.path(),
                of_processes().join(", ")
            )));
        }
        let counted = tables.iter().all(|table| is_counted(table));
        let of_groups = counted && tables.iter().all(|table| is_of_groups(table));
        let of_network = (counted && !of_groups, "snmp_tcp, net_devs, net_namespaces");
        let of_groups = (of_groups, "cgroup_limits, cgroup_pressure, cgroup_memory");
        for (option, given, (fits, of)) in [
            ("--netns", args.netns.is_some(), of_network),
            ("--by", args.by.is_some(), of_network),
            ("--depth", args.depth.is_some(), of_groups),
        ] {
            if let Some(table) = tables.first().filter(|_| given && !fits) {
                return Err(Error::Usage(format!(
                    "{option} is for tables of what the kernel counts by itself ({of}), and {} is none",
                    table.path()
                )));
            }
        }
        let own_period =
            tables.iter().find_map(|table| Some((table, topstat_families::catalogue().own_period_ms(table)?)));
        if let (Some((table, own)), true) = (own_period, args.period.is_some()) {
            return Err(Error::Usage(format!(
                "--period does not change {}: its definition has the period {}",
                table.path(),
                human_ms(own)
            )));
        }
        let options = Options {
            threads: args.threads,
            netns: args.netns.clone(),
            by: args.by.clone(),
            depth: args.depth,
            top: top(args.top, args.rows)?,
            period_ms: args.period.unwrap_or(Options::default().period_ms),
            delay_ms: args.delay.unwrap_or(Options::default().delay_ms),
            ..Options::default()
        };
        let output = Output::new((args.interval, args.count), args.output, color, facts);
        let dynamic = tables.iter().any(|table| table.kind == TableType::Dynamic);
        Ok(Self {
            first_after: if dynamic {
                Duration::from_millis(own_period.map_or(options.period_ms, |(_, own)| own).into())
            } else if counted {
                // The kernel has always counted these: the first reading has values.
                Duration::ZERO
            } else {
                // A running total that begins now would be empty at first.
                output.interval
            },
            output,
            selection: Selection::new(args, &tables)?,
            name: name.to_owned(),
            tables,
            options,
        })
    }
}

impl Plan {
    /// Uses the daemon's tables, which have rows at once.
    ///
    /// # Errors
    ///
    /// When an option would change the daemon's tables for all users, or when more rows are asked for than the tables keep.
    pub fn share(&mut self, args: &TopArgs, state: &dyn State) -> Result<(), Error> {
        let top = state.top();
        let path = self.tables.first().map(|table| table.path()).unwrap_or_default();
        let given = [
            ("--period", args.period.map(|_| format!("topstat set {path}/period"))),
            ("--delay", args.delay.map(|_| format!("topstat set {path}/delay"))),
            ("--top", args.top.map(|_| "top in its configuration".to_owned())),
            ("--threads", (args.threads && !state.threads()).then(|| "threads in its configuration".to_owned())),
        ];
        for (option, instead) in given {
            if let Some(instead) = instead {
                return Err(Error::Usage(format!(
                    "{option} would change the daemon's {path} for all who look at it: use {instead} for that, or \
                     --private for a table of your own"
                )));
            }
        }
        match args.rows {
            Some(rows) if rows > top => Err(Error::Usage(format!(
                "-n {rows} is more than the {top} rows that the daemon's {path} keeps: use --private for a table of \
                 your own"
            ))),
            _ => {
                self.first_after = Duration::ZERO;
                Ok(())
            }
        }
    }

    /// Uses tables of another tree. They keep `top` rows, and have rows at once.
    ///
    /// # Errors
    ///
    /// When more rows are asked for.
    pub fn of_files(&mut self, top: u32) -> Result<(), Error> {
        self.first_after = Duration::ZERO;
        match self.selection.rows {
            Some(rows) if rows > top => {
                Err(Error::Usage(format!("-n {rows} is more than the {top} rows that the table keeps")))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a table ranks counters that the kernel keeps by itself.
fn is_counted(table: &TableInfo) -> bool {
    topstat_families::catalogue().samples().iter().any(|sample| sample.name == table.sample && sample.is_counted())
}

/// Whether a table's objects are control groups or belong to one.
fn is_of_groups(table: &TableInfo) -> bool {
    let sample = topstat_families::catalogue().samples().iter().find(|sample| sample.name == table.sample).cloned();
    sample.is_some_and(|sample| sample.columns.iter().any(|column| column.column.name == "cgroup"))
}

/// Whether a table's objects can be threads.
fn may_be_threads(table: &TableInfo) -> bool {
    topstat_families::catalogue().samples().iter().any(|sample| sample.name == table.sample && sample.may_be_threads())
}

/// The samples whose objects can be threads.
fn of_processes() -> Vec<String> {
    topstat_families::catalogue()
        .samples()
        .iter()
        .filter(|sample| sample.may_be_threads())
        .map(|sample| sample.name.clone())
        .collect()
}

/// How many rows the table keeps.
fn top(top: Option<u32>, rows: Option<u32>) -> Result<u32, Error> {
    match (top, rows) {
        (Some(top), Some(rows)) if rows > top => {
            Err(Error::Usage(format!("-n {rows} is more than the {top} rows that the table keeps: use --top {rows}")))
        }
        (Some(top), _) => Ok(top),
        (None, rows) => Ok(rows.unwrap_or(0).max(DEFAULT_TOP)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use crate::output::tests::{DUMB, PIPE, TERMINAL, goes_on_for_a_terminal};

    fn plan(line: &str, facts: Facts) -> Result<Plan, Error> {
        let line = format!("topstat top {line}");
        let args = Args::parse_line(line.split(' ').map(Into::into))?;
        match &args.command {
            Some(Command::Top(top)) => {
                let name = top.table.as_deref().unwrap_or_default();
                Plan::new(top, name, &topstat_families::catalogue().samples(), args.color, facts)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_terminal_goes_on_and_a_pipe_gets_one_snapshot() {
        goes_on_for_a_terminal(|line, facts| plan(format!("tcp/conns_pps {line}").trim_end(), facts).unwrap().output);
    }

    #[test]
    fn the_first_rows_come_after_what_they_need() {
        for (line, seconds) in [
            ("tcp/conns_pps", 1),
            ("tcp/conns_pps 60", 1),
            ("tcp/conns_pps 1 --period 10s", 10),
            ("tcp/conns_bytes", 1),
            ("tcp/conns_bytes 60", 60),
            ("snmp_tcp/rate", 1),
            ("snmp_tcp/total 60", 0),
        ] {
            let plan = plan(line, PIPE).unwrap();
            assert_eq!(plan.first_after, Duration::from_secs(seconds), "{line}");
        }
    }

    #[test]
    fn a_table_keeps_what_is_shown() {
        for (line, top) in
            [("", 128), (" -n 5", 128), (" -n 500", 500), (" --top 7", 7), (" -n 7 --top 7", 7), (" --top 1024", 1024)]
        {
            let line = format!("tcp/conns_pps{line}");
            assert_eq!(plan(&line, PIPE).unwrap().options.top, top, "{line}");
        }
        assert_eq!(
            plan("tcp/conns_pps -n 8 --top 7", PIPE).unwrap_err().to_string(),
            "-n 8 is more than the 7 rows that the table keeps: use --top 8"
        );
    }

    #[test]
    fn colours_are_for_terminals_unless_asked_for() {
        let no_color = Facts { no_color: true, ..TERMINAL };
        for (line, facts, color) in [
            ("", TERMINAL, true),
            ("", PIPE, false),
            ("", DUMB, false),
            ("", no_color, false),
            (" --color always", PIPE, true),
            (" --color always", no_color, true),
            (" --color never", TERMINAL, false),
        ] {
            let line = format!("tcp/conns_pps{line}");
            assert_eq!(plan(&line, facts).unwrap().output.color, color, "{line}");
        }
    }
}
