// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line of `topstat events` as it is parsed.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use super::{FILTER_OPERATORS, ListFormat, Mount, Pins, rows};
use crate::time;

/// Show events as they happen: connections opened and closed, processes forked, executed and ended.
///
/// What a table ranks is told here one by one, with its final totals. Each line is an event, in the order of their times
/// on all CPUs. Programs are attached for as long as the command runs; Ctrl-C ends it, and so do -n and --for.
///
/// No event is lost without being counted: an account of each source comes last, and as JSON every ten seconds, in which
/// produced = delivered + dropped + under_way, exactly.
#[derive(Debug, clap::Args)]
#[command(after_long_help = notes())]
pub struct EventsArgs {
    /// Of what; SAMPLE/TABLE: what enters and leaves the top of a table [default: tasks and tcp]
    #[arg(value_name = "SOURCE")]
    pub sources: Vec<String>,

    /// Only events like this: see FILTERS; all that are given must match
    #[arg(short, long = "filter", value_name = "FILTER")]
    pub filters: Vec<String>,

    /// How to write it; json is one document per event and line
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: ListFormat,

    /// End after so many events
    #[arg(short = 'n', long, value_name = "EVENTS", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// End after this time: seconds, or with a unit (500ms, 2m)
    #[arg(long = "for", value_name = "TIME", value_parser = time::interval)]
    pub time: Option<Duration>,

    /// Also record them in this file, which must not be there yet: see 'topstat replay' ('topstat record' is for tables)
    #[arg(long, value_name = "FILE", help_heading = RECORD)]
    pub record: Option<PathBuf>,

    /// Only record them
    #[arg(short, long, help_heading = RECORD)]
    pub quiet: bool,

    /// Begin another file when this one has so many MiB; it becomes FILE.1, and that one FILE.2
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1_048_576), help_heading = RECORD)]
    pub rotate_size: Option<u64>,

    /// Begin another file after this time
    #[arg(long, value_name = "TIME", value_parser = time::interval, help_heading = RECORD)]
    pub rotate_age: Option<Duration>,

    /// Keep so many files besides the one that is written [default: 10]
    #[arg(long, value_name = "FILES", value_parser = clap::value_parser!(u32).range(..=10_000), help_heading = RECORD)]
    pub keep: Option<u32>,

    /// So many rows of a table are its top, 1 to 1024 [default: 10]
    #[arg(long, value_name = "ROWS", value_parser = rows, help_heading = TOP)]
    pub rows: Option<u32>,

    /// Look at the top so often [default: ten times in a table's period; of running totals each second]
    #[arg(long, value_name = "TIME", value_parser = time::interval, help_heading = TOP)]
    pub every: Option<Duration>,

    /// Load tables of one's own, also where a daemon has them
    #[arg(long, help_heading = TOP)]
    pub private: bool,

    #[command(flatten)]
    pub mount: Mount,

    #[command(flatten)]
    pub pins: Pins,

    /// Of this process; can be repeated, and have commas between
    #[arg(long, value_name = "PID", value_delimiter = ',', help_heading = CAPTURE)]
    pub pid: Vec<u32>,

    /// Of threads of this name (of a longer name, its first 15 bytes)
    #[arg(long, value_name = "NAME", help_heading = CAPTURE)]
    pub comm: Option<String>,

    /// Of this control group of version 2, and of all below it: /system.slice
    #[arg(long, value_name = "CGROUP", help_heading = CAPTURE)]
    pub cgroup: Option<String>,

    /// By this system call; can be repeated, and have commas between
    #[arg(long, value_name = "CALL", value_delimiter = ',', help_heading = CAPTURE,
          value_parser = clap::builder::PossibleValuesParser::new(topstat_families::capture::names()))]
    pub call: Vec<String>,

    /// What is read or received, or what is written or sent [default: both]
    #[arg(long, value_name = "WAY", help_heading = CAPTURE)]
    pub direction: Option<Direction>,

    /// Bytes that are kept of each payload, 1 to 16384 [default: 256]
    #[arg(long, value_name = "BYTES", help_heading = CAPTURE, value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub snaplen: Option<u32>,

    /// The size of each source's buffer in the kernel, a power of two of KiB [default: 8192]
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u32).range(64..=524_288), help_heading = BUFFER)]
    pub buffer: Option<u32>,

    /// How far the buffer is to be filled when it is looked into, in percent
    #[arg(long, value_name = "PERCENT", help_heading = BUFFER, value_parser = clap::value_parser!(u64).range(1..=85))]
    pub target: Option<u64>,

    /// Read it with this real-time priority (SCHED_FIFO), 1 to 99
    #[arg(long, value_name = "PRIORITY", help_heading = BUFFER, value_parser = clap::value_parser!(i32).range(1..=99))]
    pub real_time: Option<i32>,

    /// Never cut payloads when the buffer is nearly full; it drops events sooner
    #[arg(long, help_heading = BUFFER)]
    pub whole: bool,
}

