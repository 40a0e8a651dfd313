// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lines in zstd, written so that a file that is cut off anywhere loses nothing that was flushed.
//!
//! A log is a sequence of zstd frames (RFC 8878), so `zstdcat` reads it. Each line is flushed: its blocks are complete in
//! the file when [`Writer::append`] returns. Each frame is ended and brought to the disk by [`Writer::sync`].
//!
//! A program that is killed, or a disk that is full, leaves the last frame open, and maybe a part of a block after it.
//! [`Writer::open`] closes it before a new one begins: it cuts off what is behind the last line that is whole, and
//! appends an empty block that is marked as the last. Frames have no checksum, so that this is possible without
//! compressing anything anew. Nothing that a reader could have read is cut off.

use std::fs;
use std::io::{self, Read, Seek};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use zstd::stream::raw::{CParameter, DParameter, Decoder, Encoder, InBuffer, Operation, OutBuffer};

/// How hard it compresses: 1 is zstd's fastest ordinary level. Documents of the same table are so much alike that more
/// gains little, and costs CPU each second.
const LEVEL: i32 = 1;
/// What a document is compared with: the last 2^18 bytes, at least one document of 1024 rows before it. What an encoder
/// needs grows with it, and there are two for each table.
const WINDOW_LOG: u32 = 18;
/// The largest window that is read: 8 MiB, as zstd itself has it by default for streams.
const WINDOW_LOG_MAX: u32 = 23;
/// An empty raw block that is marked as the last of its frame.
const LAST_BLOCK: [u8; 3] = [1, 0, 0];
/// What is taken from an encoder or decoder at once.
const CHUNK: usize = 1 << 16;

/// Appends lines to a log.
pub struct Writer {
    file: fs::File,
    path: PathBuf,
    encoder: Encoder<'static>,
    /// Where the next block goes.
    length: u64,
    /// A frame has begun, and is not ended.
    open: bool,
    buffer: Vec<u8>,
}

impl Writer {
    /// Opens a log, or makes one. What a killed program has left open in it is closed.
    ///
    /// # Errors
    ///
    /// Those of the file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = fs::File::options();
        let mut file = options.read(true).write(true).create(true).truncate(false).mode(0o640).open(path)?;
        let length = mend(&mut file)?;
        let mut encoder = Encoder::new(LEVEL)?;
        encoder.set_parameter(CParameter::WindowLog(WINDOW_LOG))?;
        encoder.set_parameter(CParameter::ChecksumFlag(false))?;
        Ok(Self { file, path: path.to_owned(), encoder, length, open: false, buffer: Vec::new() })
    }

    /// Which file it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its bytes so far.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Appends a line, which must end with a newline. Once this returns it is read back, whatever ends this program.
    ///
    /// # Errors
    ///
    /// Those of the file. The log must be opened anew after one: what was written of the line is then cut off.
    pub fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if !self.open {
            self.encoder.reinit()?;
            self.open = true;
        }
        let mut input = InBuffer::around(line);
        while input.pos() < line.len() {
            take(&mut self.buffer, |output| self.encoder.run(&mut input, output))?;
        }
        while take(&mut self.buffer, |output| self.encoder.flush(output))? > 0 {}
        self.write()
    }

    /// Ends the frame, and has the disk keep all that was appended, also when the host loses its power.
    ///
    /// # Errors
    ///
    /// As [`Writer::append`].
    pub fn sync(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.open) {
            return Ok(());
        }
        while take(&mut self.buffer, |output| self.encoder.finish(output, true))? > 0 {}
        self.write()?;
        self.file.sync_data()
    }

    fn write(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buffer, self.length)?;
        self.length += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// Appends what a step gives to `buffer`, and returns what the step says.
