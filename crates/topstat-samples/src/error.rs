// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong, in words that say what failed, on what, why, and what to do.

/// An error of loading or reading a sample.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel or the user lacks something; the text says what, and what to do about it.
    #[error("cannot load sample {sample}: {reason}; {advice}")]
    Unsupported {
        /// The sample that was to be loaded.
        sample: &'static str,
        /// What is missing.
        reason: String,
        /// What to do.
        advice: String,
    },
    /// An option is out of its range.
    #[error("{0}")]
    Option(String),
    /// The kernel refused an operation.
    #[error("cannot {what}: {why}")]
    Kernel {
        /// The operation and its object.
        what: String,
        /// The kernel's answer.
        why: String,
    },
    /// The table is not among those that were loaded.
    #[error("table {0} is not loaded")]
    NotLoaded(String),
}
