// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What topstat costs. Every figure stands beside the other side of its comparison, measured in
//! the same run, in interleaved rounds; medians are quoted, with their spread.

mod holders;
mod push;
mod stats;

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
    /// Holds sockets open for another one's measurement.
    #[command(hide = true)]
    Hold(holders::Hold),
}

fn main() -> anyhow::Result<()> {
    match Args::parse().what {
        What::Push(options) => push::run(&options),
        What::Hold(hold) => holders::hold(&hold),
    }
}
