// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat record check`.

use std::fmt::Write as _;

use topstat_history::{Root, check};
use topstat_model::rfc3339;
use topstat_model::typeset::escape;

use crate::args::record::RecordCheckArgs;
use crate::console::Console;
use crate::error::{Error, Exit};
use crate::resolve;

pub fn run(args: &RecordCheckArgs, console: &mut dyn Console) -> Result<Exit, Error> {
    let found = check::check(&Root::open(&args.dir)?, &resolve::stored_shape)?;
    let mut text = String::new();
    for (path, fault) in &found.faults {
        let _ = writeln!(text, "{}: {}", escape(&path.to_string_lossy()), escape(&fault.to_string()));
    }
    for (place, gap) in &found.gaps {
        let (from, time) = (rfc3339(gap.from), rfc3339(gap.time));
        let _ = writeln!(text, "{place}: no records from {from} until {time}: {}", escape(&gap.reason));
    }
    let (files, tables) = (found.files, found.tables);
    let _ =
        writeln!(text, "{files} files of {tables} tables: {} faults, {} gaps", found.faults.len(), found.gaps.len());
    console.write(text.as_bytes()).map_err(Error::Output)?;
    Ok(if found.faults.is_empty() { Exit::Done } else { Exit::Failed })
}
