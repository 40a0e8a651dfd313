// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A console that keeps its output, and whose time passes only in waits.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use topstat::{Backend, Console, Exit, Facts, Size, Wake};

/// A terminal, a pipe, or any other console of a test.
pub struct FakeConsole {
    pub facts: Facts,
    pub size: Option<Size>,
    /// The output, one entry for each write.
    pub writes: Vec<String>,
    pub notes: String,
    /// The number of the first write that fails, from 0, and the error. All writes after it fail, too.
    pub broken: Option<(usize, io::ErrorKind)>,
    /// The results of the next waits. Further waits end with their deadlines.
    pub wakes: VecDeque<Wake>,
    /// The times of waits that ended with their deadlines, since the beginning.
    pub waited: Vec<Duration>,
    /// The duration of each write.
    pub slow: Duration,
    pub suspended: u32,
    /// The size of the terminal from the next [`Wake::Resized`] on.
    pub resized: Option<Size>,
    begin: Instant,
    elapsed: Duration,
}

impl FakeConsole {
    pub fn pipe() -> Self {
        Self {
            facts: Facts::default(),
            size: None,
            writes: vec![],
            notes: String::new(),
            broken: None,
            wakes: VecDeque::new(),
            waited: vec![],
            slow: Duration::ZERO,
            suspended: 0,
            resized: None,
            begin: Instant::now(),
            elapsed: Duration::ZERO,
        }
    }

    pub fn terminal(rows: u16, columns: u16) -> Self {
        Self {
            facts: Facts { terminal: true, notes: true, ..Facts::default() },
            size: Some(Size { rows, columns }),
            ..Self::pipe()
        }
    }

    /// Runs `topstat` with these arguments.
    pub fn run(&mut self, arguments: &str, backend: &mut dyn Backend) -> Exit {
        let line = format!("topstat {arguments}");
        topstat::run(line.split_whitespace().map(Into::into), backend, self)
    }

    /// All output.
    pub fn written(&self) -> String {
        self.writes.concat()
    }
}

impl Console for FakeConsole {
    fn facts(&self) -> Facts {
        self.facts
    }

    fn size(&self) -> Option<Size> {
        self.size
    }

    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        if let Some((at, kind)) = self.broken
            && self.writes.len() >= at
        {
            return Err(kind.into());
        }
        self.writes.push(String::from_utf8(data.to_vec()).unwrap());
        self.elapsed += self.slow;
        Ok(())
    }

    fn write_note(&mut self, line: &str) {
        self.notes += line;
        self.notes.push('\n');
    }

    fn catch_signals(&mut self, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn now(&self) -> Instant {
        self.begin + self.elapsed
    }

    fn wait_for(&mut self, readable: Option<BorrowedFd<'_>>, deadline: Instant) -> io::Result<Wake> {
        assert!(readable.is_none(), "a fake has nothing to read from");
        let wake = self.wakes.pop_front().unwrap_or(Wake::Deadline);
        match wake {
            Wake::Deadline => {
                self.elapsed = self.elapsed.max(deadline.duration_since(self.begin));
                self.waited.push(self.elapsed);
            }
            Wake::Resized => self.size = self.resized.or(self.size),
            _ => {}
        }
        Ok(wake)
    }

    fn suspend(&mut self) -> io::Result<()> {
        self.suspended += 1;
        Ok(())
    }
}
