// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The errors of the program, and the one place that turns them into text and an exit code.

use std::error::Error as _;
use std::io;
use std::process::ExitCode;

use crate::config;
use crate::console::Console;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// All is done, and the output is whole. A reader that went away and a Ctrl-C during `top` are no failures.
    Done = 0,
    /// Something failed, or a check found something missing.
    Failed = 1,
    /// The command line is wrong: nothing was begun.
    Usage = 2,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line does not parse. Or it asks for help: then this is the help text.
    #[error(transparent)]
    Parse(#[from] clap::Error),
    /// The command line parses but makes no sense.
    #[error("{0}")]
    Usage(String),
    /// A sample could not be loaded or read.
    #[error(transparent)]
    Sample(#[from] topstat_kernel::Error),
    /// The daemon's configuration is wrong.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The daemon cannot run, or a daemon is needed and does not run.
    #[error("{0}")]
    Daemon(String),
    /// A recording can't be begun, or can't be read.
    #[error("{0}")]
    Recording(String),
    /// A file of the history can't be read or written.
    #[error(transparent)]
    History(#[from] topstat_history::Error),
    /// Nothing can be served.
    #[error(transparent)]
    Serve(#[from] topstat_serve::Error),
    /// The output did not take the data.
    #[error("cannot write the output")]
    Output(#[source] io::Error),
    /// An experiment could not be made, or its results can't be used.
    #[error("{0}")]
    Lab(String),
    /// A requested file can't be written.
    #[error("cannot write {}: {why}", path.display())]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// The system's error.
        why: String,
    },
    /// The program was asked to end while it waited for a tree.
    #[error("it was asked to end")]
    Stopped,
    /// The system refused an action.
    #[error("cannot {what}")]
    System {
        /// The refused action.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl From<topstat_lab::Error> for Error {
    fn from(error: topstat_lab::Error) -> Self {
        match error {
            topstat_lab::Error::Usage(why) => Self::Usage(why),
            topstat_lab::Error::Lab(why) => Self::Lab(why),
            topstat_lab::Error::File { path, why } => Self::File { path, why },
        }
    }
}

impl Error {
    /// How the program ends after this.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Parse(error) if !error.use_stderr() => Exit::Done,
            // A service manager tries again after this exit code, but not after wrong usage.
            Self::Config(config::Error::Read { source, .. }) if passes(source) => Exit::Failed,
            Self::Parse(_) | Self::Usage(_) | Self::Config(_) => Exit::Usage,
            Self::Sample(topstat_kernel::Error::Option(_)) | Self::Serve(topstat_serve::Error::Wrong(_)) => Exit::Usage,
            Self::Stopped => Exit::Done,
            Self::Output(error) => match error.kind() {
                // The output has no reader any more, or the user wants the program to end, and the output is whole. Both are
                // normal ends. (If the output is cut off, the error is another one.)
                io::ErrorKind::BrokenPipe | io::ErrorKind::Interrupted => Exit::Done,
                _ => Exit::Failed,
            },
            Self::Sample(_)
            | Self::Daemon(_)
            | Self::Recording(_)
            | Self::History(_)
            | Self::Serve(_)
            | Self::Lab(_)
            | Self::File { .. }
            | Self::System { .. } => Exit::Failed,
        }
    }

    /// The error and its causes, in one line.
    fn chain(&self) -> String {
        let mut chain = self.to_string();
        let mut source = self.source();
        while let Some(error) = source {
            chain = format!("{chain}: {error}");
            source = error.source();
        }
        chain
    }
}

/// Whether the host lacks a resource now, so that the user has made no mistake.
fn passes(error: &io::Error) -> bool {
    use libc::{EAGAIN, EINTR, EIO, EMFILE, ENFILE, ENOMEM};
    error.raw_os_error().is_some_and(|errno| [EAGAIN, EINTR, EIO, EMFILE, ENFILE, ENOMEM].contains(&errno))
}

/// Turns the result of a command into its exit code, and reports the error.
pub fn conclude(result: Result<Exit, Error>, console: &mut dyn Console) -> Exit {
    let error = match result {
        Ok(exit) => return exit,
        Err(error) => error,
    };
    match (&error, error.exit()) {
        (Error::Parse(help), Exit::Done) => {
            // Only the output can fail here, and its error writes no help.
            let written = write_help(help, console);
            written.map_or_else(|error| conclude(Err(error), console), |()| Exit::Done)
        }
        (_, Exit::Done) => Exit::Done,
        (Error::Parse(wrong), exit) => {
            let text = wrong.render().to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            console.note(&format!("topstat: {}", text.trim_end()));
            exit
        }
        (_, exit) => {
            console.note(&format!("topstat: {}", error.chain()));
            exit
        }
    }
}

fn write_help(help: &clap::Error, console: &mut dyn Console) -> Result<(), Error> {
    let facts = console.facts();
    let text = help.render();
    let text =
        if facts.terminal && !facts.dumb && !facts.no_color { text.ansi().to_string() } else { text.to_string() };
    console.write(text.as_bytes()).map_err(Error::Output)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the unit, systemd does not start the daemon again after exit code 2.
    #[test]
    fn a_configuration_that_cannot_be_read_now_is_no_wrong_one() {
        let of = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            Error::Config(config::Error::Read { file: "x.toml".into(), source }).exit()
        };
        for errno in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EINTR, libc::EIO] {
            assert_eq!(of(errno), Exit::Failed, "{errno}");
        }
        for errno in [libc::ENOENT, libc::EACCES, libc::EISDIR] {
            assert_eq!(of(errno), Exit::Usage, "{errno}");
        }
    }
}
