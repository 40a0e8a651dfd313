// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The plan of `topstat tasks`: its numbers are checked, and its defaults decided.

use topstat_families::account::AccountOptions;
use topstat_model::interval::{By, Choice, Column, Each, Filter, Order, RowsOf};

use crate::args::tasks::{SortKey, TasksArgs};
use crate::args::{ColorWhen, TopFormat};
use crate::console::Facts;
use crate::error::Error;
use crate::output::Output;

/// The validated arguments.
#[derive(Debug)]
pub struct Plan {
    /// How to load the account.
    pub options: AccountOptions,
    /// The processes whose user and system time are separated exactly.
    pub exact: Vec<u32>,
    /// What to show of an interval.
    pub choice: Choice,
    /// How to show it.
    pub output: Output,
}

impl Plan {
    /// Validates the parsed arguments for this output.
    pub fn new(args: &TasksArgs, color: ColorWhen, facts: Facts) -> Result<Self, Error> {
        let text = args.output == TopFormat::Text;
        if args.tree && !text {
            return Err(Error::Usage(
                "--tree is for text: JSON and CSV have the parent of each task (ppid)".to_owned(),
            ));
        }
        if args.wide && !text {
            return Err(Error::Usage("--wide is for text: JSON and CSV have all columns".to_owned()));
        }
        let output = Output::new((args.interval, args.count), args.output, color, facts);
        Ok(Self {
            options: AccountOptions { interrupts: !args.no_interrupts },
            exact: args.exact.clone(),
            choice: Choice {
                each: if args.threads { Each::Thread } else { Each::Process },
                of: match (args.dead, args.output) {
                    (true, _) => RowsOf::All,
                    (false, TopFormat::Json) => RowsOf::AllWithChildren,
                    (false, _) => RowsOf::Parents,
                },
                tree: args.tree,
                order: Order { by: by(args.sort, args.wide), reverse: args.reverse },
                filter: Filter::new(&args.pid, &args.comm),
                rows: args.rows,
                columns: Column::shown(args.wide, args.dead),
                command_lines: args.cmdline,
            },
            output,
        })
    }
}

/// Rows are sorted by the column that is shown under the key's name.
fn by(key: SortKey, wide: bool) -> By {
    By::Column(match key {
        SortKey::Pid => return By::Pid,
        SortKey::Elap => return By::Start,
        SortKey::Name => return By::Name,
        SortKey::Total => Column::Total,
        SortKey::User => Column::User,
        SortKey::Sys if wide => Column::Sys,
        SortKey::Sys => Column::Kernel,
        SortKey::Ste => Column::Ste,
        SortKey::Cuser => Column::Cuser,
        SortKey::Csys if wide => Column::Csys,
        SortKey::Csys => Column::Ckernel,
        SortKey::Cste => Column::Cste,
        SortKey::Wait => Column::Wait,
        SortKey::Switches => Column::Switches,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use crate::output::tests::{PIPE, goes_on_for_a_terminal};

    fn plan(line: &str, facts: Facts) -> Result<Plan, Error> {
        let line = format!("topstat tasks {line}");
        let args = Args::parse_line(line.split_whitespace().map(Into::into))?;
        match &args.command {
            Some(Command::Tasks(tasks)) => Plan::new(tasks, args.color, facts),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_terminal_goes_on_and_a_pipe_gets_one_interval() {
        goes_on_for_a_terminal(|line, facts| plan(line, facts).unwrap().output);
    }

    #[test]
    fn rows_are_sorted_by_what_is_shown() {
        for (line, by) in [
            ("", By::Column(Column::Total)),
            ("--sort sys", By::Column(Column::Kernel)),
            ("--sort sys --wide", By::Column(Column::Sys)),
            ("--sort csys", By::Column(Column::Ckernel)),
            ("-s elap", By::Start),
        ] {
            assert_eq!(plan(line, PIPE).unwrap().choice.order.by, by, "{line}");
        }
    }

    #[test]
    fn what_only_text_can_show_is_refused_elsewhere() {
        for line in ["--tree -o json", "--tree -o csv", "--wide -o json"] {
            assert!(matches!(plan(line, PIPE), Err(Error::Usage(_))), "{line}");
        }
    }
}
