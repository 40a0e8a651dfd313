// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line as it is parsed: syntax only. What it means is validated by the plan of each command.

use std::ffi::OsString;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use topstat_model::typeset::escape;
use topstat_samples::{DEFAULT_TOP, MAX_TOP};

use crate::commands::tasks::args::TasksArgs;
use crate::error::Error;
use crate::time;

/// What a `topstat` without a command shows.
pub const DEFAULT_TABLE: &str = "tcp_v4/conns_pps";

/// What is at the top right now: which connections use the most packets, bytes or retransmits.
///
/// topstat ranks inside the kernel, so that a host with a million connections pays the same to read the top as a host
/// with ten. Rows + other = total, always; whatever could not be counted is itself counted and shown.
///
/// Without a command it is `topstat top tcp_v4/conns_pps`.
#[derive(Debug, Parser)]
#[command(name = "topstat", bin_name = "topstat", version, max_term_width = 100)]
#[command(after_help = "See 'topstat --help' for more, with examples.", after_long_help = EXAMPLES)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// When to use colours; auto: on a terminal, unless NO_COLOR is set or TERM is dumb
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t)]
    pub(crate) color: ColorWhen,
}

const EXAMPLES: &str = "\
EXAMPLES
  topstat                                        TCP connections by packets, every second
  topstat top tcp/conns_bps 2                    by bits per second, IPv4 and IPv6, every 2 seconds
  topstat top tcp_v4/conns_retrans -n 10         who retransmits
  topstat top udp/conns_pps --port 53            DNS
  topstat top tcp/conns_pps --cgroup /system.slice/nginx.service
  topstat top tcp_v4/conns_bytes 60 -o json >> top.jsonl
  topstat tasks                                  CPU time of every process, to 100%
  topstat ls                                     which samples and tables there are
  topstat check                                  what this kernel and this user allow

EXIT CODES
  0  done; also after Ctrl-C or SIGTERM, and where the reader of a pipe has gone
  1  failed
  2  wrong usage";

#[derive(Debug, Subcommand)]
pub enum Command {
    Top(TopArgs),
    Tasks(TasksArgs),
    Ls(LsArgs),
    Check(CheckArgs),
    Completions(CompletionsArgs),
}

/// Show the top of a table.
///
/// On a terminal the view is refreshed in place, every second unless an INTERVAL is given, until Ctrl-C. In a pipe, and
/// as JSON or CSV, it is one snapshot without an INTERVAL, and without end with an INTERVAL and no COUNT. Snapshots are
/// taken on an absolute schedule, which does not drift.
///
/// What the table needs is loaded for as long as the command runs. The first rows come after one full period of a
/// dynamic table, and after one INTERVAL (or a second) of a static one.
#[derive(Debug, clap::Args)]
#[command(after_long_help = TOP_EXAMPLES)]
pub struct TopArgs {
    /// Which table; with 'tcp' or 'udp' as SAMPLE those of both families (see 'topstat ls')
    #[arg(value_name = "SAMPLE/TABLE")]
    pub table: String,

    /// Seconds between two snapshots (0.5), or a time with a unit (500ms, 2s, 1m)
    #[arg(value_name = "INTERVAL", value_parser = time::interval)]
    pub interval: Option<Duration>,

    /// How many snapshots
    #[arg(value_name = "COUNT", value_parser = count)]
    pub count: Option<u64>,

    /// Show at most this many rows [default: on a terminal what fits, else all]
    #[arg(short = 'n', long, value_name = "ROWS", value_parser = rows)]
    pub rows: Option<u32>,

    /// How to write it
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: TopFormat,

    /// Only IPv4
    #[arg(short = '4', long, conflicts_with = "ipv6", help_heading = FILTERS)]
    pub ipv4: bool,

    /// Only IPv6
    #[arg(short = '6', long, help_heading = FILTERS)]
    pub ipv6: bool,

    /// Only of this process (not thread)
    #[arg(long, value_name = "PID", value_delimiter = ',', help_heading = FILTERS)]
    pub pid: Vec<u32>,

    /// Only of processes of this name, exactly (of a longer name, its first 15 bytes)
    #[arg(long, value_name = "NAME", help_heading = FILTERS)]
    pub comm: Vec<String>,

    /// Only of a cgroup: what begins with '/' is that cgroup and all below it, other text is searched in the path
    #[arg(long, value_name = "CGROUP", help_heading = FILTERS)]
    pub cgroup: Vec<String>,

    /// Only with this port, at either end
    #[arg(long, value_name = "PORT", value_delimiter = ',', help_heading = FILTERS)]
    pub port: Vec<u16>,

    /// Rows that the table keeps, 1 to 1024 [default: 128, or ROWS if that is more]
    #[arg(long, value_name = "N", value_parser = rows, help_heading = TABLE)]
    pub top: Option<u32>,

