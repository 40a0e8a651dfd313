// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors. Each says what failed, on what object, why, and what to do.

use std::path::PathBuf;

/// An error of loading or reading a sample.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel or the user lacks a requirement. The text names it, and says what to do.
    #[error("cannot load sample {sample}: {reason}; {advice}")]
    Unsupported {
        /// The sample to load, or all samples of its family.
        sample: String,
        /// The missing requirement.
        reason: String,
        /// Advice for the user.
        advice: String,
    },
    /// The kernel could do it, but is configured not to. The text says how to change that.
    #[error("cannot load sample {sample}: {reason}; {advice}")]
    SwitchedOff {
        /// The sample to load.
        sample: String,
        /// The setting that is off.
        reason: String,
        /// Advice for the user.
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
    /// The kernel has no feature that the programs need.
    #[error("cannot {what}: this kernel has no {lacks}; use a later one")]
    Lacking {
        /// The operation and its object.
        what: String,
        /// The feature: a type of maps.
        lacks: String,
    },
    /// Nothing can be pinned at this path, or the state that is pinned there can't be used.
    #[error("cannot use {} for pinned state: {why}; {advice}", path.display())]
    Pins {
        /// The path.
        path: PathBuf,
        /// What is wrong with the path.
        why: String,
        /// Advice for the user.
        advice: String,
    },
    /// This user may not look at the pinned state.
    #[error("cannot use {} for pinned state: {why}; run as root", path.display())]
    Denied {
        /// The path.
        path: PathBuf,
        /// The system's answer.
        why: String,
    },
    /// The pinned state belongs to a topstat with other structures.
    #[error(
        "cannot use what is pinned in {}: it is of ABI {found}, this topstat is of ABI {own}; use the version \
         that pinned it, or remove it with 'topstat unload', which ends its statistics",
        path.display()
    )]
    OtherAbi {
        /// The path.
        path: PathBuf,
        /// The ABI of the pinned state.
        found: u32,
        /// The ABI of this program.
        own: u32,
    },
    /// The table was not loaded.
    #[error("table {0} is not loaded")]
    NotLoaded(String),
}
