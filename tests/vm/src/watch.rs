// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The observation of a guest's commands from outside, in the folder that the guest writes to.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The outputs of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// A command that was started.
#[derive(Debug, Clone)]
pub struct Begun {
    /// The index in the list of jobs.
    pub index: usize,
    /// The exit code; `None` if the guest ended before the command.
    pub code: Option<i32>,
    /// The duration, measured on the host.
    pub took: Duration,
    /// The last line of the output: of standard error, or of standard output if that is empty.
    pub last_line: String,
}

/// The observations of a running guest so far.
pub(crate) struct Watch {
    share: PathBuf,
    pub(crate) boot: Option<Duration>,
    pub(crate) begun: Vec<Begun>,
    /// Standard output and standard error of the running command.
    tails: Option<[Tail; 2]>,
    /// The time of the last change: boot, begin or end of a command.
    pub(crate) since: Instant,
}

impl Watch {
    /// Watches the folder `share` of a guest that is about to start.
    pub(crate) fn new(share: PathBuf) -> Self {
        Self { share, boot: None, begun: Vec::new(), tails: None, since: Instant::now() }
    }

    /// Reads new files, and passes on the output of the commands.
    pub(crate) fn look(
        &mut self,
        start: Instant,
        indices: &[usize],
        output: &mut dyn FnMut(usize, Stream, &[u8]),
    ) -> Result<()> {
        if self.boot.is_none() && self.share.join("ready").exists() {
            self.boot = Some(start.elapsed());
            self.since = Instant::now();
        }
        // Several commands may have run between two looks.
        loop {
            if self.tails.is_none() {
                let Some(&index) = indices.get(self.begun.len()) else {
                    return Ok(());
                };
                if !self.file(index, "begin").exists() {
                    return Ok(());
                }
                self.since = Instant::now();
                self.tails = Some([Tail::new(self.file(index, "out")), Tail::new(self.file(index, "err"))]);
                self.begun.push(Begun { index, code: None, took: Duration::ZERO, last_line: String::new() });
            }
            let (Some(tails), Some(current)) = (&mut self.tails, self.begun.last_mut()) else {
                return Ok(());
            };
            // The exit file is read first, so that all output before it is complete.
            let exit = fs::read_to_string(self.share.join(format!("{}.exit", current.index))).ok();
            for (tail, stream) in tails.iter_mut().zip([Stream::Out, Stream::Err]) {
                tail.read(|bytes| output(current.index, stream, bytes))?;
            }
            current.took = self.since.elapsed();
            let [out, err] = &tails;
            current.last_line =
                Some(err.last_line()).filter(|line| !line.is_empty()).unwrap_or_else(|| out.last_line());
            let Some(exit) = exit else { return Ok(()) };
            current.code = exit.trim().parse().ok();
            self.tails = None;
            self.since = Instant::now();
        }
    }

    fn file(&self, index: usize, kind: &str) -> PathBuf {
        self.share.join(format!("{index}.{kind}"))
    }
}

/// A growing file.
struct Tail {
    path: PathBuf,
    offset: u64,
    /// The end of the text so far, long enough for a last line.
    end: Vec<u8>,
}

/// The maximum length of a last line.
const LAST_LINE: usize = 400;

impl Tail {
    fn new(path: PathBuf) -> Self {
        Self { path, offset: 0, end: Vec::new() }
    }

    fn read(&mut self, mut each: impl FnMut(&[u8])) -> Result<()> {
        // The guest creates the file a moment later than the mark.
        let Ok(mut file) = File::open(&self.path) else {
            return Ok(());
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(|| format!("cannot read {}", self.path.display()))?;
        if !bytes.is_empty() {
            self.offset += bytes.len() as u64;
            each(&bytes);
            self.end.extend_from_slice(&bytes[bytes.len().saturating_sub(LAST_LINE)..]);
            self.end.drain(..self.end.len().saturating_sub(LAST_LINE));
        }
        Ok(())
    }

    fn last_line(&self) -> String {
        let text = String::from_utf8_lossy(&self.end);
        text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_reads_on_and_keeps_the_last_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut tail = Tail::new(path.clone());
        let mut seen = Vec::new();
        tail.read(|bytes| seen.extend_from_slice(bytes)).unwrap();
        fs::write(&path, "one\ntw").unwrap();
        tail.read(|bytes| seen.extend_from_slice(bytes)).unwrap();
        fs::write(&path, "one\ntwo\n\n").unwrap();
        tail.read(|bytes| seen.extend_from_slice(bytes)).unwrap();
        assert_eq!(seen, b"one\ntwo\n\n");
        assert_eq!(tail.last_line(), "two");
    }
}
