// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `tasks` is to do: numbers in range, defaults decided.

use std::time::Duration;

use topstat_samples::tasks::{AccountOptions, Each};

use super::args::{SortKey, TasksArgs};
use super::column::Column;
use super::filter::Filter;
use crate::args::{ColorWhen, TopFormat};
use crate::console::Facts;
use crate::error::Error;
use crate::style::colors;

/// The interval where none is given.
const INTERVAL: Duration = Duration::from_secs(1);

/// What is to be done.
#[derive(Debug)]
pub struct Plan {
    /// How to load the account.
    pub options: AccountOptions,
    /// The processes whose user and system are told apart exactly.
    pub exact: Vec<u32>,
    /// The length of an interval.
    pub interval: Duration,
    /// How many intervals; without end if none.
    pub count: Option<u64>,
    /// What to show of an interval.
    pub choice: Choice,
    /// How to show it.
    pub style: Style,
}

/// Which rows there are, and in which order.
#[derive(Clone, Debug)]
pub struct Choice {
    pub each: Each,
    pub of: RowsOf,
    pub tree: bool,
    pub order: Order,
    pub filter: Filter,
    /// The most rows to show.
    pub rows: Option<u32>,
}

/// Who has a row, and what it counts. Either way each nanosecond is counted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsOf {
    /// Those that ended are within their parents: rows count what tasks and their ended children used.
    Parents,
    /// All, and rows count what tasks used themselves.
    All,
    /// The same, but sorted by what they and their ended children used: for formats that show both.
    AllWithChildren,
}

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub by: By,
    pub reverse: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The largest first.
    Column(Column),
    Pid,
    /// The oldest first.
    Start,
    Name,
}

/// How intervals are written.
#[derive(Clone, Debug)]
pub struct Style {
    pub format: TopFormat,
    /// Text is for a terminal: its width, and no more rows than fit unless asked for.
    pub terminal: bool,
    /// Each takes the place of the last.
    pub in_place: bool,
    /// Bold and dim.
    pub color: bool,
    /// Those of text.
    pub columns: Vec<Column>,
    /// Command lines, too.
    pub command_lines: bool,
}

impl Plan {
    /// Validates what was parsed, for this output.
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
        // Programs that read JSON or CSV find the same on a terminal as in a pipe.
        let terminal = facts.terminal && text;
        let count = match (args.interval, args.count) {
            (_, Some(count)) => Some(count),
            (None, None) if !terminal => Some(1),
            _ => None,
        };
        Ok(Self {
            options: AccountOptions { interrupts: !args.no_interrupts },
            exact: args.exact.clone(),
            interval: args.interval.unwrap_or(INTERVAL),
            count,
            choice: Choice {
                each: if args.threads { Each::Thread } else { Each::Process },
                of: match (args.dead, args.output) {
                    (true, _) => RowsOf::All,
                    (false, TopFormat::Json) => RowsOf::AllWithChildren,
                    (false, _) => RowsOf::Parents,
                },
                tree: args.tree,
                order: Order { by: by(args.sort, args.wide), reverse: args.reverse },
                filter: Filter::new(args),
                rows: args.rows,
            },
            style: Style {
                format: args.output,
                terminal,
                in_place: terminal && !facts.dumb && count != Some(1),
                color: colors(color, facts),
                columns: Column::shown(args.wide, args.dead),
                command_lines: args.cmdline,
            },
        })
    }
}

/// What is shown under the key's name is what rows are sorted by.
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

    const TERMINAL: Facts = Facts { terminal: true, notes: true, dumb: false, no_color: false };
    const PIPE: Facts = Facts { terminal: false, ..TERMINAL };
    const DUMB: Facts = Facts { dumb: true, ..TERMINAL };

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
        for (line, facts, count, in_place) in [
            ("", TERMINAL, None, true),
            ("5", TERMINAL, None, true),
            ("5 2", TERMINAL, Some(2), true),
            ("5 1", TERMINAL, Some(1), false),
            ("", DUMB, None, false),
            ("", PIPE, Some(1), false),
            ("5", PIPE, None, false),
            ("5 2", PIPE, Some(2), false),
            ("-o json", TERMINAL, Some(1), false),
            ("-o csv 5", TERMINAL, None, false),
        ] {
            let plan = plan(line, facts).unwrap();
            assert_eq!((plan.count, plan.style.in_place), (count, in_place), "{line}");
        }
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
