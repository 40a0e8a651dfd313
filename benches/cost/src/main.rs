// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost and the accuracy of topstat. Every figure stands beside the other side of its comparison, measured in the same
//! run, in interleaved rounds; medians are quoted, with their spread.

mod accuracy;
mod alone;
mod containers;
mod custom;
mod events;
mod holders;
mod icount;
mod netlink;
mod netstack;
mod originals;
mod overhead;
mod pinned;
mod push;
mod record;
mod refresh;
mod scale;
mod settle;
mod snmp;
mod stats;
mod switch;
mod tree;
mod verified;
mod view;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(version, about)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The cost of a push, in nanoseconds, compared with other ways to count a packet.
    Push(push::Options),
    /// The cost of topstat on a host that answers requests.
    Overhead(overhead::Options),
    /// How long a snapshot takes, with few and with many sockets.
    Read(scale::Options),
    /// How long a snapshot of connections takes, by the number of connections with traffic since the previous one.
    Settle(settle::Options),
    /// Kernel memory per object and per table.
    Memory(scale::Options),
    /// Recall and precision of the top 128, up to 100,000 sockets.
    Exact(scale::Options),
    /// CPU time of one refresh of the tasks, compared with top, pidstat, htop and atop.
    Refresh(refresh::Options),
    /// Instructions of a request and its response, on other kernels, compared with tcptop.
    Icount(icount::Options),
    /// Events that a consumer loses, and its cost, for each strategy, at full speed, in bursts and idle.
    Events(events::Options),
    /// Recall of the true top and right bytes, compared with tcptop on one load, in a guest.
    Accuracy(accuracy::Options),
    /// CPU time of reading SNMP counters, compared with /proc, netlink and nstat; and of adding them up.
    Snmp(snmp::Options),
    /// Throughput that sampling of stacks costs; the share of samples with a known category; the shapes of the study.
    Netstack(netstack::Options),
    /// How long making containers takes, with topstat reading every second and without.
    Containers(containers::Options),
    /// The cost of an event in a table of the user's own, compared with a program by hand, bpftrace and hist triggers.
    Custom(custom::Options),
    /// The tables of the first topstat and of ptop, beside their own figures if these are known.
    Originals(originals::Options),
    /// In a guest: the load, and the programs that watch it.
    #[command(hide = true)]
    AccuracyGuest(accuracy::Size),
    /// In a guest: counts instructions.
    #[command(hide = true)]
    IcountGuest(icount::guest::Guest),
    /// Prints the samples that are promised for a kernel: 6.1, or newest.
    #[command(hide = true)]
    Promised(verified::Promised),
    /// Instructions that this kernel's verifier processes for each eBPF program.
    Verified(verified::Options),
    /// The cost of a switch between tasks, with and without topstat.
    Switch(switch::Options),
    /// Holds sockets open for another measurement.
    #[command(hide = true)]
    Hold(holders::Hold),
    /// Makes sleeping processes for another measurement.
    #[command(hide = true)]
    Sleep(refresh::Sleep),
    /// The cost of the daemon's file tree: setting and getting, reading a snapshot, serving many readers, and idling.
    Tree(tree::Options),
    /// The cost of the live view beside a daemon: CPU, time from key to screen, time to the first rows.
    View(view::Options),
    /// The CPU time and memory of the recorder with all tables, and of the daemon, compared with the promised cost.
    Record(record::Options),
    /// Runs topstat itself, for another measurement.
    #[command(hide = true)]
    Topstat(tree::Topstat),
}

impl What {
    /// Whether it measures on this host: not in a guest, and not for another measurement, whose programs may be attached.
    fn measures_here(&self) -> bool {
        match self {
            What::Push(_) | What::Overhead(_) | What::Read(_) | What::Settle(_) | What::Memory(_) => true,
            What::Exact(_) | What::Refresh(_) | What::Events(_) | What::Snmp(_) | What::Netstack(_) => true,
            What::Containers(_) | What::Originals(_) | What::Switch(_) | What::Tree(_) | What::View(_) => true,
            What::Record(_) | What::Custom(_) => true,
            What::Icount(_) | What::Accuracy(_) | What::AccuracyGuest(_) | What::IcountGuest(_) => false,
            What::Promised(_) | What::Verified(_) | What::Hold(_) | What::Sleep(_) | What::Topstat(_) => false,
        }
    }
}

fn main() -> anyhow::Result<()> {
    // Registers the families.
    topstat_families::catalogue();
    let what = Args::parse().what;
    if what.measures_here() {
        alone::check()?;
    }
    match what {
        What::Push(options) => push::run(&options),
        What::Overhead(options) => overhead::run(&options),
        What::Read(options) => scale::read(&options),
        What::Settle(options) => settle::run(&options),
        What::Memory(options) => scale::memory(&options),
        What::Exact(options) => scale::exact(&options),
        What::Refresh(options) => refresh::run(&options),
        What::Snmp(options) => snmp::run(&options),
        What::Netstack(options) => netstack::run(&options),
        What::Containers(options) => containers::run(&options),
        What::Custom(options) => custom::run(&options),
        What::Tree(options) => tree::run(&options),
        What::View(options) => view::run(&options),
        What::Record(options) => record::run(&options),
        What::Topstat(topstat) => tree::topstat(topstat),
        What::Originals(options) => originals::run(&options),
        What::Events(options) => events::run(&options),
        What::Accuracy(options) => accuracy::run(&options),
        What::AccuracyGuest(size) => accuracy::guest(&size),
        What::Icount(options) => icount::run(&options),
        What::IcountGuest(guest) => icount::guest::run(&guest),
        What::Promised(kernel) => verified::promised(&kernel),
        What::Verified(options) => verified::run(&options),
        What::Switch(options) => switch::run(&options),
        What::Hold(hold) => holders::hold(&hold),
        What::Sleep(sleep) => refresh::sleepers(&sleep),
    }
}
