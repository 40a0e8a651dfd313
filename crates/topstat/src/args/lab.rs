// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line of `topstat lab` as it is parsed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use topstat_families::netstack::MOST_HZ;
use topstat_lab::plan::Experiment;
use topstat_lab::remote::PORT;

use super::rows;
use crate::time;

/// Measure what the network stack carries, and where its CPU time goes: the experiments of "Understanding Host Network
/// Stack Overheads" (SIGCOMM 2021).
///
/// Two network namespaces are made for each run, with a pair of veth devices between them, and TCP is sent from one to
/// the other by a generator of topstat's own. They have no names, and go with the process, however it ends: nothing of
/// the host's settings is changed. Throughput and CPU time are measured in one run, and stacks are sampled in another.
///
/// With --peer it is two hosts, between interfaces that they have. 'topstat lab serve' runs on the other one. What is
/// changed of the interfaces is saved before and put back at the end; what a kill has left, 'topstat lab restore' puts back.
#[derive(Debug, clap::Args)]
#[command(after_long_help = NOTES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct LabArgs {
    #[command(subcommand)]
    pub(crate) command: Option<LabCommand>,

    /// What to measure
    #[arg(value_enum, value_name = "EXPERIMENT", required = true)]
    pub experiment: Option<Experiment>,

    /// Only these configurations: no-opts, tsogro, jumbo, tsogro+jumbo, tsogro+arfs, jumbo+arfs, all-opts
    #[arg(short, long, value_name = "NAME", value_delimiter = ',')]
    pub config: Vec<String>,

    /// How long each run is measured
    #[arg(short, long, value_name = "TIME", value_parser = time::interval, default_value = "5s")]
    pub time: Duration,

    /// How often each is measured
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), default_value_t = 3)]
    pub runs: u32,

    /// How many flows; of all-to-all, how many CPUs of each side
    #[arg(short, long, value_name = "N", value_parser = rows, default_value_t = 4)]
    pub flows: u32,

    /// short-flows, mixed: bytes of requests and of responses
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "4096,16384,32768,65536",
        value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub size: Vec<u32>,

    /// loss: percent of packets that are lost
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "0,0.015,0.15,1.5", value_parser = percent)]
    pub loss: Vec<f64>,

    /// buffers: receive buffers, in KiB
    #[arg(long, value_name = "KIB", value_delimiter = ',', default_value = "100,400,1600,6400,12800",
        value_parser = clap::value_parser!(u32).range(4..=1_048_576))]
    pub buffer: Vec<u32>,

    /// The congestion control [default: the kernel's]
    #[arg(long, value_name = "NAME")]
    pub congestion: Option<String>,

    /// How often a second each CPU is sampled; 0: no stacks are sampled
    #[arg(long, value_name = "HZ", default_value_t = 499, value_parser = clap::value_parser!(u32).range(0..=i64::from(MOST_HZ)))]
    pub hz: u32,

    /// Count packets by size and data by how long it waits to be copied, too, in a run of its own
    #[arg(long)]
    pub histograms: bool,

    /// The other host, where 'topstat lab serve' runs: it receives what this one sends [port: 4719]
    #[arg(long, value_name = "HOST:PORT", requires_all = ["interface", "key"])]
    pub peer: Option<String>,

    /// The interface of this host, which is set by each configuration, and put back at the end
    #[arg(long, value_name = "NAME", requires = "peer")]
    pub interface: Option<String>,

    /// The file of the key that both hosts have: see 'topstat lab key'
    #[arg(long, value_name = "FILE", requires = "peer")]
    pub key: Option<PathBuf>,

    /// The peer sends, and this host receives
    #[arg(long, requires = "peer")]
    pub reverse: bool,

    /// Where results are written: a directory that is empty, or not there [default: topstat-lab-EXPERIMENT-TIME]
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum LabCommand {
    Report(ReportArgs),
    Serve(ServeArgs),
    /// Put back the settings of an interface that a lab has left which was killed
    Restore,
    Key(KeyArgs),
}

/// Be the other host of a lab
///
/// Takes a control connection of 'topstat lab EXPERIMENT --peer', from whoever has the key, one at a time. It sets the
/// interface as the experiment says, makes its end of the traffic, and puts the settings back when the other host has ended
/// or has gone.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// The interface that is measured; no other one is touched
    #[arg(long, value_name = "NAME")]
    pub interface: String,

    /// The file of the key that both hosts have
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,

    /// Where it listens for the other host
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = SocketAddr::from(([0, 0, 0, 0], PORT)))]
    pub listen: SocketAddr,
}

/// Make a key for two hosts, in a new file that only its owner may read: copy it to the other host
#[derive(Debug, clap::Args)]
pub struct KeyArgs {
    /// The file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Print the tables of results again, and draw them; of two directories, compare them
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// Where results are
    #[arg(value_name = "DIR")]
    pub results: PathBuf,

    /// Others, to compare with them
    #[arg(value_name = "OTHER")]
    pub other: Option<PathBuf>,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("not a share in percent, 0 to 100".to_owned()),
    }
}

const NOTES: &str = "\
CONFIGURATIONS
  no-opts        neither segmentation (TSO, GSO) nor its reverse (GRO) is put off; frames of 1500
  tsogro         both are
  jumbo          frames of 9000 bytes
  tsogro+jumbo   both
  …+arfs         and packets are steered to the CPU that receives them; all-opts is all of it
  What the device can't do is listed as unavailable, with the reason.

EXAMPLES
  topstat lab single-flow                        all configurations, three runs each
  topstat lab incast --flows 8 --config tsogro+jumbo
  topstat lab loss --loss 0,0.1,1 --time 10s --out before
  topstat lab key lab.key                        a key, to be copied to the other host
  topstat lab serve --interface eth1 --key lab.key
  topstat lab incast --peer other --interface eth1 --key lab.key
  topstat lab report before                      its tables and pictures again
  topstat lab report before after                what has changed";
