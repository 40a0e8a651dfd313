// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line as it is parsed: syntax only. What it means is validated by the plan of each command.

pub mod choice;
pub mod doctor;
pub mod events;
pub mod fleet;
pub mod lab;
pub mod netstack;
mod place;
pub mod record;
pub mod replay;
pub mod serve;
pub mod snmp;
pub mod tasks;
mod top;
pub mod view;
pub mod why;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use topstat_kernel::{DEFAULT_TOP, MAX_TOP};
use topstat_model::Format;
use topstat_model::typeset::escape;

use crate::config;
use crate::error::Error;
use crate::{complete, resolve, time};
use doctor::DoctorArgs;
use events::EventsArgs;
use fleet::FleetArgs;
use lab::LabArgs;
use netstack::NetstackArgs;
use record::RecordArgs;
use replay::ReplayArgs;
use serve::{ServeArgs, WatchArgs};
use snmp::SnmpArgs;
use tasks::TasksArgs;
use view::ViewArgs;
use why::WhyArgs;

pub use place::{Mount, Pins};
pub use top::TopArgs;

/// What is at the top right now: which connections use the most packets, bytes or retransmits.
///
/// topstat ranks inside the kernel, so that a host with a million connections pays the same to read the top as a host
/// with ten. Rows + other = total, always; whatever could not be counted is itself counted and shown.
///
/// Without a command it is `topstat view` on a terminal, and `topstat top` elsewhere: a summary.
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

    /// Times in UTC; else they are in the time zone of TZ or the host. They are shown with their offset, and read with one
    /// or without
    #[arg(long, global = true)]
    pub(crate) utc: bool,
}

const EXAMPLES: &str = "\
EXAMPLES
  topstat                                        what is at the top now; ? shows the keys
  topstat top                                    what is at the top now, as text
  topstat top tcp/conns_bps 2                    by bits per second, IPv4 and IPv6, every 2 seconds
  topstat top tcp_v4/conns_retrans -n 10         who retransmits
  topstat top udp/conns_pps --port 53            DNS
  topstat top tcp/conns_pps --cgroup /system.slice/nginx.service
  topstat top tcp_v4/conns_bytes 60 -o json >> top.jsonl
  topstat why tasks/cpu comm:postgres            all that is known of a row
  topstat tasks                                  CPU time of every process, to 100%
  topstat snmp                                   which SNMP counters change
  topstat events tcp --filter port:443           connections as they open and close, with their totals
  topstat netstack                               where the network stack spends CPU time
  topstat lab single-flow                        what the network stack carries, by configuration
  topstat daemon                                 statistics that outlive the tools that show them
  topstat set tcp_v4/conns_pps/period 5s         a setting of the daemon's tables
  topstat record                                 what 'topstat top TABLE --at 03:12' shows
  topstat fleet top net_cgroups/bps /srv/fleet   over all hosts whose records are there
  topstat serve --listen 127.0.0.1:9899          a page, and metrics for Prometheus
  topstat watch 'net_procs/bps share > 0.5 for 30s' --exec ./alert
  topstat ls                                     which samples and tables there are
  topstat check                                  what this kernel and this user allow
  topstat doctor --archive report.tar.gz         all that a report of a fault needs

EXIT CODES
  0  done, and all that was printed is whole; also after Ctrl-C or SIGTERM, and after a closed pipe
  1  failed; also where a signal ended it while nobody read, and the last line is cut off
  2  wrong usage";

