// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What topstat costs. Every figure stands beside the other side of its comparison, measured in
//! the same run, in interleaved rounds; medians are quoted, with their spread.

mod holders;
mod overhead;
mod push;
mod refresh;
mod scale;
mod stats;
mod switch;

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
    /// Kernel memory per object and per table.
    Memory(scale::Options),
    /// Recall and precision of the top 128, up to 100,000 sockets.
    Exact(scale::Options),
    /// CPU time of showing the tasks once more, beside top, pidstat, htop and atop.
    Refresh(refresh::Options),
    /// What a switch from task to task takes, with and without topstat.
    Switch(switch::Options),
    /// Holds sockets open for another one's measurement.
    #[command(hide = true)]
    Hold(holders::Hold),
    /// Makes sleeping processes for another one's measurement.
    #[command(hide = true)]
    Sleep(refresh::Sleep),
}

fn main() -> anyhow::Result<()> {
    match Args::parse().what {
        What::Push(options) => push::run(&options),
        What::Overhead(options) => overhead::run(&options),
        What::Read(options) => scale::read(&options),
        What::Memory(options) => scale::memory(&options),
        What::Exact(options) => scale::exact(&options),
        What::Refresh(options) => refresh::run(&options),
        What::Switch(options) => switch::run(&options),
        What::Hold(hold) => holders::hold(&hold),
        What::Sleep(sleep) => refresh::sleepers(&sleep),
    }
}
