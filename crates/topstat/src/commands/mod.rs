// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands, one file each.

mod check;
pub mod completions;
mod daemon;
mod doctor;
mod events;
mod fleet;
mod get;
mod lab;
mod live;
mod ls;
mod man;
mod netstack;
mod record;
mod replay;
mod serve;
mod set;
mod snmp;
mod target;
pub mod tasks;
pub mod top;
mod unload;
mod why;

use std::path::PathBuf;

use jiff::tz::TimeZone;

use crate::args::view::ViewArgs;
use crate::args::{Args, Command, TopArgs};
use crate::backend::Backend;
use crate::console::Console;
use crate::custom;
use crate::error::{Error, Exit};

/// Runs the command that the command line names.
pub fn dispatch(args: &Args, backend: &mut dyn Backend, console: &mut dyn Console) -> Result<Exit, Error> {
    // A daemon's tree and records are read elsewhere and later. Their times are in UTC, as earlier versions read them.
    let utc = args.utc
        || matches!(
            args.command,
            Some(Command::Daemon(_) | Command::Record(_) | Command::Serve(_) | Command::Watch(_))
        );
    topstat_model::use_zone(if utc { TimeZone::UTC } else { console.zone() });
    if let Some(pins) = pins(args, console) {
        custom::add_pinned(&pins, backend);
    }
    match &args.command {
        None if console.is_interactive() => live::run(&ViewArgs::default_view(), args.color, backend, console),
        Some(Command::View(view)) => live::run(view, args.color, backend, console),
        None => top::run(&TopArgs::default_view(), args.color, backend, console),
        Some(Command::Top(top)) => top::run(top, args.color, backend, console),
        Some(Command::Tasks(tasks)) => tasks::run(tasks, args.color, backend, console),
        Some(Command::Why(why)) => why::run(why, backend, console),
        Some(Command::Snmp(snmp)) => snmp::run(snmp, args.color, backend, console),
        Some(Command::Events(events)) => events::run(events, backend, console),
        Some(Command::Replay(replay)) => replay::run(replay, console),
        Some(Command::Netstack(netstack)) => netstack::run(netstack, args.color, backend, console),
        Some(Command::Lab(lab)) => lab::run(lab, backend, console),
        Some(Command::Ls(ls)) => ls::run(ls, args.color, backend, console),
        Some(Command::Get(get)) => get::run(get, backend, console),
        Some(Command::Set(set)) => set::run(set, backend),
        Some(Command::Daemon(daemon)) => daemon::run(daemon, backend, console),
        Some(Command::Record(record)) => record::run(record, console),
        Some(Command::Fleet(fleet)) => fleet::run(fleet, console),
        Some(Command::Serve(args)) => serve::serve(args),
        Some(Command::Watch(args)) => serve::watch(args),
        Some(Command::Unload(unload)) => unload::run(unload, backend, console),
        Some(Command::Check(check)) => check::run(check, args.color, backend, console),
        Some(Command::Doctor(doctor)) => doctor::run(doctor, args.color, backend, console),
        Some(Command::Man(man)) => man::run(man, console),
        Some(Command::Completions(shell)) => completions::run(shell, console),
    }
}

/// Where a daemon has pinned its tables, for commands that show or set any of them.
fn pins(args: &Args, console: &dyn Console) -> Option<PathBuf> {
    match &args.command {
        None if console.is_interactive() => Some(ViewArgs::default_view().pins.dir()),
        Some(Command::View(view)) => Some(view.pins.dir()),
        Some(Command::Top(top)) => Some(top.pins.dir()),
        Some(Command::Why(why)) => Some(why.pins.dir()),
        Some(Command::Ls(ls)) => Some(ls.pins.dir()),
        Some(Command::Get(get)) => Some(get.target.pins.dir()),
        Some(Command::Set(set)) => Some(set.target.pins.dir()),
        _ => None,
    }
}
