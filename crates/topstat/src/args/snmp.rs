// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line of `topstat snmp` as it is parsed.

use clap::ValueEnum;

use super::TopFormat;

/// Show the kernel's SNMP counters: what changes, in all and on each CPU.
///
/// The counters are those of /proc/net/snmp, netstat, snmp6 and xfrm_stat, under the same names, of any network
/// namespace; of devices those of /proc/net/dev_snmp6. They are read where the kernel counts: each CPU's in one piece.
///
/// On a terminal the view is refreshed in place, every second unless an INTERVAL is given, until Ctrl-C. In a pipe, and
/// as JSON or CSV, it is one reading without an INTERVAL, and without end with an INTERVAL and no COUNT. What has changed
/// is shown after the first interval; --total shows what counters stand at, at once.
#[derive(Debug, clap::Args)]
#[command(after_long_help = NOTES)]
pub struct SnmpArgs {
    /// Of what: protocols with commas between, a network namespace, or a device [default: all protocols, of the own
    /// namespace]
    #[arg(value_name = "PROTO|NETNS|DEV")]
    pub what: Option<String>,

    /// Seconds between two readings (0.5), or a time with a unit (500ms, 2s, 1m)
    #[arg(value_name = "INTERVAL")]
    pub interval: Option<String>,

    /// How many readings
    #[arg(value_name = "COUNT")]
    pub count: Option<String>,

    /// Of this network namespace: a name of 'ip netns', pid:PID, a path, a container's id, an inode, or 'all'
    #[arg(long, value_name = "NETNS", help_heading = "Which")]
    pub netns: Option<String>,

    /// Of this device, or of 'all': the counters of IPv6 that a device has
    #[arg(long = "dev", value_name = "DEV", help_heading = "Which")]
    pub device: Option<String>,

    /// What counters stand at, and not what has changed
    #[arg(short, long)]
    pub total: bool,

    /// Also counters that have not changed; with --total, that are 0
    #[arg(short, long)]
    pub all: bool,

    /// Only counters that stand for trouble: drops, resets, overflows, retransmits, timeouts, errors
    #[arg(short, long)]
    pub errors: bool,

    /// A column for each CPU, and how uneven they are
    #[arg(short, long)]
    pub cpus: bool,

    /// What to sort by, largest first [default: change; with --total, kernel]
    #[arg(short, long, value_enum, value_name = "KEY")]
    pub sort: Option<SortKey>,

    /// Show at most this many counters of each namespace or device [default: on a terminal what fits, else all]
    #[arg(short = 'n', long, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..))]
    pub rows: Option<u32>,

    /// How to write it
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: TopFormat,
}

/// What counters are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SortKey {
    /// What has come since the last reading
    Change,
    /// What they stand at
    Total,
    /// How uneven the CPUs are
    Imbalance,
    /// By protocol, in the kernel's order
    Kernel,
}

const NOTES: &str = "\
PROTOCOLS
  ip icmp tcp udp udplite           as in /proc/net/snmp
  tcpext ipext mptcp                as in /proc/net/netstat
  ip6 icmp6 udp6 udplite6           as in /proc/net/snmp6; of devices, ip6 and icmp6
  xfrm                              as in /proc/net/xfrm_stat
  What a kernel does not have is not there.

COLUMNS
  per second, change    since the last reading, by the time that has really passed
  total                 since the namespace or device was made; levels and settings (CurrEstab, RtoMin)
                        have no change: only their value means anything
  max/mean              --cpus: the CPU that has most of the change, over the mean of all: 1 is even
  cpu0, cpu1 ...        --cpus: the change on each CPU; with --total, what it stands at. Some ICMP
                        counters are shared by all CPUs: '-'

EXAMPLES
  topstat snmp                                   what changes, refreshed every second
  topstat snmp --errors                          what is dropped, reset or sent again
  topstat snmp tcp,tcpext --cpus --sort imbalance
  topstat snmp web 5                             of the namespace that 'ip netns' calls web
  topstat snmp eth0 --total                      of a device
  topstat snmp tcp --netns all --total -o csv
  topstat snmp tcp 10 1 -o json | jq '.scopes[0].samples.snmp_tcp.RetransSegs.per_second'";
