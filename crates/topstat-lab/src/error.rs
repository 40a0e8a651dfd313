// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The errors of experiments.

use std::path::PathBuf;

/// Why an experiment could not be made, or its results can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked for makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The experiment, or its results.
    #[error("{0}")]
    Lab(String),
    /// A file can't be written.
    #[error("cannot write {}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        why: String,
    },
}
