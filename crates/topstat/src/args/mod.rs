// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line as it is parsed: syntax only. What it means is validated by the plan of each command.

pub mod choice;
pub mod doctor;
pub mod events;
pub mod fleet;
pub mod lab;
pub mod netstack;
pub mod record;
pub mod replay;
pub mod serve;
pub mod snmp;
pub mod tasks;
pub mod view;
pub mod why;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use topstat_kernel::{DEFAULT_TOP, MAX_TOP};
use topstat_model::Format;
use topstat_model::typeset::escape;
use topstat_tui::feed::quoted;

use crate::config::{self, Config};
use crate::error::Error;
use crate::{resolve, time};
use choice::Choice;
use doctor::DoctorArgs;
use events::EventsArgs;
use fleet::FleetArgs;
use lab::LabArgs;
use netstack::NetstackArgs;
use record::{PastArgs, RecordArgs};
use replay::ReplayArgs;
use serve::{ServeArgs, WatchArgs};
use snmp::SnmpArgs;
use tasks::TasksArgs;
use view::ViewArgs;
use why::WhyArgs;

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

/// Show the top of a table.
///
/// On a terminal the view is refreshed in place, every second unless an INTERVAL is given, until Ctrl-C. In a pipe, and
/// as JSON or CSV, it is one snapshot without an INTERVAL, and without end with an INTERVAL and no COUNT. Snapshots are
/// taken on an absolute schedule, which does not drift.
///
/// Where a daemon has pinned the table, that one is shown, at once. Else what the table needs is loaded for as long as
/// the command runs; the first rows then come after one full period of a dynamic table, and after one INTERVAL (or a
/// second) of a static one.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = top_notes())]
pub struct TopArgs {
    /// Which table; without one: the host and its tops in one summary, as the first screen of 'topstat view' has them
    #[arg(value_name = "TABLE", help = which_table())]
    pub table: Option<String>,

    /// Seconds between two snapshots (0.5), or a time with a unit (500ms, 2s, 1m)
    #[arg(value_name = "INTERVAL", value_parser = time::interval)]
    pub interval: Option<Duration>,

    /// How many snapshots
    #[arg(value_name = "COUNT", value_parser = count)]
    pub count: Option<u64>,

    /// Show at most this many rows [default: on a terminal what fits, else all]
    #[arg(short = 'n', long, value_name = "ROWS", value_parser = rows, requires = "table")]
    pub rows: Option<u32>,

    /// How to write it; a summary has no CSV
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: TopFormat,

    #[command(flatten)]
    pub choice: Choice,

    /// Only rows like this: see FILTERS; all that are given must match
    #[arg(short, long = "filter", value_name = "FILTER", help_heading = FILTERS)]
    pub filters: Vec<String>,

    /// Rows that the table keeps, 1 to 1024 [default: 128, or ROWS if that is more]
    #[arg(long, value_name = "N", value_parser = rows, help_heading = TABLE, requires = "table")]
    pub top: Option<u32>,

    /// Period of a dynamic table: milliseconds, or a time with a unit [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = time::period, help_heading = TABLE, requires = "table")]
    pub period: Option<u32>,

    /// Order a connection at most once per this time, which costs less: milliseconds, or a time with a unit [default:
    /// 0]
    #[arg(long, value_name = "TIME", value_parser = time::delay, help_heading = TABLE, requires = "table")]
    pub delay: Option<u32>,

    /// Rank threads
    #[arg(short = 'H', long, help_heading = TABLE, help = rank_threads(), requires = "table")]
    pub threads: bool,

    /// Of counters (snmp_tcp, net_devs): those of this network namespace, by a name of 'ip netns', pid:PID, a path, a
    /// container's id or an inode, or of 'all' [default: this one's; of net_namespaces all]
    #[arg(long, value_name = "NETNS", help_heading = TABLE, requires = "table")]
    pub netns: Option<String>,

