// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A history of the top of tables: records are written as they come, sealed hour by hour, and read back.
//!
//! | module | content |
//! |---|---|
//! | [`dir`] | the directory of a history, held open, and the files below it |
//! | [`layout`] | where files are, and the meaning of their names |
//! | [`limits`] | the most that a reader accepts |
//! | [`log`] | JSON lines in zstd, as they are written; a file that is cut off anywhere keeps all flushed lines |
//! | [`entry`] | a line: a snapshot or a gap |
//! | [`sealed`] | an hour in Parquet |
//! | [`private`] | the columns of sealed files that are hidden |
//! | [`writer`] | a table's records on their way to the files |
//! | [`keep`] | how much is kept, and for how long |
//! | [`history`] | reads all records |
//! | [`check`] | what is wrong with the files |
//! | [`outline`] | a summary of all records over time |
//!
//! # Invariants
//!
//! Every line that was flushed is read back, however the program ended, until it is too old or the files take too many bytes. A
//! log is removed only once the file that it was sealed to is on the disk under its name. A log that could not be read whole is
//! never removed before it is too old: it stays as `.unread`. A time without records is a gap, which is a record, too.

#![warn(missing_docs)]

pub mod check;
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
pub use sealed::private::{self, Privacy};
pub use writer::{Table, TableOptions};

use std::io;
use std::path::{Path, PathBuf};

/// The operation that failed, and its file.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}", .path.display())]
pub struct Error {
    /// The operation: "read", "write".
    pub what: &'static str,
    /// The path of the file.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

impl Error {
    /// Makes an error, for `map_err`.
    pub fn of(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { what, path, source }
    }

    /// Whether the cause is a full disk or an exhausted quota.
    pub fn no_room(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}