const RECORD: &str = "Record";
const BUFFER: &str = "Buffer";
const CAPTURE: &str = "Capture";
const TOP: &str = "Top of a table";

/// Which way a payload goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Direction {
    /// Read or received
    In,
    /// Written or sent
    Out,
}

/// The sources, and what their events have: as they are.
fn notes() -> String {
    let mut sources = String::from("SOURCES\n");
    for streaming in topstat_kernel::events::sources(topstat_families::catalogue()) {
        sources += &format!("  {:<8}  {}\n", streaming.source, streaming.about);
        for kind in &streaming.kinds {
            let payload = kind.payload.iter().map(|payload| payload.name);
            let names: Vec<_> = kind.columns.iter().map(|column| &*column.column.name).chain(payload).collect();
            sources += &format!("    {:<8}{}\n", kind.name, kind.about);
            for line in wrapped(&names, 80) {
                sources += &format!("            {line}\n");
            }
        }
    }
    sources + KEYS + FILTER_OPERATORS + NOTES
}

/// Words in lines of so many characters at most.
fn wrapped(words: &[&str], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in words {
        let line = lines.last_mut().expect("there is one");
        if !line.is_empty() && line.len() + 1 + word.len() > width {
            lines.push((*word).to_owned());
        } else {
            *line += if line.is_empty() { "" } else { " " };
            *line += word;
        }
    }
    lines
}

const KEYS: &str = "  SAMPLE/TABLE  the top of a table (see 'topstat ls'), looked at ten times in its period
    enter   an object is at the top
            rank value OBJECT... proven
    leave   an object is not at the top any more; rank and value are known if it still has a row
            rank value OBJECT... proven stayed_ns

FILTERS
  Terms with spaces between, all of which must match: KEY OP VALUE[,VALUE...], or a text that is
  looked for in all columns. A key is a column as above, source, event or cpu; port is sport or
  dport, ip is sip or dip. ! before a term turns it round. What has no such column is not matched.
";

const NOTES: &str = "
CAPTURE
  topstat events capture [--pid PID] [--comm NAME] [--cgroup CGROUP] [--call CALL] [--direction WAY]
  shows payloads as 'strace -e write' does, without stopping anybody. These options choose in the
  kernel: what they leave out is not even copied, and is in no account. What topstat itself writes
  is never captured; where it is piped into another program, leave that one out.

EXAMPLES
  topstat events                                 all sources, until Ctrl-C
  topstat events tcp --filter 'port:443 event:close rx_bytes>1M'
  topstat events tasks -f 'event:exit lived_ns<100ms comm:cc*'
  topstat events tcp -f 'event:close reason:reset,timeout' -o json | jq .dip
  topstat events tcp/conns_bps --rows 3          what becomes one of the three largest, and what does no longer
  topstat events capture --comm nginx --direction in --snaplen 512
  topstat events --record events.zst --quiet --rotate-age 1h --keep 24
  topstat events tasks --for 10s -o json > processes.jsonl";
