// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decides whether a change may land: see CONTRIBUTING.md.
//!
//! `topstat-gate land` runs the parts of `make test`, keeps passes, looks into failures, and ends with one line,
//! `N passed, N failed, N skipped`. `topstat-gate all` runs everything there is.

#![warn(missing_docs)]

mod build;
mod case;
mod everything;
mod evidence;
mod gate;
mod guests;
mod inputs;
mod kept;
mod known;
mod land;
mod parent;
mod parts;
mod process;
mod table;
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Parser, Subcommand};

use gate::Gate;
use parts::Part;
use process::Interrupt;

/// Decides whether a change may land
#[derive(Debug, Parser)]
#[command(name = "topstat-gate", version, max_term_width = 110)]
struct Cli {
    /// The checkout
    #[arg(long, global = true, default_value = ".", value_name = "DIR")]
    root: PathBuf,
    /// Run parts that have passed with the same inputs, too
    #[arg(long, global = true)]
    again: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the parts that decide whether a change may land
    Land {
        /// Which parts; the part build is run in any case
        #[arg(value_enum, default_values_t = [Part::Build, Part::Unit, Part::Live, Part::Guests, Part::Module])]
        parts: Vec<Part>,
        /// End everything after this time in seconds, and fail
        #[arg(long, value_name = "S")]
        seconds: Option<u64>,
    },
    /// Run everything there is; what has passed of this commit is not run again
    All {
        /// How long all of it may take, in seconds; parts that can be cut short are
        #[arg(long, value_name = "S", default_value_t = everything::SECONDS)]
        seconds: u64,
        /// Which parts [default: all]
        #[arg(value_name = "PART")]
        parts: Vec<String>,
    },
}

/// Longer than anything takes, for a run without a limit.
const NO_LIMIT: Duration = Duration::from_secs(24 * 3600);

fn run() -> Result<bool> {
    let cli = Cli::parse();
    let interrupt = Interrupt::new()?;
    let within = |limit: Duration| Gate::new(&cli.root, cli.again, Instant::now() + limit, interrupt.clone());
    match cli.verb {
        Verb::Land { parts, seconds } => land::run(&mut within(seconds.map_or(NO_LIMIT, Duration::from_secs))?, &parts),
        Verb::All { seconds, parts } => everything::run(&mut within(NO_LIMIT)?, seconds, &parts),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("topstat-gate: {error:#}");
            ExitCode::FAILURE
        }
    }
}
