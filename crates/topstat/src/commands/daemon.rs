// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat daemon`: the process that loads programs, pins them, and serves the tree.

use crate::args::DaemonArgs;
use crate::backend::Backend;
use crate::config::{self, Origin};
use crate::console::Console;
use crate::daemon::{self, Settings, logging};
use crate::error::{Error, Exit};

pub fn run(args: &DaemonArgs, backend: &mut dyn Backend, console: &mut dyn Console) -> Result<Exit, Error> {
    let origin = Origin {
        file: args.config.clone(),
        mount: args.mount.clone(),
        pins: args.pins.clone(),
        log_level: args.log_level,
        overhead_budget: args.overhead_budget,
    };
    let (config, file) = origin.read()?;
    if args.check_config {
        let checked = match file {
            Some(file) => format!("{}: nothing is wrong\n", file.display()),
            None => format!("{} is not there: everything is as by default\n", config::DEFAULT_FILE),
        };
        console.write(checked.as_bytes()).map_err(Error::Output)?;
        return Ok(Exit::Done);
    }
    logging::begin(config.log_level.unwrap_or_default());
    if let Some(file) = file {
        log::info!("configuration: {}", file.display());
    }
    let default = Settings::default();
    let settings = Settings {
        mount: config.mount.clone().unwrap_or(default.mount),
        pins: config.pins.clone().unwrap_or(default.pins),
        pid_file: args.pid_file.clone(),
        unload: args.unload,
        group: config.group,
        config,
        origin,
    };
    daemon::run(&settings, backend)?;
    Ok(Exit::Done)
}
