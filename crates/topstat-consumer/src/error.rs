// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of a stream.

/// The reason why a stream can't be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refuses an operation.
    #[error("cannot {what}: {why}")]
    Kernel {
        /// The operation and its object.
        what: String,
        /// The reason that the kernel, or libbpf, gives.
        why: String,
    },
    /// The maps belong to no stream, or to another version of it.
    #[error("cannot use the stream's map {map}: {why}; remove what is pinned of it, and load it again")]
    Map {
        /// The name of the map.
        map: String,
        /// What is wrong with the map.
        why: String,
    },
    /// Another process has freed records, so that the number of delivered records is unknown.
    #[error(
        "cannot go on at position {position} of the ring buffer: somebody else has read from it since this stream's \
         consumer did; a stream has one consumer. Remove what is pinned of it, and load it again"
    )]
    Foreign {
        /// The ring's consumer position.
        position: u64,
    },
    /// A record that no program of the stream can have made.
    #[error(
        "cannot read the record at position {position} of the ring buffer: it has {bytes} bytes, and there are from \
         {least} to {most}; the program that made it is not one of this stream's"
    )]
    Record {
        /// Where the record begins.
        position: u64,
        /// The length that its head gives.
        bytes: u64,
        /// The shortest possible length.
        least: u64,
        /// The longest possible length.
        most: u64,
    },
    /// An invalid setting.
    #[error("cannot use {value} as the {setting}: {allowed}")]
    Setting {
        /// The name of the setting.
        setting: &'static str,
        /// The value that was given.
        value: String,
        /// The values that are allowed.
        allowed: String,
    },
}

/// Makes the error of an operation that the kernel refuses.
pub(crate) fn kernel(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
    let what = what.into();
    move |e| Error::Kernel { what, why: e.to_string() }
}
