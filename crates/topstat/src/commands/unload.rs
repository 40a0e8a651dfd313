// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat unload`: removes all that a daemon has pinned.

use crate::args::UnloadArgs;
use crate::backend::Backend;
use crate::console::Console;
use crate::daemon;
use crate::error::{Error, Exit};

pub fn run(args: &UnloadArgs, backend: &mut dyn Backend, console: &mut dyn Console) -> Result<Exit, Error> {
    let removed = daemon::unload(&args.pins.dir(), &args.pid_file, backend)?;
    let lines: String = removed.iter().map(|path| format!("{}\n", path.display())).collect();
    console.write(lines.as_bytes()).map_err(Error::Output)?;
    if removed.is_empty() {
        console.note(&format!("topstat: nothing is pinned at {}", args.pins.dir().display()));
    }
    Ok(Exit::Done)
}
