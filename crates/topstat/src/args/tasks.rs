// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line of `topstat tasks` as it is parsed.

use std::time::Duration;

use clap::ValueEnum;

use super::{TopFormat, count};
use crate::time;

/// Show the CPU time of all tasks, which adds up to exactly 100% of each CPU.
///
/// Every nanosecond of every CPU in an interval is in one row: that of a task, 'idle', or one of those that say what
/// could not be told. Only tasks that ran are looked at, so that a host with many sleeping ones pays nothing for them.
/// What tasks used that ended is added to their parents (cuser, csys, cste), or shown by itself (--dead).
///
/// On a terminal the view is refreshed in place, every second unless an INTERVAL is given, until Ctrl-C. In a pipe, and
/// as JSON or CSV, it is one interval without an INTERVAL, and without end with an INTERVAL and no COUNT.
///
/// The kernel is asked for it for as long as the command runs. The first rows come after the first interval.
#[derive(Debug, clap::Args)]
#[command(after_long_help = NOTES)]
pub struct TasksArgs {
    /// Seconds of an interval (0.5), or a time with a unit (500ms, 2s, 1m)
    #[arg(value_name = "INTERVAL", value_parser = time::interval)]
    pub interval: Option<Duration>,

    /// How many intervals
    #[arg(value_name = "COUNT", value_parser = count)]
    pub count: Option<u64>,

    /// Show at most this many tasks; the others are added up [default: on a terminal what fits, else all]
    #[arg(short = 'n', long, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..))]
    pub rows: Option<u32>,

    /// How to write it
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: TopFormat,

    /// What to sort by: numbers and times from the largest on, pids and names from the first on
    #[arg(short, long, value_enum, value_name = "KEY", default_value_t)]
    pub sort: SortKey,

    /// Sort the other way round
    #[arg(short, long)]
    pub reverse: bool,

    /// A row for each thread instead of one for each process
    #[arg(short = 'H', long)]
    pub threads: bool,

    /// Rows of their own for tasks that ended, instead of adding them to their parents
    #[arg(long)]
    pub dead: bool,

    /// Text: tasks below their parents, with what each and all below it used; parents that slept are shown, too
    #[arg(short, long)]
    pub tree: bool,

    /// Text: also interrupts, softirqs, virtual CPUs, waiting, and switches
    #[arg(short, long)]
    pub wide: bool,

    /// Command lines instead of names; JSON and CSV have both
    #[arg(short, long)]
    pub cmdline: bool,

    /// Leave interrupts and softirqs with the tasks that they interrupt: costs less on hosts with many of them
    #[arg(long)]
    pub no_interrupts: bool,

    /// Tell user and system of this process apart exactly, by its system calls; meanwhile every system call on the
    /// host takes longer
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub exact: Vec<u32>,

    /// Only of this process (with --tree, of all below it, too)
    #[arg(short, long, value_name = "PID", value_delimiter = ',', help_heading = "Filters")]
    pub pid: Vec<u32>,

    /// Only of this name, exactly (of a longer name, its first 15 bytes; with --tree, of all below it, too)
    #[arg(long, value_name = "NAME", help_heading = "Filters")]
    pub comm: Vec<String>,
}

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SortKey {
    /// All that the row counts
    #[default]
    Total,
    /// In user space
    User,
    /// In the kernel
    Sys,
    /// Taken by the hypervisor
    Ste,
    /// In user space, by children that ended
    Cuser,
    /// In the kernel, by children that ended
    Csys,
    /// Taken by the hypervisor from children that ended
    Cste,
    /// Runnable, but waiting for a CPU
    Wait,
    /// How often it left a CPU
    Switches,
    /// Process, or thread
    Pid,
    /// How long ago it was started
    Elap,
    /// Name, then pid
    Name,
}

const NOTES: &str = "\
COLUMNS
  user sys ste          % of one CPU that the task itself used: in user space, in the kernel, and
                        taken by the hypervisor while it ran
  cuser csys cste       the same of its children that ended in the interval, and of theirs
  total                 the sum of these: exact. How it is split between user and sys is sampled on
                        most kernels (see 'topstat check')
  irq sirq cirq csirq   --wide: interrupts and softirqs, which else are in sys and csys
  guest wait switches   --wide: of user, as a virtual CPU; % of time waiting for a CPU; how often it
                        left a CPU
  tree                  --tree: the total of the task and of all below it
  elap                  since the task was started: [[days-]hours:]minutes:seconds

  Below the tasks: 'other', the tasks that are not shown; 'idle', and 'irq', interrupts and the
  hypervisor while nothing ran; where it is not 0, 'unowned', of tasks that are not known, as the
  kernel did not trace a switch or had no memory for the account, and 'unseen', of tasks that ended
  when too many did; last 'sum', of all rows: 100% for each CPU.

  JSON and CSV have nanoseconds. JSON always has all columns, and the tasks that ended.

EXAMPLES
  topstat tasks                                  refreshed every second; in a pipe, one interval
  topstat tasks --tree --pid 4242                a process and all below it
  topstat tasks 10 --dead -n 20                  the 20 largest, also of those that ended
  topstat tasks 60 -o json >> tasks.jsonl
  topstat tasks 5 1 -o json | jq '.tasks[] | select(.ended_ns != null) | .comm'";
