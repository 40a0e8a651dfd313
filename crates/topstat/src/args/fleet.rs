// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line of `topstat fleet` as it is parsed.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};

use super::{ListFormat, time};
use crate::complete;

/// The top of many hosts, with bounds, from the records that each of them has sealed
///
/// Works on directories with the hosts' records below them (host=NAME/table=SAMPLE.TABLE/date=…, as 'topstat record'
/// writes them and rsync copies them), on compacted ones, or on both: nothing listens on the hosts. With 'top --live', it asks
/// the 'topstat serve' of each host.
#[derive(Debug, clap::Args)]
#[command(after_long_help = NOTES)]
pub struct FleetArgs {
    #[command(subcommand)]
    pub command: FleetCommand,
}

/// The heading of options about hosts that are asked.
const LIVE: &str = "Ask the hosts now";

const NOTES: &str = "\
EXAMPLES
  topstat fleet top net_cgroups/bps /srv/fleet               at the time of the last record
  topstat fleet top net_cgroups/bps --at 03:12 -n 50 /srv/fleet
  topstat fleet top net_cgroups/bps --at 04:00 --over 1h /srv/fleet      the mean of an hour
  topstat fleet top tasks/cpu --by comm -f comm:post* /srv/fleet
  topstat fleet top net_cgroups/bps --live @hosts.txt --token-file token --tls-ca ca.pem
  topstat fleet hosts --inventory hosts.txt /srv/fleet       which hosts are missing
  topstat fleet sql net_cgroups/bps --engine spark --at 03:12 s3a://fleet
  topstat fleet compact /srv/fleet --to /srv/compacted";

#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    Top(FleetTopArgs),
    Hosts(FleetHostsArgs),
    Sql(FleetSqlArgs),
    Compact(FleetCompactArgs),
}

/// The instant, and how far behind it a host's last record may be.
#[derive(Clone, Debug, clap::Args)]
pub struct WhenArgs {
    /// At this time: a clock time (03:12), a date with one (2026-11-21 03:12), or how long ago (-5m) [default: the last
    /// record]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub at: Option<String>,

    /// How far behind that a host's last record may be; a host without one in this time has not reported
    #[arg(long, value_name = "TIME", value_parser = time::interval, default_value = "1m")]
    pub within: Duration,
}

/// The time that a mean is of.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct OverArgs {
    /// The mean of each host's records in this time up to --at, not the last record
    #[arg(long, value_name = "TIME", value_parser = time::interval, conflicts_with = "within")]
    pub over: Option<Duration>,
}

/// Show what is at the top over all hosts, with the least and the most that it can have
///
/// A host shows its first rows, and the sum of all others. So the value of an object over all hosts is known to be
/// between two bounds, and the first rows are proven to be the top where no other object can have more.
#[derive(Clone, Debug, clap::Args)]
pub struct FleetTopArgs {
    /// Which table
    #[arg(value_name = "SAMPLE/TABLE", add = complete::tables())]
    pub table: String,

    /// Where the records of the hosts are
    #[arg(value_name = "DIR", required_unless_present = "live")]
    pub dirs: Vec<PathBuf>,

    #[command(flatten)]
    pub when: WhenArgs,

    #[command(flatten)]
    pub over: OverArgs,

    /// Ask the 'topstat serve' of this host now, by its address (https://web-1:9899); @FILE has an address in each line; may be
    /// repeated
    #[arg(long, value_name = "URL", value_delimiter = ',', conflicts_with_all = ["dirs", "at", "within", "over"], help_heading = LIVE)]
    pub live: Vec<String>,

    /// The token of the hosts is the first line of this file, which others must not be able to read
    #[arg(long, value_name = "FILE", requires = "live", help_heading = LIVE)]
    pub token_file: Option<PathBuf>,

    /// The certificates that the hosts' certificates lead to, in PEM [default: the roots of the web]
    #[arg(long, value_name = "FILE", requires = "live", help_heading = LIVE)]
    pub tls_ca: Option<PathBuf>,

    /// The certificate that the hosts ask for, in PEM
    #[arg(long, value_name = "FILE", requires_all = ["live", "tls_key"], help_heading = LIVE)]
    pub tls_cert: Option<PathBuf>,

    /// Its private key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = LIVE)]
    pub tls_key: Option<PathBuf>,

    /// Show at most this many rows, 1 to 1000
    #[arg(short = 'n', long, value_name = "ROWS", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rows: u32,

    /// Add up by these columns [default: the table's key]
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    pub by: Vec<String>,

    /// Only objects like this, by the columns that are shown: see FILTERS of 'topstat top --help'
    #[arg(short, long = "filter", value_name = "FILTER")]
    pub filters: Vec<String>,

    /// How to write it
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: ListFormat,
}

/// List the hosts that have reported, and those of an inventory that have not
///
/// Exits with 1 if a host of the inventory is missing.
#[derive(Clone, Debug, clap::Args)]
pub struct FleetHostsArgs {
    /// Where the records of the hosts are
    #[arg(value_name = "DIR", required = true)]
    pub dirs: Vec<PathBuf>,

    /// The hosts that there should be: a file with one name in each line
    #[arg(long, value_name = "FILE")]
    pub inventory: Option<PathBuf>,

    /// By the records of this table [default: of any]
    #[arg(long, value_name = "SAMPLE/TABLE", add = complete::tables())]
    pub table: Option<String>,

    #[command(flatten)]
    pub when: WhenArgs,

    /// How to write it; json is one document per host and line
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: ListFormat,
}

/// Write the SQL that answers 'fleet top' in another engine
#[derive(Clone, Debug, clap::Args)]
pub struct FleetSqlArgs {
    /// Which table
    #[arg(value_name = "SAMPLE/TABLE", add = complete::tables())]
    pub table: String,

    /// Where the files are: a directory, or what the engine reads from (s3a://bucket/path)
    #[arg(value_name = "DIR", default_value = "FLEET")]
    pub dir: String,

    /// For which engine
    #[arg(long, value_enum, value_name = "ENGINE")]
    pub engine: EngineName,

    /// The files are compacted; of a directory on this host that is seen
    #[arg(long)]
    pub compacted: bool,

    #[command(flatten)]
    pub when: WhenArgs,

    #[command(flatten)]
    pub over: OverArgs,

    /// How many rows it asks for, 1 to 1000
    #[arg(short = 'n', long, value_name = "ROWS", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rows: u32,

    /// Add up by these columns [default: the table's key]
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    pub by: Vec<String>,
}

/// Merge the files of many hosts into one for each table and hour, with the host as a column
///
/// Hours that are not over are left out. It can run again at any time: a host's own file replaces what was merged of it
/// before, and a host whose file is gone keeps what was merged.
#[derive(Clone, Debug, clap::Args)]
pub struct FleetCompactArgs {
    /// Where the records of the hosts are
    #[arg(value_name = "DIR", required = true)]
    pub dirs: Vec<PathBuf>,

    /// Where the merged files are written: table=SAMPLE.TABLE/date=YYYY-MM-DD/HH.parquet
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
}

/// An engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineName {
    /// DuckDB
    Duckdb,
    /// Apache Spark
    Spark,
    /// ClickHouse, and chdb
    Clickhouse,
}