    /// Period of a dynamic table: milliseconds, or a time with a unit
    #[arg(long, value_name = "TIME", value_parser = time::period, default_value = "1s", help_heading = TABLE)]
    pub period: u32,

    /// Order a connection at most once per this time, which costs less: milliseconds, or a time with a unit
    #[arg(long, value_name = "TIME", value_parser = time::delay, default_value = "0", help_heading = TABLE)]
    pub delay: u32,
}

const FILTERS: &str = "Filters";
const TABLE: &str = "Table";

const TOP_EXAMPLES: &str = "\
FILTERS
  A filter can be repeated: a row is shown if it matches any of the same option, and all of
  different ones. What is hidden is added to 'other'. Only rows that the table keeps are searched:
  a larger --top looks deeper.

EXAMPLES
  topstat top tcp_v4/conns_pps                   refreshed every second; in a pipe, one snapshot
  topstat top tcp/conns_bps 0.5 20 -n 5          20 snapshots, two per second, 5 rows each
  topstat top tcp/conns_bps -6 --comm nginx --comm envoy
  topstat top udp_v4/conns_pps 10 --period 10s -o csv > dns.csv
  topstat top tcp_v4/conns_pps -o json | jq '.rows[0]'";

/// List the samples and their tables
#[derive(Debug, clap::Args)]
pub struct LsArgs {
    /// Only this sample; 'tcp' or 'udp' are those of both families
    #[arg(value_name = "SAMPLE")]
    pub sample: Option<String>,

    /// How to write it; json is one document per sample and line
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: ListFormat,
}

/// Say what this kernel and this user allow, and what to do about it
///
/// One line each: whether it is ok, degraded (something else is used, or a part is left out) or missing. Exits with 1
/// if something is missing.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// How to write it; json is one document per check and line
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: ListFormat,
}

/// Write the completions of a shell, to be sourced by it
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// How `top` writes snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TopFormat {
    /// For eyes; programs should not parse it
    #[default]
    Text,
    /// One document per snapshot and line
    Json,
    /// One record per row, ending with the sums
    Csv,
}

/// How lists are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// For eyes
    #[default]
    Text,
    /// One document per line
    Json,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    #[default]
    Auto,
    Always,
    Never,
}

impl Args {
    /// Parses a command line, the program's name first.
    ///
    /// # Errors
    ///
    /// [`Error::Parse`], also for `--help` and `--version`; [`Error::Usage`] for a table without `top`.
    pub fn parse_line(line: impl IntoIterator<Item = OsString>) -> Result<Self, Error> {
        Self::try_parse_from(line).map_err(|error| match forgotten_top(&error) {
            Some(table) => Error::Usage(format!("unknown command {table}: did you mean topstat top {table}?")),
            None => error.into(),
        })
    }
}

/// The table's name that was given instead of a command.
fn forgotten_top(error: &clap::Error) -> Option<String> {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(name)) if name.contains('/') => Some(escape(name).into_owned()),
        _ => None,
    }
}

impl TopArgs {
    /// What is shown without a command.
    pub fn default_view() -> Self {
        Self {
            table: DEFAULT_TABLE.to_owned(),
            interval: None,
            count: None,
            rows: None,
            output: TopFormat::Text,
            ipv4: false,
            ipv6: false,
            pid: vec![],
            comm: vec![],
            cgroup: vec![],
            port: vec![],
            top: None,
            period: 1000,
            delay: 0,
        }
    }
}

fn rows(text: &str) -> Result<u32, String> {
    const _: () = assert!(DEFAULT_TOP == 128 && MAX_TOP == 1024, "as --help says");
    let rows = text.parse().ok().filter(|rows| (1..=MAX_TOP).contains(rows));
    rows.ok_or_else(|| format!("not a number from 1 to {MAX_TOP}"))
}

pub fn count(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) => Err("there must be at least 1 snapshot".to_owned()),
        Ok(count) => Ok(count),
        Err(_) => Err("not a number of snapshots".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn top(line: &str) -> Result<TopArgs, Error> {
        let args = Args::parse_line(line.split(' ').map(Into::into))?;
        match args.command {
            Some(Command::Top(top)) => Ok(top),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_default_view_has_the_defaults_of_top() {
        let line = format!("topstat top {DEFAULT_TABLE}");
        let (parsed, made) = (top(&line).unwrap(), TopArgs::default_view());
        assert_eq!(format!("{parsed:?}"), format!("{made:?}"));
    }

    #[test]
    fn options_may_stand_anywhere() {
        let args = top("topstat top -4 tcp/conns_pps --pid 7,8 0.5 -n10 3 --pid 9").unwrap();
        assert_eq!(args.table, "tcp/conns_pps");
        assert_eq!(args.interval, Some(Duration::from_millis(500)));
        assert_eq!((args.count, args.rows), (Some(3), Some(10)));
        assert_eq!(args.pid, [7, 8, 9]);
        assert!(args.ipv4 && !args.ipv6);
    }
}