#[derive(Debug, Subcommand)]
pub enum Command {
    View(ViewArgs),
    Top(TopArgs),
    Tasks(TasksArgs),
    Why(WhyArgs),
    Snmp(SnmpArgs),
    Events(EventsArgs),
    Replay(ReplayArgs),
    Netstack(NetstackArgs),
    Lab(LabArgs),
    Ls(LsArgs),
    Get(GetArgs),
    Set(SetArgs),
    Daemon(DaemonArgs),
    Record(RecordArgs),
    Fleet(FleetArgs),
    Serve(ServeArgs),
    Watch(WatchArgs),
    Unload(UnloadArgs),
    Check(CheckArgs),
    Doctor(DoctorArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

fn needs_of() -> String {
    let example = resolve::common_names().into_iter().next().map_or_else(String::new, |name| {
        let samples = topstat_families::catalogue().samples();
        let of = samples.iter().filter(|sample| sample.variant.as_ref().is_some_and(|variant| variant.of == name));
        format!("; {name} is {}", of.map(|sample| sample.name.as_str()).collect::<Vec<_>>().join(" and "))
    });
    format!("Look at what these need only{example} [default: all]")
}

/// The names that mean several samples: `'tcp' or 'udp'`.
fn common(or: &str) -> String {
    resolve::common_names().iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(or)
}

pub const FILTERS: &str = "Filters";
const TABLE: &str = "Table";
const DAEMON: &str = "Daemon";

/// What values of a filter are compared by: the part of its grammar that all commands have.
const FILTER_OPERATORS: &str = concat!(
    "  :         equal; of addresses also a network, of texts * stands for any text, of cgroups what\n",
    "            begins with / is that one and all below it, and other text is searched in the path\n",
    "  = !=      equal, or not, letter by letter\n",
    "  ~         has this text in it\n",
    "  < <= > >= compared; numbers may have a unit (k M G T, Ki Mi Gi Ti), times too (ns us ms s m h)\n",
);

/// List the samples and their tables
#[derive(Debug, clap::Args)]
pub struct LsArgs {
    /// The events of the kernel that match this: a part of the name, or a pattern with *; with their fields
    #[arg(long, value_name = "PATTERN", conflicts_with_all = ["sample", "library", "root"])]
    pub events: Option<String>,

    /// The tables of the library, which 'topstat top @NAME' shows
    #[arg(long, conflicts_with_all = ["sample", "root"])]
    pub library: bool,

    /// Only this sample
    #[arg(value_name = "SAMPLE", add = complete::samples(), help = format!("Only this sample; {} are those of both families", common(" or ")))]
    pub sample: Option<String>,

    /// How to write it; json is one document per sample and line
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: ListFormat,

    /// Work on this tree, by its files alone: that of the kernel module is /proc/topstat
    #[arg(long, value_name = "DIR", help_heading = DAEMON, conflicts_with_all = ["pins"])]
    pub root: Option<PathBuf>,

    #[command(flatten)]
    pub pins: Pins,
}

/// Which tree to work on.
#[derive(Debug, clap::Args)]
pub struct TargetArgs {
    /// Work on this tree, by its files alone: that of the kernel module is /proc/topstat
    #[arg(long, value_name = "DIR", help_heading = DAEMON, conflicts_with_all = ["mount", "pins"])]
    pub root: Option<PathBuf>,

    #[command(flatten)]
    pub mount: Mount,

    #[command(flatten)]
    pub pins: Pins,
}

/// Show what is set, or any other file of the daemon's tree
///
/// Works on the tree where it is mounted, and else on what is pinned.
#[derive(Debug, clap::Args)]
#[command(after_long_help = GET_EXAMPLES)]
pub struct GetArgs {
    /// Of which file; of a directory, all settings below it [default: all]
    #[arg(value_name = "PATH", default_value = "", hide_default_value = true, add = complete::files())]
    pub path: String,

    #[command(flatten)]
    pub target: TargetArgs,
}

const GET_EXAMPLES: &str = "\
EXAMPLES
  topstat get                                    all settings, a path and a value in each line
  topstat get tcp_v4/conns_pps                   those of a table
  topstat get tcp_v4/conns_pps/period            one: its value
  topstat get tcp_v4/conns_pps/stat              any file of the tree";

/// Set something, from the next push on
///
/// Works on the tree where it is mounted, and else on what is pinned.
#[derive(Debug, clap::Args)]
#[command(after_long_help = SET_EXAMPLES)]
pub struct SetArgs {
    /// What to set
    #[arg(value_name = "PATH", add = complete::files())]
    pub path: String,

    /// To what: 0 or 1; of period and delay milliseconds, or a time with a unit
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    pub value: String,

    #[command(flatten)]
    pub target: TargetArgs,
}

const SET_EXAMPLES: &str = "\
SETTINGS
  enabled   0, 1: whether pushes count; of a table, of a sample, of all. All three must be 1.
            What is off keeps its objects, and resumes
  period    1 to 3600000 ms: over which time a dynamic table sums
  delay     0 to 3600000 ms: an object is ordered at most once per delay, which costs less
  sync      0, 1: whether a snapshot is taken on each CPU itself

EXAMPLES
  topstat set tcp_v4/conns_pps/period 5s
  topstat set tcp_v4/conns_pps/delay 100
  topstat set tcp_v4/enabled 0
  topstat set enabled 1";

/// Load, pin and serve: statistics that go on while the tools that show them come and go
///
/// Runs in the foreground and logs to stderr. SIGTERM and SIGINT end it, SIGHUP reads its configuration again. What it
/// has loaded is pinned, and goes on counting without it.
#[derive(Debug, clap::Args)]
pub struct DaemonArgs {
    /// The configuration [default: /etc/topstat/topstat.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Only say whether the configuration is right, and what is wrong with it
    #[arg(long)]
    pub check_config: bool,

    /// Where the file tree is mounted [default: /run/topstat]
    #[arg(long, value_name = "DIR")]
    pub mount: Option<PathBuf>,

    /// Where programs, links and maps are pinned [default: /sys/fs/bpf/topstat]
    #[arg(long, value_name = "DIR")]
    pub pins: Option<PathBuf>,

    /// Raise delays while the programs take more of each CPU than this: a share such as 1%, or off [default: off]
    #[arg(long, value_name = "SHARE", value_parser = config::Share::budget)]
    pub overhead_budget: Option<Budget>,

    /// What is logged: this and what is worse [default: info]
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub log_level: Option<config::Level>,

    /// What keeps a second daemon away
    #[arg(long, value_name = "FILE", default_value = config::DEFAULT_PID_FILE)]
    pub pid_file: PathBuf,

    /// Remove all that is pinned at the end: counting ends with the daemon
    #[arg(long)]
    pub unload: bool,
}

/// Remove all that a daemon has pinned: counting ends, and what was counted is gone
///
/// The daemon must have ended. What was removed goes to the standard output, a path in each line.
#[derive(Debug, clap::Args)]
pub struct UnloadArgs {
    #[command(flatten)]
    pub pins: Pins,

    /// What a daemon that runs has locked
    #[arg(long, value_name = "FILE", default_value = config::DEFAULT_PID_FILE, help_heading = DAEMON)]
    pub pid_file: PathBuf,
}

/// Say what this kernel and this user allow, and what to do about it
///
/// One line each: whether it is ok, degraded (something else is used, or a part is left out) or missing. Exits with 1
/// if something is missing. A kernel may have what some samples need and not what others do: name those that you want.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// Look at what these need only
    #[arg(value_name = "SAMPLE", help = needs_of(), add = complete::samples())]
    pub samples: Vec<String>,

    /// The configuration with tables of your own [default: /etc/topstat/topstat.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// How to write it; json is one document per check and line
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: ListFormat,
}

/// Write the completions of a shell, to be sourced by it
///
/// The shell runs topstat for each completion, so it offers the present tables, files and columns, a running daemon's
/// included, and for options such as --pid and --comm the values in the rows of the table. The packages and 'make install'
/// have installed them for bash, zsh and fish.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// Write the manual pages
///
/// One for each command, and that of the daemon's configuration; their names go to the standard output.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Where to write them; it is made if it is not there
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// A budget of the daemon's, or that there is none.
pub type Budget = Option<config::Share>;

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

impl From<TopFormat> for Format {
    fn from(format: TopFormat) -> Self {
        match format {
            TopFormat::Text => Self::Text,
            TopFormat::Json => Self::Json,
            TopFormat::Csv => Self::Csv,
        }
    }
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
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }
}
