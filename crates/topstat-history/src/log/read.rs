// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a log, as far as it is whole.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use super::{CHUNK, LAST_BLOCK, MAGIC, decoder};
use crate::limits::{MOST_FRAME_BYTES, MOST_LINE_BYTES, MOST_LOG_BYTES};

/// A place where a log could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("damaged in the frame at byte {at}: {why}")]
pub struct Fault {
    /// Where the frame begins.
    pub at: u64,
    /// The damage.
    pub why: String,
}

/// A part of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// A line, without its newline.
    Line(&'a [u8]),
    /// Lines may be missing here.
    Fault(Fault),
}

/// Calls `each` with each whole line of a log, without its newline, until `each` says that it has enough.
///
/// # Errors
///
/// I/O errors of the file.
pub fn lines(file: &fs::File, mut each: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
    read(file, &mut |part| match part {
        Part::Line(line) => each(line),
        Part::Fault(_) => true,
    })
}

/// Calls `each` with each part of a log, until `each` says that it has enough. An end that was cut off, or that a power
/// failure has filled with zeros, is no fault. Memory is bounded by [`MOST_LINE_BYTES`], whatever the file decodes to.
///
/// # Errors
///
/// I/O errors of the file.
pub fn read(file: &fs::File, each: &mut dyn FnMut(Part<'_>) -> bool) -> io::Result<()> {
    let mut reader = Reader {
        file,
        // Another process may append.
        length: file.metadata()?.len(),
        decoder: decoder()?,
        output: vec![0; CHUNK],
        text: Vec::new(),
        decoded: 0,
    };
    let (mut at, mut told) = (0, false);
    loop {
        match reader.frame(at, &mut |line| {
            told = false;
            each(Part::Line(line))
        })? {
            End::Whole(next) if reader.text.is_empty() => at = next,
            End::Whole(next) => {
                reader.text.clear();
                if !each(Part::Fault(Fault { at, why: "it ends in the middle of a line".to_owned() })) {
                    return Ok(());
                }
                at = next;
            }
            End::Cut | End::Enough => return Ok(()),
            End::Fault(why) => {
                reader.text.clear();
                // All faults until the next line count as one.
                if !std::mem::replace(&mut told, true) {
                    if reader.is_zero(at)? {
                        return Ok(());
                    }
                    if !each(Part::Fault(Fault { at, why })) {
                        return Ok(());
                    }
                }
                match reader.next_frame(at + 1)? {
                    Some(next) if reader.decoded <= MOST_LOG_BYTES => at = next,
                    _ => return Ok(()),
                }
            }
        }
    }
}

/// How a frame ended.
enum End {
    /// It is complete; the next frame begins here.
    Whole(u64),
    /// The file ends in it.
    Cut,
    /// It can't be read any further.
    Fault(String),
    /// No more lines are wanted.
    Enough,
}

struct Reader<'f> {
    file: &'f fs::File,
    length: u64,
    decoder: Decoder<'static>,
    output: Vec<u8>,
    /// The beginning of a line.
    text: Vec<u8>,
    /// Bytes of lines so far.
    decoded: u64,
}

