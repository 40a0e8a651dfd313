// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat fleet compact`.

use std::time::SystemTime;

use topstat_fleet::{Root, compact};

use super::{open, report};
use crate::args::fleet::FleetCompactArgs;
use crate::console::Console;
use crate::error::{Error, Exit};

pub fn run(args: &FleetCompactArgs, console: &mut dyn Console) -> Result<Exit, Error> {
    let roots = open(&args.dirs)?;
    let to = Root::make(&args.to)?;
    let done = compact::run(&roots, &to, SystemTime::now())?;
    let line =
        |file: &compact::Compacted| format!("{}: {} rows of {} hosts\n", file.path.display(), file.rows, file.hosts);
    let text: String = done.written.iter().map(line).collect();
    console.write(text.as_bytes()).map_err(Error::Output)?;
    Ok(report(&done.faults, console))
}
