// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat daemon`: the process that loads, pins and serves.

use crate::args::DaemonArgs;
use crate::backend::Backend;
use crate::daemon;
use crate::error::{Error, Exit};

pub fn run(args: &DaemonArgs, backend: &mut dyn Backend) -> Result<Exit, Error> {
    let settings = daemon::Settings {
        mount: args.mount.clone(),
        pins: args.pins.clone(),
        pid_file: args.pid_file.clone(),
        unload: args.unload,
        group: None,
    };
    daemon::run(&settings, backend)?;
    Ok(Exit::Done)
}
