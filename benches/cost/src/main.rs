// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What topstat costs, and whether it is right. Every figure stands beside the other side of its comparison, measured in
//! the same run, in interleaved rounds; medians are quoted, with their spread.

mod accuracy;
mod alone;
mod containers;
mod events;
mod holders;
mod icount;
mod netlink;
mod netstack;
mod originals;
mod overhead;
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
    /// What a push costs, in nanoseconds, beside other ways to count a packet.
    Push(push::Options),
    /// What topstat takes from a host that answers requests.
    Overhead(overhead::Options),
    /// How long a snapshot takes, with few and with many sockets.
    Read(scale::Options),
    /// How long a snapshot of connections takes, by how many have spoken since the one before.
    Settle(settle::Options),
    /// Kernel memory per object and per table.
    Memory(scale::Options),
    /// Recall and precision of the top 128, up to 100,000 sockets.
    Exact(scale::Options),
    /// CPU time of showing the tasks once more, beside top, pidstat, htop and atop.
    Refresh(refresh::Options),
    /// What a request and its response take in instructions, on other kernels, beside tcptop.
    Icount(icount::Options),
    /// What a consumer of events loses, and what it takes, by each strategy, at full speed, in bursts and idle.
    Events(events::Options),
    /// Recall of the true top and bytes right, beside tcptop on the same load, in a guest.
    Accuracy(accuracy::Options),
    /// CPU time of reading SNMP counters, beside /proc, netlink and nstat; and of adding them up.
    Snmp(snmp::Options),
    /// What sampling stacks takes of throughput; of which samples the category is known; the shapes of the study.
    Netstack(netstack::Options),
    /// How long making containers takes, with topstat reading every second and without.
    Containers(containers::Options),
    /// The tables of the first topstat and of ptop, beside their own figures where these are known.
    Originals(originals::Options),
    /// In a guest: the load, and who watches it.
    #[command(hide = true)]
    AccuracyGuest(accuracy::Size),
    /// In a guest: counts instructions.
    #[command(hide = true)]
    IcountGuest(icount::guest::Guest),
    /// Says which samples are promised for a kernel: 6.1, or newest.
    #[command(hide = true)]
    Promised(verified::Promised),
    /// Instructions that this kernel's verifier processes for each eBPF program.
    Verified,
    /// What a switch from task to task takes, with and without topstat.
    Switch(switch::Options),
    /// Holds sockets open for another one's measurement.
    #[command(hide = true)]
    Hold(holders::Hold),
    /// Makes sleeping processes for another one's measurement.
    #[command(hide = true)]
    Sleep(refresh::Sleep),
    /// What the daemon's file tree takes: to set and get, to read a snapshot, to serve many; and to do nothing.
    Tree(tree::Options),
    /// What the live view takes beside a daemon: CPU, time from key to screen, time to the first rows.
    View(view::Options),
    /// What the recorder takes of CPU and memory with all tables, and of the daemon, beside what is promised.
    Record(record::Options),
    /// Is the program itself, for another one's measurement.
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
            What::Record(_) => true,
            What::Icount(_) | What::Accuracy(_) | What::AccuracyGuest(_) | What::IcountGuest(_) => false,
            What::Promised(_) | What::Verified | What::Hold(_) | What::Sleep(_) | What::Topstat(_) => false,
        }
    }
}

fn main() -> anyhow::Result<()> {
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
        What::Verified => verified::run(),
        What::Switch(options) => switch::run(&options),
        What::Hold(hold) => holders::hold(&hold),
        What::Sleep(sleep) => refresh::sleepers(&sleep),
    }
}
