// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lines in zstd, written so that a file that is cut off anywhere loses nothing that was flushed.
//!
//! A log is a sequence of zstd frames (RFC 8878), so `zstdcat` reads it. Each line is flushed: its blocks are complete in
//! the file when [`Writer::append`] returns, and an empty block after them ends the frame. The next line is written over that
//! empty block, so that it is compressed together with the lines before it, and the file is whole at all times. Each frame
//! is ended for good and brought to the disk by [`Writer::sync`].
//!
//! A kill in the middle of a write, a power failure or a full disk leaves a part of a block at the end. [`Writer::open`] cuts
//! that off, behind the last line that is whole, and ends the frame. Frames have no checksum, so that this is possible
//! without compressing anything anew. Nothing that a reader could have read is cut off.
//!
//! A frame that is damaged anywhere else is read as far as possible. The reader goes on at the next frame, and reports the place
//! ([`Fault`]).

mod mend;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::io;

use zstd::stream::raw::{DParameter, Decoder, OutBuffer};

pub use read::{Fault, Part, lines, read};
pub use write::Writer;

/// The largest window that is read: 8 MiB, zstd's default for streams.
const WINDOW_LOG_MAX: u32 = 23;
/// An empty raw block that is marked as the last of its frame.
const LAST_BLOCK: [u8; 3] = [1, 0, 0];
/// The first bytes of a frame.
const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();
/// Bytes that are taken from an encoder or decoder at once, where there is no room for them yet.
const CHUNK: usize = 1 << 16;

/// Appends the output of a step to `buffer`, and returns the step's result.
fn take(
    buffer: &mut Vec<u8>,
    step: impl FnOnce(&mut OutBuffer<'_, Vec<u8>>) -> io::Result<usize>,
) -> io::Result<usize> {
    let length = buffer.len();
    if length == buffer.capacity() {
        buffer.reserve(CHUNK);
    }
    step(&mut OutBuffer::around_pos(buffer, length))
}

fn decoder() -> io::Result<Decoder<'static>> {
    let mut decoder = Decoder::new()?;
    decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX))?;
    Ok(decoder)
}
