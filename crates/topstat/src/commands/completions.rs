// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat completions`.

use clap::CommandFactory;

use crate::args::{Args, CompletionsArgs};
use crate::console::Console;
use crate::error::{Error, Exit};

pub fn run(args: &CompletionsArgs, console: &mut dyn Console) -> Result<Exit, Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "topstat", &mut script);
    console.write(&script).map_err(Error::Output)?;
    Ok(Exit::Done)
}
