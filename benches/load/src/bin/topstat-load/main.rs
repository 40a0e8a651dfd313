// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat-load`: makes local network load, and prints its counts per connection.

mod args;
mod output;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;
use topstat_load::{Error, Load};

use args::Args;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("topstat-load: {error}");
            ExitCode::from(if error.is_usage() { 2 } else { 1 })
        }
    }
}

fn run(args: &Args) -> Result<ExitCode, Error> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // A second signal ends the program at once, in case the first is not enough.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|source| Error::System { what: "catch signals".into(), source })?;
    }
    if let Some(parent) = args.end_with_parent {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
            .map_err(|errno| Error::System { what: "ask to be ended with the parent".into(), source: errno.into() })?;
        // The kernel reports only an end that is still to come.
        let now = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
        if now != parent {
            eprintln!("topstat-load: not begun: process {parent}, which was to be the parent, has ended (it is {now})");
            return Ok(ExitCode::SUCCESS);
        }
    }
    let config = args.config();
    let plan = args.plan(config.connections)?;
    let limits = args.limits(stop);
    let mut load = Load::open(config)?;
    eprintln!("{}", output::opened(&load));
    if let Some(warm_up) = args.warm_up(&limits) {
        load.run(&plan.clone().repeat(true), &warm_up)?;
    }
    let report = load.run(&plan, &limits)?;
    eprintln!("{}", output::summary(&report));

    let text = output::document(&load, args, &report).to_string();
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::System { what: "write the result".into(), source: error })
        }
        _ if report.failed > 0 || report.unfinished > 0 => Ok(ExitCode::FAILURE),
        _ => Ok(ExitCode::SUCCESS),
    }
}