    /// What net_namespaces/counter ranks by: a counter of a protocol [default: tcp/RetransSegs]
    #[arg(long, value_name = "PROTO/COUNTER", help_heading = TABLE, requires = "table")]
    pub by: Option<String>,

    /// Of control groups (cgroup_limits, cgroup_pressure, cgroup_memory): those on this level, each with all below it; slices
    /// are on level 1, pods on level 2 or 3 [default: each group alone]
    #[arg(long, value_name = "LEVEL", help_heading = TABLE, requires = "table",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub depth: Option<u32>,

    /// Load a table of one's own, also where a daemon has one; what is set above is never the daemon's
    #[arg(long, help_heading = TABLE, requires = "table")]
    pub private: bool,

    /// Show a table of this tree, by its files alone: that of the kernel module is /proc/topstat
    #[arg(long, value_name = "DIR", help_heading = DAEMON, requires = "table",
          conflicts_with_all = ["top", "period", "delay", "threads", "netns", "by", "depth", "private", "mount", "pins"])]
    pub root: Option<PathBuf>,

    #[command(flatten)]
    pub past: PastArgs,

    #[command(flatten)]
    pub mount: Mount,

    #[command(flatten)]
    pub pins: Pins,
}

/// Where the state of the daemon is pinned.
#[derive(Clone, Debug, clap::Args)]
pub struct Pins {
    /// Where the daemon pins its state [default: as it is configured, or /sys/fs/bpf/topstat]
    #[arg(id = "pins", long, value_name = "DIR", help_heading = DAEMON)]
    dir: Option<PathBuf>,
}

impl Pins {
    /// The directory. A configuration that is wrong is the daemon's to complain about.
    pub fn dir(&self) -> PathBuf {
        let configured = || Config::find(None).ok()?.0.pins;
        self.dir.clone().or_else(configured).unwrap_or_else(|| config::DEFAULT_PINS.into())
    }

    /// The option as it was given, after a blank; empty where it was not given.
    pub fn option(&self) -> String {
        self.dir.as_deref().map_or(String::new(), |dir| format!(" --pins {}", quoted(dir.display())))
    }
}

/// Where the tree of the daemon is mounted.
#[derive(Clone, Debug, clap::Args)]
pub struct Mount {
    /// Where the daemon mounts its tree [default: as it is configured, or /run/topstat]
    #[arg(id = "mount", long, value_name = "DIR", help_heading = DAEMON)]
    dir: Option<PathBuf>,
}

impl Mount {
    /// The directory, as [`Pins::dir`].
    pub fn dir(&self) -> PathBuf {
        let configured = || Config::find(None).ok()?.0.mount;
        self.dir.clone().or_else(configured).unwrap_or_else(|| config::DEFAULT_MOUNT.into())
    }

    /// This directory, as if the user had named it; `None`: the default.
    pub fn at(dir: Option<PathBuf>) -> Self {
        Self { dir }
    }

    /// Whether the user has named the directory.
    pub fn is_given(&self) -> bool {
        self.dir.is_some()
    }

    /// As [`Pins::option`].
    pub fn option(&self) -> String {
        self.dir.as_deref().map_or(String::new(), |dir| format!(" --mount {}", quoted(dir.display())))
    }
}

fn which_table() -> String {
    format!(
        "Which table: SAMPLE/TABLE, with {} as SAMPLE those of both families (see 'topstat ls'); the definition of a table \
         of one's own, such as 'block:block_rq_issue by dev, comm add bytes'; or @NAME, a table of the library",
        common(" or ")
    )
}

fn needs_of() -> String {
    let example = resolve::common_names().into_iter().next().map_or_else(String::new, |name| {
        let samples = topstat_kernel::samples();
        let of = samples.iter().filter(|sample| sample.variant.as_ref().is_some_and(|variant| variant.of == name));
        format!("; {name} is {}", of.map(|sample| sample.name.as_str()).collect::<Vec<_>>().join(" and "))
    });
    format!("Look at what these need only{example} [default: all]")
}

