// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The options of `topstat top`.

use std::path::PathBuf;
use std::time::Duration;

use super::choice::Choice;
use super::record::PastArgs;
use super::{DAEMON, FILTER_OPERATORS, FILTERS, Mount, Pins, TABLE, TopFormat, common, count, rows};
use crate::{complete, time};

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
    #[arg(value_name = "TABLE", help = which_table(), add = complete::tables())]
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

    /// Order the rows by a column or by a part of the value: text and CSV; ranks stay, and -n cuts off after this order
    #[arg(long, value_name = "COLUMN", requires = "table", add = complete::columns())]
    pub sort: Option<String>,

    /// Show a connection whose two ends are on this host once: the smaller end goes to 'other'
    #[arg(long, requires = "table")]
    pub fold: bool,

    /// Show hosts by their names, as the system's resolver knows them: it may ask DNS; for text alone
    #[arg(long, requires = "table")]
    pub resolve: bool,

    /// How to write it; a summary has no CSV
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: TopFormat,

    #[command(flatten)]
    pub choice: Choice,

    /// Only rows like this: see FILTERS; all that are given must match
    #[arg(short, long = "filter", value_name = "FILTER", help_heading = FILTERS, add = complete::filters())]
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

impl TopArgs {
    /// What is shown without a command elsewhere.
    pub fn default_view() -> Self {
        Self {
            table: None,
            interval: None,
            count: None,
            rows: None,
            sort: None,
            fold: false,
            resolve: false,
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
            pins: Pins::default(),
        }
    }
}

fn which_table() -> String {
    format!(
        "Which table: SAMPLE/TABLE, with {} as SAMPLE those of both families (see 'topstat ls'); the definition of a table \
         of one's own, such as 'block:block_rq_issue by dev, comm add bytes'; or @NAME, a table of the library",
        common(" or ")
    )
}

fn rank_threads() -> String {
    let samples = topstat_families::catalogue().samples();
    let of: Vec<_> = samples.iter().rev().filter(|sample| sample.may_be_threads()).map(|s| s.name.as_str()).collect();
    format!("Rank threads, where objects are processes ({})", of.join(", "))
}

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
  topstat top tcp/conns_bps --fold --sort comm -o csv    local connections once, by name
  topstat top udp_v4/conns_pps 10 --period 10s -o csv > dns.csv
  topstat top tcp_v4/conns_pps -o json | jq '.rows[0]'
  topstat top 'sched:sched_process_exec by filename, comm'    any event, by its fields
  topstat top @run-queue-latency                 a table of the library (topstat ls --library)
  topstat top snmp_tcp/rate 1 --netns web        what TCP counts in a namespace, per second
  topstat top net_namespaces/counter 5 --by tcpext/ListenDrops
  topstat top tcp_v4/conns_pps --root /proc/topstat    what the kernel module counts
  topstat top tcp/conns_bps --at 03:12           what was at the top then
  topstat top tasks/cpu 1m --from -2h -o csv     the last two hours, minute by minute";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::choice::Wanted;
    use crate::args::{Args, Command};
    use crate::error::Error;

    fn top(line: &str) -> Result<TopArgs, Error> {
        let args = Args::parse_line(line.split(' ').map(Into::into))?;
        match args.command {
            Some(Command::Top(top)) => Ok(top),
            other => panic!("{other:?}"),
        }
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
