// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line of `topstat record`, and how other commands find what it has recorded.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use topstat_history::private::{Hide, Which};

use super::{Mount, time};
use crate::complete;

/// Where records are, unless the command line says otherwise.
pub const DEFAULT_HISTORY: &str = "/var/lib/topstat/history";

/// Record tables: what was at the top, for 'topstat top --at' and for any tool that reads Parquet
///
/// Reads the file tree of the daemon, and needs no more privileges than that takes. Where no daemon runs it waits for
/// one; what could not be recorded meanwhile is a gap, and recorded as such.
///
/// Events are recorded by 'topstat events --record', and shown again by 'topstat replay'.
#[derive(Debug, clap::Args)]
#[command(after_long_help = NOTES, args_conflicts_with_subcommands = true)]
pub struct RecordArgs {
    #[command(subcommand)]
    pub command: Option<RecordCommand>,

    /// Which tables [default: all that are on]
    #[arg(value_name = "SAMPLE/TABLE", add = complete::tables())]
    pub tables: Vec<String>,

    #[command(flatten)]
    pub history: HistoryDir,

    /// From one record to the next: seconds, or a time with a unit
    #[arg(long, value_name = "TIME", value_parser = time::interval, default_value = "10s", help_heading = KEPT)]
    pub interval: Duration,

    /// How many rows each of these has; the others are in its 'other'
    #[arg(short = 'n', long, value_name = "ROWS", value_parser = super::rows, default_value = "32", help_heading = KEPT)]
    pub rows: u32,

    /// How long records are kept
    #[arg(long, value_name = "TIME", value_parser = time::age, default_value = "7d", help_heading = KEPT)]
    pub age: Duration,

    /// From one fine record to the next: these have all rows of the table
    #[arg(long, value_name = "TIME", value_parser = time::interval, default_value = "1s", help_heading = KEPT)]
    pub fine_interval: Duration,

    /// How soon records are sealed: 1m to 1h, in parts of an hour. A shorter time makes more and smaller files, which can be
    /// shipped sooner
    #[arg(long, value_name = "TIME", value_parser = time::part_of_hour, default_value = "1h", help_heading = KEPT)]
    pub seal_every: Duration,

    /// How long fine records are kept; 0: there are none
    #[arg(long, value_name = "TIME", value_parser = time::age, default_value = "2h", help_heading = KEPT)]
    pub fine_age: Duration,

    /// The room that all files may take, in bytes or with a unit (500MB, 1GiB); fine records get at most half of it
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1GiB", help_heading = KEPT)]
    pub size: u64,

    /// What sealed files have of a column, since tools copy them to other hosts: drop, hash (needs --private-key), or cut (an
    /// address's network: /24, IPv6 /48). COLUMN is a column's name, or 'addresses' for all with addresses; may be given several
    /// times
    #[arg(long, value_name = "COLUMN=HOW", value_parser = private, help_heading = SEALED)]
    pub private: Vec<(Which, Hide)>,

    /// The key of hashes, as 'topstat lab key' makes it; equal values have equal hashes on all hosts with this key
    #[arg(long, value_name = "FILE", help_heading = SEALED)]
    pub private_key: Option<PathBuf>,

    #[command(flatten)]
    pub mount: Mount,
}

#[derive(Debug, Subcommand)]
pub enum RecordCommand {
    Check(RecordCheckArgs),
}

/// Say what is wrong with the records in a directory
///
/// Reads every file: a fault is one that can't be read, columns that differ between the sealed files of a table, what a
/// killed recorder has left, and a file that is no record. Gaps are listed, too, and are no fault. Exits with 1 if there
/// is a fault.
#[derive(Debug, clap::Args)]
pub struct RecordCheckArgs {
    /// Where the records are
    #[arg(value_name = "DIR", default_value = DEFAULT_HISTORY)]
    pub dir: PathBuf,
}

const KEPT: &str = "What is kept";
const SEALED: &str = "What sealed files hide";

