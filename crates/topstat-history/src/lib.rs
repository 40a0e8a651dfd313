// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was at the top: records of tables, written as they come, sealed hour by hour, and read back.
//!
//! | module | what it knows |
//! |---|---|
//! | [`dir`] | the directory of a history, held open, and the files below it |
//! | [`layout`] | where files are, and what their names say |
//! | [`limits`] | the most that a reader accepts |
//! | [`log`](crate::log) | JSON lines in zstd: what is being written; a file that was cut off anywhere loses nothing that was flushed |
//! | [`entry`] | what a line says: a snapshot, or that there is none (a gap) |
//! | [`sealed`] | an hour in Parquet |
//! | [`writer`] | a table's records on their way to the files |
//! | [`keep`] | how much is kept, and for how long |
//! | [`history`] | reading all of it |
//! | [`outline`] | what all of it comes to over time |
//!
//! # What always holds
//!
//! Every line that was flushed is read back, whatever ended the program, until it is too old or too much; a log is
//! removed only once the file that it was sealed to is on the disk under its name, and a log that could not be read whole is
//! never removed before it is too old: it stays as `.unread`. A time without records is a gap,
//! which is a record, too.

#![warn(missing_docs)]

pub mod dir;
pub mod entry;
pub mod history;
pub mod keep;
pub mod layout;
pub mod limits;
pub mod log;
pub mod outline;
mod salvage;
pub mod sealed;
pub mod writer;

pub use dir::Root;
pub use entry::{Entry, Gap};
pub use history::{Around, Grain, History};
pub use keep::Keep;
pub use layout::{File, Kind, Place};
pub use outline::{Outlines, Peak};
pub use writer::{Table, TableOptions};

use std::io;
use std::path::{Path, PathBuf};

/// What failed, and on which file.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}", .path.display())]
pub struct Error {
    /// What was to be done: "read", "write".
    pub what: &'static str,
    /// On what.
    pub path: PathBuf,
    /// The answer.
    pub source: io::Error,
}

impl Error {
    /// For `map_err`.
    pub fn of(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { what, path, source }
    }

    /// Whether it is the room on a disk that is missing.
    pub fn no_room(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}
