// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Appends lines to a log.

use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use zstd::stream::raw::{CParameter, Encoder, InBuffer, Operation};
use zstd::zstd_safe::compress_bound;

use super::mend::mend;
use super::{LAST_BLOCK, take};
use crate::limits::FRAME_BYTES;

/// The compression level: 1 is zstd's fastest ordinary level. Documents of one table are so similar that a higher level gains
/// little, and costs CPU time each second.
const LEVEL: i32 = 1;
/// The window: a document is compared with the last 2^n bytes, two documents at least if none has more than 512 rows. An encoder
/// takes up to ten times as many bytes, and there are two encoders for each table. So n depends on the length of the lines.
const WINDOW_LOGS: RangeInclusive<u32> = 11..=18;
/// An encoder's hash table has 2^n entries of 4 bytes. More entries than the level has by itself gain nothing.
const MOST_HASH_LOG: u32 = 14;

/// Appends lines to a log.
pub struct Writer {
    file: fs::File,
    path: PathBuf,
    encoder: Encoder<'static>,
    /// Where the next block goes. An empty block that ends the frame may follow.
    length: u64,
    /// The bytes of lines in the open frame; `None`: no frame is open.
    open: Option<u64>,
    /// The window of this frame.
    window_log: u32,
}

impl Writer {
    /// Goes on with a log that is open for reading and writing. An incomplete end is cut off. `path` is for messages.
    ///
    /// # Errors
    ///
    /// I/O errors of the file.
    pub fn open(mut file: fs::File, path: &Path) -> io::Result<Self> {
        let length = mend(&mut file)?;
        let mut encoder = Encoder::new(LEVEL)?;
        encoder.set_parameter(CParameter::ChecksumFlag(false))?;
        Ok(Self { file, path: path.to_owned(), encoder, length, open: None, window_log: 0 })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its bytes so far.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Appends lines, which must end with a newline. Once this returns they are read back, whatever ends this program. After
    /// an error none of them is.
    ///
    /// # Errors
    ///
    /// I/O errors of the file. After an error the log must be opened anew.
    pub fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let before = (self.length, self.open);
        let written = self.append_blocks(lines);
        if written.is_err() {
            let (length, open) = before;
            // These bytes were there before: even a full disk takes them.
            let ended = open.map_or(Ok(length), |_| {
                self.file.write_all_at(&LAST_BLOCK, length).map(|()| length + LAST_BLOCK.len() as u64)
            });
            ended.and_then(|end| self.file.set_len(end))?;
        }
        written
    }

    fn append_blocks(&mut self, lines: &[u8]) -> io::Result<()> {
        let window_log = window_log(lines.len());
        if self.open.is_some_and(|bytes| bytes >= FRAME_BYTES || window_log > self.window_log) {
            self.end_frame()?;
        }
        if self.open.is_none() {
            self.begin_frame(window_log)?;
        }
        *self.open.get_or_insert(0) += lines.len() as u64;
        let (mut input, mut blocks) = (InBuffer::around(lines), Vec::with_capacity(compress_bound(lines.len())));
        while input.pos() < lines.len() {
            take(&mut blocks, |output| self.encoder.run(&mut input, output))?;
        }
        while take(&mut blocks, |output| self.encoder.flush(output))? > 0 {}
        let length = blocks.len();
        blocks.extend(LAST_BLOCK);
        self.write(&blocks, length)
    }

    fn begin_frame(&mut self, window_log: u32) -> io::Result<()> {
        self.encoder.reinit()?;
        self.encoder.set_parameter(CParameter::WindowLog(window_log))?;
        self.encoder.set_parameter(CParameter::HashLog(window_log.min(MOST_HASH_LOG)))?;
        self.window_log = window_log;
        Ok(())
    }

    /// Ends the frame, and brings all appended lines to the disk, which keeps them when the host loses its power.
    ///
    /// # Errors
    ///
    /// As [`Writer::append`].
    pub fn sync(&mut self) -> io::Result<()> {
        if self.open.is_none() {
            return Ok(());
        }
        self.end_frame()?;
        self.file.sync_data()
    }

    fn end_frame(&mut self) -> io::Result<()> {
        self.open = None;
        let mut blocks = Vec::new();
        while take(&mut blocks, |output| self.encoder.finish(output, true))? > 0 {}
        self.write(&blocks, blocks.len())
    }

    /// Writes blocks. The next blocks go behind the first `length` bytes of these.
    fn write(&mut self, blocks: &[u8], length: usize) -> io::Result<()> {
        self.file.write_all_at(blocks, self.length)?;
        self.length += length as u64;
        Ok(())
    }
}

/// The window for lines of this length.
fn window_log(length: usize) -> u32 {
    (2 * length).next_power_of_two().ilog2().clamp(*WINDOW_LOGS.start(), *WINDOW_LOGS.end())
}
