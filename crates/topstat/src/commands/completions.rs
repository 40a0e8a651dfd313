// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat completions`: the scripts of shells, and the answers to the questions of these scripts.

use clap::CommandFactory as _;
use clap_complete::env::{CompleteEnv, Shells};

use crate::args::{Args, CompletionsArgs};
use crate::console::Console;
use crate::error::{Error, Exit};

/// The environment variable with the name of the shell that asks for completions.
const VARIABLE: &str = "TOPSTAT_COMPLETE";

/// What zsh needs beside the script of all shells. It runs an installed file as the function `_topstat` for the first completion;
/// the file registers another function, for the later ones.
const ZSH: &[u8] = b"[ \"$funcstack[1]\" = \"_topstat\" ] && _clap_dynamic_completer_topstat\n";

pub fn run(args: &CompletionsArgs, console: &mut dyn Console) -> Result<Exit, Error> {
    let (shells, mut script) = (Shells::builtins(), Vec::new());
    let shell = shells.completer(&args.shell.to_string());
    let shell = shell.ok_or_else(|| Error::Usage(format!("there are no completions for {}", args.shell)))?;
    shell.write_registration(VARIABLE, "topstat", "topstat", "topstat", &mut script).map_err(Error::Output)?;
    if shell.name() == "zsh" {
        script.extend_from_slice(ZSH);
    }
    console.write(&script).map_err(Error::Output)?;
    Ok(Exit::Done)
}

/// Writes completions, if a shell asks for them. Returns whether one did: the program ends then.
///
/// # Errors
///
/// The shell is none of those that are supported, or its input is closed; the error says so.
pub fn answer() -> Result<bool, String> {
    let directory = std::env::current_dir().ok();
    let env = CompleteEnv::with_factory(Args::command).var(VARIABLE);
    env.try_complete(std::env::args_os(), directory.as_deref()).map_err(|error| error.to_string())
}
