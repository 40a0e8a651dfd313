// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Closes a log whose writer has ended in the middle of a frame.

use std::fs;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt as _;

use zstd::stream::raw::{Decoder, InBuffer, Operation as _};

use super::{LAST_BLOCK, MAGIC, decoder, take};

/// Closes the frame that is open at the end of a log, if there is one. Returns the length that the log then has.
pub fn mend(file: &mut fs::File) -> io::Result<u64> {
    let ends = Ends::find(file)?;
    let length = match ends.last_line(file)? {
        None => ends.whole,
        Some(end) => {
            file.set_len(end)?;
            file.write_all_at(&LAST_BLOCK, end)?;
            end + LAST_BLOCK.len() as u64
        }
    };
    file.set_len(length)?;
    Ok(length)
}

/// Where the frames of a log end, by their headers.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ends {
    /// The end of the last complete frame.
    whole: u64,
    /// In the frame after it: the end of its header, and the end of each complete block.
    open: Vec<u64>,
}

impl Ends {
    fn find(file: &mut fs::File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let mut ends = Self::default();
        let mut input = io::BufReader::new(file);
        input.rewind()?;
        while let Some(checksum) = ends.header(&mut input)? {
            loop {
                let Some(block) = some_of::<3>(&mut input)? else { return Ok(ends) };
                let header = u32::from_le_bytes([block[0], block[1], block[2], 0]);
                let (last, kind, size) = (header & 1 == 1, header >> 1 & 3, u64::from(header >> 3));
                // A block of one repeated byte has one byte, whatever it decodes to; kind 3 does not exist.
                let size = if kind == 1 { 1 } else { size };
                let end = ends.open.last().copied().unwrap_or(0) + 3 + size;
                if kind == 3 || end > length {
                    return Ok(ends);
                }
                input.seek_relative(i64::try_from(size).map_err(io::Error::other)?)?;
                ends.open.push(end);
                if last {
                    let checksum = if checksum { 4 } else { 0 };
                    if end + checksum > length {
                        return Ok(ends);
                    }
                    input.seek_relative(i64::try_from(checksum).map_err(io::Error::other)?)?;
                    ends = Self { whole: end + checksum, open: vec![] };
                    break;
                }
            }
        }
        Ok(ends)
    }

    /// Reads the header of a frame, and returns whether the frame has a checksum; `None`: there is no complete header.
    fn header(&mut self, input: &mut impl Read) -> io::Result<Option<bool>> {
        let Some(begin) = some_of::<5>(input)? else { return Ok(None) };
        if begin[..4] != MAGIC {
            return Ok(None);
        }
        let descriptor = begin[4];
        let single = descriptor & 0x20 != 0;
        let content_size = match descriptor >> 6 {
            0 => usize::from(single),
            bits => 1 << bits,
        };
        let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let rest = usize::from(!single) + dictionary + content_size;
        let mut skipped = Vec::new();
        if input.take(rest as u64).read_to_end(&mut skipped)? < rest {
            return Ok(None);
        }
        self.open = vec![self.whole + 5 + rest as u64];
        Ok(Some(descriptor & 4 != 0))
    }

    /// The end of the last block of the open frame after which a line ends; `None`: there is no such block.
    fn last_line(&self, file: &mut fs::File) -> io::Result<Option<u64>> {
        let mut decoder = decoder()?;
        let (mut at, mut found) = (self.whole, None);
        let mut output = Vec::new();
        for end in &self.open {
            let mut block = vec![0; usize::try_from(end - at).map_err(io::Error::other)?];
            file.read_exact_at(&mut block, at)?;
            at = *end;
            output.clear();
            if decode(&mut decoder, &block, &mut output).is_err() {
                break;
            }
            if output.ends_with(b"\n") {
                found = Some(at);
            }
        }
        Ok(found)
    }
}

/// The next `N` bytes; `None`: there are fewer.
fn some_of<const N: usize>(input: &mut impl Read) -> io::Result<Option<[u8; N]>> {
    let mut bytes = [0; N];
    match input.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Appends the decoded bytes.
fn decode(decoder: &mut Decoder<'_>, bytes: &[u8], output: &mut Vec<u8>) -> io::Result<()> {
    let mut input = InBuffer::around(bytes);
    loop {
        let consumed = input.pos();
        take(output, |output| decoder.run(&mut input, output))?;
        let full = output.len() == output.capacity();
        if !full && (input.pos() == bytes.len() || input.pos() == consumed) {
            return Ok(());
        }
    }
}
