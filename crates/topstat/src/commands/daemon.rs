// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat daemon`: the process that loads, pins and serves.

use crate::args::DaemonArgs;
use crate::console::Console;
use crate::daemon;
use crate::error::{Error, Exit};

pub fn run(args: &DaemonArgs, console: &mut dyn Console) -> Result<Exit, Error> {
    let settings = daemon::Settings { mount: args.mount.clone(), ..daemon::Settings::default() };
    daemon::run(settings, console)?;
    Ok(Exit::Done)
}
