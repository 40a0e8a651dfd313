// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The console of a real program: file descriptors, signals, the clock.

use std::env;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGCONT, SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::{flag, low_level};

use crate::console::{Console, Facts, Size, Wake};

/// The most that is written at once after a pipe has said that it takes something: what it then takes without waiting.
/// It is PIPE_BUF of Linux (pipe(7)).
const CHUNK: usize = 4096;

/// Standard output and standard error, signals, and the monotonic clock.
#[derive(Debug, Default)]
pub struct SystemConsole {
    out: Out,
    signals: Option<Signals>,
}

/// Where data goes.
#[derive(Debug, Default)]
enum Out {
    #[default]
    Stdout,
    File(File),
}

impl AsFd for Out {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            // Whoever closed it gets /dev/null from the standard library, so that there always is one.
            Self::Stdout => rustix::stdio::stdout(),
            Self::File(file) => file.as_fd(),
        }
    }
}

impl SystemConsole {
    /// Writes data to this file instead of standard output.
    pub fn with_output(file: File) -> Self {
        Self { out: Out::File(file), signals: None }
    }

    /// Waits until the output takes something, or says that it will not.
    fn wait_for_output(&self) -> io::Result<()> {
        loop {
            let mut fds = vec![PollFd::new(&self.out, PollFlags::OUT)];
            fds.extend(self.signals.iter().map(Signals::poll_fd));
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            // Also where it failed: writing then says why.
            if !fds[0].revents().is_empty() {
                return Ok(());
            }
            if let Some(signals) = &self.signals {
                if signals.stop.load(Ordering::SeqCst) {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                signals.drain();
            }
        }
    }
}

impl Console for SystemConsole {
    fn facts(&self) -> Facts {
        let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        Facts {
            terminal: self.out.as_fd().is_terminal(),
            notes: io::stderr().is_terminal(),
            dumb: set("TERM").is_none_or(|term| term == "dumb"),
            no_color: set("NO_COLOR").is_some(),
        }
    }

    fn size(&self) -> Option<Size> {
        let size = rustix::termios::tcgetwinsize(&self.out).ok()?;
        // A serial line does not know its size, and says 0.
        (size.ws_row > 0 && size.ws_col > 0).then_some(Size { rows: size.ws_row, columns: size.ws_col })
    }

    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        let mut rest = data;
        while !rest.is_empty() {
            // A blocked write could not be ended by a signal, and what is loaded would stay.
            self.wait_for_output()?;
            let chunk = &rest[..rest.len().min(CHUNK)];
            match rustix::io::write(&self.out, chunk) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn note(&mut self, line: &str) {
        // Nobody is left to tell if that fails.
        let _ = writeln!(io::stderr(), "{line}");
    }

    fn catch_signals(&mut self, in_place: bool) -> io::Result<()> {
        self.signals = Some(Signals::catch(in_place)?);
        Ok(())
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wait_until(&mut self, deadline: Instant) -> io::Result<Wake> {
        loop {
            if let Some(wake) = self.signals.as_ref().and_then(Signals::take) {
                return Ok(wake);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Wake::Deadline);
            }
            // Without a flag to wait for, poll still tells of a pipe without a reader and of a terminal that is gone.
            let mut fds = vec![PollFd::new(&self.out, PollFlags::empty())];
            fds.extend(self.signals.iter().map(Signals::poll_fd));
            let timeout = Timespec {
                // Intervals are far below 2^63 s.
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut fds, Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if !fds[0].revents().is_empty() {
                return Ok(Wake::Closed);
            }
            if let Some(signals) = &self.signals {
                signals.drain();
            }
        }
    }

    fn suspend(&mut self) -> io::Result<()> {
        low_level::emulate_default_handler(SIGTSTP)
    }
}

/// Signals as flags, and a pipe that a wait can poll.
#[derive(Debug)]
struct Signals {
    stop: Arc<AtomicBool>,
    suspend: Arc<AtomicBool>,
    resized: Arc<AtomicBool>,
    pipe: UnixStream,
}

impl Signals {
    /// SIGHUP keeps its default, which is what `nohup` relies on; the kernel then frees what was loaded.
    fn catch(in_place: bool) -> io::Result<Self> {
        let (pipe, sender) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        let signals = Self { stop: Arc::default(), suspend: Arc::default(), resized: Arc::default(), pipe };
        let mut wanted = vec![(SIGINT, &signals.stop), (SIGTERM, &signals.stop)];
        if in_place {
            wanted.extend([
                (SIGWINCH, &signals.resized),
                (SIGTSTP, &signals.suspend),
                // Somebody else may have written meanwhile.
                (SIGCONT, &signals.resized),
            ]);
        }
        for (signal, flag) in wanted {
            // The flag comes first: whoever is woken by the pipe must find it set.
            flag::register(signal, Arc::clone(flag))?;
            low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        Ok(signals)
    }

    fn poll_fd(&self) -> PollFd<'_> {
        PollFd::new(&self.pipe, PollFlags::IN)
    }

    /// What happened, the most important first. To stop is not forgotten.
    fn take(&self) -> Option<Wake> {
        if self.stop.load(Ordering::SeqCst) {
            Some(Wake::Stop)
        } else if self.suspend.swap(false, Ordering::SeqCst) {
            Some(Wake::Suspend)
        } else if self.resized.swap(false, Ordering::SeqCst) {
            Some(Wake::Resized)
        } else {
            None
        }
    }

    fn drain(&self) {
        let mut bytes = [0; 64];
        // It does not block, and ends with EAGAIN once it is empty.
        while rustix::io::read(&self.pipe, &mut bytes).is_ok_and(|read| read > 0) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn pipe() -> (File, SystemConsole) {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        (reader.into(), SystemConsole::with_output(writer.into()))
    }

    #[test]
    fn a_wait_ends_when_the_reader_goes_away() {
        let (reader, mut console) = pipe();
        let soon = Instant::now() + Duration::from_millis(20);
        assert_eq!(console.wait_until(soon).unwrap(), Wake::Deadline);
        assert!(Instant::now() >= soon);
        drop(reader);
        let late = Instant::now() + Duration::from_secs(60);
        assert_eq!(console.wait_until(late).unwrap(), Wake::Closed);
        let error = console.write(b"x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn all_is_written_however_slow_the_reader() {
        use std::io::Read;
        let (mut reader, mut console) = pipe();
        let data: Vec<u8> = (0..1_000_000_u32).map(|i| i.to_le_bytes()[1]).collect();
        let expected = data.clone();
        let read = std::thread::spawn(move || {
            let mut read = Vec::new();
            reader.read_to_end(&mut read).map(|_| read)
        });
        console.write(&data).unwrap();
        drop(console);
        assert!(read.join().unwrap().unwrap() == expected);
    }

    #[test]
    fn a_full_disk_is_told() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let error = SystemConsole::with_output(full).write(b"x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