impl Reader<'_> {
    fn frame(&mut self, begin: u64, each: &mut dyn FnMut(&[u8]) -> bool) -> io::Result<End> {
        self.decoder.reinit()?;
        let mut input = Input::at(begin);
        // zstd gives no output of several blocks at once if one of them is damaged, so it gets one block at a time. It reports
        // the bytes of the next block and of the header after that: the header is held back.
        let (mut wanted, mut decoded) = (MAGIC.len() + 1, 0);
        loop {
            let bytes = input.next(self.file, self.length, wanted)?;
            let (cut, count) = (bytes.is_empty(), bytes.len());
            let mut block = InBuffer::around(bytes);
            loop {
                let mut output = OutBuffer::around(&mut self.output[..]);
                let ran = self.decoder.run(&mut block, &mut output);
                let got = output.pos();
                decoded += got as u64;
                self.decoded += got as u64;
                if !lines_of(&mut self.text, &self.output[..got], each) {
                    return Ok(End::Enough);
                }
                if self.text.len() > MOST_LINE_BYTES {
                    return Ok(End::Fault(format!("a line has more than {MOST_LINE_BYTES} bytes")));
                }
                if decoded > MOST_FRAME_BYTES {
                    return Ok(End::Fault(format!("its lines have more than {MOST_FRAME_BYTES} bytes")));
                }
                if self.decoded > MOST_LOG_BYTES {
                    return Ok(End::Fault(format!("the log has more than {MOST_LOG_BYTES} bytes of lines")));
                }
                match ran {
                    Err(error) => return Ok(End::Fault(error.to_string())),
                    Ok(0) => {
                        let rest = count - block.pos();
                        return Ok(End::Whole(input.at - rest as u64));
                    }
                    Ok(next) => wanted = if next > LAST_BLOCK.len() { next - LAST_BLOCK.len() } else { next },
                }
                if block.pos() == count && got < CHUNK {
                    break;
                }
            }
            if cut {
                return Ok(End::Cut);
            }
        }
    }

    /// Whether there are only zeros from here on: a file's length may be on the disk before its content is.
    fn is_zero(&self, at: u64) -> io::Result<bool> {
        let mut input = Input::at(at);
        loop {
            let bytes = input.next(self.file, self.length, CHUNK)?;
            if bytes.is_empty() || bytes.iter().any(|byte| *byte != 0) {
                return Ok(bytes.is_empty());
            }
        }
    }

    /// Where the next frame begins, or bytes that look like its beginning.
    fn next_frame(&self, from: u64) -> io::Result<Option<u64>> {
        let (mut at, mut bytes) = (from, vec![0; CHUNK]);
        while at < self.length {
            let read = read_some(self.file, &mut bytes, at)?;
            if let Some(found) = bytes[..read].windows(MAGIC.len()).position(|four| four == MAGIC) {
                return Ok(Some(at + found as u64));
            }
            if read < MAGIC.len() {
                return Ok(None);
            }
            // The first bytes of a frame may begin in this chunk and end in the next.
            at += (read - (MAGIC.len() - 1)) as u64;
        }
        Ok(None)
    }
}

/// Bytes of a file, a few at a time.
struct Input {
    /// The position behind the bytes that were given last.
    at: u64,
    chunk: Vec<u8>,
    given: usize,
}

impl Input {
    fn at(at: u64) -> Self {
        Self { at, chunk: Vec::new(), given: 0 }
    }

    /// At most `most` of the next bytes; no bytes at the end of the file.
    fn next(&mut self, file: &fs::File, length: u64, most: usize) -> io::Result<&[u8]> {
        if self.given == self.chunk.len() {
            self.chunk.resize(CHUNK.min(usize::try_from(length.saturating_sub(self.at)).unwrap_or(CHUNK)), 0);
            let read = read_some(file, &mut self.chunk, self.at)?;
            self.chunk.truncate(read);
            self.given = 0;
        }
        let begin = self.given;
        self.given = (begin + most.max(1)).min(self.chunk.len());
        self.at += (self.given - begin) as u64;
        Ok(&self.chunk[begin..self.given])
    }
}

fn read_some(file: &fs::File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    loop {
        match file.read_at(bytes, at) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Calls `each` with the lines that end in `more`. `text` has the beginning of the first line, and afterwards the beginning of
/// the next line.
fn lines_of(text: &mut Vec<u8>, mut more: &[u8], each: &mut dyn FnMut(&[u8]) -> bool) -> bool {
    while let Some(end) = more.iter().position(|byte| *byte == b'\n') {
        let (line, rest) = (&more[..end], &more[end + 1..]);
        more = rest;
        let enough = if text.is_empty() {
            !line.is_empty() && !each(line)
        } else {
            text.extend_from_slice(line);
            let enough = !each(text);
            text.clear();
            enough
        };
        if enough {
            return false;
        }
    }
    text.extend_from_slice(more);
    true
}
