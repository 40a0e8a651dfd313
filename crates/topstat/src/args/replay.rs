// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line of `topstat replay` as it is parsed.

use std::path::PathBuf;

use super::ListFormat;

/// Show events that 'topstat events --record' has recorded, as it would show them.
///
/// What 'topstat record' has recorded are tables: 'topstat top --at' shows these.
///
/// A file that is damaged or cut off is read up to there, which is said in the end; the exit code is then 1.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ReplayArgs {
    /// The recordings, one after the other: the oldest first
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// Only events like this: see FILTERS of 'topstat events --help'; all that are given must match
    #[arg(short, long = "filter", value_name = "FILTER")]
    pub filters: Vec<String>,

    /// How to write it; json is one document per event and line
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: ListFormat,

    /// End after so many events
    #[arg(short = 'n', long, value_name = "EVENTS", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Begin with this time: 2026-11-21T08:00:00Z, or how long after the beginning of the first file (+90s, +1h)
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,

    /// So many times as fast as it happened: 1, 0.1, 100 [default: as fast as it is read]
    #[arg(long, value_name = "TIMES", value_parser = speed)]
    pub speed: Option<f64>,
}

/// Slower or faster than this it is not told from standing still, or from no limit.
const SPEEDS: std::ops::RangeInclusive<f64> = 0.001..=1_000_000.0;

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| SPEEDS.contains(speed));
    speed.ok_or_else(|| format!("not a number from {} to {}", SPEEDS.start(), SPEEDS.end()))
}

const EXAMPLES: &str = "\
EXAMPLES
  topstat events --record events.zst --rotate-size 100 --keep 5
  topstat replay events.zst.2 events.zst.1 events.zst
  topstat replay events.zst --from +1h --speed 10
  topstat replay events.zst -f 'event:close reason:reset' -o json
  zstdcat events.zst | jq .                      what is in it, without topstat";
