// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line of topstat.
//!
//! A command reaches the outside world only through two traits. A [`Backend`] gives sources of snapshots. A [`Console`] takes the
//! output, and says when to go on. So all commands are tested without a kernel, without privileges and without waiting. The
//! program is [`run`] with the two real implementations: [`Kernel`] and [`SystemConsole`].
//!
//! A command line passes through two types. The parsed one ([`Args`]) knows only syntax. The validated one (the plan of a
//! command) has resolved names and numbers in range. A command sees only the plan.

#![warn(missing_docs)]

mod args;
mod aside;
mod backend;
mod commands;
mod complete;
mod config;
mod console;
mod custom;
mod daemon;
mod document;
mod error;
mod files;
mod frame;
mod instant;
mod library;
mod lock;
pub mod names;
mod output;
mod progress;
mod recording;
mod resolve;
mod shared;
mod style;
mod suggest;
mod system;
mod time;
mod view;

/// The modules that tests/fuzz feeds with bytes, and compares with.
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz {
    pub use crate::config::{Config, Error as ConfigError, TableConfig};
    pub use crate::daemon::pulse::Pulse;
    pub use crate::daemon::tree;
    pub use crate::daemon::workers::Workers;
}

use std::ffi::OsString;

pub use args::Args;
pub use backend::{Account, Backend, Kernel, Reads, Stream};
pub use commands::completions::answer as answer_shell;
pub use console::{Console, Facts, Size, Wake};
pub use error::{Error, Exit};
pub use system::SystemConsole;

/// Runs a command line, which begins with the program's name, and returns how it ended. Errors are already written.
pub fn run(line: impl IntoIterator<Item = OsString>, backend: &mut dyn Backend, console: &mut dyn Console) -> Exit {
    let result = Args::parse_line(line).and_then(|args| commands::dispatch(&args, backend, console));
    error::conclude(result, console)
}
