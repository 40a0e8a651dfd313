// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes a recording, and begins another file when the present one is long or old enough.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use topstat_model::events::EventKind;
use topstat_model::events::record::Header;

use super::FRAME_BYTES;

/// The longest time from the first line of a frame to its write.
const FLUSH: Duration = Duration::from_secs(1);
/// zstd's default: faster than events come, at a fifth of the size or less.
const LEVEL: i32 = 3;

/// When a file is long or old enough, and how many files are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The next file begins once a file has this many bytes.
    pub bytes: Option<u64>,
    /// The next file begins once a file has this age.
    pub age: Option<Duration>,
    /// How many files before the present one are kept. `FILE.1` is the latest of them.
    pub keep: u32,
}

/// Payloads may be secrets: only the owner may read a recording.
const MODE: u32 = 0o600;

fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(MODE).open(path)
}

/// A recording that is being written.
pub struct Recorder {
    path: PathBuf,
    kinds: Vec<Arc<EventKind>>,
    limits: Limits,
    file: File,
    /// Bytes of whole frames in the file.
    whole: u64,
    begun: Instant,
    /// Lines of the next frame, and when the first of them came.
    lines: Vec<u8>,
    since: Option<Instant>,
}

impl Recorder {
    /// Begins a recording of events of these kinds in a new file.
    ///
    /// # Errors
    ///
    /// Errors of the file system. That the file exists is also an error.
    pub fn create(path: &Path, kinds: Vec<Arc<EventKind>>, limits: Limits, now: Instant) -> io::Result<Self> {
        let file = create(path)?;
        let mut recorder =
            Self { path: path.to_owned(), kinds, limits, file, whole: 0, begun: now, lines: Vec::new(), since: None };
        recorder.begin(now)?;
        Ok(recorder)
    }

    fn begin(&mut self, now: Instant) -> io::Result<()> {
        self.begun = now;
        self.whole = 0;
        Header { begun: SystemTime::now(), kinds: self.kinds.clone() }.write(&mut self.lines)?;
        self.flush()
    }

    /// Appends a line with its newline.
    ///
    /// # Errors
    ///
    /// Errors of the file system. The file then ends with the last whole frame.
    pub fn put(&mut self, line: &[u8], now: Instant) -> io::Result<()> {
        self.lines.extend_from_slice(line);
        let since = *self.since.get_or_insert(now);
        if self.lines.len() >= FRAME_BYTES || now.saturating_duration_since(since) >= FLUSH {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes lines that have waited for long enough, and begins the next file when it is time. The caller calls this at short
    /// intervals.
    ///
    /// # Errors
    ///
    /// See [`Recorder::put`].
    pub fn tick(&mut self, now: Instant) -> io::Result<()> {
        if self.since.is_some_and(|since| now.saturating_duration_since(since) >= FLUSH) {
            self.flush()?;
        }
        let long = self.limits.bytes.is_some_and(|bytes| self.whole >= bytes);
        let old = self.limits.age.is_some_and(|age| now.saturating_duration_since(self.begun) >= age);
        if long || old {
            self.rotate(now)?;
        }
        Ok(())
    }

    /// Writes the rest, so that the recording outlives a crash of the host.
    ///
    /// # Errors
    ///
    /// See [`Recorder::put`].
    pub fn finish(&mut self) -> io::Result<()> {
        self.flush()?;
        self.file.sync_all()
    }

    /// RF1, RF2
    fn flush(&mut self) -> io::Result<()> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let written = self.write_frame();
        if written.is_err() {
            // The written part of the frame is useless.
            let _ = self.file.set_len(self.whole);
        }
        self.lines.clear();
        self.since = None;
        written
    }

    fn write_frame(&mut self) -> io::Result<()> {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), LEVEL)?;
        encoder.include_checksum(true)?;
        encoder.write_all(&self.lines)?;
        let frame = encoder.finish()?;
        self.file.write_all(&frame)?;
        self.whole += frame.len() as u64;
        Ok(())
    }

    fn rotate(&mut self, now: Instant) -> io::Result<()> {
        self.finish()?;
        let numbered = |number: u32| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        for number in (1..self.limits.keep).rev() {
            match fs::rename(numbered(number), numbered(number + 1)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        match self.limits.keep {
            0 => fs::remove_file(&self.path)?,
            _ => fs::rename(&self.path, numbered(1))?,
        }
        self.file = create(&self.path)?;
        self.begin(now)
    }
}
