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

use std::fs;
use std::io::{self, Read, Seek};
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use zstd::stream::raw::{CParameter, DParameter, Decoder, Encoder, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe::compress_bound;

use crate::limits::{FRAME_BYTES, MOST_FRAME_BYTES, MOST_LINE_BYTES, MOST_LOG_BYTES};

/// The compression level: 1 is zstd's fastest ordinary level. Documents of one table are so similar that a higher level gains
/// little, and costs CPU time each second.
const LEVEL: i32 = 1;
/// The window: a document is compared with the last 2^n bytes, two documents at least if none has more than 512 rows. An encoder
/// takes up to ten times as many bytes, and there are two encoders for each table. So n depends on the length of the lines.
const WINDOW_LOGS: RangeInclusive<u32> = 11..=18;
/// An encoder's hash table has 2^n entries of 4 bytes. More entries than the level has by itself gain nothing.
const MOST_HASH_LOG: u32 = 14;
/// The largest window that is read: 8 MiB, zstd's default for streams.
const WINDOW_LOG_MAX: u32 = 23;
/// An empty raw block that is marked as the last of its frame.
const LAST_BLOCK: [u8; 3] = [1, 0, 0];
/// The first bytes of a frame.
const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();
/// Bytes that are taken from an encoder or decoder at once, where there is no room for them yet.
const CHUNK: usize = 1 << 16;

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

/// Closes the frame that is open at the end of a log, if there is one. Returns the length that the log then has.
fn mend(file: &mut fs::File) -> io::Result<u64> {
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

fn decoder() -> io::Result<Decoder<'static>> {
    let mut decoder = Decoder::new()?;
    decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX))?;
    Ok(decoder)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that is removed at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("topstat-log-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir_all(&dir).unwrap();
            Self(dir)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Lines of different lengths, some longer than a block of zstd may be.
    fn line(number: u32) -> Vec<u8> {
        let filling = ["", "abc", "some longer text that repeats "][number as usize % 3];
        let times = if number % 10 == 9 { 9000 } else { number as usize % 50 };
        let mut random = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let noise: String = (0..times)
            .map(|_| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                format!("{:x}", random >> 40)
            })
            .collect();
        format!("{{\"n\":{number},\"t\":\"{}{noise}\"}}\n", filling.repeat(times)).into_bytes()
    }

    fn open(path: &Path) -> io::Result<Writer> {
        let mut options = fs::File::options();
        Writer::open(options.read(true).write(true).create(true).truncate(false).open(path)?, path)
    }

    fn read(path: &Path) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let add = |line: &[u8]| {
            all.push([line, b"\n"].concat());
            true
        };
        lines(&fs::File::open(path).unwrap(), add).unwrap();
        all
    }

    /// The lines, and the places where some may be missing: before which line, and in the frame at which byte.
    fn read_parts(path: &Path) -> (Vec<Vec<u8>>, Vec<(usize, u64)>) {
        let (mut all, mut faults) = (Vec::new(), Vec::new());
        let mut each = |part: Part<'_>| {
            match part {
                Part::Line(line) => all.push([line, b"\n"].concat()),
                Part::Fault(fault) => faults.push((all.len(), fault.at)),
            }
            true
        };
        super::read(&fs::File::open(path).unwrap(), &mut each).unwrap();
        (all, faults)
    }

    /// Where frames begin.
    fn begins_of(bytes: &[u8]) -> Vec<u64> {
        let four = bytes.windows(MAGIC.len()).enumerate();
        four.filter(|(_, four)| *four == MAGIC).map(|(at, _)| at as u64).collect()
    }

    #[test]
    fn cut_off_at_every_byte_it_loses_nothing_that_was_flushed() {
        let scratch = Scratch::new("cut");
        let (whole, cut) = (scratch.0.join("whole"), scratch.0.join("cut"));
        let mut writer = open(&whole).unwrap();
        // How long the file was when this many lines were flushed.
        let mut flushed = vec![0];
        for number in 0..14 {
            writer.append(&line(number)).unwrap();
            flushed.push(writer.length());
            if number % 4 == 3 {
                writer.sync().unwrap();
            }
        }
        let bytes = fs::read(&whole).unwrap();
        let all: Vec<_> = (0..14).map(line).collect();
        assert_eq!(read(&whole), all);
        // The long line makes the file long: away from the ends of lines, only some lengths are tried.
        let near = |length: usize| flushed.iter().any(|end| (*end as usize).abs_diff(length) < 40);
        for length in (0..=bytes.len()).filter(|length| near(*length) || length % 509 == 0) {
            fs::write(&cut, &bytes[..length]).unwrap();
            let certain = flushed.iter().rposition(|end| *end as usize <= length).unwrap();
            let before = read(&cut);
            assert!(before.len() >= certain && all.starts_with(&before), "{length}: {} of {certain}", before.len());
            // And the log goes on.
            let mut writer = open(&cut).unwrap();
            writer.append(b"{\"n\":99}\n").unwrap();
            writer.append(b"{\"n\":100}\n").unwrap();
            drop(writer);
            let after = read(&cut);
            let (old, new) = after.split_at(after.len() - 2);
            assert_eq!(new, [b"{\"n\":99}\n".to_vec(), b"{\"n\":100}\n".to_vec()], "{length}");
            assert!(old.len() >= certain && all.starts_with(old), "{length}: {} of {certain}", old.len());
            // Every tool reads the same lines, once the open frame has ended.
            let mut writer = open(&cut).unwrap();
            writer.sync().unwrap();
            let text = zstd::stream::decode_all(&fs::read(&cut).unwrap()[..]).unwrap();
            assert_eq!(text, after.concat(), "{length}");
        }
    }

    #[test]
    fn what_is_behind_a_power_failure_is_cut_off() {
        let scratch = Scratch::new("power");
        let path = scratch.0.join("log");
        let mut writer = open(&path).unwrap();
        (0..3).for_each(|number| writer.append(&line(number)).unwrap());
        writer.sync().unwrap();
        let length = writer.length();
        for garbage in [vec![0; 4096], vec![0xff; 100], b"\x28\xb5\x2f\xfd\x00".to_vec(), b"PAR1".to_vec()] {
            fs::File::options().write(true).open(&path).unwrap().write_all_at(&garbage, length).unwrap();
            assert_eq!(read(&path).len(), 3);
            assert_eq!(open(&path).unwrap().length(), length);
            assert_eq!(read(&path).len(), 3);
        }
    }

    #[test]
    fn a_log_is_read_while_it_is_written() {
        let scratch = Scratch::new("both");
        let path = scratch.0.join("log");
        let mut writer = open(&path).unwrap();
        for number in 0..40 {
            writer.append(&line(number)).unwrap();
            assert_eq!(read(&path).len(), number as usize + 1);
        }
    }
    #[test]
    fn every_tool_reads_all_that_was_flushed_at_any_time() {
        let scratch = Scratch::new("whole");
        let path = scratch.0.join("log");
        let mut writer = open(&path).unwrap();
        let mut all = Vec::new();
        for number in 0..40 {
            writer.append(&line(number)).unwrap();
            all.extend(line(number));
            if number % 7 == 6 {
                writer.sync().unwrap();
            }
            // A recorder that is killed here leaves the file as it is.
            let text = zstd::stream::decode_all(&fs::read(&path).unwrap()[..]).unwrap();
            assert!(text == all, "{number}");
        }
    }

    #[test]
    fn damage_costs_no_more_than_the_rest_of_its_frame_and_is_told() {
        let scratch = Scratch::new("damaged");
        let path = scratch.0.join("log");
        let mut writer = open(&path).unwrap();
        let mut ends = vec![];
        for number in 0..40 {
            writer.append(&line(number)).unwrap();
            ends.push(writer.length());
            if number % 8 == 7 {
                writer.sync().unwrap();
            }
        }
        let bytes = fs::read(&path).unwrap();
        let begins = begins_of(&bytes);
        let all: Vec<_> = (0..40).map(line).collect();
        assert_eq!(read_parts(&path), (all.clone(), vec![]));
        let mut faults = 0;
        for at in (0..bytes.len() - 40).filter(|at| at % 37 == 0) {
            let mut damaged = bytes.clone();
            damaged[at..at + 3].iter_mut().for_each(|byte| *byte ^= 0xff);
            fs::write(&path, &damaged).unwrap();
            let (found, told) = read_parts(&path);
            let frame = begins.iter().rposition(|begin| *begin as usize <= at).unwrap();
            // Damage may reach into the next frame by two bytes.
            let last = begins.iter().rposition(|begin| *begin as usize <= at + 2).unwrap();
            for (number, line) in all.iter().enumerate() {
                let before = ends[number] as usize <= at;
                let own = begins.iter().rposition(|begin| *begin < ends[number]).unwrap();
                assert!(!before && (frame..=last).contains(&own) || found.contains(line), "{at}: line {number}");
            }
            // Text that is not compressed may change without a fault.
            faults += told.len();
            assert!(told.iter().all(|(_, begin)| begins[frame..=last].contains(begin)), "{at}: {told:?}");
        }
        assert!(faults > 20, "{faults}");
    }

    /// The most memory that this process has taken so far.
    fn most_memory() -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    /// Two logs of each of 88 tables, with documents of 1 to 8 KB.
    #[test]
    fn the_logs_of_all_tables_take_little_memory() {
        let scratch = Scratch::new("many");
        let before = most_memory();
        let open = |number: usize| open(&scratch.0.join(number.to_string())).unwrap();
        let mut writers: Vec<_> = (0..2 * 88).map(open).collect();
        for record in 0..20 {
            for (number, writer) in writers.iter_mut().enumerate() {
                let rows: String = (0..10 + number % 70).map(|row| format!("{{\"rank\":{row},\"value\":{record},\"comm\":\"a process of this host\",\"cgroup\":\"/system.slice/{}.service\"}},", row * number)).collect();
                writer.append(format!("{{\"rows\":[{rows}]}}\n").as_bytes()).unwrap();
            }
        }
        let took = most_memory() - before;
        assert!(took < 24 << 20, "{took} bytes");
    }

    #[test]
    fn a_line_that_is_longer_than_the_window_begins_a_frame() {
        let scratch = Scratch::new("longer");
        let path = scratch.0.join("log");
        let mut writer = open(&path).unwrap();
        let lines: Vec<_> =
            [10, 100, 9, 100_000, 10, 1_000_000].map(|length| [&vec![b'x'; length][..], b"\n"].concat()).into();
        for line in &lines {
            writer.append(line).unwrap();
        }
        assert_eq!(read(&path), lines);
        let bytes = fs::read(&path).unwrap();
        assert_eq!(zstd::stream::decode_all(&bytes[..]).unwrap(), lines.concat());
        assert_eq!(begins_of(&bytes).len(), 2);
    }

    #[test]
    fn a_bomb_takes_no_memory() {
        let scratch = Scratch::new("bomb");
        let path = scratch.0.join("log");
        let bomb = |letter: u8, bytes: u64| {
            let content = io::Read::take(io::repeat(letter), bytes);
            zstd::stream::encode_all(content, LEVEL).unwrap()
        };
        let before = most_memory();
        // 33 KB that decode to 1 GiB without a line, and as many that decode to empty lines; then a line.
        for letter in [b'x', b'\n'] {
            let mut bytes = bomb(letter, 1 << 30);
            bytes.extend(zstd::stream::encode_all(&b"{\"n\":1}\n"[..], LEVEL).unwrap());
            fs::write(&path, &bytes).unwrap();
            let (found, faults) = read_parts(&path);
            assert_eq!((found, faults), (vec![b"{\"n\":1}\n".to_vec()], vec![(0, 0)]), "{letter}");
        }
        let took = most_memory() - before;
        assert!(took < 64 << 20, "{took} bytes");
    }
}