fn rank_threads() -> String {
    let samples = topstat_kernel::samples();
    let of: Vec<_> = samples.iter().rev().filter(|sample| sample.may_be_threads()).map(|s| s.name.as_str()).collect();
    format!("Rank threads, where objects are processes ({})", of.join(", "))
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

fn top_notes() -> String {
    format!("{TOP_FILTERS}{FILTER_OPERATORS}{TOP_EXAMPLES}")
}

const TOP_FILTERS: &str = "\
FILTERS
  An option can be repeated: a row is shown if it matches any of the same option, and all of
  different ones. What is hidden is added to 'other'. Only rows that the table keeps are searched:
  a larger --top looks deeper.

  --filter has terms with spaces between, all of which must match: KEY OP VALUE[,VALUE...], or a
  text that is looked for in all columns. A key is a column, rank, value (or the value's own name:
  pps), or a part of it (rx); port is sport or dport, ip is sip or dip. ! before a term turns it
  round.
";

const TOP_EXAMPLES: &str = "
EXAMPLES
  topstat top tcp_v4/conns_pps                   refreshed every second; in a pipe, one snapshot
  topstat top tcp/conns_bps 0.5 20 -n 5          20 snapshots, two per second, 5 rows each
  topstat top tcp/conns_bps -6 --comm nginx --comm envoy
  topstat top tcp/conns_bps -f 'port:443 !ip:10.0.0.0/8 value>1M'
  topstat top udp_v4/conns_pps 10 --period 10s -o csv > dns.csv
  topstat top tcp_v4/conns_pps -o json | jq '.rows[0]'
  topstat top 'sched:sched_process_exec by filename, comm'    any event, by its fields
  topstat top @run-queue-latency                 a table of the library (topstat ls --library)
  topstat top snmp_tcp/rate 1 --netns web        what TCP counts in a namespace, per second
  topstat top net_namespaces/counter 5 --by tcpext/ListenDrops
  topstat top tcp_v4/conns_pps --root /proc/topstat    what the kernel module counts
  topstat top tcp/conns_bps --at 03:12           what was at the top then
  topstat top tasks/cpu 1m --from -2h -o csv     the last two hours, minute by minute";

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
    #[arg(value_name = "SAMPLE", help = format!("Only this sample; {} are those of both families", common(" or ")))]
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
    #[arg(value_name = "PATH", default_value = "", hide_default_value = true)]
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
    #[arg(value_name = "PATH")]
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
    #[arg(value_name = "SAMPLE", help = needs_of())]
    pub samples: Vec<String>,

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

impl TopArgs {
    /// What is shown without a command elsewhere.
    pub fn default_view() -> Self {
        Self {
            table: None,
            interval: None,
            count: None,
            rows: None,
            output: TopFormat::Text,
            choice: Choice::default(),
            filters: Vec::new(),
            top: None,
            period: None,
            delay: None,
            threads: false,
            netns: None,
            by: None,
            depth: None,
            private: false,
            root: None,
            past: PastArgs::none(),
            mount: Mount::at(None),
            pins: Pins { dir: None },
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
    use super::choice::Wanted;
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
        let (parsed, made) = (top("topstat top").unwrap(), TopArgs::default_view());
        assert_eq!(format!("{parsed:?}"), format!("{made:?}"));
    }

    #[test]
    fn options_may_stand_anywhere() {
        let args = top("topstat top -4 tcp/conns_pps --pid 7,8 0.5 -n10 3 --pid 9").unwrap();
        assert_eq!(args.table.as_deref(), Some("tcp/conns_pps"));
        assert_eq!(args.interval, Some(Duration::from_millis(500)));
        assert_eq!((args.count, args.rows), (Some(3), Some(10)));
        assert_eq!(args.choice.wanted["pid"], [7, 8, 9].map(Wanted::Number));
        assert_eq!(args.choice.only, Some('4'));
    }
}
