// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recordings of events: JSON lines in frames of zstd, so that `zstdcat FILE | jq` reads them, too.
//!
//! - RF1 A file consists of frames, one after the other, and nothing else. Each frame ends at the end of a line, and has zstd's
//!   checksum of its content. The first line of the file is a header: see [`topstat_model::events::record`].
//! - RF2 A single write writes a frame, at the latest a second after its first event. So a recorder that is killed loses only the
//!   events of that second. A reader can tell a frame that was not written whole from a whole frame.
//! - RF3 A reader shows the lines of a frame once it has found the frame to be whole. It ends at the first frame that is not
//!   whole, and reports the place of that frame.

mod read;
mod write;

#[cfg(test)]
use read::Damage;
pub use read::{Reading, open};
pub use write::{Limits, Recorder};

/// A frame is written once its lines have this many bytes. Larger frames hardly compress better.
const FRAME_BYTES: usize = 1 << 20;
/// The most bytes of lines in a frame: a frame is read at once, like a line of a history.
const MOST_FRAME_BYTES: u64 = topstat_history::limits::MOST_LINE_BYTES as u64;

#[cfg(test)]
mod tests;
