// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line of `topstat netstack` as it is parsed.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use topstat_families::netstack::{DEFAULT_HZ, MOST_HZ};
use topstat_model::histograms::Subject;
use topstat_model::stacks;

use super::{TopFormat, rows};

/// Show where the kernel spends its CPU time: copying, TCP/IP, devices, socket buffers, memory, locks, scheduling.
///
/// Stacks of the kernel are sampled on each CPU, and each sample is given to a category by the function that it was
/// found in, or by the nearest of its callers that is known. Time in user space and idle time are told apart, and are
/// in no row.
///
/// On a terminal the view is refreshed in place, every second unless an INTERVAL is given, until Ctrl-C. In a pipe, and
/// as JSON or CSV, it is one interval without an INTERVAL, and without end with an INTERVAL and no COUNT.
#[derive(Debug, clap::Args)]
#[command(after_long_help = NOTES, args_conflicts_with_subcommands = true)]
pub struct NetstackArgs {
    #[command(subcommand)]
    pub(crate) command: Option<NetstackCommand>,

    /// By what samples are counted: categories, symbols, stacks, cpus, sides, processes, cgroups [default: categories]
    #[arg(value_name = "TABLE")]
    pub table: Option<String>,

    /// Seconds of an interval (0.5), or a time with a unit (500ms, 2s, 1m)
    #[arg(value_name = "INTERVAL")]
    pub interval: Option<String>,

    /// How many intervals
    #[arg(value_name = "COUNT")]
    pub count: Option<String>,

    /// Show at most this many rows [default: on a terminal what fits, else all]
    #[arg(short = 'n', long, value_name = "ROWS", value_parser = rows)]
    pub rows: Option<u32>,

    /// How to write it
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: TopFormat,

    /// Give samples to functions as they were found, or corrected for masked interrupts
    #[arg(long, value_enum, value_name = "VIEW", default_value_t)]
    pub view: ViewKey,

    /// How often a second each CPU is sampled
    #[arg(long, value_name = "HZ", default_value_t = DEFAULT_HZ, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_HZ)))]
    pub hz: u32,

    /// By what samples are taken [default: cycles where they are counted, else cpu-clock]
    #[arg(long, value_enum, value_name = "EVENT")]
    pub event: Option<EventKey>,

    /// Rules that go before topstat's own [default: /etc/topstat/netstack.rules, if it is there]
    #[arg(long, value_name = "FILE", global = true)]
    pub rules: Option<PathBuf>,

    /// At the end, write a flame graph of all intervals (SVG) to this file
    #[arg(long, value_name = "FILE", help_heading = "Files")]
    pub flame: Option<PathBuf>,

    /// At the end, write the folded stacks of all intervals to this file
    #[arg(long, value_name = "FILE", help_heading = "Files")]
    pub folded: Option<PathBuf>,

    /// Instead of stacks: how large packets are before and after GRO, or how long data waits to be copied to processes
    #[arg(long, value_enum, value_name = "WHAT", help_heading = "Histograms",
        conflicts_with_all = ["view", "hz", "event", "rules", "flame", "folded", "side", "cpu", "comm", "cgroup"])]
    pub histogram: Option<HistogramKey>,

    /// skb: only of this device, of the network namespace that topstat runs in
    #[arg(long, value_name = "NAME", requires = "histogram", help_heading = "Histograms")]
    pub device: Option<String>,

    /// Only from or to one of these ports of TCP and UDP
    #[arg(long, value_name = "PORT", value_delimiter = ',', requires = "histogram", help_heading = "Histograms")]
    pub port: Vec<u16>,

    /// Only of these sides
    #[arg(long, value_enum, value_name = "SIDE", value_delimiter = ',', help_heading = "Filters")]
    pub side: Vec<SideKey>,

    /// Only on these CPUs
    #[arg(long, value_name = "CPU", value_delimiter = ',', help_heading = "Filters")]
    pub cpu: Vec<u32>,

    /// Only of these processes; of a histogram: those that data is copied to
    #[arg(long, value_name = "PID", value_delimiter = ',', help_heading = "Filters")]
    pub pid: Vec<u32>,

    /// Only of processes of this name
    #[arg(long, value_name = "COMM", help_heading = "Filters")]
    pub comm: Vec<String>,

    /// Only of this control group and those below it
    #[arg(long, value_name = "PATH", help_heading = "Filters")]
    pub cgroup: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub enum NetstackCommand {
    Classify(ClassifyArgs),
}

