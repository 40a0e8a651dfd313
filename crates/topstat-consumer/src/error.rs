// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong with a stream.

/// Why a stream can't be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refuses something.
    #[error("cannot {what}: {why}")]
    Kernel {
        /// What was tried, and on what.
        what: String,
        /// What the kernel, or libbpf, says.
        why: String,
    },
    /// The maps are not those of a stream, or of another version of it.
    #[error("cannot use the stream's map {map}: {why}; remove what is pinned of it, and load it again")]
    Map {
        /// Its name.
        map: String,
        /// What is wrong with it.
        why: String,
    },
    /// Somebody else has freed records, so that nobody can say how many were delivered.
    #[error(
        "cannot go on at position {position} of the ring buffer: somebody else has read from it since this stream's \
         consumer did; a stream has one consumer. Remove what is pinned of it, and load it again"
    )]
    Foreign {
        /// The ring's consumer position.
        position: u64,
    },
    /// A record that no program of ours can have made.
    #[error(
        "cannot read the record at position {position} of the ring buffer: it has {bytes} bytes, and there are from \
         {least} to {most}; the program that made it is not one of this stream's"
    )]
    Record {
        /// Where it begins.
        position: u64,
        /// The length it is said to have.
        bytes: u64,
        /// The shortest there is.
        least: u64,
        /// The longest that there can be.
        most: u64,
    },
    /// A setting that can't be.
    #[error("cannot use {value} as the {setting}: {allowed}")]
    Setting {
        /// Which one.
        setting: &'static str,
        /// What it was to be.
        value: String,
        /// What it may be.
        allowed: String,
    },
}

/// For what the kernel refuses.
pub(crate) fn kernel(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
    let what = what.into();
    move |e| Error::Kernel { what, why: e.to_string() }
}
