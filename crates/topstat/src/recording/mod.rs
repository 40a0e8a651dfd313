// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recordings of events: JSON lines in frames of zstd, so that `zstdcat FILE | jq` reads them, too.
//!
//! - F1 A file is frames, one after the other, and nothing else. Each frame ends at the end of a line, and has zstd's
//!   checksum of its content. The first line of the file is a header: see [`topstat_model::events::record`].
//! - F2 A frame is written by one write, at the latest a second after its first event. So whoever is killed loses what came
//!   within that second; what is left of a frame that was not written whole is told from a whole one.
//! - F3 A reader shows the lines of a frame once all of it was found to be whole. It ends at the first frame that is not, and
//!   says where that is.

mod read;
mod write;

#[cfg(test)]
use read::Damage;
pub use read::{Reading, open};
pub use write::{Limits, Recorder};

/// Bytes of lines in a frame, from which on it is written. Larger ones are hardly shorter when compressed.
const FRAME_BYTES: usize = 1 << 20;
/// No frame has more bytes of lines: they are read at once, as a line of a history is.
const MOST_FRAME_BYTES: u64 = topstat_history::limits::MOST_LINE_BYTES as u64;

#[cfg(test)]
mod tests;
