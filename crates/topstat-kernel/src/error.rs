// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong, in words that say what failed, on what, why, and what to do.

use std::path::PathBuf;

/// An error of loading or reading a sample.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel or the user lacks something; the text says what, and what to do about it.
    #[error("cannot load sample {sample}: {reason}; {advice}")]
    Unsupported {
        /// The sample that was to be loaded, or those of its family.
        sample: String,
        /// What is missing.
        reason: String,
        /// What to do.
        advice: String,
    },
    /// The kernel could do it, but is told not to; the text says how it is told otherwise.
    #[error("cannot load sample {sample}: {reason}; {advice}")]
    SwitchedOff {
        /// The sample that was to be loaded.
        sample: String,
        /// What is off.
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
    /// The kernel has no maps of a type that the programs need.
    #[error("cannot {what}: this kernel has no {lacks}; use a later one")]
    Lacking {
        /// The operation and its object.
        what: String,
        /// The kind of map.
        lacks: String,
    },
    /// Nothing can be pinned there, or what is pinned there can't be used.
    #[error("cannot use {} for pinned state: {why}; {advice}", path.display())]
    Pins {
        /// Where.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// What to do.
        advice: String,
    },
    /// This user may not look at what is pinned there.
    #[error("cannot use {} for pinned state: {why}; run as root", path.display())]
    Denied {
        /// Where.
        path: PathBuf,
        /// The system's answer.
        why: String,
    },
    /// What is pinned is of a topstat whose structures are not this one's.
    #[error(
        "cannot use what is pinned in {}: it is of ABI {found}, this topstat is of ABI {own}; use the version \
         that pinned it, or remove it with 'topstat unload', which ends its statistics",
        path.display()
    )]
    OtherAbi {
        /// Where.
        path: PathBuf,
        /// Its ABI.
        found: u32,
        /// This program's.
        own: u32,
    },
    /// The table is not among those that were loaded.
    #[error("table {0} is not loaded")]
    NotLoaded(String),
}