fn take(buffer: &mut Vec<u8>, step: impl FnOnce(&mut OutBuffer<'_, [u8]>) -> io::Result<usize>) -> io::Result<usize> {
    let begin = buffer.len();
    buffer.resize(begin + CHUNK, 0);
    let mut output = OutBuffer::around(&mut buffer[begin..]);
    let said = step(&mut output);
    let end = begin + output.pos();
    buffer.truncate(end);
    said
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

/// Where the frames of a log end, as far as their headers tell.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ends {
    /// The end of the last frame that is whole.
    whole: u64,
    /// Of the frame after it: the ends of its header, and of each of its blocks that are whole.
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
                // A block of one repeated byte has one byte, whatever it becomes; 3 is no kind.
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

    /// Reads the header of a frame, and says whether the frame has a checksum; `None` where there is no whole one.
    fn header(&mut self, input: &mut impl Read) -> io::Result<Option<bool>> {
        const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();
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

    /// The end of the last block of the open frame after which a line ends; `None` where there is none.
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

/// The next bytes, if there are as many.
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

/// Appends what these bytes decode to.
fn decode(decoder: &mut Decoder<'_>, bytes: &[u8], output: &mut Vec<u8>) -> io::Result<()> {
    let mut input = InBuffer::around(bytes);
    loop {
        let (before, consumed) = (output.len(), input.pos());
        take(output, |output| decoder.run(&mut input, output))?;
        let full = output.len() - before == CHUNK;
        if !full && (input.pos() == bytes.len() || input.pos() == consumed) {
            return Ok(());
        }
    }
}

/// Calls `each` with each whole line of a log, without its newline, until `each` says that it has enough. A log that is
/// cut off ends where it is cut off; so does one that is damaged.
///
/// # Errors
///
/// Those of the file.
pub fn lines(path: &Path, mut each: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
    let mut file = fs::File::open(path)?;
    let mut decoder = decoder()?;
    let (mut chunk, mut text) = (vec![0; CHUNK], Vec::new());
    loop {
        let read = file.read(&mut chunk)?;
        // What was decoded before a fault is good: the fault ends the log.
        let fault = read == 0 || decode(&mut decoder, &chunk[..read], &mut text).is_err();
        let mut begin = 0;
        while let Some(length) = text[begin..].iter().position(|byte| *byte == b'\n') {
            let line = &text[begin..begin + length];
            begin += length + 1;
            if !line.is_empty() && !each(line) {
                return Ok(());
            }
        }
        text.drain(..begin);
        if fault {
            return Ok(());
        }
    }
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

    fn read(path: &Path) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        lines(path, |line| {
            all.push([line, b"\n"].concat());
            true
        })
        .unwrap();
        all
    }

    #[test]
    fn cut_off_at_every_byte_it_loses_nothing_that_was_flushed() {
        let scratch = Scratch::new("cut");
        let (whole, cut) = (scratch.0.join("whole"), scratch.0.join("cut"));
        let mut writer = Writer::open(&whole).unwrap();
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
        // The long line makes the file long: away from where lines end, not each byte is tried.
        let near = |length: usize| flushed.iter().any(|end| (*end as usize).abs_diff(length) < 40);
        for length in (0..=bytes.len()).filter(|length| near(*length) || length % 509 == 0) {
            fs::write(&cut, &bytes[..length]).unwrap();
            let certain = flushed.iter().rposition(|end| *end as usize <= length).unwrap();
            let before = read(&cut);
            assert!(before.len() >= certain && all.starts_with(&before), "{length}: {} of {certain}", before.len());
            // And it goes on.
            let mut writer = Writer::open(&cut).unwrap();
            writer.append(b"{\"n\":99}\n").unwrap();
            writer.append(b"{\"n\":100}\n").unwrap();
            drop(writer);
            let after = read(&cut);
            let (old, new) = after.split_at(after.len() - 2);
            assert_eq!(new, [b"{\"n\":99}\n".to_vec(), b"{\"n\":100}\n".to_vec()], "{length}");
            assert!(old.len() >= certain && all.starts_with(old), "{length}: {} of {certain}", old.len());
            // What every tool makes of it, the frame that is open now apart.
            let mut writer = Writer::open(&cut).unwrap();
            writer.sync().unwrap();
            let text = zstd::stream::decode_all(&fs::read(&cut).unwrap()[..]).unwrap();
            assert_eq!(text, after.concat(), "{length}");
        }
    }

    #[test]
    fn what_is_behind_a_power_failure_is_cut_off() {
        let scratch = Scratch::new("power");
        let path = scratch.0.join("log");
        let mut writer = Writer::open(&path).unwrap();
        (0..3).for_each(|number| writer.append(&line(number)).unwrap());
        writer.sync().unwrap();
        let length = writer.length();
        for garbage in [vec![0; 4096], vec![0xff; 100], b"\x28\xb5\x2f\xfd\x00".to_vec(), b"PAR1".to_vec()] {
            fs::File::options().write(true).open(&path).unwrap().write_all_at(&garbage, length).unwrap();
            assert_eq!(read(&path).len(), 3);
            assert_eq!(Writer::open(&path).unwrap().length(), length);
            assert_eq!(read(&path).len(), 3);
        }
    }

    #[test]
    fn a_log_is_read_while_it_is_written() {
        let scratch = Scratch::new("both");
        let path = scratch.0.join("log");
        let mut writer = Writer::open(&path).unwrap();
        for number in 0..40 {
            writer.append(&line(number)).unwrap();
            assert_eq!(read(&path).len(), number as usize + 1);
        }
    }
}
