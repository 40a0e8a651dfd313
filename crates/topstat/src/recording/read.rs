// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a recording, up to its end or its first damage.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use topstat_model::events::record::{Header, Line};

use super::MOST_FRAME_BYTES;

/// Why a recording is read no further.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is damaged or cut off at byte {at}: {why}; all before that was read")]
pub struct Damage {
    /// The byte at which the damaged frame begins.
    pub at: u64,
    /// The fault of the frame.
    pub why: String,
}

/// A recording that is being read.
#[derive(Debug)]
pub struct Reading<R: Read> {
    from: Counting<BufReader<R>>,
    /// The header of the recording.
    pub header: Header,
    /// The lines of the last frame, and how many of their bytes were returned.
    frame: Vec<u8>,
    given: usize,
    /// The byte at which that frame begins.
    at: u64,
}

/// Begins to read a file.
///
/// # Errors
///
/// Errors of the file system, or the reason why the file is no recording.
pub fn open(path: &Path) -> io::Result<Reading<File>> {
    Reading::new(File::open(path)?)
}

impl<R: Read> Reading<R> {
    /// Begins to read.
    ///
    /// # Errors
    ///
    /// The reason why the data is no recording.
    pub fn new(from: R) -> io::Result<Self> {
        let mut from = Counting { from: BufReader::new(from), bytes: 0 };
        let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let no = |why: &str| wrong(format!("it is no recording of topstat's events ({why})"));
        let frame = match frame(&mut from) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Err(no("it is empty")),
            Err(why) => return Err(no(&why)),
        };
        let end = frame.iter().position(|byte| *byte == b'\n').ok_or_else(|| no("its first line does not end"))?;
        let first = std::str::from_utf8(&frame[..end]).map_err(|_| no("its first line is no text"))?;
        let header = Header::read(first).map_err(wrong)?;
        Ok(Self { from, header, frame, given: end + 1, at: 0 })
    }

    /// The next line; `None` at the end.
    ///
    /// # Errors
    ///
    /// The damage. Nothing can be read after it.
    pub fn next(&mut self) -> Result<Option<Line>, Damage> {
        while self.given == self.frame.len() {
            self.at = self.from.bytes;
            self.given = 0;
            self.frame.clear();
            match frame(&mut self.from) {
                Ok(Some(frame)) => self.frame = frame,
                Ok(None) => return Ok(None),
                Err(why) => return Err(Damage { at: self.at, why }),
            }
        }
        let rest = &self.frame[self.given..];
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let line = std::str::from_utf8(&rest[..end]).map_err(|_| "a line is no text".to_owned());
        let line = line.and_then(|line| self.header.line(line)).map_err(|why| Damage { at: self.at, why })?;
        self.given += (end + 1).min(rest.len());
        Ok(Some(line))
    }
}

/// The content of the next frame, which must be whole; `None` at the end.
fn frame(from: &mut Counting<impl BufRead>) -> Result<Option<Vec<u8>>, String> {
    if from.fill_buf().map_err(|e| e.to_string())?.is_empty() {
        return Ok(None);
    }
    let mut lines = Vec::new();
    let decoder = zstd::stream::read::Decoder::with_buffer(from).map_err(|e| e.to_string())?.single_frame();
    let read = decoder.take(MOST_FRAME_BYTES + 1).read_to_end(&mut lines);
    match read {
        Ok(bytes) if bytes as u64 > MOST_FRAME_BYTES => Err(format!("a frame has more than {MOST_FRAME_BYTES} bytes")),
        Ok(_) => Ok(Some(lines)),
        Err(e) => Err(e.to_string()),
    }
}

/// Counts the bytes that were read.
#[derive(Debug)]
struct Counting<R> {
    from: R,
    bytes: u64,
}

impl<R: BufRead> Read for Counting<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(to)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Counting<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.from.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.from.consume(bytes);
    }
}
