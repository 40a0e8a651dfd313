// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line of `topstat events` as it is parsed.

use std::time::Duration;

use topstat_kernel::events::Strategy;

use super::ListFormat;
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
    /// Of what [default: all]
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

    /// The size of each source's buffer in the kernel, a power of two of KiB [default: 8192]
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u32).range(64..=524_288), help_heading = BUFFER)]
    pub buffer: Option<u32>,

    /// When the buffer is looked into: adaptive, by the rate at which it is filled; the others are what it is compared with
    #[arg(long, value_name = "STRATEGY", help_heading = BUFFER, default_value = "adaptive", value_parser = strategy())]
    pub strategy: Strategy,

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

const BUFFER: &str = "Buffer";

fn strategy() -> impl clap::builder::TypedValueParser<Value = Strategy> {
    use clap::builder::TypedValueParser as _;
    let names = Strategy::ALL.map(|(name, _)| name);
    // Each of them is one.
    clap::builder::PossibleValuesParser::new(names).map(|name| name.parse().unwrap_or_default())
}

/// The sources, and what their events have: as they are.
fn notes() -> String {
    let mut sources = String::from("SOURCES\n");
    for streaming in topstat_kernel::events::sources() {
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
    sources + NOTES
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

const NOTES: &str = "
FILTERS
  Terms with spaces between, all of which must match: KEY OP VALUE[,VALUE...], or a text that is
  looked for in all columns. A key is a column as above, source, event or cpu; port is sport or
  dport, ip is sip or dip. ! before a term turns it round. What has no such column is not matched.
  :         equal; of addresses also a network, of texts * stands for any text, of cgroups what
            begins with / is that one and all below it, and other text is searched in the path
  = !=      equal, or not, letter by letter
  ~         has this text in it
  < <= > >= compared; numbers may have a unit (k M G T, Ki Mi Gi Ti), times too (ns us ms s m h)

EXAMPLES
  topstat events                                 all sources, until Ctrl-C
  topstat events tcp --filter 'port:443 event:close rx_bytes>1M'
  topstat events tasks -f 'event:exit lived_ns<100ms comm:cc*'
  topstat events tcp -f 'event:close reason:reset,timeout' -o json | jq .dip
  topstat events tasks --for 10s -o json > processes.jsonl";