const NOTES: &str = "\
FILES
  HISTORY/host=NAME/table=SAMPLE.TABLE/date=YYYY-MM-DD/
    HH.parquet             an hour that is over (all times are UTC's)
    HH.jsonl.zst           the hour that is being recorded: one document per line
    HH-MM.parquet          with --seal-every: a part of an hour that is over; HH-MM.jsonl.zst before
    HH-MM.fine.jsonl.zst   ten minutes of fine records

EXAMPLES
  topstat record                                 all tables, for 7 days, in at most 1 GiB
  topstat record tcp/conns_bps tasks/cpu --age 30d --size 5GiB
  topstat top tcp/conns_bps --at 03:12           what was at the top then
  topstat record --private addresses=cut --private comm=drop    a fleet sees networks, and no names of programs
  topstat record check                           what is wrong with the files
  zstdcat /var/lib/topstat/history/*/table=tasks.cpu/*/*.jsonl.zst | jq .total";

/// Where records are.
#[derive(Clone, Debug, clap::Args)]
pub struct HistoryDir {
    /// Where records are
    #[arg(id = "history", long = "history", value_name = "DIR", default_value = DEFAULT_HISTORY)]
    dir: PathBuf,
}

impl HistoryDir {
    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Which records to show instead of what is there now.
#[derive(Clone, Debug, clap::Args)]
pub struct PastArgs {
    /// What was at the top then: a clock time (03:12), a date with one (2026-11-21 03:12), or how long ago (-5m)
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        conflicts_with_all = ["from", "to"],
        help_heading = PAST
    )]
    pub at: Option<String>,

    /// All records from then on; with INTERVAL, at most one in each
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = PAST, requires = "table")]
    pub from: Option<String>,

    /// All records until then [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, requires = "from", help_heading = PAST)]
    pub to: Option<String>,

    /// Where 'topstat record' has them [default: /var/lib/topstat/history]
    #[arg(long = "history", value_name = "DIR", help_heading = PAST)]
    pub history: Option<PathBuf>,

    /// Recorded on which host, where there are records of several [default: this one]
    #[arg(long, value_name = "NAME", help_heading = PAST)]
    pub recorded_on: Option<String>,
}

const PAST: &str = "Past (see topstat record)";

impl PastArgs {
    /// Nothing of the past.
    pub fn none() -> Self {
        Self { at: None, from: None, to: None, history: None, recorded_on: None }
    }

    /// Whether the past is asked for.
    pub fn wanted(&self) -> bool {
        self.at.is_some() || self.from.is_some()
    }

    /// Where the records are.
    pub fn dir(&self) -> &Path {
        self.history.as_deref().unwrap_or(Path::new(DEFAULT_HISTORY))
    }
}

/// The name that stands for all columns with addresses.
const ADDRESSES: &str = "addresses";

/// A rule for columns: `sip=cut`.
fn private(text: &str) -> Result<(Which, Hide), String> {
    let (column, how) = text.split_once('=').ok_or("not a rule: give COLUMN=HOW, as sip=cut")?;
    let hide = match how {
        "drop" => Hide::Drop,
        "hash" => Hide::Hash,
        "cut" => Hide::Cut,
        _ => return Err(format!("'{how}' is no way to hide a column: there are drop, hash, cut")),
    };
    let which = if column == ADDRESSES { Which::Addresses } else { Which::Named(column.to_owned()) };
    Ok((which, hide))
}

/// The least room that is worth recording in.
const LEAST_SIZE: u64 = 1 << 20;

/// A number of bytes, or with a unit.
fn size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 9] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("kB", 1000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("", 1),
    ];
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()));
    let bytes = number.parse::<u64>().ok().zip(unit).ok_or("not a size: give bytes or a unit (500MB, 1GiB)")?;
    let bytes = bytes.0.checked_mul(bytes.1.1).ok_or("more bytes than there can be")?;
    if bytes < LEAST_SIZE { Err("at least 1MiB is needed".to_owned()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_a_column_and_a_way() {
        assert_eq!(private("comm=drop"), Ok((Which::Named("comm".to_owned()), Hide::Drop)));
        assert_eq!(private("addresses=cut"), Ok((Which::Addresses, Hide::Cut)));
        assert!(private("comm").unwrap_err().starts_with("not a rule"));
        assert_eq!(private("comm=gone").unwrap_err(), "'gone' is no way to hide a column: there are drop, hash, cut");
    }

    #[test]
    fn sizes_are_bytes_or_have_a_unit() {
        for (text, bytes) in [("1048576", 1 << 20), ("1GiB", 1 << 30), ("500MB", 500_000_000), ("2 gib", 2 << 30)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for (text, why) in [
            ("", "not a size"),
            ("GiB", "not a size"),
            ("1.5GiB", "not a size"),
            ("1X", "not a size"),
            ("1000", "at least 1MiB"),
            ("99999999999TiB", "more bytes"),
        ] {
            assert!(size(text).unwrap_err().starts_with(why), "{text}");
        }
    }
}
