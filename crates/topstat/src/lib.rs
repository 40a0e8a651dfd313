// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line of topstat.
//!
//! What a command needs of the world outside comes through two traits, so that all of it is tested without a kernel,
//! without privileges and without waiting: a [`Backend`] gives sources of snapshots, a [`Console`] takes what is
//! written and says when to go on. The program is [`run`] with the real two: [`Kernel`] and [`SystemConsole`].
//!
//! A command line passes two types. What was parsed ([`Args`]) knows only syntax; what is validated (the plan of a
//! command) has its names resolved and its numbers in range, and is all that a command sees.

#![warn(missing_docs)]

mod args;
mod aside;
mod backend;
mod commands;
mod config;
mod console;
mod daemon;
mod error;
mod files;
mod frame;
mod instant;
mod lab;
mod lock;
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

/// What tests/fuzz gives bytes to, and compares with.
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
pub use backend::{Account, Backend, Counting, Distributing, Kernel, Profiling, Stream};
pub use console::{Console, Facts, Size, Wake};
pub use error::{Error, Exit};
pub use system::SystemConsole;

/// Runs a command line, the program's name first, and says how it ended. What went wrong is already written.
pub fn run(line: impl IntoIterator<Item = OsString>, backend: &mut dyn Backend, console: &mut dyn Console) -> Exit {
    let result = Args::parse_line(line).and_then(|args| commands::dispatch(&args, backend, console));
    error::conclude(result, console)
}