/// Print the category of functions, and by which rule: symbol, category and rule, with tabs between
///
/// Without a SYMBOL they are read from the standard input, one in each line, as in /proc/kallsyms without addresses:
/// 'veth_xmit [veth]'. What no rule and no function around it tells has '-' for its category and its rule.
#[derive(Debug, clap::Args)]
pub struct ClassifyArgs {
    /// Functions of the kernel
    #[arg(value_name = "SYMBOL")]
    pub symbols: Vec<String>,
}

/// How samples are given to functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ViewKey {
    /// As they were found
    Leaf,
    /// To the caller where a function has just let interrupts in
    #[default]
    Corrected,
}

impl From<ViewKey> for stacks::View {
    fn from(view: ViewKey) -> Self {
        match view {
            ViewKey::Leaf => Self::Leaf,
            ViewKey::Corrected => Self::Corrected,
        }
    }
}

/// By what samples are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EventKey {
    /// Cycles of the CPUs, where they are counted
    Cycles,
    /// A timer
    CpuClock,
    /// Cache misses, where they are counted: rows have their share of these, not of time
    CacheMisses,
}

impl From<EventKey> for stacks::Event {
    fn from(event: EventKey) -> Self {
        match event {
            EventKey::Cycles => Self::Cycles,
            EventKey::CpuClock => Self::CpuClock,
            EventKey::CacheMisses => Self::CacheMisses,
        }
    }
}

/// What there are histograms of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HistogramKey {
    /// Bytes of packets, as devices hand them over and as protocols get them
    Skb,
    /// Time from a packet's arrival to the copy of its data, and how much of it the process waited for a CPU
    Latency,
}

impl From<HistogramKey> for Subject {
    fn from(histogram: HistogramKey) -> Self {
        match histogram {
            HistogramKey::Skb => Self::Skb,
            HistogramKey::Latency => Self::Latency,
        }
    }
}

/// For whom the network stack runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum SideKey {
    /// A process that sends
    Send,
    /// Packets that have arrived, in a softirq
    SoftirqReceive,
    /// A process that receives
    Receive,
    /// Sending without a process: timers, and what was put off
    SoftirqSend,
    /// Neither
    Other,
}

impl From<SideKey> for stacks::Side {
    fn from(side: SideKey) -> Self {
        match side {
            SideKey::Send => Self::Send,
            SideKey::SoftirqReceive => Self::SoftirqReceive,
            SideKey::Receive => Self::Receive,
            SideKey::SoftirqSend => Self::SoftirqSend,
            SideKey::Other => Self::Other,
        }
    }
}

const NOTES: &str = "\
CATEGORIES
  data_copy  between user space and the kernel
  tcp/ip     protocols: TCP, UDP, IP, routing, netfilter
  netdev     network devices: drivers, NAPI, GSO and GRO, queueing disciplines
  skb        socket buffers: made, split, merged, freed
  mm         memory: pages, slabs, page pools
  lock       locks, and waiting for them
  sched      scheduling, and waking up
  etc        all the rest: system calls, interrupts, timers, files

VIEWS
  Where no counter of cycles can be had, a timer samples. It can't interrupt where interrupts are
  masked: it comes as soon as they are let in, mostly in the function that ends a locked section.
  corrected gives such a sample to the function's caller, which had them masked; leaf does not.

EXAMPLES
  topstat netstack                               categories, every second
  topstat netstack symbols 5 -n 20               functions, every 5 seconds
  topstat netstack sides 10 1 -o json | jq '.rows[].categories'
  topstat netstack cgroups --side send,receive
  topstat netstack 30 1 --flame stacks.svg       a flame graph of 30 seconds
  topstat netstack classify tcp_ack skb_clone    why a function is of its category
  topstat netstack --histogram skb --device eth0 sizes of packets before and after GRO
  topstat netstack --histogram latency --port 443  how long data waits to be copied to a process";
